"""`stylegan project`: the latents that a generator would make given pictures of."""

import dataclasses
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from stylegan.cli.common import Command, count, progress_bar, use_device
from stylegan.cli.looking import CLASS, DEVICE, SOURCE
from stylegan.destination import check_file, check_folder

if TYPE_CHECKING:
    from torch import Tensor

    from stylegan.data import Crop
    from stylegan.files.loading import LoadedGenerator
    from stylegan.projection import Distance, Record, Settings, Space
    from stylegan.sampling import Rectangle

LATENTS, OVERVIEW = "latents.npz", "projections.png"  # of all images, if there are several
PAIRS = 4  # of target and result in a row of the overview
LONGEST_LABEL = 16  # characters


@click.command(cls=Command)
@SOURCE
@click.argument(
    "images", metavar="IMAGE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--space",
    type=click.Choice(["w", "w+"]),
    default="w",
    show_default=True,
    help="One w for all layers, or one for each: nearer, but less like what it generates.",
)
@click.option(
    "--noise/--no-noise",
    default=False,
    show_default=True,
    help="Fit maps of noise, too; else the stored ones are used.",
)
@click.option(
    "--steps", type=click.IntRange(min=1), default=1000, show_default=True, help="Of the search."
)
@click.option(
    "--search-noise",
    type=click.FloatRange(min=0),
    default=0.05,
    show_default=True,
    help="On w at first, in units of its spread; 0 is more exact where it goes well.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0, max=2**63 - 1),
    default=0,
    show_default=True,
    help="Of all that is random.",
)
@click.option(
    "--distance",
    "distance_name",
    type=click.Choice(["auto", "lpips", "pixels"]),
    default="auto",
    show_default=True,
    help="LPIPS, or squared differences of pixels at every scale; auto: LPIPS if its weights are "
    "on this machine.",
)
@click.option(
    "--weights", type=click.Path(path_type=Path), help="VGG16 for LPIPS: its file, or its folder."
)
@click.option(
    "--crop",
    type=click.Choice(["center", "pad"]),
    help="Square, or padded 4:3.  [default: as the generator was trained]",
)
@CLASS
@click.option(
    "--video",
    type=click.Choice(["mp4", "webp", "gif", "none"]),
    help="Of the search.  [default: mp4 with PyAV, else webp]",
)
@click.option("--batch", type=click.IntRange(min=1), help="Images at once; fewer need less memory.")
@DEVICE
@click.option("--out", type=click.Path(path_type=Path), default="projected", show_default=True)
@click.option("--overwrite", is_flag=True, help="Replace files of an earlier projection.")
def project(
    source: str,
    images: tuple[Path, ...],
    space: "Space",
    noise: bool,
    steps: int,
    search_noise: float,
    seed: int,
    distance_name: Literal["auto", "lpips", "pixels"],
    weights: Path | None,
    crop: "Crop | None",
    class_name: str | None,
    video: Literal["mp4", "webp", "gif", "none"] | None,
    batch: int | None,
    device: str,
    out: Path,
    overwrite: bool,
) -> None:
    """Find the latents that the generator of SOURCE makes IMAGE... of, as nearly as it can.

    OUT/<name of an image>/ gets latents.npz, target.png (what was searched), projection.png (what
    was found), a film of the search, log.jsonl and result.json. Of several images OUT/latents.npz
    has all latents, for --latents of generate, figure and video; OUT/projections.png shows them.

    \b
    stylegan project emoji32 smile.png --out projected
    stylegan project runs/mine photos/*.jpg --space w+ --noise --out projected
    stylegan generate emoji32 --latents projected/latents.npz --out again
    """
    import torch

    from stylegan.files.loading import load_source
    from stylegan.projection import (
        Settings,
        check_noise,
        choose_distance,
        read_target,
        write_record,
    )

    settings = Settings(steps=steps, space=space, fit_noise=noise, search_noise=search_noise)
    film = film_name(video)
    folders = folders_of(images, out)
    check_free(out, folders, film, overwrite=overwrite)
    loaded = load_source(source, map_location=use_device(device))
    check_noise(settings, loaded.generator.config)
    labels = loaded.label(class_name)
    crop = crop or ("center" if loaded.active_rectangle is None else "pad")
    channels, size = loaded.generator.config.image_channels, loaded.resolution
    distance, why = choose_distance(
        distance_name,
        resolution=size,
        channels=channels,
        weights=weights,
        device=loaded.generator.w_avg.device,
    )
    targets = torch.cat(
        [read_target(path, resolution=size, channels=channels, crop=crop) for path in images]
    )
    search = Search(
        loaded,
        distance,
        settings,
        labels,
        seed,
        loaded.active_rectangle if crop == "pad" else None,
    )
    about = search.about() | {"class": class_name, "crop": crop}
    click.echo("distance: {name}, {what}; {why}".format(**distance.about(), why=why))
    records: list[Record] = []
    for chunk in search.records(targets, batch or default_batch(size)):
        for record in chunk:
            folder, path = folders[len(records)], images[len(records)]
            write_record(folder, record, search.settings, {"image": str(path), **about}, film)
            click.echo(
                f"{path}: distance {record.distances[-1]:.4g}, PSNR {record.decibels:.1f} dB"
            )
            records.append(record)
    if len(records) > 1:
        write_all(out, [folder.name for folder in folders], records)
    click.echo(f"{count(len(records), 'projection')} in {out}, of the {loaded.origin}")


