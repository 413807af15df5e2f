"""Sampling settings, and images from seeds.

A seed gives the same z on every device and in every batch.
"""

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from stylegan import streams
from stylegan.networks import Generator, NetworkConfig, Noise
from stylegan.networks.config import check_labels
from stylegan.networks.edits import Edit, apply_edits
from stylegan.ops import MAX_PSI, at_least_float32, downsample_to, nearest, truncate, without_tf32
from stylegan.schedule import check_resolution, resolutions
from stylegan.utils.validation import NonNegativeInt, Probability, check_number, validate

DEFAULT_PSI = 0.7  # default truncation, as in the official code; a file may store another
DEFAULT_CUTOFF = 8  # default number of truncated layers
MAX_SEED = 2**32 - 1
CHUNK_LATENTS = 4096
AVERAGED = 10_000  # latents for a mean of w
Rectangle = Sequence[int]  # top, bottom, left, right; ends excluded
Cutoff = int | Literal["all"] | None  # as an argument: None keeps the value, "all" sets it to None


def in_the_middle(edges: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """`edges`. Raises ValueError unless padding on opposite sides of a square image is equal."""
    top, bottom, left, right = edges
    if not (top < bottom and left < right and top + bottom == left + right):
        raise ValueError(f"must be (top, bottom, left, right), centered in a square, got {edges}")
    return edges


Psi = Annotated[float, Field(ge=-MAX_PSI, le=MAX_PSI)]
Edges = Annotated[
    tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt, NonNegativeInt],
    AfterValidator(in_the_middle),
]
Resolution = Annotated[int, AfterValidator(check_resolution)]


@dataclass(frozen=True, eq=False)
class SamplingSettings:
    """How to sample a generator: resolution, truncation, edits and the part that is not padding."""

    resolution: int  # of the images
    alpha: float = 1.0  # weight of the synthesis resolution while it fades in
    psi: float = DEFAULT_PSI
    cutoff: int | None = DEFAULT_CUTOFF  # number of truncated layers, None = all
    centers: Tensor | None = None  # (K, w_dim) to truncate toward, None = w_avg
    edits: Sequence[Edit] = ()  # after truncation
    active_rectangle: Rectangle | None = None  # the rest of an image is padding
    # Synthesis resolution. Larger images are averaged to `resolution`, as the ToRGB layers of
    # smaller ones are stale. 0 = `resolution`.
    synthesis_resolution: int = 0

    def __post_init__(self) -> None:
        """Validate the fields. Raises ValueError that names a wrong one."""
        kinds: dict[str, Any] = {
            "resolution": Resolution,
            "alpha": Probability,
            "psi": Psi,
            "cutoff": NonNegativeInt | None,
            "active_rectangle": Edges | None,
            "synthesis_resolution": NonNegativeInt,
        }
        for name, kind in kinds.items():  # `validated` takes no class that holds tensors
            object.__setattr__(self, name, validate(kind, getattr(self, name), name))
        object.__setattr__(
            self, "synthesis_resolution", self.synthesis_resolution or self.resolution
        )
        if self.centers is not None:
            object.__setattr__(self, "centers", checked_rows("centers", self.centers))

    def override(
        self,
        *,
        resolution: int | None = None,
        psi: float | None = None,
        cutoff: Cutoff = None,
        centers: Tensor | Literal["none"] | None = None,
        edits: Sequence[Edit] | None = None,
    ) -> Self:
        """Copy with the given settings; None keeps a setting.

        cutoff "all" truncates every layer, centers "none" toward w_avg. A resolution below the
        synthesis resolution averages images; above it, synthesis runs at that resolution with alpha
        1.
        """
        if isinstance(cutoff, str) and cutoff != "all":
            raise ValueError(f"cutoff must be a number of layers, 'all' or None, got {cutoff!r}")
        size = self.resolution if resolution is None else resolution
        synthesized = max(self.synthesis_resolution, size)
        layers = self.cutoff if cutoff is None else cutoff
        toward = self.centers if centers is None else centers
        return replace(
            self,
            resolution=size,
            synthesis_resolution=synthesized,
            alpha=self.alpha if synthesized == self.synthesis_resolution else 1.0,
            psi=self.psi if psi is None else psi,
            cutoff=None if isinstance(layers, str) else layers,
            centers=None if isinstance(toward, str) else toward,
            edits=self.edits if edits is None else tuple(edits),
        )

    def truncate_and_edit(
        self, ws: Tensor, average: Tensor, psi: Tensor | float | None = None
    ) -> Tensor:
        """Truncate ws (N, num_ws, w_dim) toward `average` or the nearest center, then edit.

        `psi` replaces the field; it is a tensor () where it is an input of an exported program.
        """
        toward = average if self.centers is None else nearest(ws, self.centers)
        ws = truncate(ws, toward, self.psi if psi is None else psi, self.cutoff)
        return apply_edits(ws, self.edits)

    def to_plain(self) -> dict[str, object]:
        """Plain values for a file, without the edits."""
        rectangle = None if self.active_rectangle is None else list(self.active_rectangle)
        fields: dict[str, object] = {
            "resolution": self.synthesis_resolution,
            "alpha": self.alpha,
            "psi": self.psi,
            "cutoff": self.cutoff,
            "active_rectangle": rectangle,
        }
        if self.centers is not None:
            fields["centers"] = self.centers.cpu().double().tolist()
        return fields

    def synthesize(self, generator: Generator, styles: Tensor, noise: Noise) -> Tensor:
        """Synthesize images (N, C, resolution, resolution) from final styles, with padding."""
        size = self.synthesis_resolution
        images: Tensor = generator.synthesis(styles, resolution=size, alpha=self.alpha, noise=noise)
        return images if size == self.resolution else downsample_to(images, self.resolution)


