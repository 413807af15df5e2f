"""A small network that is trained on the data at hand, so that its features distinguish images.

Its tasks need no labels: to recognise an image in two views of it among the others of a batch (Chen
et al. 2020, SimCLR), and to classify how a view was damaged, so that blur, noise, bends and
ill-fitting halves are not ignored as details. It also predicts the classes of data that has them.
"""

import dataclasses
import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stylegan import sampling, streams
from stylegan.agreement import from_first
from stylegan.data import Store
from stylegan.metrics.cache import entry
from stylegan.metrics.features import FeatureNetwork, Tools, in_float32
from stylegan.metrics.subject import ImageProgress, Subject

VERSION = 1  # of all that decides the weights: after a change networks are trained again
LARGEST = 64  # resolution that the network looks at
WIDTHS = {64: 16, 32: 32, 16: 64, 8: 64, 4: 64}  # feature maps at each resolution
EMBEDDING = 64  # numbers by which views are compared
DAMAGES = 5  # kinds, none included
NORMALIZED_BY = 4096  # images at most, whose features get mean 0 and variance 1


@dataclass(frozen=True)
class Recipe:
    """How the network is trained."""

    steps: int = 120
    batch: int = 64  # images, each in two views
    learning_rate: float = 2e-3  # falls to 0 along a cosine
    temperature: float = 0.2  # of the comparison of views


