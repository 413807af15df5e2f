"""How long a complete training iteration takes: ours, against the textbook or another revision."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import peaks
import torch
import work
from contest import (
    GIB,
    Contender,
    Result,
    Spread,
    Trial,
    common_options,
    conditions,
    contest,
    environment_for,
    markdown,
    number,
    on_gpu,
    ratio,
    save,
    spread,
    tree_of,
)
from torch import Tensor

from stylegan.cli.common import Command
from stylegan.config import TrainConfig, load_config
from stylegan.schedule import OFFICIAL_BATCH_SIZES, Stage, at_resolution, stage_at
from stylegan.training import Share, TrainState, draw, train_step

PRECISIONS = list(peaks.DTYPES)
SMALL_NETWORK = 64  # on a CPU, unless the stage is larger
TEXTBOOK = (  # what it has: R1 in every step, one learning rate for both networks
    "r1_interval=1",
    "schedule.g_lr={4=0.001}",
    "schedule.d_lr={4=0.001}",
)


def stage_of(config: TrainConfig, settings: dict[str, Any]) -> Stage:
    """The stage to measure, with the learning rates that the schedule has there."""
    stage = stage_at(config.schedule.total_images, config.schedule)
    resolution = settings["resolution"]
    return dataclasses.replace(
        stage,
        resolution=resolution,
        alpha=settings["alpha"],
        batch_size=settings["batch"],
        g_lr=at_resolution(config.schedule.g_lr, resolution),
        d_lr=at_resolution(config.schedule.d_lr, resolution),
    )


def prepare(settings: dict[str, Any]) -> tuple[TrainState, Stage, Tensor, Share]:
    """Our state at its first step, and the images that every step is shown."""
    config = load_config(settings["config"], settings["overrides"])
    peaks.set_precision(config.precision)
    stage, share = stage_of(config, settings), Share(device=settings["device"])
    state = TrainState.create(config, device=settings["device"])
    size = (stage.batch_size, config.network.image_channels, stage.resolution, stage.resolution)
    reals = torch.rand(size, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return state, stage, reals.to(share.device), share


def ours(settings: dict[str, Any]) -> Trial:
    state, stage, reals, share = prepare(settings)

    def once() -> None:
        probability = state.strength.probability
        draws = draw(state.config, state.images_seen, stage, None, share, probability)
        train_step(state, reals, None, stage, draws)

    return Trial(once, settings["device"])


def textbook(settings: dict[str, Any]) -> Trial:
    from textbook import textbook_state, textbook_step

    state, stage, reals, share = prepare(settings)
    config = state.config
    weights = state.generator.state_dict(), state.discriminator.state_dict()
    opponent = textbook_state(config, *weights)
    seen = 0
    del state, weights

    def once() -> None:
        nonlocal seen
        draws = draw(config, seen, stage, None, share)
        textbook_step(opponent, reals, stage, draws)
        seen += stage.batch_size

    return Trial(once, settings["device"])


@dataclass(frozen=True)
class Row:
    """What was measured of one of our precisions at one resolution."""

    resolution: int
    batch: int
    precision: str
    done: work.Work  # as ours multiply
    work: work.Work  # of plain convolutions with every resampling fused: more, on CPUs
    official_flops: float  # with the official fusing
    peaks: peaks.Peaks | None
    ours: Result
    theirs: Result | None

    def record(self) -> dict[str, Any]:
        """For JSON: what was measured, and what follows."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if not self.ours.seconds:
            return values
        seconds, theirs = Spread.of(self.ours.seconds), self.theirs
        rate = self.work.flops / seconds.median
        values |= {"seconds": seconds, "images_per_second": seconds.per(self.batch)}
        values["flops_per_second"] = rate
        if self.peaks:
            bound = self.done.bound(self.peaks.convolution_flops, self.peaks.copy_bytes)
            values["share_of_peak"] = rate / self.peaks.convolution_flops
            values["bound_seconds"], values["share_of_bound"] = bound, bound / seconds.median
        if theirs and theirs.seconds:
            values["their_seconds"] = Spread.of(theirs.seconds)
            values["ratio"] = ratio(theirs, self.ours)
            if self.ours.peak_bytes and theirs.peak_bytes:
                values["memory_ratio"] = self.ours.peak_bytes / theirs.peak_bytes
        return values

    def cells(self) -> dict[str, str]:
        """The row of the table."""
        cells = {"px": f"{self.resolution}", "batch": f"{self.batch}", "precision": self.precision}
        values, theirs = self.record(), self.theirs
        if "seconds" not in values:
            return {**cells, "s/iteration": self.ours.error}
        cells["s/iteration"] = spread(values["seconds"])
        cells["img/s"] = number(values["images_per_second"].median)
        if theirs:
            seconds = values.get("their_seconds")
            cells["theirs s"] = spread(seconds) if seconds else theirs.error
            cells["ratio"] = spread(values["ratio"], "x") if seconds else ""
        cells["GFLOP/img"] = number(self.work.flops / self.batch / 1e9)
        cells["GFLOP/s"] = number(values["flops_per_second"] / 1e9)
        if self.peaks:
            cells["of peak"] = f"{values['share_of_peak']:.0%}"
            cells["of bound"] = f"{values['share_of_bound']:.0%}"
        if self.ours.peak_bytes is not None:
            cells["peak GiB"] = number(self.ours.peak_bytes / GIB)
        if theirs and "memory_ratio" in values:
            cells["theirs GiB"] = number((theirs.peak_bytes or 0) / GIB)
            cells["memory"] = f"{number(values['memory_ratio'])}x"
        return cells