def checked_rows(name: str, values: object, width: int | None = None) -> Tensor:
    """Convert centers or labels to float32 (K, `width`). Raises ValueError for anything else."""
    try:
        check_number(values)
        rows = torch.as_tensor(values).float()
    except (OverflowError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} must be rows of numbers") from error
    if rows.ndim != 2 or not len(rows) or not rows.isfinite().all():
        raise ValueError(f"{name} must be rows of finite numbers, got shape {tuple(rows.shape)}")
    if width is not None and rows.shape[1] != width:
        raise ValueError(f"{name} must be rows of {width} numbers, got {rows.shape[1]}")
    return rows


@contextmanager
def deterministic_fp32() -> Iterator[None]:
    """Context in which a GPU computes in full float32 and with the same bits every time."""
    cudnn = torch.backends.cudnn
    deterministic = cudnn.deterministic
    benchmark = cudnn.benchmark
    cudnn.deterministic = True
    cudnn.benchmark = False
    try:
        with without_tf32():
            yield
    finally:
        cudnn.deterministic = deterministic
        cudnn.benchmark = benchmark


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise ValueError unless the seeds are in NumPy's range."""
    for seed in seeds:
        if not 0 <= operator.index(seed) <= MAX_SEED:
            raise ValueError(f"a seed must be a whole number from 0 to {MAX_SEED}, got {seed}")


def latents(seeds: Sequence[int], z_dim: int) -> Tensor:
    """Latents z of the seeds, float32 (N, z_dim), as NVIDIA's tools draw them."""
    check_seeds(seeds)
    rows = [rng.randn(z_dim) for rng in streams.latent_rngs(seeds)]
    return torch.from_numpy(np.array(rows, np.float32).reshape(-1, z_dim))


@torch.no_grad()
def map_latents(generator: Generator, z: Tensor, labels: Tensor | None = None) -> Tensor:
    """Map z (N, z_dim), labels (N or 1, label_dim) -> w (N, w_dim), in the dtype of w_avg."""
    like = generator.w_avg
    labels = None if labels is None else labels.to(like).expand(len(z), -1)
    return generator.mapping(z.to(like), labels)


