"""What is measured: images, and the real images beside them, in an order all processes share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from stylegan import distributed, sampling, streams
from stylegan.data import Preparation, Store, cached_store
from stylegan.data.cache import changes_since
from stylegan.distributed import from_rank0
from stylegan.files import checkpoint
from stylegan.files.loaded import LoadedGenerator, weights_sha256
from stylegan.messages import readable
from stylegan.networks import Generator, Noise
from stylegan.run_folder import RunFolder

CPU = torch.device("cpu")
ImageProgress = Callable[[str, int, int], None]  # called with (description, images done, images)


def quiet(what: str, done: int, total: int) -> None:
    """Show no progress."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageSource(ABC):
    """Images to measure, and the real images that they are compared with. Image i depends on
    `seed` and i alone, not on the batch or the number of processes."""

    store: Store | None = None
    half: bool = False  # compare with every second real image only
    mirror: bool = False  # flip reals at random, as training with mirroring does
    resolution: int = 0  # 0: the largest there is
    seed: int = 0
    batch: int = 32
    progress: ImageProgress = field(default=quiet)

    labelled = False  # whether images have labels, drawn from those of the data

    @property
    @abstractmethod
    def size(self) -> int:
        """The resolution of images and reals."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where features are computed."""

    @abstractmethod
    def fakes(self, num: int) -> Iterator[Tensor]:
        """This process's part of the first `num` images, uint8 (n, C, r, r) each time."""

    @abstractmethod
    def about(self) -> dict[str, dict[str, Any]]:
        """`generator`, where the images come from, and `fakes`, what else defines them."""

    def require_store(self) -> Store:
        if self.store is None:
            raise ValueError("this metric compares with real images; pass --data")
        return self.store

    def real_images(self) -> np.ndarray:
        """The reals to compare with: uint8 (N, C, r, r), mapped from a file."""
        return self.require_store().images(self.size)[:: 2 if self.half else 1]

    def batches(self, num: int, what: str) -> Iterator[range]:
        """The numbers of each batch of this process's part of `num` images."""
        own = share_of(num)
        for start in range(own.start, own.stop, self.batch):
            stop = min(start + self.batch, own.stop)
            yield range(start, stop)
            self.progress(what, stop - own.start, len(own))

    def reals(
        self, num: int, *, evenly: bool = False, images: np.ndarray | None = None
    ) -> Iterator[Tensor]:
        """This process's part of `num` reals, or of other `images`: officially the first ones.
        `evenly` takes them from the whole store, which may be sorted; a store with fewer images
        starts again, now mirrored the other way."""
        images = self.real_images() if images is None else images
        step = max(len(images), num) if evenly else num  # over `num`: rows from one to the next
        for indices in self.batches(num, "real"):
            turns = [divmod(i * step // num, len(images)) for i in indices]
            rows = self.require_store().pictures(images[[row for _, row in turns]])
            part = torch.from_numpy(rows)
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
        }


@dataclass(frozen=True, eq=False)
class GeneratorSamples(ImageSource):
    generator: Generator  # in eval mode, on the device to use
    alpha: float = 1.0
    psi: float = 1.0  # officially off for all metrics
    cutoff: int | None = None
    centers: Tensor | None = None  # (K, w_dim) that truncation pulls toward; None: the average
    noise: Literal["const", "random", "none"] = "random"
    origin: str = ""  # where the generator comes from, for results
    images_seen: int | None = None  # by its training

    @classmethod
    def of(cls, loaded: LoadedGenerator, store: Store | None, **options: Any) -> Self:
        """A loaded generator as far as it has grown, untruncated."""
        names = ("resolution", "alpha", "origin", "images_seen")
        given = {name: getattr(loaded, name) for name in names}
        given["batch"] = sampling.default_batch(loaded.resolution)
        return cls(loaded.generator, store=store, **given | options)

    @property
    def size(self) -> int:
        return self.resolution or self.generator.config.resolution

    @property
    def device(self) -> torch.device:
        return self.generator.w_avg.device

    @property
    def labelled(self) -> bool:  # type: ignore[override]
        return self.generator.config.label_dim > 0

    def seeds(self, indices: range) -> list[int]:
        """The seeds of images. Those of other runs' pictures are not avoided, as officially."""
        return [(self.seed + i) % (sampling.MAX_SEED + 1) for i in indices]

    def labels(self, indices: range) -> Tensor | None:
        """Labels of images, drawn from those of the data, as officially: float (n, label_dim)."""
        if not self.labelled:
            return None
        store, label_dim = self.require_store(), self.generator.config.label_dim
        classes = store.require_labels()
        if len(store.label_names) != label_dim:
            what = f"the generator has {label_dim} labels, the data {len(store.label_names)}"
            raise ValueError(f"{what}; pass the data that it was trained on")
        rows = [streams.sample_label(self.seed, i) % len(classes) for i in indices]
        return torch.from_numpy(store.one_hot(classes[rows]))

    def fakes(self, num: int) -> Iterator[Tensor]:
        for indices in self.batches(num, "generated"):
            seeds, labels = self.seeds(indices), self.labels(indices)
            (pictures,) = sampling.generate(
                self.generator, seeds, labels=labels, psi=self.psi, cutoff=self.cutoff,
                centers=self.centers, noise=self.noise, resolution=self.size, alpha=self.alpha,
                batch=self.batch,
            )  # fmt: skip
            yield torch.from_numpy(pictures).permute(0, 3, 1, 2)

    def noise_maps(self, indices: range) -> Noise:
        """The noise of images: drawn from each one's own seed, if it is "random"."""
        if self.noise != "random":
            return self.noise
        maps = sampling.seed_noise(self.seeds(indices), self.generator.config, self.size)
        return [noise_map.to(self.generator.w_avg) for noise_map in maps]

    def synthesized(self, w: Tensor, noise: Noise) -> Tensor:
        """w (n, w_dim) -> images (n, C, r, r), nominally in [-1, 1], not clamped."""
        ws, average = self.generator.broadcast(w), self.generator.w_avg
        ws = sampling.truncated(ws, average, self.psi, self.cutoff, self.centers)
        images = self.generator.synthesis(ws, resolution=self.size, alpha=self.alpha, noise=noise)
        return sampling.unpremultiply(images) if self.generator.config.premultiplied else images

    def about(self) -> dict[str, dict[str, Any]]:
        sha256 = weights_sha256(self.generator)
        where = {"origin": self.origin, "sha256": sha256, "images_seen": self.images_seen}
        names = ("alpha", "psi", "cutoff", "noise", "seed")
        fakes = {"resolution": self.size} | {name: getattr(self, name) for name in names}
        fakes |= {} if self.centers is None else {"centers": len(self.centers)}
        return {"generator": where, "fakes": fakes}


@dataclass(frozen=True, eq=False, kw_only=True)
class FixedImages(ImageSource):
    """Images that exist already, in place of a generator's."""

    name: str  # what they are, for results
    device: torch.device = CPU

    @property
    def size(self) -> int:
        return self.resolution or self.require_store().resolution

    def about(self) -> dict[str, dict[str, Any]]:
        where = {"origin": self.name, "sha256": None, "images_seen": None}
        return {"generator": where, "fakes": {"resolution": self.size, "seed": self.seed}}


@dataclass(frozen=True, eq=False, kw_only=True)
class OtherHalf(FixedImages):
    """One half of the real images, compared with the other half: no generator should be expected to
    do better on as many images, unless it copies."""

    half: bool = True
    name: str = "another half of the reals"

    @classmethod
    def beside(cls, source: ImageSource) -> Self:
        names = ("store", "mirror", "seed", "batch", "progress", "device")
        return cls(resolution=source.size, **{name: getattr(source, name) for name in names})

    def fakes(self, num: int) -> Iterator[Tensor]:
        return self.reals(num, evenly=True, images=self.require_store().images(self.size)[1::2])


def store_of(
    loaded: LoadedGenerator,
    run: RunFolder | None,
    data: Path | None = None,
    *,
    tell: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int], None] | None = None,
) -> Store | None:
    """The real images to compare with, prepared as for training: `data`, or else what the run was
    trained on; None if nothing specifies it or it is gone. ValueError if it has changed."""
    known, config = (run.data(), run.config().data) if run else (None, None)
    path = data or known
    if path is None or (data is None and not path.exists()):
        if path is not None:
            tell(f"the run's images are no longer at {path}; pass --data")
        return None
    include = tuple(config.include) if config else ()
    if include and path.resolve() != known:
        tell(f"all of {path} is used; the run used only {', '.join(include)}")
        include = ()
    network = loaded.generator.config
    preparation = Preparation(
        resolution=network.resolution,
        crop=config.crop if config else loaded.crop,
        channels=network.image_channels,
        premultiplied=network.premultiplied,
        include=include,
    )
    store = cached_store(path, preparation, progress=progress, tell=tell)
    if run is not None and data is None:
        from_rank0(lambda: refuse_changed(run, store))
    return store


