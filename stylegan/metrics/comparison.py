"""Samples to measure and reals to compare them with, in an order that all processes share."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling, streams
from stylegan.data import Preparation, Store, cached_store
from stylegan.data.cache import check_same_images
from stylegan.data.labels import describe_labels, match_labels
from stylegan.data.sources import summarize_skipped
from stylegan.files import checkpoint
from stylegan.files.run_folder import RunFolder
from stylegan.networks import Generator, Noise
from stylegan.sampling.pretrained import Pretrained, weights_sha256
from stylegan.utils import distributed
from stylegan.utils.console import SILENT, Console
from stylegan.utils.distributed import run_on_rank0
from stylegan.utils.text import command_line, pluralize

CPU = torch.device("cpu")
NO_REALS = "this metric compares with real images; pass --data"


@dataclass(frozen=True, eq=False, kw_only=True)
class StoreImages:
    """Images of a store: the reals, half of them, or images to measure instead of samples."""

    store: Store
    resolution: int
    first: int = 0  # index of the first image
    step: int = 1  # 2: every second image from there
    mirror: bool = False  # flip images at random, as in training
    seed: int = 0  # of mirroring
    device: torch.device = CPU  # that computes features, if these are measured
    name: str = ""  # in results, if these are measured
    details: Mapping[str, object] = field(default_factory=dict)  # likewise

    labeled = False

    def images(self) -> np.ndarray:
        """All images, not flipped: uint8 (N, C, r, r), memory-mapped."""
        return self.store.images(self.resolution)[self.first :: self.step]

    @property
    def ways(self) -> int:
        """Number of orientations of an image: as it is, and flipped if `mirror`."""
        return 2 if self.mirror else 1

    def number(self, images: int, *, evenly: bool) -> int:
        """Number of reals to compare with `images` samples: as many, or all if there are fewer."""
        return min(images, len(self.images()) * (self.ways if evenly else 1))

    def batch(self, indices: range, *, spread: int | None = None) -> Tensor:
        """Images uint8 (n, C, r, r) of the store, or of `spread` images taken evenly from it, as it
        may be sorted. If it has fewer, it is repeated with opposite flips."""
        images = self.images()
        numbers: Sequence[int] = indices
        if spread is not None:
            numbers = [i * max(len(images), spread) // spread for i in indices]
        turns = [divmod(number, len(images)) for number in numbers]
        batch = torch.from_numpy(self.store.unpremultiplied(images[[row for _, row in turns]]))
        if not self.mirror:
            return batch
        flips = [streams.mirror_bits(self.seed, row) % 2 != turn % 2 for turn, row in turns]
        return torch.where(torch.tensor(flips)[:, None, None, None], batch.flip(3), batch)

    def sample_batch(self, indices: range, num: int) -> Tensor:
        """Images uint8 (n, C, r, r) out of `num` that are taken evenly from the store."""
        most = len(self.images()) * self.ways
        if num > most:
            raise ValueError(
                f"{pluralize(num, 'image')} requested, but there are {most:,}; request fewer, or "
                "omit the number in the name to take all"
            )
        return self.batch(indices, spread=num)

    def protocol(self) -> dict[str, dict[str, object]]:
        """Protocol of the images as samples, for a result."""
        return {
            "generator": {"origin": self.name, "sha256": None, "images_seen": None},
            "fakes": {"resolution": self.resolution, "seed": self.seed, **self.details},
        }

    def protocol_of_reals(self) -> dict[str, object]:
        """Protocol of the images as reals, for a result and as a key of the cache."""
        return {
            "data": self.store.pixel_hash(self.resolution),
            "images": len(self.images()),
            "mirror": self.mirror,
            "mirror_seed": self.seed if self.mirror else None,
            **({"part": "every second one"} if self.step > 1 else {}),
        }


@dataclass(frozen=True, eq=False)
class GeneratorSamples:
    """Samples of a generator, truncated as it is loaded. Sample i depends on `seed` and i alone."""

    loaded: Pretrained  # on the device to use
    _: KW_ONLY
    store: Store | None = None  # whose labels are drawn for samples
    noise: Literal["const", "random", "none"] = "random"
    seed: int = 0

    @property
    def generator(self) -> Generator:
        return self.loaded.generator

    @property
    def resolution(self) -> int:
        return self.loaded.resolution

    @property
    def device(self) -> torch.device:
        return self.generator.w_avg.device

    @property
    def labeled(self) -> bool:
        """Whether samples have labels, drawn from those of `store`."""
        return self.generator.config.label_dim > 0

    def seeds(self, indices: range) -> list[int]:
        """Seeds of samples. As in the official code, some may have been drawn in training, too."""
        return [(self.seed + i) % (sampling.MAX_SEED + 1) for i in indices]

    def labels(self, indices: range) -> Tensor | None:
        """Draw labels (n, label_dim) from those of the data, as in the official code."""
        if not self.labeled:
            return None
        if self.store is None:
            raise ValueError(NO_REALS)
        classes = self.store.require_labels()
        known = self.store.label_names
        names = self.loaded.label_names
        vectors = self.loaded.has_vector_labels, self.store.has_vector_labels
        order = [place for place in match_labels(names, known, vectors) if place is not None]
        if not len(order) == len(known) == self.generator.config.label_dim:
            ours = describe_labels(names, vectors[0]) if names else self.generator.config.label_dim
            theirs = describe_labels(known, vectors[1])
            raise ValueError(
                f"the labels of the generator ({ours}) are not those of the data ({theirs}); pass "
                "the data that it was trained on"
            )
        rows = [streams.label_bits(self.seed, i) % len(classes) for i in indices]
        return torch.from_numpy(self.store.one_hot(classes[rows])[:, order])

    def sample_batch(self, indices: range, num: int) -> Tensor:
        """Samples uint8 (n, C, r, r), which do not depend on `num`."""
        # Padding is included, as in stores.
        settings = replace(self.loaded.settings, active_rectangle=None)
        seeds = self.seeds(indices)
        labels = self.labels(indices)
        (images,) = sampling.generate_batches(
            self.generator, settings, seeds, labels=labels, noise=self.noise, batch=len(indices)
        )
        return torch.from_numpy(images).permute(0, 3, 1, 2)

    def noise_maps(self, indices: range) -> Noise:
        """Noise of samples: if "random", maps drawn from the seed of each sample."""
        if self.noise != "random":
            return self.noise
        seeds = self.seeds(indices)
        maps = sampling.noise_from_seeds(
            seeds, self.generator.config, self.loaded.settings.synthesis_resolution
        )
        return [noise_map.to(self.generator.w_avg) for noise_map in maps]

    def synthesized(self, w: Tensor, noise: Noise) -> Tensor:
        """Synthesize the network's images (n, C, r, r), not clamped, from w (n, w_dim)."""
        settings = self.loaded.settings
        styles = settings.truncate_and_edit(self.generator.broadcast(w), self.generator.w_avg)
        return settings.synthesize(self.generator, styles, noise)

    def protocol(self) -> dict[str, dict[str, object]]:
        settings = self.loaded.settings
        return {
            "generator": {
                "origin": self.loaded.origin,
                "sha256": weights_sha256(self.generator),
                "images_seen": self.loaded.images_seen,
            },
            "fakes": {
                "resolution": self.resolution,
                "alpha": settings.alpha,
                "psi": settings.psi,
                "cutoff": settings.cutoff,
                "noise": self.noise,
                "seed": self.seed,
                **({} if settings.centers is None else {"centers": len(settings.centers)}),
                **({"edits": len(settings.edits)} if settings.edits else {}),
            },
        }


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Settings of comparisons, common to all sources of a command."""

    psis: Sequence[float] = (1.0,)  # of generators, each of which is measured at all
    noise: Literal["const", "random"] | None = None  # of generators; None: as in training
    resolution: int | None = None  # to which images are resized; None: their own
    mirror: bool | None = None  # flip half of the reals; None: as in training
    real_baseline: bool = False  # also measure half of the reals
    seed: int = 0  # of the first sample
    batch: int | None = None  # images at a time; None: what fits into little memory

    def reals(self, store: Store, resolution: int) -> StoreImages:
        """Images of a store to compare with."""
        mirror = bool(self.mirror)
        return StoreImages(store=store, resolution=resolution, mirror=mirror, seed=self.seed)


DEFAULTS = Conditions()


@dataclass(frozen=True, eq=False)
class Comparison:
    """Samples, and the reals to compare them with, in an order that all processes share."""

    samples: GeneratorSamples | StoreImages
    reals: StoreImages | None = None
    _: KW_ONLY
    batch: int = 32
    console: Console = SILENT

    @classmethod
    def from_generator(
        cls,
        loaded: Pretrained,
        store: Store | None = None,
        conditions: Conditions = DEFAULTS,
        console: Console = SILENT,
    ) -> Self:
        """Samples at psi 1, as in the official code, next to the images of a store."""
        samples = GeneratorSamples(
            loaded.with_settings(psi=1.0),
            store=store,
            noise=conditions.noise or "random",
            seed=conditions.seed,
        )
        reals = conditions.reals(store, loaded.resolution) if store is not None else None
        batch = conditions.batch or sampling.default_batch(loaded.settings.synthesis_resolution)
        return cls(samples, reals, batch=batch, console=console)

    @property
    def resolution(self) -> int:
        return self.samples.resolution

    @property
    def device(self) -> torch.device:
        return self.samples.device

    def require_reals(self) -> StoreImages:
        if self.reals is None:
            raise ValueError(NO_REALS)
        return self.reals

    def require_generator(self) -> GeneratorSamples:
        if not isinstance(self.samples, GeneratorSamples):
            raise ValueError("this metric looks at latents, so it needs a generator, not images")
        return self.samples

    def at_psi(self, psi: float) -> Self:
        samples = self.require_generator()
        return replace(self, samples=replace(samples, loaded=samples.loaded.with_settings(psi=psi)))

    def batches(self, num: int, description: str) -> Iterator[range]:
        """Yield the numbers of each batch in this process's part of `num` images."""
        share = rank_range(num)
        for start in range(share.start, share.stop, self.batch):
            stop = min(start + self.batch, share.stop)
            yield range(start, stop)
            self.console.progress(description, stop - share.start, len(share))

    def fake_batches(self, num: int) -> Iterator[Tensor]:
        """Yield batches, uint8 (n, C, r, r), of this process's part of the first `num` samples."""
        for indices in self.batches(num, "samples"):
            yield self.samples.sample_batch(indices, num)

    def real_batches(self, num: int, *, evenly: bool = False) -> Iterator[Tensor]:
        """Yield batches of this process's part of `num` reals: the first ones, as in the official
        code, or taken `evenly` from all."""
        reals = self.require_reals()
        for indices in self.batches(num, "real images"):
            yield reals.batch(indices, spread=num if evenly else None)