def cyclic_one_hot(
    indices: Sequence[int], classes: int, rows: Tensor | None = None
) -> Tensor | None:
    """Labels (N, classes): row i modulo K of `rows`, by default one-hot; None without classes."""
    if not classes:
        return None
    rows = torch.eye(classes) if rows is None else rows
    return rows[[int(i) % len(rows) for i in indices]]


@torch.inference_mode()
def sample_w(generator: Generator, samples: int, label_rows: Tensor | None = None) -> Tensor:
    """Map seeds 0, 1, ... to w (samples, w_dim).

    With labels, the classes alternate, or the rows of `label_rows` (K, label_dim).
    """
    config = generator.config
    rows = []
    for start in range(0, samples, CHUNK_LATENTS):
        seeds = range(start, min(start + CHUNK_LATENTS, samples))
        labels = cyclic_one_hot(seeds, config.label_dim, label_rows)
        rows.append(map_latents(generator, latents(seeds, config.z_dim), labels))
    return torch.cat(rows)


def mean_w(generator: Generator, label_rows: Tensor | None = None) -> Tensor:
    """Mean of `sample_w`, float64 (w_dim,)."""
    # on the CPU, as not every GPU has float64
    return sample_w(generator, AVERAGED, label_rows).cpu().double().mean(dim=0)


def noise_from_seeds(
    seeds: Sequence[int], config: NetworkConfig, resolution: int | None = None
) -> list[Tensor]:
    """Noise maps of the seeds: float32 (N, 1, r, r) for each layer, the same at any resolution."""
    check_seeds(seeds)
    full = config.resolution
    largest = check_resolution(full if resolution is None else resolution, full)
    sides = [r for r in resolutions(largest) for _ in range(2)]
    maps = [np.empty((len(seeds), 1, r, r), np.float32) for r in sides]
    for i, seed in enumerate(seeds):
        stream = streams.image_noise_rng(seed)
        for noise_map in maps:
            noise_map[i, 0] = stream.randn(*noise_map.shape[2:])
    return [torch.from_numpy(noise_map) for noise_map in maps]


def to_uint8(images: Tensor, *, premultiplied: bool = False) -> np.ndarray:
    """Convert images (N, C, H, W) in [-1, 1] to uint8 (N, H, W, C); see `quantize`."""
    pixels: np.ndarray = quantize(images, premultiplied=premultiplied).cpu().numpy()
    return np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))


def quantize(images: Tensor, *, premultiplied: bool = False) -> Tensor:
    """Quantize images (N, C, H, W) to uint8 as in the official code: floor(127.5 x + 128), clamped.

    NaN becomes black. Colors of `premultiplied` images are divided by alpha first.
    """
    images = unpremultiply(images) if premultiplied else images
    numbers = torch.nan_to_num(at_least_float32(images.detach()), nan=-1.0) * 127.5 + 128
    return numbers.floor().clamp(0, 255).to(torch.uint8)


def unpremultiply(images: Tensor) -> Tensor:
    """Divide the colors of premultiplied images (N, 4, H, W) in [-1, 1] by their alpha."""
    alpha = ((images[:, 3:] + 1) / 2).clamp(1 / 255, 1.0)  # two floats: ONNX mixes no types
    return torch.cat([(images[:, :3] + 1) / alpha - 1, images[:, 3:]], dim=1)