def profiled(settings: dict[str, Any]) -> Trial:
    """The 25 operations that one iteration of ours spends most time in, as `facts`."""
    from torch.profiler import ProfilerActivity, profile

    trial = ours(settings)
    for _ in range(3):
        trial.once()
    on_gpu = trial.device.startswith("cuda")
    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * on_gpu]) as found:
        trial.once()
    key = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    averages = found.key_averages()
    trial.facts["table"] = averages.table(sort_by=key, row_limit=25, max_name_column_width=60)
    return trial


@dataclass(frozen=True)
class Question:
    """What is compared, at whatever resolution and batch."""

    config: str | None  # a name; None: the paper's
    precisions: Sequence[str]
    alpha: float
    clock: str
    device: str
    against: str  # textbook, none, ours, or a revision
    settings: Sequence[str]
    their_settings: Sequence[str]
    tree: Path  # of the opponent

    def settings_for(self, resolution: int, batch: int, extra: Sequence[str]) -> dict[str, Any]:
        """Settings of a worker: the paper's network is full size on a GPU; `extra` options win."""
        network = 1024 if on_gpu(self.device) else max(SMALL_NETWORK, resolution)
        own = [f"network.resolution={network}", f"schedule.batch_size={{4={batch}}}"]
        own += [*(TEXTBOOK if self.against == "textbook" else ()), *extra]
        place = {"resolution": resolution, "batch": batch, "alpha": self.alpha}
        machine = {"device": self.device, "clock": self.clock}
        return {**place, **machine, "config": self.config, "overrides": own}

    def contenders(self, resolution: int, batch: int) -> list[tuple[Contender, Contender | None]]:
        """Ours in each precision with its opponent, which may be the same for all."""
        pairs: list[tuple[Contender, Contender | None]] = []
        for name in self.precisions:
            extra = [f'precision="{name}"']
            own = self.settings_for(resolution, batch, [*extra, *self.settings])
            ours, theirs = Contender(f"ours {name}", "iteration:ours", own), None
            if self.against == "textbook":
                own = self.settings_for(resolution, batch, self.their_settings)
                theirs = Contender("textbook", "iteration:textbook", own)
            elif self.against != "none":
                own = self.settings_for(resolution, batch, [*extra, *self.their_settings])
                theirs = Contender(
                    f"against {self.against} {name}", "iteration:ours", own, self.tree
                )
            pairs.append((ours, theirs))
        return pairs


def measure(
    question: Question,
    resolution: int,
    batch: int,
    environment: dict[str, str],
    seconds: float,
    min_rounds: int,
    found: Mapping[str, peaks.Peaks],
) -> list[Row]:
    """One contest of all precisions and opponents: a row for each precision."""
    pairs = question.contenders(resolution, batch)
    every = {c.name: c for pair in pairs for c in pair if c is not None}
    results = contest(list(every.values()), environment, seconds=seconds, min_rounds=min_rounds)
    by_name = {result.name: result for result in results}
    rows = []
    for precision, (ours, theirs) in zip(question.precisions, pairs, strict=True):
        config = load_config(question.config, ours.settings["overrides"])
        count = partial(
            work.iteration,
            config.network,
            resolution,
            batch=batch,
            fading=question.alpha < 1,
            mixing=config.style_mixing,
            number_bytes=peaks.DTYPES[config.precision].itemsize,
        )
        plain = on_gpu(question.device) or precision not in ("fp32", "tf32")
        rows.append(
            Row(
                resolution,
                batch,
                precision,
                count(fusing="everywhere" if plain else "winograd"),
                count(fusing="everywhere"),
                count(fusing="official").flops,
                found.get(precision),
                by_name[ours.name],
                by_name[theirs.name] if theirs else None,
            )
        )
    return rows


