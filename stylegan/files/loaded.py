"""A generator with the description in its file, and pictures of it."""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.config import DataConfig
from stylegan.machine.lineage import Lineage, Source, to_plain
from stylegan.machine.messages import listed, readable, suggestion
from stylegan.machine.plain import Counted, settle
from stylegan.networks import Generator, Noise
from stylegan.networks.edits import Edit, total_move
from stylegan.sampling import Cutoff, Look
from stylegan.schedule import check_resolution

if TYPE_CHECKING:
    from stylegan.data import Crop


@dataclass(frozen=True, eq=False)
class LoadedGenerator:
    """A generator in eval mode with its description, from a file or from memory."""

    generator: Generator
    origin: str  # the kind and name of its file
    look: Look  # of a file it draws what training had reached: layers beyond are untrained
    _: KW_ONLY
    images_seen: int | None = None  # None: unknown
    label_names: Sequence[str] = ()
    label_rows: Tensor | None = None  # (K, label_dim) of its data, if labels are no classes
    trained_on: DataConfig | None = None  # how its data were prepared; None: its file does not say
    lineage: Lineage = ()  # where its weights came from, before this program trained them

    def __post_init__(self) -> None:
        """Raise ValueError for values that are wrong, or do not fit the network."""
        settle(
            self,
            images_seen=Counted | None,
            label_names=tuple[str, ...],
            lineage=tuple[Source, ...],
            trained_on=DataConfig | None,
        )
        config = self.generator.config
        if self.label_rows is not None:
            rows = sampling.checked_rows("label_rows", self.label_rows)
            object.__setattr__(self, "label_rows", rows)
            if rows.shape[1] != config.label_dim:
                found = tuple(rows.shape)
                raise ValueError(f"label_rows are {found} for {config.label_dim} labels")
        check_resolution(self.resolution, check_resolution(self.look.drawn, config.resolution))
        if len(self.label_names) not in (0, config.label_dim):
            raise ValueError(
                f"{len(self.label_names)} label_names are given for {config.label_dim} labels"
            )
        if self.centers is not None and self.centers.shape[1] != config.w_dim:
            found = tuple(self.centers.shape)
            raise ValueError(f"centers must be rows of {config.w_dim} numbers, not {found}")
        total_move(self.look.edits, config.num_styles(), config.w_dim)

    @property
    def resolution(self) -> int:
        return self.look.resolution

    @property
    def alpha(self) -> float:
        return self.look.alpha

    @property
    def psi(self) -> float:
        return self.look.psi

    @property
    def cutoff(self) -> int | None:
        return self.look.cutoff

    @property
    def centers(self) -> Tensor | None:
        return self.look.centers

    @property
    def active_rectangle(self) -> sampling.Rectangle | None:
        return self.look.rectangle

    @property
    def grown(self) -> int:
        """The resolution that has grown in completely."""
        drawn = self.look.drawn
        return drawn // 2 if self.alpha < 1 and drawn > 4 else drawn

    @property
    def crop(self) -> "Crop":
        """The crop that makes other images squares like those that it was trained on."""
        if self.trained_on is not None:
            return self.trained_on.crop
        from stylegan.data.images import Fit

        if self.active_rectangle is None:
            return "center"
        return str(Fit.of_rectangle(self.active_rectangle))

    @property
    def vectors(self) -> bool | None:
        """True if its labels are vectors, false if classes; None if its file says neither."""
        if self.trained_on is None and self.label_rows is None:
            return None
        return self.label_rows is not None

    def description(self) -> dict[str, object]:
        """Return all but the weights, as plain values, for a file."""
        rows = {} if self.label_rows is None else {"label_rows": self.label_rows.tolist()}
        data = self.trained_on
        # its folders are nobody else's business
        told = data and {"crop": data.crop, "labels": data.labels, "mirror": data.mirror}
        return {
            "config": dataclasses.asdict(self.generator.config),
            **self.look.to_plain(),
            "images_seen": self.images_seen,
            "label_names": list(self.label_names),
            **rows,
            "trained_on": told,
            "lineage": to_plain(self.lineage),
        }

    def pictures(
        self,
        seeds: Sequence[int] | None = None,
        *,
        psi: float | None = None,
        cutoff: Cutoff = None,
        edits: Sequence[Edit] | None = None,
        ws: Tensor | None = None,
        labels: Tensor | None = None,
        noise: Noise | None = None,
        batch: int | None = None,
    ) -> Iterator[np.ndarray]:
        """Yield pictures uint8 (H, W, C) one by one, without padding: see `sampling.render`.

        Give `seeds`, or untruncated styles `ws` (N, num_styles, w_dim); then seeds serve random
        noise only. Without `labels` the classes of a network that has any take turns, by the seeds.
        `noise` is "const" by default. `psi`, `cutoff` and `edits`: see `Look.but`.
        """
        if seeds is None:
            if ws is None:
                raise ValueError("pictures need seeds or ws")
            seeds = range(len(ws))
        if labels is None and ws is None:
            labels = self.labels_of(seeds)
        look = self.look.but(psi=psi, cutoff=cutoff, edits=edits)
        noise = "const" if noise is None else noise
        for chunk in sampling.render(
            self.generator, look, seeds, ws=ws, labels=labels, noise=noise, batch=batch
        ):
            yield from chunk

    def picture_size(self) -> tuple[int, int]:
        """Return height and width of its pictures, without padding."""
        empty = np.empty((1, self.resolution, self.resolution, 0))
        height, width = sampling.unpadded(empty, self.active_rectangle).shape[1:3]
        return height, width

    @torch.inference_mode()
    def styles(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """Map z (N, z_dim), labels (N or 1, label_dim) to untruncated ws (N, num_styles, w_dim)."""
        return self.generator.broadcast(sampling.mapped(self.generator, z, labels))

    def labels_of(self, seeds: Sequence[int], class_name: str | None = None) -> Tensor | None:
        """Return the label of that class for all seeds (1, label_dim). Without one the classes take
        turns: seed modulo label_dim, (N, label_dim), or rows of labels that are no classes. None
        for a network without labels."""
        if class_name is not None:
            return self.label(class_name)
        return sampling.cyclic_one_hot(seeds, self.generator.config.label_dim, self.label_rows)

    def turns(self) -> str:
        """Return a line on which labels `labels_of` gives without a class; "" if there are none."""
        count = self.generator.config.label_dim
        if not count:
            return ""
        if self.label_rows is not None:
            return f"labels in turn: {len(self.label_rows)} of the data, as --class is not given"
        names = self.label_names or [f"class {i}" for i in range(count)]
        turns = [f"seed {i} is {readable(name, 40)}" for i, name in enumerate(names)]
        return f"classes in turn, as no --class is given: {listed(turns, 4, ', ')}"

    def label(self, class_name: str | None) -> Tensor | None:
        """Return the label (1, label_dim) of a class by name or number, or of several with weights
        as in `smile=0.7,sad=0.3`; None for a network without labels, which must get no class."""
        count = self.generator.config.label_dim
        names = list(self.label_names)
        if count == 0:
            if class_name is None:
                return None
            raise ValueError(f"class {class_name} was given, but the {self.origin} has no labels")
        if class_name is None:
            known = ", ".join(map(readable, names)) or f"0 to {count - 1}"
            example = readable(names[0]) if names else "0"
            if self.label_rows is not None:  # of no class
                numbers = zip(names or range(count), self.label_rows[0].tolist(), strict=True)
                example = readable(",".join(f"{name}={number:g}" for name, number in numbers))
            raise ValueError(
                f"a class is needed, as in --class {example}; known: {readable(known, 1000)}"
            )
        from stylegan.data.labels import weights

        is_a_mixture = "=" in class_name and class_name not in names
        shares = weights(class_name) if is_a_mixture else {class_name: 1.0}
        label = torch.zeros(1, count)
        for name, share in shares.items():
            label[0, self.class_number(name)] += share
        return label

    def class_number(self, class_name: str) -> int:
        """Return the place of a class, by its name or number, in a label."""
        count = self.generator.config.label_dim
        names = list(self.label_names)
        if class_name in names:
            return names.index(class_name)
        if class_name.isdecimal() and int(class_name) < count:
            return int(class_name)
        hint = suggestion(class_name, [*map(readable, names)] or [f"0 to {count - 1}"])
        raise ValueError(f"there is no class {class_name!r}{hint}")


def weights_sha256(generator: Generator, of: tuple[str, ...] = ("",)) -> str:
    """Hash all weights whose names begin so, with their names."""
    digest = hashlib.sha256()
    for name, weight in sorted(generator.state_dict().items()):
        if name.startswith(of):
            digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
            digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
