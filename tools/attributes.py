"""Directions that small classifiers teach, and what happens along them: docs/editing.md.

    python tools/attributes.py emoji64 pictures64 --out docs/editing/logits.webp

`pictures64` holds the training pictures, whose names say their attributes. A classifier of each
attribute teaches a direction; then pictures of other seeds are moved along all directions, also
along those that are orthogonal to the others, and every classifier says what has changed.
"""

import itertools
import re
from collections.abc import Mapping
from pathlib import Path

import click
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, binary_cross_entropy_with_logits

from stylegan.directions import Directions, Edit, classified, learnt, separated
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.loading import load_source
from stylegan.projection import read_target

ATTRIBUTES = {  # what names of pictures with it, and of those without it, contain
    "head": ("heads/", "smileys/"),
    "dark": ("dark-skin", "light-skin"),
    "beard": ("beard", "heads/(?!.*beard)"),
}
HELD_OUT = 5  # one of so many pictures is not trained on
STEPS, BATCH = 200, 64
SAMPLES = 2000  # that the classifiers look at, to teach
SEEDS = range(100_000, 100_064)
STRENGTHS = np.linspace(-3, 3, 13)


def pictures_of(root: Path, loaded: LoadedGenerator, sides: tuple[str, str]) -> tuple[Tensor, ...]:
    """Images (N, C, r, r) of the training pictures of both sides, and 1 or 0 (N,) for each."""
    channels = loaded.generator.config.image_channels
    images, present = [], []
    for path in sorted(root.rglob("*.png")):
        found = [bool(re.search(side, path.relative_to(root).as_posix())) for side in sides]
        if any(found):
            images.append(read_target(path, resolution=loaded.resolution, channels=channels))
            present.append(float(found[0]))
    return torch.cat(images), torch.tensor(present)


def varied(images: Tensor, draws: torch.Generator) -> Tensor:
    """Mirrored, moved by up to 4 pixels and blurred at random, as samples vary and are blurred."""
    mirror, blur = torch.rand(2, generator=draws) < 0.5
    dy, dx = torch.randint(-4, 5, (2,), generator=draws).tolist()
    images = images.flip(3) if mirror else images
    images = avg_pool2d(images, 5, 1, 2, count_include_pad=False) if blur else images
    return images.roll((dy, dx), (2, 3))


def trained(images: Tensor, present: Tensor) -> tuple[nn.Module, float]:
    """A classifier, and the share of held-out pictures of which it is right."""
    torch.manual_seed(0)
    draws = torch.Generator().manual_seed(0)
    widths = (images.shape[1], 16, 32, 32)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.LeakyReLU(0.2)]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 1))
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3, weight_decay=0.1)
    apart = torch.arange(len(images)) % HELD_OUT == 0
    sides = [torch.nonzero(~apart & (present == side))[:, 0] for side in (0, 1)]
    for _ in range(STEPS):  # as many of either side
        some = torch.cat([x[torch.randint(len(x), (BATCH // 2,), generator=draws)] for x in sides])
        logits = network(varied(images[some], draws))[:, 0]
        loss = binary_cross_entropy_with_logits(logits, present[some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval().requires_grad_(False)
    right = (network(images[apart])[:, 0] > 0) == present[apart].bool()
    return network, float(right.float().mean())


@torch.inference_mode()
def logits_along(
    loaded: LoadedGenerator, edit: Edit, classifiers: Mapping[str, nn.Module]
) -> dict[str, np.ndarray]:
    """What each classifier says of the seeds at each strength of the edit: (strengths, seeds)."""
    said: dict[str, list[np.ndarray]] = {name: [] for name in classifiers}
    for strength in STRENGTHS.tolist():
        moved = [Edit(edit.direction, strength)] if strength else []
        pictures = np.stack(list(loaded.pictures(SEEDS, psi=1, edits=moved)))
        images = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1
        for name, network in classifiers.items():
            said[name].append(network(images)[:, 0].numpy())
    return {name: np.stack(rows) for name, rows in said.items()}


def table(along: Mapping[str, Mapping[str, np.ndarray]], spreads: Mapping[str, float]) -> list[str]:
    """Of each direction, how far a step of 1 moves each logit, in its spread over samples."""
    names = list(spreads)
    lines = [f"| direction | {' | '.join(names)} | its own: steps that rise | seeds higher at 3 |"]
    lines.append("|---" * (len(names) + 3) + "|")
    for direction, said in along.items():
        means = {name: said[name].mean(axis=1) for name in names}
        cells = [
            f"{np.polyfit(STRENGTHS, means[name], 1)[0] / spreads[name]:+.2f}" for name in names
        ]
        name = direction.split()[0].removeprefix("svm:")
        rising, higher = np.diff(means[name]) > 0, said[name][-1] > said[name][0]
        cells += [f"{rising.sum()} of {len(rising)}", f"{higher.sum()} of {len(higher)}"]
        lines.append(f"| `{direction}` | {' | '.join(cells)} |")
    return lines


def plot(along: Mapping[str, Mapping[str, np.ndarray]], out: Path) -> None:
    """Means and quartiles of all logits along each direction."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6), layout="constrained")
    grid = figure.subplots(2, len(along) // 2, sharex=True, sharey=True)
    for axes, (direction, said) in zip(grid.T.flat, along.items(), strict=True):
        for name, rows in said.items():
            low, middle, high = np.quantile(rows, [0.25, 0.5, 0.75], axis=1)
            (line,) = axes.plot(STRENGTHS, middle, label=name)
            axes.fill_between(STRENGTHS, low, high, color=line.get_color(), alpha=0.15, lw=0)
        axes.set_title(f"along {direction}")
        axes.axhline(0, color="gray", lw=0.5)
    figure.supxlabel("strength")
    figure.supylabel("logit: median and quartiles")
    figure.axes[0].legend()
    figure.savefig(out, dpi=110)


@click.command()
@click.argument("source")
@click.argument("pictures", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=Path("logits.webp"))
def main(source: str, pictures: Path, out: Path) -> None:
    """Teach and measure directions of SOURCE, whose training PICTURES are named."""
    loaded = load_source(source)
    classifiers: dict[str, nn.Module] = {}
    directions: dict[str, Directions] = {}
    rows = {}
    for name, sides in ATTRIBUTES.items():
        images, present = pictures_of(pictures, loaded, sides)
        classifiers[name], right = trained(images, present)
        rows[name] = classified(loaded, classifiers[name], name, SAMPLES)
        plane = separated(rows[name])
        directions[name] = learnt(loaded.generator, "svm", {name: plane}, SAMPLES)
        click.echo(
            f"{name}: {len(images)} pictures, {present.mean():.0%} with it; classifier right on "
            f"{right:.1%} held out; plane right on {plane.accuracy:.1%} of samples held out, of "
            f"which {rows[name].present.mean():.0%} have it"
        )
    along = {}
    for name, found in directions.items():
        others = torch.cat([d.vectors for other, d in directions.items() if other != name])
        apart = learnt(loaded.generator, "svm", {name: separated(rows[name], others)}, SAMPLES)
        for title, one in ((f"svm:{name}", found), (f"svm:{name} apart", apart)):
            along[title] = logits_along(loaded, one.edit(name, 1), classifiers)
    still = next(iter(along.values()))
    spreads = {name: float(rows[len(STRENGTHS) // 2].std()) for name, rows in still.items()}
    for line in table(along, spreads):
        click.echo(line)
    plot(along, out)


if __name__ == "__main__":
    main()
