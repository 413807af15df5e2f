"""What `tools/tables.py` measures of a trained generator."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from attributes import QUESTIONS, Reader, answers_of, learn, read
from torch import Tensor

from stylegan import sampling
from stylegan.data import Preparation, Store, cached_store
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.metrics import Comparison, Conditions, Tools, compare
from stylegan.metrics.efficientnet import load_efficientnet
from stylegan.metrics.path_length import measured_lengths, trimmed_mean
from stylegan.metrics.separability import best_plane, conditional_entropy, most_confident
from stylegan.projection.distance import EfficientNetDistance
from stylegan.sampling.pretrained import Pretrained
from stylegan.training import TrainState
from stylegan.utils.filesystem import ALLOW_OVERWRITE

LATENTS = (1, 2, 3, 4)  # of an image
PSIS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
EPOCHS = 8  # of learning to read attributes
READ_AT = 64  # pixels a side of the pictures that readers of attributes look at


@dataclass(frozen=True)
class Bench:
    """With what networks are compared, and how many samples."""

    data: Path  # training images
    held_out: Path | None  # images of the same kind that no network has seen
    readers: Path  # folder of the readers of attributes, empty where the data has none
    cache: Path
    resolution: int
    device: str
    samples: int
    distance: str  # a metric of `stylegan metrics`

    def folders(self) -> dict[str, Path]:
        return {"training": self.data} | ({"held-out": self.held_out} if self.held_out else {})

    def stores(self, *, labels: bool = False) -> list[Store]:
        preparation = Preparation(resolution=self.resolution)
        return [cached_store(path, preparation, labels=labels) for path in self.folders().values()]

    def prepare(self) -> None:
        """Make the stores, and readers of the attributes in `labels.csv` where it is, before
        several processes would; write how often they are right about held-out images."""
        self.stores()
        labeled = [(folder / "labels.csv").is_file() for folder in self.folders().values()]
        file = self.readers / "readers.pt"
        if file.exists() or labeled != [True, True]:
            return
        seen, unseen = self.stores(labels=True)
        reader = learn(at_64(seen.images(self.resolution)), answers_of(seen), EPOCHS)
        odds = read(reader, at_64(unseen.images(self.resolution)))
        right = (odds > 0) == (answers_of(unseen) > 0)
        accuracy = dict(zip(QUESTIONS, right.float().mean(dim=0).tolist(), strict=True))
        ALLOW_OVERWRITE.text(self.readers / "accuracy.json", json.dumps(accuracy))
        torch.save(reader.state_dict(), file)

    def about(self) -> dict[str, object]:
        """Which images they are, for a record."""
        return {
            name: {"images": len(store), "sha256 of pixels": store.pixel_hash(self.resolution)}
            for name, store in zip(self.folders(), self.stores(), strict=True)
        }

    def scores(
        self, file: Path, data: Path, names: str, latents: int = 1, psis: Sequence[float] = (1.0,)
    ) -> list[dict[str, float]]:
        """Values of the metrics for each psi."""
        tools = Tools(self.cache)
        rows = compare(
            [str(file)],
            data,
            ",".join(f"{name}{self.samples}" for name in names.split(",")),
            tools,
            device=torch.device(self.device),
            conditions=Conditions(psis=psis),
            adjust=partial(with_latents, latents=latents),
        )
        return [
            {name: value for result in row.measure(tools) for name, value in result.values.items()}
            for row in rows
        ]

    def distance_to(self, file: Path, data: Path, latents: int = 1) -> float:
        (values,) = self.scores(file, data, self.distance, latents)
        return values[self.distance]


def with_latents(loaded: Pretrained, latents: int) -> Pretrained:
    """The generator, with other images' styles after each of `latents` - 1 random crossovers."""
    plain = loaded.generator.broadcast
    rng = torch.Generator().manual_seed(0)

    def mixed(w: Tensor) -> Tensor:
        ws = plain(w)  # (N, layers, w_dim)
        mixture = ws.clone()
        places = 1 + torch.randperm(ws.shape[1] - 1, generator=rng)[: latents - 1].sort().values
        for number, layer in enumerate(places.tolist(), start=1):
            mixture[:, layer:] = ws.roll(number, dims=0)[:, layer:]
        return mixture

    if latents > 1:
        loaded.generator.broadcast = mixed  # type: ignore[method-assign]
    return loaded


