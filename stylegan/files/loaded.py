"""A generator with what its file says about it, and pictures of it."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal, Self, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.edits import Edit, total_move
from stylegan.lineage import Lineage, Source, to_plain
from stylegan.messages import readable, suggestion
from stylegan.networks import Generator, Noise
from stylegan.networks.config import check_alpha
from stylegan.ops import LARGEST_PSI
from stylegan.schedule import check_resolution

if TYPE_CHECKING:
    from stylegan.data import Crop

Cutoff = int | Literal["all"] | None  # argument: None keeps the file's value; "all" sets it to None
LARGEST_COUNT = 2**53  # of images and pixels that a file may name: up to here floats are exact


class Look(TypedDict, total=False):
    """How a generator is shown, see `LoadedGenerator.adjusted`; what is left out is None."""

    psi: float | None
    cutoff: Cutoff
    resolution: int | None
    alpha: float | None
    edits: Sequence[Edit] | None
    centers: Tensor | Literal["none"] | None


class Details(TypedDict, total=False):
    """What a file of weights may say, see `LoadedGenerator`, beside the resolution."""

    psi: float
    cutoff: int | None
    alpha: float
    images_seen: int | None
    label_names: Sequence[str]
    active_rectangle: Sequence[int] | None
    lineage: Lineage
    centers: Tensor | None


@dataclass(frozen=True, eq=False)
class LoadedGenerator:
    """A generator in eval mode with what its file says about it, or whoever made it in memory, and
    the edits of its pictures. An argument of a method that is None keeps the value of the field."""

    generator: Generator
    origin: str  # which file it came from, and of what kind that is
    _: KW_ONLY
    resolution: int  # that training had reached: layers beyond are untrained
    psi: float = sampling.PSI
    cutoff: int | None = sampling.CUTOFF  # layers truncated, None = all
    alpha: float = 1.0  # how far that resolution had grown in
    images_seen: int | None = None  # None: unknown
    label_names: Sequence[str] = ()
    active_rectangle: Sequence[int] | None = None  # top, bottom, left, right; the rest is padding
    lineage: Lineage = ()  # where its weights came from, before this program trained them
    centers: Tensor | None = None  # (K, w_dim) that truncation pulls toward; None: the average
    edits: Sequence[Edit] = ()  # of all its pictures, after truncation; not of a file

    def __post_init__(self) -> None:
        """ValueError names what no file should say."""
        config = self.generator.config
        for name, is_right, expected in (
            ("resolution", is_count(self.resolution), "a whole number"),
            ("cutoff", self.cutoff is None or is_count(self.cutoff), "a whole number or None"),
            (
                "images_seen",
                self.images_seen is None or is_count(self.images_seen),
                "a whole number or None",
            ),
            ("psi", is_finite(self.psi), "a finite number"),
            ("alpha", is_finite(self.alpha), "a finite number"),
            ("label_names", holds_only(str, self.label_names), "texts"),
            ("lineage", holds_only(Source, self.lineage), "sources"),
            (
                "active_rectangle",
                self.active_rectangle is None or is_in_the_middle(self.active_rectangle),
                "top, bottom, left, right of the middle of a square",
            ),
        ):
            if not is_right:
                value = readable(repr(getattr(self, name)))
                raise ValueError(f"{name} must be {expected}, not {value}")
        check_resolution(self.resolution, config.resolution)
        check_alpha(self.alpha)
        if len(self.label_names) not in (0, config.label_dim):
            raise ValueError(
                f"{len(self.label_names)} label_names are given for {config.label_dim} labels"
            )
        if self.centers is not None:
            object.__setattr__(self, "centers", checked_centers(self.centers, config.w_dim))

    @property
    def grown(self) -> int:
        """The resolution that has grown in whole."""
        fades_in = self.alpha < 1 and self.resolution > 4
        return self.resolution // 2 if fades_in else self.resolution

    @property
    def crop(self) -> "Crop":
        """How other images become squares like those that it was trained on."""
        from stylegan.data.images import Fit

        if self.active_rectangle is None:
            return "center"
        return str(Fit.of_rectangle(self.active_rectangle))

    def description(self) -> dict[str, object]:
        """All but the weights, as plain values, for a file."""
        rectangle = self.active_rectangle
        fields: dict[str, object] = {
            "config": dataclasses.asdict(self.generator.config),
            "images_seen": self.images_seen,
            "resolution": self.resolution,
            "alpha": self.alpha,
            "psi": self.psi,
            "cutoff": self.cutoff,
            "label_names": list(self.label_names),
            "active_rectangle": None if rectangle is None else list(rectangle),
            "lineage": to_plain(self.lineage),
        }
        if self.centers is not None:
            fields["centers"] = self.centers.cpu().double().tolist()
        return fields

    def adjusted(
        self,
        *,
        psi: float | None = None,
        cutoff: Cutoff = None,
        resolution: int | None = None,
        alpha: float | None = None,
        edits: Sequence[Edit] | None = None,
        centers: Tensor | Literal["none"] | None = None,
    ) -> Self:
        """The same with another truncation, growth or edits; if the resolution changes, alpha
        becomes 1. An argument None keeps the value of the field. `cutoff` "all" sets the field to
        None, to truncate all layers; `centers` "none" sets the field to None, to truncate toward
        the average."""
        if isinstance(cutoff, str) and cutoff != "all":
            raise ValueError(f"cutoff is a number of layers, 'all' or None, not {cutoff!r}")
        if edits is not None:
            total_move(edits, self.generator.config)  # what does not fit is refused
        size = self.resolution if resolution is None else resolution
        if alpha is None:
            alpha = self.alpha if size == self.resolution else 1.0
        layers = self.cutoff
        if cutoff is not None:
            layers = None if cutoff == "all" else cutoff
        toward = self.centers
        if centers is not None:
            toward = None if isinstance(centers, str) else centers
        return dataclasses.replace(
            self,
            psi=self.psi if psi is None else float(psi),
            cutoff=layers,
            resolution=size,
            alpha=alpha,
            edits=self.edits if edits is None else tuple(edits),
            centers=toward,
        )

    def pictures(
        self,
        seeds: Sequence[int] | None = None,
        *,
        ws: Tensor | None = None,
        labels: Tensor | None = None,
        noise: Noise | None = None,
        batch: int | None = None,
        **look: Unpack[Look],
    ) -> Iterator[np.ndarray]:
        """Pictures uint8 (H, W, C) one by one, without padding: see `sampling.generate`.

        Give `seeds`, or untruncated styles `ws` (N, num_styles, w_dim); then seeds serve random
        noise only. Without `labels` the classes of a network that has any take turns, by the seeds.
        `noise` is "const" by default. Edits move what truncation leaves.
        """
        shown = self.adjusted(**look)
        if seeds is None:
            if ws is None:
                raise ValueError("pictures need seeds or ws")
            seeds = range(len(ws))
        if labels is None and ws is None:
            labels = self.labels_of(seeds)
        chunks = sampling.generate(
            shown.generator,
            seeds,
            psi=shown.psi,
            cutoff=shown.cutoff,
            centers=shown.centers,
            resolution=shown.resolution,
            alpha=shown.alpha,
            labels=labels,
            ws=ws,
            batch=batch,
            noise="const" if noise is None else noise,
            move=total_move(shown.edits, shown.generator.config),
        )
        for chunk in chunks:
            yield from sampling.unpadded(chunk, shown.active_rectangle)

    def picture_size(self) -> tuple[int, int]:
        """Height and width of its pictures, without padding."""
        empty = np.empty((1, self.resolution, self.resolution, 0))
        height, width = sampling.unpadded(empty, self.active_rectangle).shape[1:3]
        return height, width

    @torch.inference_mode()
    def styles(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """z (N, z_dim), labels (N or 1, label_dim) -> ws (N, num_styles, w_dim), not truncated."""
        return self.generator.broadcast(sampling.mapped(self.generator, z, labels))

    def truncated(self, ws: Tensor, **look: Unpack[Look]) -> Tensor:
        """Styles (N, num_styles, w_dim) that are pulled toward the average."""
        average = self.generator.w_avg
        shown = self.adjusted(**look)
        return sampling.truncated(ws.to(average), average, shown.psi, shown.cutoff, shown.centers)

    def labels_of(self, seeds: Sequence[int], class_name: str | None = None) -> Tensor | None:
        """The label of that class for all seeds (1, label_dim). Without one the classes take turns:
        seed modulo label_dim, (N, label_dim). None for a network without labels."""
        if class_name is not None:
            return self.label(class_name)
        return sampling.in_turn(seeds, self.generator.config.label_dim)

    def label(self, class_name: str | None) -> Tensor | None:
        """The label (1, label_dim) of a class by name or number, or of several with weights as in
        `smile=0.7,sad=0.3`; None for a network without labels, which must get no class."""
        count = self.generator.config.label_dim
        names = list(self.label_names)
        if count == 0:
            if class_name is None:
                return None
            raise ValueError(f"class {class_name} was given, but the {self.origin} has no labels")
        if class_name is None:
            known = ", ".join(map(readable, names)) or f"0 to {count - 1}"
            raise ValueError(
                f"a class is needed, as in --class {readable(names[0]) if names else 0}; known: "
                f"{readable(known, 1000)}"
            )
        from stylegan.data.labels import weights

        is_a_mixture = "=" in class_name and class_name not in names
        shares = weights(class_name) if is_a_mixture else {class_name: 1.0}
        label = torch.zeros(1, count)
        for name, share in shares.items():
            label[0, self.class_number(name)] += share
        return label

    def class_number(self, class_name: str) -> int:
        """The place of a class, by its name or number, in a label."""
        count = self.generator.config.label_dim
        names = list(self.label_names)
        if class_name in names:
            return names.index(class_name)
        if class_name.isdecimal() and int(class_name) < count:
            return int(class_name)
        hint = suggestion(class_name, [*map(readable, names)] or [f"0 to {count - 1}"])
        raise ValueError(f"there is no class {class_name!r}{hint}")


def weights_sha256(generator: Generator, of: tuple[str, ...] = ("",)) -> str:
    """Hash of all weights whose names begin so, with their names."""
    digest = hashlib.sha256()
    for name, weight in sorted(generator.state_dict().items()):
        if name.startswith(of):
            digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
            digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def hashes(generator: Generator) -> dict[str, str]:
    """SHA-256 of the weights, and of those that turn z into w, for a file of directions."""
    digests = {"generator_sha256": weights_sha256(generator)}
    if any(True for _ in generator.mapping.parameters()):
        digests["mapping_sha256"] = weights_sha256(generator, ("mapping.", "w_avg"))
    return digests


def fits(entries: Mapping[str, object], generator: Generator) -> bool:
    """Whether a file with these hashes is of the same mapping network, so that w mean the same."""
    return any(entries.get(name) == digest for name, digest in hashes(generator).items())


def is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def is_finite(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= LARGEST_PSI


def holds_only(kind: type, values: object) -> bool:
    """Whether these are a list or tuple of things of that kind."""
    return isinstance(values, list | tuple) and all(isinstance(value, kind) for value in values)


def checked_centers(centers: object, w_dim: int) -> Tensor:
    """Centers (K, w_dim), K from 1, as float32. ValueError for what no file should say."""
    try:
        rows = torch.as_tensor(centers).float()
    except (OverflowError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError("centers must be rows of numbers") from error
    if rows.ndim != 2 or not len(rows) or rows.shape[1] != w_dim or not rows.isfinite().all():
        raise ValueError(f"centers must be rows of {w_dim} finite numbers, not {tuple(rows.shape)}")
    return rows


def is_in_the_middle(edges: object) -> bool:
    """Whether these are edges in a square picture with the same padding on opposite sides."""
    if not isinstance(edges, list | tuple) or len(edges) != 4 or not all(map(is_count, edges)):
        return False
    top, bottom, left, right = edges
    return 0 <= top < bottom and 0 <= left < right and top + bottom == left + right
