"""What a file of weights holds: networks, a generator with what its file says, pictures of it."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.edits import Edit, total_move
from stylegan.lineage import Lineage, Source, to_plain
from stylegan.messages import readable, suggestion
from stylegan.networks import Discriminator, Generator, Noise
from stylegan.networks.config import check_alpha
from stylegan.ops import LARGEST_PSI
from stylegan.schedule import check_resolution

if TYPE_CHECKING:
    from stylegan.data import Crop

Cutoff = int | Literal["all"] | None  # an argument: None is what the file says, "all" not None


@dataclass(frozen=True, eq=False)
class LoadedGenerator:
    """A generator in eval mode with what its file says about it, and the edits of its pictures. An
    argument of a method that is None takes the file's value."""

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
        config, names = self.generator.config, self.label_names
        cutoff, seen, edges = self.cutoff, self.images_seen, self.active_rectangle
        middle = edges is None or in_the_middle(edges)

        def whole(value: Any) -> bool:
            return type(value) is int and value >= 0

        def finite(value: Any) -> bool:
            return isinstance(value, int | float) and abs(value) <= LARGEST_PSI

        for name, right, what in (
            ("resolution", whole(self.resolution), "a whole number"),
            ("cutoff", cutoff is None or whole(cutoff), "a whole number or None"),
            ("images_seen", seen is None or whole(seen), "a whole number or None"),
            ("psi", finite(self.psi), "a finite number"),
            ("alpha", finite(self.alpha), "a finite number"),
            ("label_names", all(isinstance(name, str) for name in names), "texts"),
            ("lineage", all(isinstance(source, Source) for source in self.lineage), "sources"),
            ("active_rectangle", middle, "top, bottom, left, right of the middle of a square"),
        ):
            if not right:
                given = readable(repr(getattr(self, name)))
                raise ValueError(f"{name} must be {what}, not {given}")
        check_resolution(self.resolution, config.resolution)
        check_alpha(self.alpha)
        if len(names) not in (0, config.label_dim):
            raise ValueError(f"{len(names)} label_names are given for {config.label_dim} labels")
        if self.centers is not None:
            object.__setattr__(self, "centers", checked_centers(self.centers, config.w_dim))

    @property
    def crop(self) -> "Crop":
        """How other images become squares like those that it was trained on."""
        from stylegan.data.images import Fit

        if self.active_rectangle is None:
            return "center"
        top, bottom, left, right = self.active_rectangle
        return str(Fit.of(f"pad {right - left}:{bottom - top}"))

    def description(self) -> dict[str, Any]:
        """All but the weights, as plain values, for a file."""
        rectangle, centers = self.active_rectangle, self.centers
        as_they_are = ("images_seen", "resolution", "alpha", "psi", "cutoff")
        return {
            "config": dataclasses.asdict(self.generator.config),
            **{name: getattr(self, name) for name in as_they_are},
            "label_names": list(self.label_names),
            "active_rectangle": None if rectangle is None else list(rectangle),
            "lineage": to_plain(self.lineage),
            **({} if centers is None else {"centers": centers.cpu().double().tolist()}),
        }

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
        becomes 1. `centers` "none" truncates toward the average, whatever the file says."""
        given: dict[str, Any] = {} if psi is None else {"psi": float(psi)}
        if cutoff is not None:
            if isinstance(cutoff, str) and cutoff != "all":
                raise ValueError(f"cutoff is a number of layers, 'all' or None, not {cutoff!r}")
            given["cutoff"] = None if cutoff == "all" else cutoff
        if resolution is not None and resolution != self.resolution:
            given |= {"resolution": resolution, "alpha": 1.0}
        if alpha is not None:
            given["alpha"] = alpha
        if centers is not None:
            given["centers"] = None if isinstance(centers, str) else centers
        if edits is not None:
            total_move(edits, self.generator.config)  # what does not fit is refused
            given["edits"] = tuple(edits)
        return dataclasses.replace(self, **given) if given else self

    def pictures(
        self,
        seeds: Sequence[int] | None = None,
        *,
        ws: Tensor | None = None,
        psi: float | None = None,
        cutoff: Cutoff = None,
        labels: Tensor | None = None,
        noise: Noise | None = None,
        resolution: int | None = None,
        alpha: float | None = None,
        edits: Sequence[Edit] | None = None,
        batch: int | None = None,
    ) -> Iterator[np.ndarray]:
        """Pictures uint8 (H, W, C) one by one, without padding: see `sampling.generate`.

        Give `seeds`, or untruncated styles `ws` (N, num_styles, w_dim); then seeds serve random
        noise only. `noise` is "const" by default. `edits` move what truncation leaves.
        """
        how = self.adjusted(psi=psi, cutoff=cutoff, resolution=resolution, alpha=alpha, edits=edits)
        if seeds is None:
            if ws is None:
                raise ValueError("pictures need seeds or ws")
            seeds = range(len(ws))
        chunks = sampling.generate(
            how.generator, seeds, psi=how.psi, cutoff=how.cutoff, centers=how.centers,
            resolution=how.resolution, alpha=how.alpha, labels=labels, ws=ws, batch=batch,
            noise="const" if noise is None else noise,
            move=total_move(how.edits, how.generator.config),
        )  # fmt: skip
        for chunk in chunks:
            yield from sampling.unpadded(chunk, how.active_rectangle)

    def picture_size(self) -> tuple[int, int]:
        """Height and width of its pictures, without padding."""
        empty = np.empty((1, self.resolution, self.resolution, 0))
        height, width = sampling.unpadded(empty, self.active_rectangle).shape[1:3]
        return height, width

    @torch.inference_mode()
    def styles(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """z (N, z_dim), labels (N or 1, label_dim) -> ws (N, num_styles, w_dim), not truncated."""
        return self.generator.broadcast(sampling.mapped(self.generator, z, labels))

    def truncated(self, ws: Tensor, *, psi: float | None = None, cutoff: Cutoff = None) -> Tensor:
        """Styles (N, num_styles, w_dim) that are pulled toward the average."""
        average, how = self.generator.w_avg, self.adjusted(psi=psi, cutoff=cutoff)
        return sampling.truncated(ws.to(average), average, how.psi, how.cutoff, how.centers)

    def label(self, class_name: str | None) -> Tensor | None:
        """The label (1, label_dim) of a class by name or number, or of several with weights as in
        `smile=0.7,sad=0.3`; None for a network without labels, which must get no class."""
        count, names = self.generator.config.label_dim, list(self.label_names)
        if count == 0:
            if class_name is None:
                return None
            raise ValueError(f"class {class_name} was given, but the {self.origin} has no labels")
        if class_name is None:
            known = ", ".join(map(readable, names)) or f"0 to {count - 1}"
            raise ValueError(
                f"the {self.origin} has labels: choose one, as with --class "
                f"{readable(names[0]) if names else 0}; known: {readable(known, 1000)}"
            )
        from stylegan.data.labels import weights

        one = class_name in names or "=" not in class_name
        label = torch.zeros(1, count)
        for name, weight in ({class_name: 1.0} if one else weights(class_name)).items():
            label[0, self.class_number(name)] += weight
        return label

    def class_number(self, class_name: str) -> int:
        """The place of a class, by its name or number, in a label."""
        count, names = self.generator.config.label_dim, list(self.label_names)
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
    found = {"generator_sha256": weights_sha256(generator)}
    if any(True for _ in generator.mapping.parameters()):
        found["mapping_sha256"] = weights_sha256(generator, ("mapping.", "w_avg"))
    return found


def fits(about: Mapping[str, Any], generator: Generator) -> bool:
    """Whether a file with these hashes is of the same mapping network, so that w mean the same.
    Older files have the hash of all weights alone."""
    return any(about.get(name) == found for name, found in hashes(generator).items())


def checked_centers(centers: Any, w_dim: int) -> Tensor:
    """Centres (K, w_dim), K from 1, as float32. ValueError for what no file should say."""
    try:
        rows = torch.as_tensor(centers).float()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError("centers must be rows of numbers") from error
    if rows.ndim != 2 or not len(rows) or rows.shape[1] != w_dim or not rows.isfinite().all():
        raise ValueError(f"centers must be rows of {w_dim} finite numbers, not {tuple(rows.shape)}")
    return rows


def in_the_middle(edges: Sequence[int]) -> bool:
    """Whether these are edges in a square picture with the same padding on opposite sides."""
    if len(edges) != 4 or any(type(edge) is not int for edge in edges):
        return False
    top, bottom, left, right = edges
    return 0 <= top < bottom and 0 <= left < right and top + bottom == left + right


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The networks that a file of weights holds."""

    origin: str  # what the file is, and its path
    loaded: LoadedGenerator | None  # the average generator, to make pictures with
    generator: Generator | None = None  # the one that training moves; the average if it is alone
    discriminator: Discriminator | None = None
    lineage: Lineage = ()  # where the weights came from; for a foreign file, that file
    notes: Sequence[str] = ()  # what was assumed, what differs from the publisher's program

    @property
    def generator_ema(self) -> Generator | None:
        return None if self.loaded is None else self.loaded.generator

    def to_generate(self) -> LoadedGenerator:
        """The generator to make pictures with. ValueError if there is none."""
        if self.loaded is None:
            what = f"{self.origin} holds no generator; pictures need one"
            raise ValueError(f"{what}: a generator-*.pt, a state-*.pt or the run folder")
        return self.loaded

    def of_file(self, path: Path, source: Source) -> Self:
        """The same with the file that it was read from."""
        said: dict[str, Any] = {"origin": f"{self.origin} {path}", "lineage": (source,)}
        loaded = self.loaded and dataclasses.replace(self.loaded, **said)
        return dataclasses.replace(self, loaded=loaded, **said)