def distances(file: Path, bench: Bench, latents: Sequence[int]) -> dict[str, dict[str, float]]:
    """Distances of images made of that many latents at random crossovers, as table 2; from the
    held-out images of every second number."""
    sources = {"training": (bench.data, latents), "held-out": (bench.held_out, latents[::2])}
    return {
        name: {str(n): bench.distance_to(file, data, n) for n in numbers}
        for name, (data, numbers) in sources.items()
        if data
    }


def truncation(file: Path, bench: Bench) -> dict[str, dict[str, float]]:
    """Precision and recall for each psi."""
    rows = bench.scores(file, bench.data, "eff-pr", psis=PSIS)
    return {
        name: {f"{psi:g}": row[f"eff-{name}"] for psi, row in zip(PSIS, rows, strict=True)}
        for name in ("precision", "recall")
    }


def path_lengths(file: Path, bench: Bench) -> dict[str, float]:
    """Full path lengths in z and w over the mean distance of two random images, all by squared
    differences of EfficientNet's features; `pair` is that mean, alone if all are equal."""
    loaded = open_weights(file, map_location=bench.device).require_loaded()
    pairs = bench.samples // 2
    comparison = Comparison.from_generator(loaded)
    distance = EfficientNetDistance(*load_efficientnet(torch.device(bench.device)))
    samples = comparison.require_generator()
    with torch.inference_mode():
        means = []
        for indices in comparison.batches(pairs, "pairs"):
            others = range(indices.start + pairs, indices.stop + pairs)
            both = [samples.sample_batch(each, 0).float() / 127.5 - 1 for each in (indices, others)]
            means.append(distance(*both).cpu())
    pair = float(torch.cat(means).mean())
    lengths = {
        space: trimmed_mean(measured_lengths(comparison, f"ppl-{space}-full", pairs, distance))
        for space in ("zw" if loaded.generator.config.mapping_layers else "z")
    }
    relative = {space: length / pair for space, length in lengths.items() if pair}
    return relative | {"pair": pair}


def at_64(images: np.ndarray) -> np.ndarray:
    """uint8 images (N, 3, r, r) at the size that readers look at; smaller ones in larger pixels."""
    return F.interpolate(torch.tensor(images).float(), READ_AT, mode="area").byte().numpy()


