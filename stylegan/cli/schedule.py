"""`stylegan schedule`: what a configuration trains when."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stylegan.cli import values
from stylegan.cli.common import Command
from stylegan.cli.terminal import say
from stylegan.messages import aligned, count

if TYPE_CHECKING:
    from stylegan.config import TrainConfig
    from stylegan.schedule import ScheduleConfig, Stage

HEADER = ("kimg", "resolution", "alpha", "batch", "G rate", "D rate", "steps", "ticks")


@click.command(cls=Command)
@click.argument("config", required=False)
@click.option(
    "-o",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the configuration to change.",
)
@click.option(
    "--processes",
    type=values.whole_number(1),
    help="Number of processes, which decides the batches.",
)
def schedule(config: str | None, overrides: tuple[str, ...], processes: int | None) -> None:
    """Show each phase of training: images, resolution, fade, batch, learning rates.

    CONFIG is a name under configs/, a TOML file or a run folder; without it, the paper's
    settings. Steps are rounded up; training reads the schedule once per few of them.

    \b
    stylegan schedule ffhq-256 --processes 8
    stylegan schedule -o schedule.total_kimg=10000
    """
    from stylegan.schedule import phases

    chosen = configuration(config, overrides, processes)
    plan = chosen.schedule
    rows = [phase_row(start, end, stage, plan) for start, end, stage in phases(plan)]
    say(*aligned([HEADER, *rows]))
    say(
        f"{config or 'the paper'}: {plan.total_kimg:,.10g} kimg in total, "
        f"for {count(plan.num_processes, 'process')}"
    )


def configuration(
    name: str | None, overrides: tuple[str, ...], processes: int | None
) -> "TrainConfig":
    """The configuration of a name or file, or the complete one that a run folder holds."""
    from stylegan.config import load_config
    from stylegan.run_folder import RunFolder

    if name is None or not Path(name).is_dir():
        return load_config(name, overrides, processes or 1)
    config = RunFolder(name).config()
    if overrides or processes:
        raise ValueError(f"{name} is a run: its schedule is fixed, -o and --processes do not apply")
    return config


def phase_row(start: int, end: int, stage: "Stage", plan: "ScheduleConfig") -> tuple[str, ...]:
    """The cells of one phase: from `start` to `end` images, `stage` in its middle."""
    from stylegan.schedule import stage_at

    first = stage_at(start + 1 if start else 0, plan)  # a fade begins after its first image
    last = stage_at(end - 1, plan)
    fading = f"{round(first.alpha, 2):g} - {round(last.alpha, 2):g}"
    return (
        f"{start / 1000:,.10g} - {end / 1000:,.10g}",
        f"{stage.resolution}",
        "1" if stage.alpha == 1 else fading,
        f"{stage.batch_size}",
        span(first.g_lr, last.g_lr),
        span(first.d_lr, last.d_lr),
        f"{-(-(end - start) // stage.batch_size):,}",
        f"{(end - start) / 1000 / stage.tick_kimg:,.1f}",
    )


def span(first: float, last: float) -> str:
    return f"{first:.3g}" if f"{first:.3g}" == f"{last:.3g}" else f"{first:.3g} - {last:.3g}"
