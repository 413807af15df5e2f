"""What is measured: a generator's images and the real ones, in an order that everybody shares."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stylegan import distributed, sampling, streams
from stylegan.data import Store
from stylegan.networks import Generator

# tell the seeds of these draws from others of the same seed
Progress = Callable[[str, int, int], None]  # of what, images done, images in all


def quiet(what: str, done: int, total: int) -> None:
    """No progress is shown."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A generator, the data it is compared with, and how both are looked at.

    Image i is a function of `seed` and i alone: of no batch, no number of processes.
    """

    generator: Generator  # eval mode, on the device that is to be used
    store: Store | None = None
    mirror: bool = False  # reals are flipped at random, as training with mirroring shows them
    resolution: int = 0  # 0: the generator's
    alpha: float = 1.0
    psi: float = 1.0  # officially off for all metrics
    cutoff: int | None = None
    noise: str = "random"
    mixed: int = 1  # latents that the styles of each generated image come from
    seed: int = 0
    batch: int = 32
    progress: Progress = field(default=quiet)
    origin: str = ""  # where the generator comes from, for results
    images_seen: int | None = None  # of its training

    @property
    def size(self) -> int:
        return self.resolution or self.generator.config.resolution

    @property
    def device(self) -> torch.device:
        return self.generator.w_avg.device

    def require_store(self) -> Store:
        if self.store is None:
            raise ValueError("this metric compares with real images; pass --data")
        return self.store

    def require_one_latent(self) -> None:
        if self.mixed > 1:
            raise ValueError(
                f"this metric is of images of one latent each, not of {self.mixed} mixed ones"
            )

    def real_images(self) -> np.ndarray:
        """Those that are compared with: uint8 (N, C, r, r), in pages of a file."""
        return self.require_store().images(self.size)

    def seeds(self, indices: range) -> list[int]:
        """Of the generated images. Those of other runs' pictures are not avoided, as officially."""
        return [(self.seed + i) % (sampling.MAX_SEED + 1) for i in indices]

    def labels(self, indices: range) -> Tensor | None:
        """Of the generated images: drawn from those of the data, as officially; float (n, C)."""
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
        """This process's part of the first `num` generated images, uint8 (n, C, r, r) each time.

        The parts of all processes, one after the other, are the images in their order.
        """
        own = share_of(num)
        for start in range(own.start, own.stop, self.batch):
            indices = range(start, min(start + self.batch, own.stop))
            seeds = self.seeds(indices)
            labels = self.labels(indices)
            pictures = next(
                sampling.generate(
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
                )
            )
            yield torch.from_numpy(pictures).permute(0, 3, 1, 2)
            self.progress("generated", indices.stop - own.start, len(own))

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

    def reals(self, num: int, *, start: int = 0, evenly: bool = False) -> Iterator[Tensor]:
        """This process's part of `num` reals of the store from `start` on, uint8 (n, C, r, r).

        Officially these are the first ones. `evenly` takes them from the whole store, which may be
        sorted; where it has fewer the first follows the last, now mirrored the other way.
        """
        images = self.real_images()
        if start + num > len(images) and not evenly:
            raise ValueError(
                f"{num} real images were asked for, but the data has {len(images) - start}; "
                "ask for fewer, as in fid5k"
            )
        return self.shown(images, num, "real", start=start, evenly=evenly)

    def shown(
        self, images: np.ndarray, num: int, what: str, *, start: int = 0, evenly: bool = False
    ) -> Iterator[Tensor]:
        """This process's part of `num` of the images, mirrored as reals are; see `reals`."""
        step = max(len(images), num) if evenly else num  # over `num`: rows from one to the next
        own = share_of(num)
        for first in range(own.start, own.stop, self.batch):
            indices = range(first, min(first + self.batch, own.stop))
            turns = [divmod(start + i * step // num, len(images)) for i in indices]
            part = torch.from_numpy(images[[row for _, row in turns]])
            if self.mirror:
                flips = [streams.real_mirror(self.seed, row) % 2 != turn % 2 for turn, row in turns]
                part = torch.where(torch.tensor(flips)[:, None, None, None], part.flip(3), part)
            yield part
            self.progress(what, indices.stop - own.start, len(own))

    def about_generator(self) -> dict[str, Any]:
        """Which generator it is, for a result."""
        return {
            "origin": self.origin,
            "sha256": weights_sha256(self.generator),
            "images_seen": self.images_seen,
        }

    def about_fakes(self) -> dict[str, Any]:
        """What defines the generated images, but for the generator, for a result."""
        return {
            "resolution": self.size,
            "alpha": self.alpha,
            "psi": self.psi,
            "cutoff": self.cutoff,
            "noise": self.noise,
            "mixed": self.mixed,
            "seed": self.seed,
        }

    def about_reals(self) -> dict[str, Any]:
        """What defines the real images, for a result and for the cache."""
        store = self.require_store()
        return {
            "data": store.identity(self.size),
            "images": len(self.real_images()),
            "mirror": self.mirror,
            "mirror_seed": self.seed if self.mirror else None,
        }


def share_of(num: int, rank: int | None = None) -> range:
    """The contiguous part of `num` images that is this process's, or that of `rank`; parts differ
    by one at most."""
    world = distributed.world_size()
    rank = distributed.rank() if rank is None else rank
    return range(num * rank // world, num * (rank + 1) // world)


def weights_sha256(generator: Generator) -> str:
    """Of all weights with their names, whatever file they are in."""
    digest = hashlib.sha256()
    for name, weight in sorted(generator.state_dict().items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