def refuse_changed(run: RunFolder, store: Store) -> None:
    """ValueError if the store holds other images than the run was trained on, by its newest state
    that can be read."""
    config = run.config()
    resolution = config.network.resolution
    labels = config.data.labels
    for path in reversed(run.states()):
        with suppress(OSError, ValueError):
            trained_on = checkpoint.load(path, "state").get("data")
            break
    else:
        return  # nothing says which images they were
    # states of older versions know the images at full resolution only
    known = (store.training_identity(resolution, labels=labels), store.identity(resolution))
    if trained_on not in known:
        changed = changes_since(store, str(trained_on), resolution, labels=labels)
        now = f"{readable(store.meta.source)} holds now" + (f" ({changed})" if changed else "")
        raise ValueError(
            f"{readable(run.path)} was trained on other images or classes than {now}; put those "
            f"back, or compare with these: --data {readable(store.origin)}"
        )


def latents_of(source: ImageSource) -> GeneratorSamples:
    """The source, if it has latents; ValueError if there are only images."""
    if not isinstance(source, GeneratorSamples):
        raise ValueError("this metric looks at latents, so it needs a generator, not pictures")
    return source


def share_of(num: int, rank: int | None = None) -> range:
    """The contiguous part of `num` images that belongs to this process, or to `rank`; parts differ
    by one image at most."""
    world = distributed.world_size()
    rank = distributed.rank() if rank is None else rank
    return range(num * rank // world, num * (rank + 1) // world)


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Compute without gradients, in full float32, with kernels that repeat their results: a step of
    1e-4 along a path would drown in the rounding of TF32."""
    with torch.inference_mode(), sampling.repeatable():
        yield
