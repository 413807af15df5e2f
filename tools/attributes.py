"""How often samples show each attribute of a labeled data set.

A small network learns to read the attributes, columns `attribute=value` of `labels.csv`. Readers,
saved as TorchScript, serve `stylegan metrics --metrics ls --classifier FILE`.
"""

import itertools
from pathlib import Path

import click
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stylegan.data import Preparation, Store, cached_store
from stylegan.files.loading import open_weights

BATCH = 64
HELD_OUT = 2000
BINARY = {  # readers of single attributes: the values that count as having it
    "glasses": ("eyes=glasses", "eyes=sunglasses"),
    "beard": ("facialHair=beardMustache", "facialHair=pyramid", "facialHair=goatee"),
    "smile": ("mouth=smile", "mouth=bigSmile", "mouth=smirk"),
    "closed-eyes": ("eyes=happy", "eyes=sleep"),
    "dark-skin": ("skinColor=skin1", "skinColor=skin2", "skinColor=skin3"),
    "bald": ("hair=bald", "hair=balding", "hair=buzzcut"),
}


class Reader(nn.Module):
    """Images (N, 3, 64, 64) in [-1, 1] -> logits (N, values) of all attributes side by side."""

    def __init__(self, values: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise((3, 24, 48, 96, 128)):
            layers += [nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.Flatten(), nn.Linear(128 * 16, 256), nn.ReLU(), nn.Linear(256, values)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x)
        return logits


class Single(nn.Module):
    """Log odds of having one of some values of an attribute, from the logits of all its values."""

    def __init__(self, reader: Reader, group: list[int], having: list[int]) -> None:
        super().__init__()
        self.reader = reader
        self.group = group
        self.having = having

    def forward(self, x: Tensor) -> Tensor:
        p = self.reader(x)[:, self.group].softmax(1)[:, self.having].sum(1)
        return torch.logit(p, 1e-6)


def read(reader: Reader, images: np.ndarray, groups: dict[str, list[int]]) -> dict[str, Tensor]:
    """The most probable value of each attribute: its position in the group, for each image."""
    with torch.no_grad():
        chunks = [reader(floats(images[i : i + 250])) for i in range(0, len(images), 250)]
    logits = torch.cat(chunks)
    return {name: logits[:, columns].argmax(1) for name, columns in groups.items()}


def floats(images: np.ndarray) -> Tensor:
    return torch.tensor(images).float() / 127.5 - 1


def learn(store: Store, groups: dict[str, list[int]], epochs: int) -> Reader:
    """A reader of all images but the last `HELD_OUT`, moved by up to two pixels each time."""
    torch.manual_seed(0)
    images = store.images(64)
    labels = torch.from_numpy(store.require_labels())
    reader = Reader(labels.shape[1])
    optimizer = torch.optim.Adam(reader.parameters(), 1e-3)
    n = len(labels) - HELD_OUT
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, epochs * (n // BATCH))
    for _ in range(epochs):
        for rows in torch.randperm(n)[: n // BATCH * BATCH].split(BATCH):
            dy, dx = torch.randint(-2, 3, (2,)).tolist()
            logits = reader(floats(images[rows.numpy()]).roll((dy, dx), (2, 3)))
            losses = [
                F.cross_entropy(logits[:, group], labels[rows][:, group].argmax(1))
                for group in groups.values()
            ]
            optimizer.zero_grad()
            torch.stack(losses).sum().backward()
            optimizer.step()
            schedule.step()
    return reader.eval()


@click.command()
@click.argument("data", type=click.Path(exists=True))
@click.argument("source")
@click.option("--samples", default=2000, help="Number of samples to read.")
@click.option("--epochs", default=6)
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/attributes"))
def main(data: str, source: str, samples: int, epochs: int, out: Path) -> None:
    """Print a table of DATA's attributes and those of the samples of SOURCE at psi 1."""
    store = cached_store(data, Preparation(resolution=64), labels=True)
    groups: dict[str, list[int]] = {}
    for column, name in enumerate(store.label_names):
        groups.setdefault(name.split("=")[0], []).append(column)
    reader = learn(store, groups, epochs)
    truth = torch.from_numpy(store.require_labels())
    held = read(reader, store.images(64)[-HELD_OUT:], groups)
    loaded = open_weights(source).require_loaded()
    made = loaded.pictures(range(samples), psi=1, cutoff="all", noise="random")
    seen = read(reader, np.stack(list(made)).transpose(0, 3, 1, 2), groups)
    print("| attribute | held-out accuracy | value: data, samples (%) |\n| --- | --: | --- |")
    for name, columns in groups.items():
        right = truth[-HELD_OUT:, columns].argmax(1) == held[name]
        shares = [
            f"{store.label_names[column].split('=')[1]} {100 * truth[:, column].mean():.0f}, "
            f"{100 * (seen[name] == i).float().mean():.0f}"
            for i, column in enumerate(columns)
        ]
        print(f"| {name} | {right.float().mean():.3f} | {'; '.join(shares)} |")
    out.mkdir(parents=True, exist_ok=True)
    for name, values in BINARY.items():
        group = groups[values[0].split("=")[0]]
        having = [group.index(store.label_names.index(value)) for value in values]
        single = torch.jit.trace(Single(reader, group, having).eval(), torch.zeros(2, 3, 64, 64))
        torch.jit.save(single, str(out / f"{name}.pt"))


if __name__ == "__main__":
    main()