def store_of(
    loaded: Pretrained,
    run: RunFolder | None,
    data: Path | None = None,
    *,
    console: Console = SILENT,
) -> Store | None:
    """Prepare the reals as for training: `data`, or else the training images of the run. None if
    nothing specifies them or they are gone. Raises ValueError if those of the run have changed."""
    known, config = (run.data(), run.config().data) if run else (None, None)
    path = data or known
    if path is None:
        return None
    if data is None and not path.exists():
        console.info(f"the run's images are no longer at {path}; pass --data")
        return None
    include = tuple(config.include) if config else ()
    if include and path.resolve() != known:
        console.info(f"all of {path} is used; the run used only {', '.join(include)}")
        include = ()
    network = loaded.generator.config
    preparation = Preparation(
        resolution=network.resolution,
        crop=config.crop if config else loaded.crop,
        channels=network.image_channels,
        premultiplied=network.premultiplied,
        include=include,
    )
    store = prepared(path, preparation, "real images", console)
    if run is not None and data is None:
        run_on_rank0(lambda: refuse_changed(run, store))
    return store


def prepared(path: Path, preparation: Preparation, role: str, console: Console) -> Store:
    """Prepare the images of `path`. Reports how many are unusable."""
    store = cached_store(path, preparation, console=console)
    if store.skipped:
        console.info(
            f"left out: {len(store.skipped)} of the {role}: {summarize_skipped(store.skipped)}"
        )
    return store


def refuse_changed(run: RunFolder, store: Store) -> None:
    """Raises ValueError if the newest readable state of the run was trained on other images."""
    config = run.config()
    for path in reversed(run.states()):
        with suppress(OSError, ValueError):
            state = checkpoint.load(path, "state")
            break
    else:
        return  # nothing tells which images were used
    check_same_images(
        state,
        store,
        run.path,
        config.network.resolution,
        labels=config.data.labels,
        advice=f"put those back, or compare with these: --data {command_line(store.origin)}",
    )


def rank_range(num: int, rank: int | None = None) -> range:
    """The contiguous part of `num` images of this process or `rank`. Sizes differ by at most 1."""
    world = distributed.world_size()
    rank = distributed.rank() if rank is None else rank
    return range(num * rank // world, num * (rank + 1) // world)
