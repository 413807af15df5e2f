"""`stylegan project`: the latents that a generator would make given pictures of."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from stylegan.cli import values
from stylegan.cli.common import Command, fitting_memory, one_line, progress_bar, use_device
from stylegan.cli.options import (
    BATCH,
    CLASS,
    DEVICE,
    EDIT,
    OVERWRITE,
    SOURCE,
    WEIGHTS,
    count_option,
    edits_of,
    path_option,
)
from stylegan.cli.terminal import note, say
from stylegan.messages import count, listed, readable

if TYPE_CHECKING:
    from stylegan.data import Crop
    from stylegan.files.loaded import LoadedGenerator
    from stylegan.projection import Distance, Space

DistanceName = Literal["auto", "lpips", "eff", "pixels"]


@click.command(cls=Command)
@SOURCE
@click.argument("images", metavar="IMAGE...", nargs=-1, required=True, type=values.INPUT)
@click.option(
    "--space",
    type=click.Choice(["w", "w+"]),
    default="w",
    help="Latent space: one w for all layers, or one for each, which comes nearer but is less like "
    "what the network generates.",
)
@click.option("--noise/--no-noise", default=False, help="Fit maps of noise to the picture, too.")
@count_option("--steps", "Number of search steps.", 1000)
@count_option("--starts", "Number of starts of the search; the nearest result is kept.", 1)
@click.option(
    "--search-noise",
    type=values.real_number(0),
    default=0.05,
    help="Noise on w at first, in units of its spread; 0 is more exact where it goes well.",
)
@click.option(
    "--seed",
    type=values.SEED,
    default=0,
    help="Seed of everything random.",
)
@click.option(
    "--distance",
    "distance_name",
    type=click.Choice(["auto", "lpips", "eff", "pixels"]),
    default="auto",
    help="LPIPS, features of EfficientNet, or squared differences of pixels at every scale; auto: "
    "LPIPS if its weights are on this machine, else pixels.",
)
@WEIGHTS
@EDIT
@click.option(
    "--tune",
    is_flag=True,
    help="Then train a copy of the generator until it makes these pictures of the latents found "
    "(pivotal tuning), and write it to OUT/tuned.pt.",
)
@count_option("--tune-steps", "Number of steps of --tune.  [default: 350]")
@click.option(
    "--locality",
    type=values.real_number(0),
    help="Weight of what keeps other pictures of the tuned generator as they were.  [default: 0.1]",
)
@click.option(
    "--crop",
    type=click.Choice(["center", "pad", "stretch"]),
    help="Middle square, middle of the shape of the generator's pictures (else 4:3) with bars, or "
    "all, squeezed.  [default: as in training]",
)
@CLASS
@click.option(
    "--video",
    type=click.Choice(["mp4", "webp", "gif", "none"]),
    help="Format of the film of the search.  [default: mp4 with PyAV, else webp]",
)
@BATCH
@DEVICE
@path_option("--out", "Folder to write to.", "projected")
@OVERWRITE
def project(
    source: str,
    images: tuple[Path, ...],
    space: "Space",
    noise: bool,
    steps: int,
    starts: int,
    search_noise: float,
    seed: int,
    distance_name: DistanceName,
    weights: Path | None,
    edits: tuple[str, ...],
    tune: bool,
    tune_steps: int | None,
    locality: float | None,
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
    With --edit there is edited.png, what was found after the edit; latents are those before it.
    With --tune there are OUT/tuned.pt, a generator like any other that makes the pictures of the
    same latents, OUT/tuned.png with all beside each other, and OUT/tuned.json with the numbers.
    Images that cannot be read are left out, and named at the end; the exit code is then 1.

    \b
    stylegan project emoji32 smile.png --out projected
    stylegan project runs/mine photos/*.jpg --space w+ --noise --out projected
    stylegan generate emoji32 --latents projected/latents.npz --out again
    stylegan project runs/mine me.jpg --tune --edit pca:1=+2 --out tuned
    """
    from stylegan import projection
    from stylegan.blending import Parent

    settings = {"steps": tune_steps, "locality": locality}
    given = {name: value for name, value in settings.items() if value is not None}
    if given and not tune:
        raise click.UsageError("--tune-steps and --locality are of --tune, which is not given")
    tuning = projection.TuningOptions(**given)  # type: ignore[arg-type]
    options = projection.SearchOptions(
        steps=steps, space=space, fit_noise=noise, search_noise=search_noise
    )
    film = projection.film_name(video)
    kinds = {"edited": bool(edits), "tuned": tune}
    outdated = projection.check_free(images, out, film, overwrite=overwrite, **kinds)
    parent = Parent.of(source, use_device(device))
    loaded = parent.loaded.adjusted(edits=edits_of(source, parent.loaded, edits))
    loaded.label(class_name)  # what is wrong is found before the weights of a distance are loaded
    projection.check_noise(options, loaded.generator.config)
    distance = chosen_distance(loaded, distance_name, weights)
    batch = batch or projection.default_batch(loaded.resolution)
    common: dict[str, Any] = {"crop": crop, "class_name": class_name, "seed": seed}
    common |= {"batch": batch, "tell": say}
    left_out: list[str] = []
    with fitting_memory(batch, loaded.resolution):
        with progress_bar("step") as progress:
            found = projection.project_files(
                loaded,
                images,
                out,
                distance,
                options,
                film=film,
                starts=starts,
                progress=progress,
                left_out=lambda error: left_out.append(one_line(error)),
                **common,
            )
        if found:
            say(f"{count(len(found), 'projection')} in {out}, of the {loaded.origin}")
        if found and outdated:
            names = listed([readable(path) for path in outdated], 20)
            note(f"of earlier projections, not of these: {names}")
        if found and tune:
            common["lineage"] = parent.history()
            with progress_bar("step") as progress:
                projection.tune_files(
                    loaded, found, out, distance, tuning, progress=progress, **common
                )
            say(f"{out / 'tuned.pt'}: the generator tuned to {count(len(found), 'picture')}")
    if left_out:
        raise ValueError(f"{count(len(left_out), 'image')} left out: {listed(left_out, 20)}")


def chosen_distance(
    loaded: "LoadedGenerator", name: DistanceName, weights: Path | None
) -> "Distance":
    """The distance of that name, with what is printed about the choice."""
    from stylegan.projection import choose_distance

    distance, why = choose_distance(
        name,
        resolution=loaded.resolution,
        channels=loaded.generator.config.image_channels,
        weights=weights,
        device=loaded.generator.w_avg.device,
    )
    say("distance: {name}, {what}; {why}".format(**distance.about(), why=why))
    return distance