def cases(resolutions: Sequence[int], batches: Sequence[int], device: str) -> list[tuple[int, int]]:
    """Resolutions and batches to measure."""
    gpu = on_gpu(device)
    found = []
    for r in resolutions or [2**k for k in range(2, 11 if gpu else 7)]:
        usual = at_resolution(OFFICIAL_BATCH_SIZES[1], r) if gpu else 4
        found += [(r, size) for size in batches or [usual]]
    return found


def show_profile(
    question: Question, resolution: int, batch: int, environment: dict[str, str]
) -> None:
    for ours, _ in question.contenders(resolution, batch):
        contender = dataclasses.replace(ours, task="iteration:profiled")
        (result,) = contest([contender], environment, seconds=0, min_rounds=1)
        click.echo(f"\n{resolution} px, batch {batch}, {ours.name}")
        click.echo(result.error or result.facts["table"])


@click.command(cls=Command)
@click.argument("resolutions", type=int, nargs=-1)
@click.option("--config", help="Name of the configuration.  [default: the paper's]")
@click.option(
    "--batch",
    type=int,
    multiple=True,
    help="Images of an iteration.  [default: 4; on a GPU the official of one]",
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    multiple=True,
    default=["fp32"],
    show_default=True,
    help="Precision of ours; may be given several times.",
)
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    help="Below 1 the resolution is growing in.",
)
@click.option(
    "--against",
    default="textbook",
    show_default=True,
    help="textbook, none, ours (the same code with --their settings), a git revision.",
)
@click.option(
    "-o", "settings", multiple=True, metavar="KEY=VALUE", help="Option of our configuration."
)
@click.option(
    "--their",
    "their_settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the configuration of the opponent.",
)
@click.option("--min-rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--peaks/--no-peaks",
    "with_peaks",
    default=True,
    help="Measure what the machine can do, for shares of it.",
)
@click.option("--profile", "profiling", is_flag=True, help="Only show where our time goes.")
@click.option(
    "--clock",
    type=click.Choice(["wall", "cpu"]),
    default="wall",
    show_default=True,
    help="cpu: time of all threads on processors, which other programs disturb less.",
)
@common_options
def main(
    resolutions: Sequence[int],
    config: str | None,
    batch: Sequence[int],
    precision: Sequence[str],
    alpha: float,
    against: str,
    settings: Sequence[str],
    their_settings: Sequence[str],
    min_rounds: int,
    with_peaks: bool,
    profiling: bool,
    clock: str,
    device: str,
    threads: int,
    malloc: str,
    seconds: float,
    out: Path,
) -> None:  # fmt: skip
    """Time iterations at RESOLUTIONS: draws, discriminator with R1, average, generator, Adam.

    Options of the configuration are those of `train.py`; `network.resolution` is that of the
    whole network, of which a stage is a part.

    \b
    python benchmarks/iteration.py 8 16 32 64 --batch 4 --batch 16
    python benchmarks/iteration.py 32 --against HEAD~3
    python benchmarks/iteration.py 8 --against ours --their network.resolution=1024
    python benchmarks/iteration.py --device cuda --precision tf32 --precision bf16
    """
    environment = environment_for(threads, malloc)
    revision = None if against in ("textbook", "none", "ours") else against
    rows: list[Row] = []
    with tree_of(revision) as tree:
        question = Question(
            config, precision, alpha, clock, device, against, settings, their_settings, tree
        )
        if profiling:
            for resolution, size in cases(resolutions, batch, device):
                show_profile(question, resolution, size, environment)
            return
        found = peaks.measure(device, precision if with_peaks else [], environment)
        record: dict[str, Any] = {
            "conditions": conditions(environment, device) | {"clock": clock},
            "config": config,
            "against": against,
            "alpha": alpha,
            "settings": settings,
            "their_settings": their_settings,
            "peaks": found,
        }
        for resolution, size in cases(resolutions, batch, device):
            new = measure(question, resolution, size, environment, seconds, min_rounds, found)
            rows += new
            click.echo(markdown([row.cells() for row in new]) + "\n", err=True)
            record["rows"] = [row.record() for row in rows]
            title = f"One training iteration against {against}"
            text = save(out, "iteration", title, record, [row.cells() for row in rows])
    click.echo(text)


if __name__ == "__main__":
    main()
