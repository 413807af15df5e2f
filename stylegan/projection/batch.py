"""Project image files, tune a generator to them, and write the results."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from stylegan import sampling
from stylegan.data.images import Crop, Fit, decode, premultiply, quiet_decoding, to_chw
from stylegan.figures import save_image
from stylegan.files.formats.native import save_loaded
from stylegan.files.latents import read_latents, write_latents
from stylegan.networks import Generator
from stylegan.projection.distance import Distance, psnr
from stylegan.projection.search import SearchOptions, SearchState, project
from stylegan.projection.tuning import TuningOptions, tune
from stylegan.sampling import Rectangle
from stylegan.sampling.pretrained import Pretrained, weights_sha256
from stylegan.utils.console import SILENT, Console
from stylegan.utils.filesystem import (
    ALLOW_OVERWRITE,
    KEEP_EXISTING,
    OutputWriter,
    as_value_error,
    atomic_folder,
    attach_filename,
    output_stem,
)
from stylegan.utils.lineage import sha256_of
from stylegan.utils.text import join_truncated, pluralize

LATENTS = "latents.npz"
TARGET = "target.png"
PICTURE = "projection.png"
RESULT = "result.json"
TUNED = "tuned.pt"
TUNED_PICTURE = "tuned.png"
FAR_DB = 20.0  # PSNR of a poor projection; docs/projection.md has typical values


def read_target(
    image: Path | bytes,
    *,
    resolution: int,
    channels: int,
    premultiplied: bool = False,
    crop: Crop = "center",
    name: str = "image",
) -> Tensor:
    """Read an image file, or its content, as (1, channels, resolution, resolution) in [-1, 1].

    It is read and cropped like training data, except that smaller images are upsampled. Raises
    ValueError or FileNotFoundError with its path, or else `name`, if it cannot be read.
    """
    if isinstance(image, Path):
        if not image.is_file():
            raise FileNotFoundError(f"there is no image file {image}")
        name = str(image)
        with attach_filename(image):
            image = image.read_bytes()
    with quiet_decoding():
        decoded = decode(image, channels=channels, name=name)
        pixels = to_chw(Fit.parse(crop).square(decoded, resolution))
        pixels = premultiply(pixels) if premultiplied else pixels
    return torch.from_numpy(pixels.copy()).float()[None] / 127.5 - 1


def default_batch(resolution: int) -> int:
    """A batch size whose gradients need little memory: 8 up to 64x64, 1 from 512x512 on."""
    return max(1, min(8, 512 // resolution))


def outputs_of(images: Sequence[Path], out: Path) -> list[Path]:
    """Files that `project_files` may write for these images, or remove if of an older tuning."""
    of_each = [LATENTS, TARGET, PICTURE, RESULT, TUNED_PICTURE]
    folders = [out / output_stem(image) for image in images]
    return [out / LATENTS, out / TUNED] + [path / file for path in folders for file in of_each]


class Projection(NamedTuple):
    """The best result of all starts of the search for one image."""

    ws: Tensor  # (1, num_ws, w_dim), not truncated
    noise: list[Tensor] | None  # fitted maps (1, 1, r, r), None = the stored ones
    image: Tensor  # (1, C, r, r)
    distances: list[float]  # final distance from each start


@dataclass(frozen=True)
class ProjectionRequest:
    """How to project, the same for all images of a command."""

    loaded: Pretrained
    distance: Distance
    search: SearchOptions
    tuning: TuningOptions | None = None
    crop: Crop | None = None  # None = as in training
    class_name: str | None = None
    seed: int = 0
    batch: int = 1
    starts: int = 1
    outputs: OutputWriter = KEEP_EXISTING

    @property
    def label(self) -> Tensor | None:
        return self.loaded.label(self.class_name)

    @property
    def square(self) -> Crop:
        """The crop of an image to a square; "pad" uses the aspect of padded training data."""
        if self.crop is None or (
            self.crop == "pad" and self.loaded.settings.active_rectangle is not None
        ):
            return self.loaded.crop
        return self.crop

    @property
    def rectangle(self) -> Rectangle | None:
        """The part of the images that is not padding."""
        return self.loaded.settings.active_rectangle if self.square.startswith("pad") else None

    def read(self, image: Path) -> Tensor:
        """Read an image file (1, C, r, r) in the form of the generator's images."""
        config = self.loaded.generator.config
        return read_target(
            image,
            resolution=self.loaded.settings.synthesis_resolution,
            channels=config.image_channels,
            premultiplied=config.premultiplied,
            crop=self.square,
        )

    def described(self, image: Path) -> dict[str, object]:
        """Everything that the projection of an image depends on, for its result file."""
        return {
            "image_sha256": sha256_of(image),
            "generator": self.loaded.origin,
            "generator_sha256": weights_sha256(self.loaded.generator),
            "images_seen": self.loaded.images_seen,
            "seed": self.seed,
            "settings": {**dataclasses.asdict(self.search), "starts": self.starts},
            "distance": self.distance.about(),
            "class": self.class_name,
            "crop": self.square,
        }