class SeededGenerator(Generator):
    """A generator that knows what its file says, and makes the picture that a seed names."""

    loaded: LoadedGenerator  # this network with what its file says

    @classmethod
    def of(cls, loaded: LoadedGenerator) -> Self:
        """Shares the weights of a loaded generator; also of its class, if that is a user's."""
        own = type(loaded.generator)
        kind = cls if issubclass(cls, own) else type(own.__name__, (cls, own), {})
        with torch.device("meta"):
            network = kind(loaded.generator.config)
        network.load_state_dict(loaded.generator.state_dict(), assign=True)
        network.loaded = dataclasses.replace(loaded, generator=network)
        return network.eval()

    def sample(
        self,
        seeds: Sequence[int],
        psi: float | None = None,
        *,
        cutoff: Cutoff = None,
        labels: Tensor | None = None,
        noise: Noise = "const",
        edits: Sequence[Edit] | None = None,
        batch: int | None = None,
    ) -> Tensor:
        """The pictures that `stylegan generate` writes for these seeds: uint8 (N, C, H, W), on the
        CPU, made where the network is, without gradients and padding, as far as growth has come.

        Truncation (`psi`, and `cutoff` layers or "all") is what the file says unless given.
        `labels` (N or 1, label_dim) exactly when the network has labels. `noise` "random" draws
        each image's from its seed. `edits` (`stylegan.directions.read_edits`) move what truncation
        leaves; `batch` images are made at once.
        """
        if not len(seeds):
            raise ValueError("there are no seeds, so there is nothing to make")
        pictures = self.loaded.pictures(
            seeds, psi=psi, cutoff=cutoff, labels=labels, noise=noise, edits=edits, batch=batch
        )
        return torch.from_numpy(np.stack(list(pictures))).permute(0, 3, 1, 2).contiguous()
