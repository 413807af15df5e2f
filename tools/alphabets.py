"""Whether the 36 glyphs of a seed can be read, and look like one typeface.

    python tools/alphabets.py glyphs64 --data glyphs64.zip

Prints the table of docs/glyphs64.md. A small convolutional network learns to read the characters of
half of the faces; the other half and the samples are what it has not seen. What a face gives to all
of its characters, the glyphs of a seed should share as well: of their darkness, width and slant,
standardized for each character, the table has the share of variance that lies between faces or
seeds (intraclass correlation): 0 for glyphs thrown together, 1 where one glyph tells all.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stylegan.cli import values
from stylegan.data import cached_store
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.loading import load_source

Alphabets = Tensor  # float32 (faces, characters, 1, r, r), 0 for paper and 1 for ink
BATCH, SIDE = 64, 32  # glyphs of a step, pixels that the reader looks at
ALIKE = ({"0", "O"}, {"1", "I"})  # which even people confuse


def alphabets(images: np.ndarray) -> Alphabets:
    """Pictures uint8 (faces, characters, 1, r, r), black on white."""
    return 1 - torch.from_numpy(images.astype(np.float32)) / 255


def reals_of(data: Path, resolution: int) -> tuple[Alphabets, list[str]]:
    """The faces of the glyphs recipe, in the order of their names, and the characters."""
    store = cached_store(data, resolution=resolution, channels=1)
    characters = list(store.label_names)
    places = {Path(name): i for i, name in enumerate(store.names)}
    faces = sorted({path.name for path in places})
    rows = [[places[Path(character, face)] for character in characters] for face in faces]
    return alphabets(store.images(resolution)[np.array(rows)]), characters


def samples_of(loaded: LoadedGenerator, seeds: Sequence[int], psi: float) -> Alphabets:
    """The same of seeds: one latent with every label."""
    rows = []
    for character in loaded.label_names:
        pictures = loaded.pictures(seeds, psi=psi, labels=loaded.label(character))
        rows.append(np.moveaxis(np.stack(list(pictures)), -1, 1))
    return alphabets(np.stack(rows, axis=1))


class Reader(nn.Sequential):
    """Names the character of a glyph (n, 1, r, r): logits (n, characters)."""

    def __init__(self, characters: int) -> None:
        layers: list[nn.Module] = [nn.AdaptiveAvgPool2d(SIDE)]
        for inputs, outputs in itertools.pairwise((1, 16, 32, 64)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        side = SIDE // 8
        super().__init__(*layers, nn.Flatten(), nn.Linear(64 * side**2, characters))


def taught(faces: Alphabets, epochs: int) -> Reader:
    """A reader of the characters of these faces."""
    torch.manual_seed(0)
    reader = Reader(faces.shape[1])
    glyphs, wanted = flat(faces)
    batches = torch.cat([torch.randperm(len(glyphs)) for _ in range(epochs)]).split(BATCH)
    optimizer = torch.optim.Adam(reader.parameters(), lr=2e-3)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=len(batches))
    for rows in batches:
        optimizer.zero_grad()
        F.cross_entropy(reader(glyphs[rows]), wanted[rows]).backward()
        optimizer.step()
        rate.step()
    return reader


def flat(faces: Alphabets) -> tuple[Tensor, Tensor]:
    """The glyphs (n, 1, r, r), and which characters they are (n,)."""
    return faces.flatten(0, 1), torch.arange(faces.shape[1]).repeat(len(faces))


@torch.no_grad()
def share_read(reader: Reader, faces: Alphabets, characters: Sequence[str]) -> tuple[float, float]:
    """The share of glyphs that are read right, and where confusing alike ones is no mistake."""
    glyphs, wanted = flat(faces)
    found = torch.cat([reader(some).argmax(dim=1) for some in glyphs.split(512)])
    pairs = [(characters[i], characters[j]) for i, j in zip(found, wanted, strict=True)]
    right = [a == b for a, b in pairs]
    kindly = [a == b or {a, b} in ALIKE for a, b in pairs]
    return float(np.mean(right)), float(np.mean(kindly))


def traits(faces: Alphabets) -> dict[str, np.ndarray]:
    """Numbers (faces, characters) that typographers choose for a whole face."""
    ink = faces.squeeze(2).double()
    side = ink.shape[-1]
    total = ink.sum(dim=(2, 3)).clamp_min(1e-6)
    at = torch.arange(side, dtype=torch.float64)

    def mean(values: Tensor) -> Tensor:
        return (ink * values).sum(dim=(2, 3)) / total

    x = at - mean(at.expand(side, side))[..., None, None]
    y = at[:, None] - mean(at[:, None].expand(side, side))[..., None, None]
    slant = -mean(x * y) / mean(y * y).clamp_min(1e-6)
    return {
        "darkness": (total / side**2).numpy(),
        "width": mean(x * x).sqrt().numpy(),
        "slant": slant.numpy(),
    }


def belonging(values: np.ndarray) -> float:
    """The intraclass correlation, ICC(1), of numbers (faces, characters): at most 1."""
    z = (values - values.mean(axis=0)) / values.std(axis=0).clip(1e-12)
    k = z.shape[1]
    between = k * z.mean(axis=1).var(ddof=1)
    within = z.var(axis=1, ddof=1).mean()
    return float((between - within) / (between + (k - 1) * within))


@click.command()
@click.argument("source")
@click.option("--data", type=values.INPUT, required=True, help="What datasets/glyphs.py made.")
@click.option("--seeds", default=200, show_default=True, help="Number of seeds.")
@click.option("--psi", type=float, multiple=True, default=(1.0, 0.7), show_default=True)
@click.option("--epochs", default=4, show_default=True, help="Over half of the faces.")
def main(source: str, data: Path, seeds: int, psi: tuple[float, ...], epochs: int) -> None:
    """Read the glyphs of SOURCE, and compare what those of a seed share with real typefaces."""
    loaded = load_source(source)
    reals, characters = reals_of(data, loaded.resolution)
    if characters != list(loaded.label_names):
        raise click.ClickException(f"{source} and {data} have other characters")
    reader = taught(reals[::2], epochs)
    sets = {"faces that the reader has not seen": reals[1::2]}
    for one in psi:
        sets[f"`{source}`, psi {one:g}"] = samples_of(loaded, range(seeds), one)
    mixed = reals[1::2].clone()
    for j in range(len(characters)):
        mixed[:, j] = mixed[torch.randperm(len(mixed)), j]
    sets["the same, thrown together"] = mixed
    print("| | faces | read | 0 as O and 1 as I allowed | darkness | width | slant |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, faces in sets.items():
        read, kindly = share_read(reader, faces, characters)
        shares = " | ".join(f"{belonging(values):.2f}" for values in traits(faces).values())
        print(f"| {name} | {len(faces)} | {read:.1%} | {kindly:.1%} | {shares} |")


if __name__ == "__main__":
    main()
