"""Whether reduced precision trains as float32 does: losses of the same steps side by side."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import peaks
import torch
from contest import conditions, number, options, save

from stylegan.cli.common import Command
from stylegan.config import TrainConfig, bundled, load_config
from stylegan.data import Store, batches, cached_store, process_reals
from stylegan.schedule import stage_at
from stylegan.training import Share, TrainState, draw, train_step

SMALL = [  # the quickstart's pictures at 32x32 from the start; the paper's gamma and rates
    "network.max_channels=16",
    "network.z_dim=64",
    "network.w_dim=64",
    "network.mapping_width=64",
    "schedule.stable_kimg=0",
    "schedule.fade_kimg=0",
    "schedule.batch_size={ 4 = 8 }",
    "schedule.g_lr={ 4 = 0.001 }",
    "schedule.d_lr={ 4 = 0.001 }",
    "r1_gamma=10.0",
]
OTHER_SEED = "fp32, other seed"
Curves = Mapping[str, Sequence[float]]  # of every metric, by step


def curves(config: TrainConfig, store: Store, device: str, steps: int) -> Curves:
    """Metrics of the first steps; the number of skipped updates is one of them."""
    peaks.set_precision(config.precision)
    state, share = TrainState.create(config, device=device), Share(device=device)
    stage = stage_at(0, config.schedule)
    loader = batches(
        store,
        stage.resolution,
        batch_size=stage.batch_size,
        start=0,
        seed=config.seed,
        workers=0,
        device=device,
    )
    found: dict[str, list[float]] = {}
    for _ in range(steps):
        reals = process_reals(next(loader)[0], alpha=stage.alpha)
        draws = draw(config, state.images_seen, stage, None, share)
        metrics = train_step(state, reals, None, stage, draws)
        for name, value in metrics.items():
            found.setdefault(name, []).append(value.item())
        found.setdefault("skipped updates", []).append(state.skipped_g + state.skipped_d)
    return found


def smooth(values: Sequence[float], width: int) -> list[float]:
    """Averages over `width` neighbours."""
    x = torch.tensor(values, dtype=torch.float64)
    return [float(v) for v in x.unfold(0, min(width, len(x)), 1).mean(dim=1)]


def deviation(found: Sequence[float], exact: Sequence[float], width: int) -> float:
    """The largest difference of the smooth curves, relative to the largest value of the exact."""
    pairs = list(zip(smooth(found, width), smooth(exact, width), strict=True))
    largest = max(abs(e) for _, e in pairs)
    return max(abs(f - e) for f, e in pairs) / largest if largest else 0.0


def table(runs: Mapping[str, Curves]) -> list[dict[str, str]]:
    """For every metric the average of the last third, and how far the curves lie apart."""
    exact = runs["fp32"]
    rows = []
    for metric, values in exact.items():
        third = max(len(values) // 3, 1)
        row = {"metric": metric}
        for name, run in runs.items():
            row[name] = number(sum(run[metric][-third:]) / third)
            if name != "fp32" and metric != "skipped updates":
                row[name] += f" (apart {deviation(run[metric], values, third // 4 + 1):.1%})"
        rows.append(row)
    return rows


@click.command(cls=Command)
@click.argument("precisions", type=click.Choice(["tf32", "bf16", "fp16"]), nargs=-1)
@click.option("--steps", type=click.IntRange(min=1), default=300, show_default=True)
@click.option("-o", "settings", multiple=True, metavar="KEY=VALUE", help="For all runs.")
@options("device", "threads", "out")
def main(
    precisions: Sequence[str],
    steps: int,
    settings: Sequence[str],
    device: str,
    threads: int,
    out: Path,
) -> None:
    """Train a small network on the bundled pictures in fp32 and in PRECISIONS (bf16 unless given).

    All runs begin with the same weights and see the same images and noise. Another seed in fp32
    shows how far curves lie apart by chance. A curve is an average over a twelfth of the steps.

    \b
    python benchmarks/precision.py bf16 fp16 --device cuda -o network.max_channels=512
    """
    torch.set_num_threads(threads)
    todo = {"fp32": [], OTHER_SEED: ["seed=1"]}
    todo |= {name: [f'precision="{name}"'] for name in precisions or ["bf16"]}
    runs: dict[str, Curves] = {}
    with tempfile.TemporaryDirectory() as cache:
        for name, extra in todo.items():
            config = load_config("quickstart", [*SMALL, *settings, *extra])
            store = cached_store(
                bundled("datasets/emoji-32.zip"),
                resolution=config.network.resolution,
                include=config.data.include,
                cache_dir=cache,
            )
            runs[name] = curves(config, store, device, steps)
    record: dict[str, Any] = {
        "conditions": conditions({**os.environ, "OMP_NUM_THREADS": str(threads)}, device),
        "settings": [*SMALL, *settings],
        "runs": runs,
    }
    click.echo(save(out, "precision", f"Losses of {steps} steps", record, table(runs)))


if __name__ == "__main__":
    main()