class FeatureLayers(nn.Module):
    """3x3 convolutions, one per resolution; float images (n, C, r, r) in [-1, 1] to (n, dim).

    A feature is the average of a map: fine maps keep sharpness and noise in view, which coarse ones
    lose. `mean` and `deviation`, of the data, bring all to one scale.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, channels: int, resolution: int) -> None:
        super().__init__()
        widths = [width for r, width in WIDTHS.items() if r <= resolution]
        inputs = [channels, *widths[:-1]]
        self.layers = nn.ModuleList(
            nn.Conv2d(i, width, 3, padding=1) for i, width in zip(inputs, widths, strict=True)
        )
        self.dim = sum(widths)
        self.register_buffer("mean", torch.zeros(self.dim))
        self.register_buffer("deviation", torch.ones(self.dim))

    def forward(self, x: Tensor) -> Tensor:
        averages = []
        for i, layer in enumerate(self.layers):
            x = F.leaky_relu(layer(x if i == 0 else F.avg_pool2d(x, 2)), 0.2)
            averages.append(x.mean(dim=(2, 3)))
        return (torch.cat(averages, dim=1) - self.mean) / self.deviation

    def initialize(self, rng: torch.Generator) -> None:
        """Weights that keep the variance of what passes."""
        for layer in self.layers:
            assert isinstance(layer, nn.Conv2d)
            nn.init.kaiming_normal_(layer.weight, a=0.2, generator=rng)
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]


RECIPE = Recipe()


def own_network(
    subject: Subject, tools: Tools, recipe: Recipe = RECIPE, seed: int = 0
) -> FeatureNetwork:
    """The network of the subject's data, from the cache or trained by the first process, in all.

    The same seed gives the same bits on the same machine, whatever the number of processes and
    threads. Training on other hardware gives another network, of another hash; copy the cache to
    compare with its results.
    """
    store, size = subject.require_store(), min(subject.size, LARGEST)
    with torch.random.fork_rng(devices=[]):  # weights are drawn, then drawn anew or read
        layers = FeatureLayers(store.channels, size)
    about = {
        "version": VERSION,
        "data": store.identity(size),
        "labels": labels_sha256(store),
        "resolution": size,
        "seed": seed,
        **dataclasses.asdict(recipe),
    }
    sizes = [tensor.numel() for tensor in layers.state_dict().values()]
    place = entry(tools.cache, "own-network", about, "<f4", (sum(sizes),))

    def weights() -> np.ndarray:
        found = place.read(tools.tell)
        if found is None:
            train(layers, store, size, seed, subject.device, recipe, subject.progress)
            tensors = [tensor.cpu().flatten() for tensor in layers.state_dict().values()]
            found = torch.cat(tensors).numpy()
            place.keep(found, tools.tell)
        return np.array(found)

    vector = from_first(weights)
    parts = torch.from_numpy(vector).split(sizes)
    for tensor, part in zip(layers.state_dict().values(), parts, strict=True):
        tensor.copy_(part.view_as(tensor))  # they share memory with the network's
    layers.to(subject.device).eval()

    def extract(images: Tensor) -> Tensor:
        features: Tensor = layers(prepared(images.to(subject.device), size))
        return features

    return FeatureNetwork(
        f"our own, trained on {'the classes and ' if labels_sha256(store) else ''}the images",
        hashlib.sha256(vector.tobytes()).hexdigest(),
        layers.dim,
        f"averaged down to {size}x{size}" if size < subject.size else "none",
        extract,
    )


def labels_sha256(store: Store) -> str | None:
    """Hash of the classes of all images; None if there are fewer than two."""
    if store.labels is None or len(store.label_names) < 2:
        return None
    return hashlib.sha256(store.labels.astype("<i8").tobytes()).hexdigest()


def prepared(images: Tensor, size: int) -> Tensor:
    """uint8 (n, C, r, r) as the network sees them: 2x2 averages down to its size, in [-1, 1]."""
    x = images.float()
    return (x if x.shape[-1] == size else F.avg_pool2d(x, x.shape[-1] // size)) / 127.5 - 1


def train(
    layers: FeatureLayers,
    store: Store,
    size: int,
    seed: int,
    device: torch.device,
    recipe: Recipe,
    progress: ImageProgress,
) -> None:
    """Fit the weights, then the normalization. All draws are made on the CPU, from the seed."""
    rng = streams.own_network(seed)
    layers.initialize(rng)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        heads = Heads(layers.dim, len(store.label_names)).to(device)
    layers.to(device).train()
    optimizer = torch.optim.Adam([*layers.parameters(), *heads.parameters()])
    images = store.images(size)
    batch = min(recipe.batch, len(images))
    with deterministic():
        for step in range(recipe.steps):
            falling = (1 + math.cos(math.pi * step / recipe.steps)) / 2
            optimizer.param_groups[0]["lr"] = recipe.learning_rate * falling
            chosen = torch.randperm(len(images), generator=rng)[:batch].sort().values.numpy()
            x = prepared(torch.from_numpy(images[chosen]).to(device), size)
            labels = None if store.labels is None else torch.from_numpy(store.labels[chosen])
            other, damages = damaged(random_view(x, rng), rng)
            features = layers(torch.cat([random_view(x, rng), other]))
            optimizer.zero_grad()
            heads.loss(features, damages, labels, recipe.temperature).backward()
            optimizer.step()
            progress("own network", step + 1, recipe.steps)
        normalize(layers, images, size, device)


@contextmanager
def deterministic() -> Iterator[None]:
    """Gradients, in full precision and with the same bits each time, whatever the caller does."""
    exact = sampling.repeatable()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more add up in another order
    try:
        with torch.inference_mode(False), torch.enable_grad(), in_float32(), exact:
            yield
    finally:
        torch.set_num_threads(threads)


class Heads(nn.Module):
    """The tasks, each a linear map of the features."""

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(dim, EMBEDDING)
        self.damage = nn.Linear(dim, DAMAGES)
        self.label = nn.Linear(dim, classes) if classes > 1 else None

    def loss(
        self, features: Tensor, damages: Tensor, labels: Tensor | None, temperature: float
    ) -> Tensor:
        """Sum of the tasks' cross-entropies. features (2 n, dim): of n images whole, then of the
        same ones with `damages` (n,)."""
        n = len(damages)
        embedded = F.normalize(self.embedding(features), dim=1)
        alike = embedded @ embedded.T / temperature
        alike = alike.masked_fill(
            torch.eye(2 * n, dtype=torch.bool, device=alike.device), -torch.inf
        )
        partner = torch.arange(2 * n, device=alike.device).roll(n)
        whole = torch.zeros_like(damages)
        loss = F.cross_entropy(alike, partner)
        loss = loss + F.cross_entropy(self.damage(features), torch.cat([whole, damages]))
        if self.label is not None and labels is not None:
            named = self.label(features)
            loss = loss + F.cross_entropy(named, torch.cat([labels, labels]).to(named.device))
        return loss


def random_view(x: Tensor, rng: torch.Generator) -> Tensor:
    """A part of each image (0.6 to 1 of its side, enlarged), its contrast and colours changed."""
    n, channels = x.shape[:2]
    side = 1 - 0.4 * torch.rand(n, generator=rng)
    view = torch.zeros(n, 2, 3)
    view[:, 0, 0] = view[:, 1, 1] = side
    view[:, :, 2] = uniform((n, 2), rng) * (1 - side)[:, None]
    contrast = 1 + 0.3 * uniform((n, 1, 1, 1), rng)
    tint = 0.2 * uniform((n, channels, 1, 1), rng)
    places = F.affine_grid(view, list(x.shape), align_corners=False).to(x.device)
    return sampled(x, places) * contrast.to(x.device) + tint.to(x.device)


def damaged(x: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Each image in one of five states, drawn evenly, and which: 0 whole, 1 blurred, 2 noisy,
    3 its upper half another's, 4 bent."""
    n, _, height, width = x.shape
    kinds = torch.randint(DAMAGES, (n,), generator=rng)
    strength = torch.rand(n, 1, 1, 1, generator=rng).to(x.device)
    blurred = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    noise = torch.randn(x.shape, generator=rng).to(x.device)
    halves = torch.cat([x.roll(1, 0)[:, :, : height // 2], x[:, :, height // 2 :]], dim=2)
    bends = torch.randn(n, 2, 4, 4, generator=rng) * 0.12
    whole = F.affine_grid(torch.eye(2, 3).expand(n, 2, 3), list(x.shape), align_corners=False)
    shift = F.interpolate(bends, (height, width), mode="bicubic").permute(0, 2, 3, 1)
    states = [
        x,
        x.lerp(blurred, 0.3 + 0.7 * strength),
        x + (0.03 + 0.2 * strength) * noise,
        halves,
        sampled(x, (whole + shift).to(x.device)),
    ]
    kinds = kinds.to(x.device)
    return torch.stack(states)[kinds, torch.arange(n, device=x.device)], kinds


def sampled(x: Tensor, places: Tensor) -> Tensor:
    """The images at `places` (n, r, r, 2) in [-1, 1]; beyond the border its colours go on."""
    return F.grid_sample(x, places, padding_mode="border", align_corners=False)


def uniform(shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    """Random numbers in [-1, 1)."""
    return 2 * torch.rand(shape, generator=rng) - 1


@torch.no_grad()
def normalize(layers: FeatureLayers, images: np.ndarray, size: int, device: torch.device) -> None:
    """Mean 0 and variance 1 for each feature over the data. One that hardly varies there is not
    blown up to where it would drown the others."""
    chosen = np.linspace(0, len(images) - 1, min(len(images), NORMALIZED_BY)).astype(np.int64)
    features = torch.cat(
        [
            layers(prepared(torch.from_numpy(images[chosen[i : i + 64]]).to(device), size))
            for i in range(0, len(chosen), 64)
        ]
    )
    deviation = features.std(dim=0, correction=0)
    layers.mean.copy_(features.mean(dim=0))
    layers.deviation.copy_(deviation.clamp(min=0.01 * deviation.mean().clamp(min=1e-6)))
