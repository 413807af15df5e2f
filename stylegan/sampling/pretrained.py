"""A pretrained generator with the description in its file, and samples of it."""

import dataclasses
import hashlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from stylegan.config import DataConfig
from stylegan.data.images import Crop, Fit
from stylegan.data.labels import match_labels, parse_label_weights
from stylegan.networks import Generator, MappingNetwork, NetworkConfig, Noise, SynthesisNetwork
from stylegan.networks.edits import Edit, total_offset
from stylegan.sampling.generation import (
    Cutoff,
    SamplingSettings,
    checked_rows,
    crop_padding,
    cyclic_one_hot,
    generate_batches,
    map_latents,
)
from stylegan.schedule import check_resolution
from stylegan.utils.lineage import Lineage, LineageEntry, to_dicts
from stylegan.utils.text import join_truncated, sanitize, suggestion
from stylegan.utils.validation import NonNegativeInt, validate


class Pretrained(nn.Module):
    """A generator with its description, from a file or from memory.

    `generator` is the network, a pure function of its inputs. `settings` are those that calls
    and samples follow; those of a file stop at the resolution that training had reached, as the
    layers beyond are untrained.
    """

    def __init__(
        self,
        generator: Generator,
        settings: SamplingSettings | None = None,
        origin: str = "memory",  # the kind and name of its file
        *,
        images_seen: int | None = None,  # None = unknown
        label_names: Sequence[str] = (),
        label_rows: object = None,  # (K, label_dim) of its data, if labels are not classes
        trained_on: DataConfig | None = None,  # how its data were prepared; None = unknown
        lineage: Lineage = (),  # where its weights came from before they were trained here
    ) -> None:
        """Raise ValueError for invalid values, or values that do not match the network."""
        super().__init__()
        config = generator.config
        self.generator = generator
        self.training = generator.training
        self.settings = settings or SamplingSettings(config.resolution)
        self.origin = origin
        self.images_seen = validate(NonNegativeInt | None, images_seen, "images_seen")  # type: ignore[arg-type]
        self.label_names = validate(tuple[str, ...], label_names, "label_names")
        self.label_rows = None
        if label_rows is not None:
            self.label_rows = checked_rows("label_rows", label_rows, config.label_dim)
        if self.settings.centers is not None:
            checked_rows("centers", self.settings.centers, config.w_dim)
        self.trained_on = validate(DataConfig | None, trained_on, "trained_on")  # type: ignore[arg-type]
        self.lineage = validate(tuple[LineageEntry, ...], lineage, "lineage")
        check_resolution(
            self.settings.resolution,
            check_resolution(self.settings.synthesis_resolution, config.resolution),
        )
        if len(self.label_names) not in (0, config.label_dim):
            found = len(self.label_names)
            raise ValueError(f"label_names must be {config.label_dim} names, got {found}")
        total_offset(self.settings.edits, config.num_ws(), config.w_dim)

    @property
    def config(self) -> NetworkConfig:
        return self.generator.config

    @property
    def mapping(self) -> MappingNetwork:
        return self.generator.mapping

    @property
    def synthesis(self) -> SynthesisNetwork:
        return self.generator.synthesis

    @property
    def w_avg(self) -> Tensor:
        return self.generator.w_avg

    def broadcast(self, w: Tensor) -> Tensor:
        """Repeat w (N, w_dim) for every layer; see `Generator.broadcast`."""
        return self.generator.broadcast(w)

    @property
    def resolution(self) -> int:
        return self.settings.resolution

    @property
    def grown_resolution(self) -> int:
        """The largest resolution that has faded in completely."""
        synthesized = self.settings.synthesis_resolution
        return synthesized // 2 if self.settings.alpha < 1 and synthesized > 4 else synthesized

    @property
    def crop(self) -> Crop:
        """The crop that makes an image a square as in its training data."""
        if self.trained_on is not None:
            return self.trained_on.crop
        rectangle = self.settings.active_rectangle
        return "center" if rectangle is None else str(Fit.of_rectangle(rectangle))

    @property
    def has_vector_labels(self) -> bool | None:
        """Whether its labels are vectors rather than classes; None if unknown."""
        if self.trained_on is None and self.label_rows is None:
            return None
        return self.label_rows is not None

    def replace(self, **changes: object) -> Self:
        """Copy with other arguments of the constructor; the network is shared."""
        arguments = inspect.signature(type(self)).parameters
        return type(self)(**{name: getattr(self, name) for name in arguments} | changes)

    def with_settings(self, **changes: object) -> Self:
        """Copy with other settings, see `SamplingSettings.override`; the network is shared."""
        return self.replace(settings=self.settings.override(**changes))  # type: ignore[arg-type]

    def forward(
        self, z: Tensor, labels: Tensor | None = None, *, psi: float = 1.0, noise: Noise = "random"
    ) -> Tensor:
        """Generate images (N, C, r, r), nominally in [-1, 1], from z (N, z_dim), with gradients.

        All settings except psi are those of `settings`; `with_settings` changes them. "random"
        `noise` is drawn from torch's global generator at every call.
        """
        if not len(z):
            raise ValueError("z has no rows, so there is nothing to generate")
        ws = self.generator.broadcast(self.generator.mapping(z, labels))
        styles = self.settings.truncate_and_edit(ws, self.generator.w_avg, psi)
        return self.settings.synthesize(self.generator, styles, noise)

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
        """Samples of the seeds as `stylegan generate` writes them: uint8 (N, C, H, W) on the CPU.

        They are computed on the network's device, without gradients and padding; see `generate`.
        Another batch size than the command's may change pixels by one gray level.
        """
        samples = self.generate(
            seeds, psi=psi, cutoff=cutoff, labels=labels, noise=noise, edits=edits, batch=batch
        )
        arrays = list(samples)
        if not arrays:
            raise ValueError("there are no seeds, so there is nothing to generate")
        return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()

    def generate(
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
        """Generate samples uint8 (H, W, C) one by one, without padding (`generate_batches`).

        seeds: one for each sample; with `ws` they serve random noise only.
        psi, cutoff, edits: replace `settings`, see `SamplingSettings.override`.
        ws: (N, num_ws, w_dim), not truncated, instead of the seeds' own.
        labels: (N or 1, label_dim); by default the classes alternate, see `labels_of`.
        noise: "const" by default.
        """
        if seeds is None:
            if ws is None:
                raise ValueError("samples need seeds or ws, got neither")
            seeds = range(len(ws))
        if isinstance(seeds, int):  # one seed, or a number of samples?
            raise ValueError(
                f"seeds must be a sequence, such as [{seeds}] or range({seeds}), got {seeds}"
            )
        if labels is None and ws is None:
            labels = self.labels_of(seeds)
        settings = self.settings.override(psi=psi, cutoff=cutoff, edits=edits)
        noise = "const" if noise is None else noise
        for chunk in generate_batches(
            self.generator, settings, seeds, ws=ws, labels=labels, noise=noise, batch=batch
        ):
            yield from chunk

    def image_size(self) -> tuple[int, int]:
        """Height and width of its samples, without padding."""
        empty = np.empty((1, self.resolution, self.resolution, 0))
        height, width = crop_padding(empty, self.settings.active_rectangle).shape[1:3]
        return height, width

    @torch.inference_mode()
    def map_to_ws(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """Map z (N, z_dim), labels (N or 1, label_dim) -> untruncated ws (N, num_ws, w_dim)."""
        return self.generator.broadcast(map_latents(self.generator, z, labels))

    def description(self) -> dict[str, object]:
        """Everything except the weights, as plain values for a file."""
        rows = {} if self.label_rows is None else {"label_rows": self.label_rows.tolist()}
        data = self.trained_on
        # without the folders, which are private
        told = data and {"crop": data.crop, "labels": data.labels, "mirror": data.mirror}
        return {
            "config": dataclasses.asdict(self.config),
            **self.settings.to_plain(),
            "images_seen": self.images_seen,
            "label_names": list(self.label_names),
            **rows,
            "trained_on": told,
            "lineage": to_dicts(self.lineage),
        }

    def labels_of(self, seeds: Sequence[int], class_name: str | None = None) -> Tensor | None:
        """Labels for the seeds: (1, label_dim) of `class_name`, see `label`, or (N, label_dim).

        Without a class, the classes alternate: seed modulo label_dim, or modulo the number of
        `label_rows`. Returns None for a network without labels.
        """
        if class_name is not None:
            return self.label(class_name)
        return cyclic_one_hot(seeds, self.config.label_dim, self.label_rows)

    def class_order_note(self) -> str:
        """Describe which labels `labels_of` gives without a class; "" for a network without any."""
        count = self.config.label_dim
        if not count:
            return ""
        if self.label_rows is not None:
            return f"labels alternate: {len(self.label_rows)} of the data, as no --class is given"
        names = self.label_names or [f"class {i}" for i in range(count)]
        turns = [f"seed {i} is {sanitize(name, 40)}" for i, name in enumerate(names)]
        return f"classes alternate, as no --class is given: {join_truncated(turns, 4, ', ')}"

    def label(self, class_name: str | None) -> Tensor | None:
        """The label (1, label_dim) of a class by name or number, or a mixture `smile=0.7,sad=0.3`.

        Returns None for a network without labels. Raises ValueError if it does not have the class.
        """
        count = self.config.label_dim
        names = list(self.label_names)
        if count == 0:
            if class_name is None:
                return None
            raise ValueError(f"the {self.origin} has no labels, got class {class_name}")
        if class_name is None:
            known = ", ".join(map(sanitize, names)) or f"0 to {count - 1}"
            example = names[0] if names else "0"
            if self.label_rows is not None:  # labels are not classes
                numbers = zip(names or range(count), self.label_rows[0].tolist(), strict=True)
                example = sanitize(",".join(f"{name}={number:g}" for name, number in numbers))
            raise ValueError(
                f"a class is needed, as in --class {example}; known: {sanitize(known, 1000)}"
            )
        is_a_mixture = "=" in class_name and class_name not in names
        shares = parse_label_weights(class_name) if is_a_mixture else {class_name: 1.0}
        label = torch.zeros(1, count)
        for name, share in shares.items():
            label[0, self.class_number(name)] += share
        return label

    def class_number(self, class_name: str) -> int:
        """Index of a class in a label, by name or number."""
        names = list(self.label_names)
        (index,) = match_labels([class_name], names) if names else [None]
        if index is not None:
            return index
        if class_name.isdecimal() and int(class_name) < self.config.label_dim:
            return int(class_name)
        known = [*map(sanitize, names)] or [f"0 to {self.config.label_dim - 1}"]
        raise ValueError(f"there is no class {class_name!r}{suggestion(class_name, known)}")


def weights_sha256(generator: Generator, of: tuple[str, ...] = ("",)) -> str:
    """SHA-256 of the weights, and their names, that begin with one of the prefixes `of`."""
    digest = hashlib.sha256()
    for name, weight in sorted(generator.state_dict().items()):
        if name.startswith(of):
            digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
            digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