@dataclasses.dataclass(frozen=True, eq=False)
class Search:
    """What is the same for all images."""

    loaded: "LoadedGenerator"
    distance: "Distance"
    settings: "Settings"
    labels: "Tensor | None"
    seed: int
    rectangle: "Rectangle | None"

    def records(self, targets: "Tensor", batch: int) -> "Iterator[list[Record]]":
        """Those of `targets`, `batch` at a time, with a bar of the steps of each batch."""
        import torch

        from stylegan.projection import project as states_of
        from stylegan.projection import recorded

        loaded = self.loaded
        for some in targets.split(batch):
            states = states_of(
                loaded.generator,
                some,
                self.distance,
                self.settings,
                labels=self.labels,
                resolution=loaded.resolution,
                alpha=loaded.alpha,
                seed=self.seed,
            )
            try:
                with progress_bar("step") as progress:
                    chunk = recorded(
                        states,
                        some,
                        self.settings.steps,
                        rectangle=self.rectangle,
                        progress=progress,
                    )
            except torch.OutOfMemoryError as error:
                raise ValueError(
                    f"a search for {count(len(some), 'image')} of {loaded.resolution}x"
                    f"{loaded.resolution} at once does not fit into the memory of the device; "
                    "choose a smaller --batch, or --device cpu"
                ) from error
            yield chunk

    def about(self) -> dict[str, Any]:
        """What a result must say of it."""
        return {
            "generator": self.loaded.origin,
            "images_seen": self.loaded.images_seen,
            "seed": self.seed,
            "settings": dataclasses.asdict(self.settings),
            "distance": self.distance.about(),
        }


def default_batch(resolution: int) -> int:
    """Images at once whose gradients fit into little memory: 8 up to 64x64, 1 from 512x512 on."""
    return max(1, min(8, 512 // resolution))


def film_name(video: Literal["mp4", "webp", "gif", "none"] | None) -> str | None:
    """The file of each search's film; ValueError if it cannot be written here."""
    from stylegan.projection.record import FPS
    from stylegan.video import check_video

    if video == "none":
        return None
    ending = video or ("mp4" if importlib.util.find_spec("av") else "webp")
    name = f"progress.{ending}"
    check_video(Path(name), FPS)
    return name


def folders_of(images: Sequence[Path], out: Path) -> list[Path]:
    """A folder for each image, by its name without the ending; ValueError if two are the same."""
    folders: dict[Path, Path] = {}
    for path in images:
        folder = out / path.stem
        if folder in folders:
            raise ValueError(
                f"{folders[folder]} and {path} would both be written to {folder}; rename one, or "
                "project it with another --out"
            )
        folders[folder] = path
    return list(folders)


def check_free(out: Path, folders: Sequence[Path], film: str | None, *, overwrite: bool) -> None:
    """ValueError if something would be replaced, unless that is wanted, or a file is in the way."""
    from stylegan.projection import file_names

    for folder in (out, *folders):
        check_folder(folder)
    of_all = [out / LATENTS, out / OVERVIEW] if len(folders) > 1 else []
    files = [*of_all, *(folder / name for folder in folders for name in file_names(film))]
    for path in files:
        check_file(path, overwrite=overwrite)


def write_all(out: Path, names: Sequence[str], records: "Sequence[Record]") -> None:
    """The latents of all images in one file, and each target beside what was found."""
    import torch

    from stylegan.atomic import replacing
    from stylegan.figures import grid
    from stylegan.files.latents import write_latents

    maps = [record.noise for record in records if record.noise is not None]
    noise = [torch.cat(of_layer) for of_layer in zip(*maps, strict=True)] or None
    write_latents(out / LATENTS, torch.cat([record.ws for record in records]), noise)
    pictures, labels = [], []
    for name, record in zip(names, records, strict=True):
        pictures += [record.target, record.picture]
        labels += [shortened(name), f"{record.decibels:.1f} dB"]
    with replacing(out / OVERVIEW) as file:
        grid(pictures, 2 * min(PAIRS, len(records)), labels).save(file, format="PNG")


def shortened(name: str) -> str:
    """A name that can be read under a small picture."""
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 3]}..."
