"""What is measured: samples and the real images beside them, in an order all processes share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from stylegan import distributed, sampling, streams
from stylegan.data import Store
from stylegan.files.loaded import LoadedGenerator, weights_sha256
from stylegan.networks import Generator, Noise

CPU = torch.device("cpu")
ImageProgress = Callable[[str, int, int], None]  # of what, images done, images in all


def quiet(what: str, done: int, total: int) -> None:
    """No progress is shown."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Samples(ABC):
    """Images to measure, the data they are compared with, and how both are looked at.

    Image i depends on `seed` and i alone, not on the batch or the number of processes.
    """

    store: Store | None = None
    half: bool = False  # only every second real image is compared with
    mirror: bool = False  # reals are flipped at random, as training with mirroring shows them
    active: sampling.Rectangle | None = None  # only this part, without padding; None: all
    resolution: int = 0  # 0: the largest there is
    seed: int = 0
    batch: int = 32
    progress: ImageProgress = field(default=quiet)

    @property
    def labelled(self) -> bool:
        """Whether samples have labels, drawn from those of the data."""
        return False

    @property
    @abstractmethod
    def size(self) -> int:
        """The resolution of samples and reals."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where features are computed."""

    @abstractmethod
    def fakes(self, num: int) -> Iterator[Tensor]:
        """This process's part of the first `num` samples, uint8 (n, C, r, r) each time.

        The parts of all processes, one after the other, are the samples in their order.
        """

    @abstractmethod
    def about_generator(self) -> dict[str, Any]:
        """Where the samples come from, for a result."""

    @abstractmethod
    def about_fakes(self) -> dict[str, Any]:
        """What else defines the samples, for a result."""

    def require_latents(self) -> "Subject":
        """The generator and its latents; ValueError if there are only images."""
        raise ValueError("this metric looks at latents, so it needs a generator, not pictures")

    def require_store(self) -> Store:
        if self.store is None:
            raise ValueError("this metric compares with real images; pass --data")
        return self.store

    def require_squares(self) -> Self:
        if self.active is not None:
            raise ValueError("this metric is of square images; measure it without --active-only")
        return self

    def active_part(self, images: Tensor) -> Tensor:
        """The part of images (n, C, r, r) that is looked at."""
        if self.active is None:
            return images
        rows, columns = sampling.active_part(self.active, *images.shape[2:])
        return images[:, :, rows, columns]

    def real_images(self) -> np.ndarray:
        """Those that are compared with: uint8 (N, C, r, r), in pages of a file."""
        return self.require_store().images(self.size)[:: 2 if self.half else 1]

    def batches(self, num: int, what: str) -> Iterator[range]:
        """The numbers of each batch of this process's part of `num` images."""
        own = share_of(num)
        for start in range(own.start, own.stop, self.batch):
            stop = min(start + self.batch, own.stop)
            yield range(start, stop)
            self.progress(what, stop - own.start, len(own))

    def reals(self, num: int, *, evenly: bool = False) -> Iterator[Tensor]:
        """This process's part of `num` reals of the store, uint8 (n, C, r, r) each time.

        Officially these are the first ones. `evenly` takes them from the whole store, which may be
        sorted; where it has fewer the first follows the last, now mirrored the other way.
        """
        images = self.real_images()
        if num > len(images) and not evenly:
            raise ValueError(
                f"{num} real images were asked for, but the data has {len(images)}; "
                "ask for fewer, as in fid5k"
            )
        return self.rows_of(images, num, evenly=evenly)

    def rows_of(self, images: np.ndarray, num: int, *, evenly: bool) -> Iterator[Tensor]:
        """This process's part of `num` of the images, mirrored as reals are; see `reals`."""
        step = max(len(images), num) if evenly else num  # over `num`: rows from one to the next
        for indices in self.batches(num, "real"):
            turns = [divmod(i * step // num, len(images)) for i in indices]
            rows = self.require_store().pictures(images[[row for _, row in turns]])
            part = self.active_part(torch.from_numpy(rows))
            if self.mirror:
                flips = [streams.real_mirror(self.seed, row) % 2 != turn % 2 for turn, row in turns]
                part = torch.where(torch.tensor(flips)[:, None, None, None], part.flip(3), part)
            yield part

    def about_reals(self) -> dict[str, Any]:
        """What defines the real images, for a result and for the cache."""
        return {
            "data": self.require_store().identity(self.size),
            "images": len(self.real_images()),
            "mirror": self.mirror,
            "mirror_seed": self.seed if self.mirror else None,
            **({"part": "every second one"} if self.half else {}),
            **self.about_active(),
        }

    def about_active(self) -> dict[str, Any]:
        return {} if self.active is None else {"active_rectangle": list(self.active)}


@dataclass(frozen=True, eq=False)
class Subject(Samples):
    """Samples of a generator."""

    generator: Generator  # eval mode, on the device that is to be used
    alpha: float = 1.0
    psi: float = 1.0  # officially off for all metrics
    cutoff: int | None = None
    centers: Tensor | None = None  # (K, w_dim) that truncation pulls toward; None: the average
    noise: str = "random"
    mixed: int = 1  # latents that the styles of each sample come from
    origin: str = ""  # where the generator comes from, for results
    images_seen: int | None = None  # of its training

    @classmethod
    def of(cls, loaded: LoadedGenerator, store: Store | None, **options: Any) -> Self:
        """A loaded generator as far as it has grown, untruncated."""
        given: dict[str, Any] = {
            "resolution": loaded.resolution,
            "alpha": loaded.alpha,
            "batch": sampling.default_batch(loaded.resolution),
            "origin": loaded.origin,
            "images_seen": loaded.images_seen,
        }
        return cls(loaded.generator, store=store, **given | options)

    @property
    def size(self) -> int:
        return self.resolution or self.generator.config.resolution

    @property
    def device(self) -> torch.device:
        return self.generator.w_avg.device

    @property
    def labelled(self) -> bool:
        return self.generator.config.label_dim > 0

    def require_latents(self) -> "Subject":
        if self.mixed > 1:
            raise ValueError(
                f"this metric is of images of one latent each, not of {self.mixed} mixed ones"
            )
        return self.require_squares()

    def seeds(self, indices: range) -> list[int]:
        """The seeds of samples. Those of other runs' pictures are not avoided, as officially."""
        return [(self.seed + i) % (sampling.MAX_SEED + 1) for i in indices]

    def labels(self, indices: range) -> Tensor | None:
        """Labels of samples, drawn from those of the data, as officially: float (n, label_dim)."""
        config = self.generator.config
        if config.label_dim == 0:
            return None
        store = self.require_store()
        classes = store.require_labels()
        if len(store.label_names) != config.label_dim:
            raise ValueError(
                f"the generator has {config.label_dim} labels, the data {len(store.label_names)}; "
                "pass the data that it was trained on"
            )
        rows = [streams.sample_label(self.seed, i) % len(classes) for i in indices]
        return torch.from_numpy(store.one_hot(classes[rows]))

    def fakes(self, num: int) -> Iterator[Tensor]:
        for indices in self.batches(num, "generated"):
            seeds, labels = self.seeds(indices), self.labels(indices)
            (pictures,) = sampling.generate(
                self.generator,
                seeds,
                psi=self.psi,
                cutoff=self.cutoff,
                labels=labels,
                ws=self.mixed_styles(seeds, labels) if self.mixed > 1 else None,
                noise=self.noise,  # type: ignore[arg-type]
                resolution=self.size,
                alpha=self.alpha,
                batch=self.batch,
                centers=self.centers,
            )
            yield self.active_part(torch.from_numpy(pictures).permute(0, 3, 1, 2))

    @torch.inference_mode()
    def mixed_styles(self, seeds: Sequence[int], labels: Tensor | None) -> Tensor:
        """ws (n, num_styles, w_dim) whose rows come from `mixed` latents each: an image's own seed
        first, then others, from layers on that are drawn too. Table 2 of the paper."""
        config = self.generator.config
        layers = config.num_layers(self.size) if config.styles else 1
        if not 1 <= self.mixed <= layers:
            raise ValueError(
                f"the generator has {layers} layers with styles at {self.size}x{self.size}, which "
                f"cannot come from {self.mixed} latents"
            )
        rows = []
        for i, seed in enumerate(seeds):
            draws = streams.mixed_latents(seed)
            others = draws.integers(0, sampling.MAX_SEED + 1, self.mixed - 1)
            begins = np.sort(draws.choice(np.arange(1, layers), self.mixed - 1, replace=False))
            z = sampling.latents([seed, *others.tolist()], config.z_dim).to(self.generator.w_avg)
            label = None if labels is None else labels[i].expand(self.mixed, -1).to(z)
            w = self.generator.mapping(z, label)
            rows.append(w[np.searchsorted(begins, np.arange(config.num_styles()), "right")])
        return torch.stack(rows)

    def noise_maps(self, indices: range) -> Noise:
        """The noise of samples: drawn from each one's own seed, if it is "random"."""
        if self.noise != "random":
            return self.noise  # type: ignore[return-value]
        maps = sampling.seed_noise(self.seeds(indices), self.generator.config, self.size)
        return [noise_map.to(self.generator.w_avg) for noise_map in maps]

    def mapped(self, z: Tensor, indices: range) -> Tensor:
        """z (n, z_dim) -> w (n, w_dim), where the generator is, with the labels of `indices`."""
        like, labels = self.generator.w_avg, self.labels(indices)
        w: Tensor = self.generator.mapping(z.to(like), None if labels is None else labels.to(like))
        return w

    def synthesized(self, w: Tensor, noise: Noise) -> Tensor:
        """w (n, w_dim) -> images (n, C, r, r), nominally in [-1, 1], not clamped."""
        ws = self.generator.broadcast(w)
        average = self.generator.w_avg
        ws = sampling.truncated(ws, average, self.psi, self.cutoff, self.centers)
        images: Tensor = self.generator.synthesis(
            ws, resolution=self.size, alpha=self.alpha, noise=noise
        )
        return sampling.straight(images) if self.generator.config.premultiplied else images

    def about_generator(self) -> dict[str, Any]:
        return {
            "origin": self.origin,
            "sha256": weights_sha256(self.generator),
            "images_seen": self.images_seen,
        }

    def about_fakes(self) -> dict[str, Any]:
        names = ("alpha", "psi", "cutoff", "noise", "mixed", "seed")
        centers = {} if self.centers is None else {"centers": len(self.centers)}
        given = {n: getattr(self, n) for n in names} | centers | self.about_active()
        return {"resolution": self.size} | given


@dataclass(frozen=True, eq=False, kw_only=True)
class Given(Samples):
    """Images that are there already, in the place of samples."""

    name: str = ""  # what they are, for results
    device: torch.device = CPU

    @property
    def size(self) -> int:
        return self.resolution or self.require_store().resolution

    def about_generator(self) -> dict[str, Any]:
        return {"origin": self.name, "sha256": None, "images_seen": None}

    def about_fakes(self) -> dict[str, Any]:
        return {"resolution": self.size, "seed": self.seed} | self.about_active()


@dataclass(frozen=True, eq=False, kw_only=True)
class Yardstick(Given):
    """Images made of the reals, compared with half of them: results are read by theirs."""

    half: bool = True

    @classmethod
    def beside(cls, samples: Samples) -> Self:
        """For samples that are compared with the same half."""
        return cls(
            store=samples.store,
            mirror=samples.mirror,
            active=samples.active,
            resolution=samples.size,
            seed=samples.seed,
            batch=samples.batch,
            progress=samples.progress,
            device=samples.device,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class OtherHalf(Yardstick):
    """The other real images take the place of the samples.

    No generator should be expected to do better on as many images, unless it copies.
    """

    name: str = "another half of the reals"

    def fakes(self, num: int) -> Iterator[Tensor]:
        return self.rows_of(self.require_store().images(self.size)[1::2], num, evenly=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class AverageImage(Yardstick):
    """The average of all real images, again and again: the best that a constant can do."""

    name: str = "the average of the reals"

    def fakes(self, num: int) -> Iterator[Tensor]:
        images = self.require_store().images(self.size)
        total = np.zeros(images.shape[1:])
        for start in range(0, len(images), self.batch):
            total += images[start : start + self.batch].sum(axis=0, dtype=np.float64)
        average = total / len(images)
        if self.mirror:
            average = (average + average[:, :, ::-1]) / 2
        pixels = self.require_store().pictures(average.round().astype(np.uint8))
        picture = self.active_part(torch.from_numpy(pixels)[None])[0]
        for indices in self.batches(num, "average"):
            yield picture.expand(len(indices), *picture.shape)


def share_of(num: int, rank: int | None = None) -> range:
    """The contiguous part of `num` images that is this process's, or that of `rank`; parts differ
    by one at most."""
    world = distributed.world_size()
    rank = distributed.rank() if rank is None else rank
    return range(num * rank // world, num * (rank + 1) // world)


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Without gradients, in full float32, by kernels that give the same numbers again.

    TF32 keeps ten binary digits; a step of 1e-4 along a path would drown in its rounding.
    """
    with torch.inference_mode(), sampling.repeatable():
        yield