def project_files(
    request: ProjectionRequest, images: Sequence[Path], out: Path, *, console: Console = SILENT
) -> tuple[int, list[Exception]]:
    """Project images; write a folder for each below `out`, and the latents of all to `out`.

    With tuning, then tune the generator to all of them, and write it. Results of an earlier call
    are kept, unless `outputs` overwrites. Steps and a line for each image are reported.

    Returns the number of projections, and the errors of images that cannot be read.
    """
    request.outputs.check(*outputs_of(images, out), sources=images, exist_ok=True)
    request.outputs.check(out / TUNED)
    targets: dict[Path, Tensor] = {}
    errors: list[Exception] = []
    for path in images:
        try:
            targets[path] = request.read(path)
        except (ValueError, OSError) as error:
            errors.append(error)
    if not targets:
        return 0, errors
    new = [path for path in targets if not is_done(request, path, out / output_stem(path))]
    # Latents of all may replace those of some of them: the folder of each image has its own.
    names = {output_stem(path) for path in targets}
    is_added = 0 < len(new) < len(targets) and names.issuperset(
        file.parent.name for file in out.glob(f"*/{RESULT}")
    )
    outputs = ALLOW_OVERWRITE if is_added else request.outputs
    if new:
        outputs.check(out / LATENTS)  # that of other images would be lost
    search_steps = len(new) * request.starts * request.search.steps
    total = search_steps + (request.tuning.steps if request.tuning else 0)

    def progress(done: int) -> None:
        console.progress("", done, total)

    if len(new) < len(targets):
        console.info(f"kept in {out}: {pluralize(len(targets) - len(new), 'projection')}")
    nearness: list[float] = []  # PSNR
    results = nearest_of_starts(request, [targets[path] for path in new], progress)
    for path, projection in zip(new, results, strict=True):
        near = write_projection(request, path, targets[path], projection, out / output_stem(path))
        nearness.append(near)
        console.info(f"{path}: distance {min(projection.distances):.4g}, PSNR {near:.1f} dB")
    network = request.loaded.generator
    found = [read_latents(out / output_stem(path) / LATENTS, network) for path in targets]
    ws = torch.cat([latents.ws for latents in found]).to(network.w_avg)
    maps = zip(*(latents.noise for latents in found if latents.noise), strict=True)
    noise = [torch.cat(of_layer).to(ws) for of_layer in maps] or None
    write_latents(out / LATENTS, ws, noise, outputs=outputs)
    if request.outputs.overwrite:
        (out / TUNED).unlink(missing_ok=True)  # of the latents before
    if request.tuning is not None:
        loaded = request.loaded
        for state in tune(
            loaded.generator,
            torch.cat(list(targets.values())),
            ws,
            request.distance,
            request.tuning,
            noise=noise,
            labels=request.label,
            resolution=loaded.settings.synthesis_resolution,
            alpha=loaded.settings.alpha,
            batch=request.batch,
            seed=request.seed,
        ):
            progress(search_steps + state.step)
        write_tuned(request, state.generator.eval(), targets, ws, noise, out, console)
    elif nearness and min(nearness) < FAR_DB and request.search.space == "w":
        console.info(f"below {FAR_DB:g} dB an image differs visibly; try --space w+ --tune")
    return len(targets), errors