def over_checkerboard(images: np.ndarray) -> np.ndarray:
    """Blend images uint8 (..., H, W, 4) over a light checkerboard -> RGB; others are unchanged."""
    if images.shape[-1] != 4:
        return images
    rows, columns = np.indices(images.shape[-3:-1]) // 8
    ground = np.where((rows + columns) % 2, 204, 255)[..., None]
    alpha = images[..., 3:].astype(np.uint16)
    return ((images[..., :3] * alpha + ground * (255 - alpha) + 127) // 255).astype(np.uint8)


def default_batch(resolution: int) -> int:
    """A batch size that needs little memory: 32 up to 128x128, 4 at 1024x1024."""
    return max(1, min(32, 4096 // resolution))


def generate_batches(
    generator: Generator,
    settings: SamplingSettings,
    seeds: Sequence[int],
    *,
    ws: Tensor | None = None,
    labels: Tensor | None = None,
    noise: Noise = "const",
    batch: int | None = None,
) -> Iterator[np.ndarray]:
    """Generate one image per seed, in batches uint8 (n, H, W, C), n <= `batch`, without padding.

    ws: (N, num_ws, w_dim), not truncated, instead of the seeds' own.
    labels: (N or 1, label_dim).
    noise: a mode, or maps (N or 1, 1, r, r); "random" is drawn from each image's seed.

    At batch 1 the bits are always the same; larger batches may differ by one gray level.
    """
    config = generator.config
    like = generator.w_avg  # dtype and device of all inputs
    size = check_resolution(settings.synthesis_resolution, config.resolution)
    check_resolution(settings.resolution, size)
    batch = default_batch(size) if batch is None else batch
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    n = len(seeds)
    if labels is not None and not (isinstance(labels, Tensor) and labels.shape[:1] == (1,)):
        check_labels(labels, config.label_dim, n)
    rows = (n, config.num_ws(), config.w_dim)
    if ws is not None and ws.shape != rows:
        raise ValueError(f"ws must be {rows}, got {tuple(ws.shape)}")

    def rows_of(part: slice, x: Tensor) -> Tensor:
        """This batch's rows of x, or its only row, with the network's dtype and device."""
        return (x[part] if len(x) > 1 else x).to(like)

    for start in range(0, len(seeds), batch):
        part = slice(start, start + batch)
        # The contexts end before `yield`, so the caller is not in inference mode.
        with torch.inference_mode(), deterministic_fp32():
            maps = noise
            if isinstance(noise, str) and noise == "random":
                maps = [m.to(like) for m in noise_from_seeds(seeds[part], config, size)]
            elif not isinstance(noise, str):
                maps = [rows_of(part, m) for m in noise]
            if ws is None:
                z = latents(seeds[part], config.z_dim)
                part_labels = None if labels is None else rows_of(part, labels)
                styles = generator.broadcast(map_latents(generator, z, part_labels))
            else:
                styles = rows_of(part, ws)
            styles = settings.truncate_and_edit(styles, like)
            # The float images get no name, so their memory is free before the next batch.
            pixels = to_uint8(
                settings.synthesize(generator, styles, maps), premultiplied=config.premultiplied
            )
        yield crop_padding(pixels, settings.active_rectangle)


def generate(
    generator: Generator,
    seeds: Sequence[int],
    *,
    psi: float = DEFAULT_PSI,
    cutoff: int | None = DEFAULT_CUTOFF,
    resolution: int | None = None,
    alpha: float = 1.0,
    ws: Tensor | None = None,
    labels: Tensor | None = None,
    noise: Noise = "const",
    batch: int | None = None,
) -> Iterator[np.ndarray]:
    """Generate images as `generate_batches` does, with the settings as arguments."""
    resolution = generator.config.resolution if resolution is None else resolution
    settings = SamplingSettings(resolution, alpha, psi, cutoff)
    return generate_batches(
        generator, settings, seeds, ws=ws, labels=labels, noise=noise, batch=batch
    )


def crop_padding(images: np.ndarray, rectangle: Rectangle | None) -> np.ndarray:
    """Crop padding off images (N, H, W, C) of any resolution; None = there is no padding."""
    if rectangle is None:
        return images
    rows, columns = active_part(rectangle, *images.shape[1:3])
    return images[:, rows, columns]


def active_part(rectangle: Rectangle, height: int, width: int) -> tuple[slice, slice]:
    """Rows and columns of an image that are not all padding; `rectangle` is scaled to its size."""
    top, bottom, left, right = rectangle  # opposite margins are equal: top + bottom is its size
    rows = slice(top * height // (top + bottom), -(-bottom * height // (top + bottom)))
    columns = slice(left * width // (left + right), -(-right * width // (left + right)))
    return rows, columns