def separability(file: Path, bench: Bench) -> dict[str, dict[str, float]]:
    """For each attribute its part (`prevalence`) of the half of five times as many samples whose
    reading is surest, the entropy H(Y) of that in nats, H(Y | X) for the best planes in z and w,
    and the accuracy of its reader."""
    loaded = open_weights(file).require_loaded()
    reader = Reader(len(QUESTIONS))
    reader.load_state_dict(torch.load(bench.readers / "readers.pt", weights_only=True))
    accuracy = json.loads((bench.readers / "accuracy.json").read_text(encoding="utf-8"))
    seeds = range(5 * bench.samples)
    images = np.stack(list(loaded.generate(seeds, psi=1, cutoff="all", noise="random")))
    odds = read(reader.eval(), at_64(images.transpose(0, 3, 1, 2))).numpy()
    z = sampling.latents(seeds, loaded.generator.config.z_dim)
    spaces = {"z": z.numpy()}
    if loaded.generator.config.mapping_layers:
        spaces["w"] = sampling.map_latents(loaded.generator, z).numpy()
    found: dict[str, dict[str, float]] = {}
    for column, name in enumerate(QUESTIONS):
        surest = most_confident(odds[:, column], len(seeds) // 2)
        present = odds[surest, column] >= 0
        entropy = conditional_entropy(np.zeros_like(present), present)
        of_name = {"accuracy": accuracy[name], "prevalence": present.mean(), "entropy": entropy}
        for space, latents in spaces.items():
            rows = latents[surest]
            sides = best_plane(rows, present).predict(rows) if entropy else present
            of_name[space] = conditional_entropy(sides, present)
        found[name] = {key: float(value) for key, value in of_name.items()}
    return found


def bands(images: Tensor) -> dict[str, Tensor]:
    """Images (..., r, r) as a sum of what each side adds to the averages of the side before."""
    flat = images.reshape(-1, 1, *images.shape[-2:])
    parts: dict[str, Tensor] = {}
    coarser = torch.zeros_like(flat)
    for side in (2**k for k in range(2, images.shape[-1].bit_length())):
        average = F.interpolate(F.adaptive_avg_pool2d(flat, side), images.shape[-1])
        parts[str(side)] = (average - coarser).reshape(images.shape)
        coarser = average
    return parts


@torch.inference_mode()
def noise_bands(file: Path, bench: Bench, draws: int = 8) -> dict[str, dict[str, float]]:
    """Variance of pixels by band: over `images`, and over new noise in all layers, in the coarse
    ones (up to a quarter of the resolution) or in the fine ones, for each image."""
    generator = open_weights(file, map_location=bench.device).require_loaded().generator
    config = generator.config
    seeds = range(bench.samples // 20)
    ws = generator.broadcast(sampling.map_latents(generator, sampling.latents(seeds, config.z_dim)))

    def made(fresh: Callable[[int], bool], draw: int) -> Tensor:
        """Images whose noise is the draw's own at the sides for which `fresh`, else the first."""
        others = range((draw + 1) * len(seeds), (draw + 2) * len(seeds))
        maps = zip(
            sampling.noise_from_seeds(seeds, config),
            sampling.noise_from_seeds(others, config),
            strict=True,
        )
        noise = [(new if fresh(new.shape[-1]) else old).to(ws) for old, new in maps]
        return generator.synthesis(ws, noise=noise)

    def variances(images: Tensor) -> dict[str, float]:  # over the first dimension
        return {side: float(part.var(dim=0).mean()) for side, part in bands(images).items()}

    coarse = config.resolution // 4
    layers = {
        "all": lambda side: True,
        "coarse": lambda side: side <= coarse,
        "fine": lambda side: side > coarse,
    }
    changed = {
        name: variances(torch.stack([made(fresh, draw) for draw in range(draws)]))
        for name, fresh in layers.items()
    }
    return {"images": variances(made(lambda side: False, 0)), **changed}


def mapping_moved(file: Path, bench: Bench) -> float:
    """How far the weights of the mapping network moved, relative to their size at the start."""
    config = RunFolder(file.parent).config()
    first = TrainState.create(config).generator.mapping
    last = open_weights(file).require_loaded().generator.mapping
    ends = [
        torch.cat([p.detach().flatten() for name, p in m.named_parameters() if "weight" in name])
        for m in (first, last)
    ]
    return float((ends[1] - ends[0]).norm() / ends[0].norm())


def parts_of(network: Mapping[str, Any], bench: Bench) -> dict[str, Callable[[Path, Bench], Any]]:
    """Everything that can be measured of a network with these options."""
    styles = network["styles"]
    parts: dict[str, Callable[[Path, Bench], Any]] = {
        "distances": partial(distances, latents=LATENTS if styles else (1,)),
        "path lengths": path_lengths,
    }
    if styles:
        parts["truncation"] = truncation
    if network["noise"]:
        parts["noise"] = noise_bands
    if network["mapping_layers"]:
        parts["mapping moved"] = mapping_moved
    if (bench.readers / "readers.pt").exists():
        parts["separability"] = separability
    return parts