def is_done(request: ProjectionRequest, path: Path, folder: Path) -> bool:
    """Whether an earlier call has projected the image to `folder`.

    Raises ValueError if it was another request, or if the folder holds other files.
    """
    file = folder / RESULT
    if request.outputs.overwrite:
        return False
    if not file.is_file():
        if folder.is_dir() and any(folder.iterdir()):
            raise ValueError(
                f"{folder} has files but no {RESULT}; pass --overwrite, or choose another --out"
            )
        return False
    texts = [json.dumps(request.described(path)), file.read_text("utf-8", "surrogateescape")]
    with as_value_error(file, "is damaged", "pass --overwrite"):
        asked, done = ({**values, **values["settings"]} for values in map(json.loads, texts))
    asked.pop("settings")  # compared one by one
    asked.pop("generator")  # a path; its hash is compared
    if other := [name for name, value in asked.items() if done.get(name) != value]:
        raise ValueError(
            f"{file} exists, with another {join_truncated(other, 3, ', ')}; pass --overwrite, or "
            "choose another --out"
        )
    return True


def nearest_of_starts(
    request: ProjectionRequest, targets: Sequence[Tensor], progress: Callable[[int], None]
) -> Iterator[Projection]:
    """Project each target (1, C, r, r), and yield the best result of all starts."""
    done = 0
    for first in range(0, len(targets), request.batch):
        batch = torch.cat(list(targets[first : first + request.batch]))
        ends: list[SearchState] = []  # the last state from each start
        for start in range(request.starts):
            for state in project(
                request.loaded.generator,
                batch,
                request.distance,
                request.search,
                labels=request.label,
                resolution=request.loaded.settings.synthesis_resolution,
                alpha=request.loaded.settings.alpha,
                seed=request.seed,
                start=start,
            ):
                progress(done + len(batch) * state.step)
            ends.append(state)
            done += len(batch) * request.search.steps
        for i in range(len(batch)):
            row = slice(i, i + 1)
            distances = [float(end.distances[i]) for end in ends]
            best = ends[distances.index(min(distances))]
            noise = best.noise and [noise_map[row] for noise_map in best.noise]
            yield Projection(best.ws[row], noise, best.images[row], distances)


def write_projection(
    request: ProjectionRequest, path: Path, target: Tensor, projection: Projection, folder: Path
) -> float:
    """Write the files of one image, except that of tuning. Returns its PSNR in dB."""
    near = float(psnr(projection.image, target.to(projection.image), request.rectangle))
    result = {
        "image": str(path),
        **request.described(path),
        "final_distance": min(projection.distances),
        "psnr_db": near,
    }
    if request.starts > 1:
        result["starts"] = projection.distances
    text = json.dumps(result, indent=2, allow_nan=False) + "\n"
    replaces = request.outputs.overwrite and folder.is_dir()
    if replaces:
        for file in (RESULT, TUNED_PICTURE):  # of the latents before
            (folder / file).unlink(missing_ok=True)
    with nullcontext(folder) if replaces else atomic_folder(folder) as place:
        write_latents(place / LATENTS, projection.ws, projection.noise, outputs=request.outputs)
        write_image(request, place / TARGET, target)
        write_image(request, place / PICTURE, projection.image)
        request.outputs.text(place / RESULT, text)  # the last one: it marks a complete folder
    return near


def write_image(request: ProjectionRequest, path: Path, image: Tensor) -> None:
    """Write an image (1, C, r, r) without its padding."""
    premultiplied = request.loaded.generator.config.premultiplied
    pixels = sampling.crop_padding(
        sampling.to_uint8(image, premultiplied=premultiplied), request.rectangle
    )
    save_image(path, sampling.to_pil(pixels[0]), outputs=request.outputs)


def write_tuned(
    request: ProjectionRequest,
    generator: Generator,
    targets: Mapping[Path, Tensor],
    ws: Tensor,
    noise: Sequence[Tensor] | None,
    out: Path,
    console: Console,
) -> None:
    """Write a tuned generator, and its image of each target's latents."""
    loaded = request.loaded
    # `project_files` has refused an existing tuned.pt, so an older image belongs to none.
    replacing = dataclasses.replace(request, outputs=ALLOW_OVERWRITE)
    for i, (path, target) in enumerate(targets.items()):
        row = slice(i, i + 1)
        maps = [noise_map[row] for noise_map in noise or ()]
        with torch.no_grad(), sampling.deterministic_fp32():
            image = loaded.settings.synthesize(generator, ws[row], maps or "const")
        write_image(replacing, out / output_stem(path) / TUNED_PICTURE, image)
        near = float(psnr(image, target.to(image), request.rectangle))
        console.info(f"{path}: PSNR {near:.1f} dB after tuning")
    origin = f"{loaded.origin}, tuned to {pluralize(len(targets), 'image')}"
    tuned = loaded.replace(generator=generator, origin=origin)
    save_loaded(out / TUNED, tuned, outputs=request.outputs)
