"""Lines on a plan for the user: findings, choices, time and advice."""

import torch

from stylegan.config import TrainConfig
from stylegan.data import Findings
from stylegan.data.sources import kinds_of
from stylegan.machine.messages import aligned, count, duration, gib, listed, readable
from stylegan.machine.toml import toml_value
from stylegan.schedule import batch_size_at, official_batch_sizes, phases
from stylegan.training.costs import Costs
from stylegan.training.transfer import warmup_lines

HANDFUL = 10  # pictures
MOST_CLASSES = 12  # that are named
FEW = 2000  # pictures
FAR_TOO_SHORT = 0.5  # of the usual length of a training; of less is warned
LEAST_AUGMENTED_KIMG = 200.0  # shorter trainings did not overfit: docs/experiments.md


def found_lines(findings: Findings) -> list[str]:
    """Return lines on a source: pictures, sizes, and how many reach each resolution."""
    sizes = " to ".join(dict.fromkeys(findings.ends()))
    line = f"{readable(findings.path)}: {count(findings.num_good, 'picture')} of {sizes}"
    line += "" if findings.kind == "store" else ", by the headers of the files"
    lines = [line]
    reach = findings.reach()
    if oblong := sum(n for (width, height), n in findings.sizes.items() if width != height):
        treatments = {
            "center": "only the middle square is used",
            "pad": "the middle {}:{} is used, between bars".format(*findings.fit.aspect),
            "stretch": "squeezed to a square",
        }
        lines.append(f"{oblong:,} not square: {treatments[findings.fit.kind]} (--crop, --aspect)")
    # from 32, or the largest that all reach
    least = max(findings.resolution() or 0, min(32, max(reach, default=0)))
    table = {r: n for r, n in reach.items() if r >= least}
    if set(table.values()) != {findings.num_good}:
        counts = [f"{n:,}" for n in table.values()]
        rows = [["  resolution", *map(str, table)], ["  pictures that reach it", *counts]]
        lines += aligned(rows, left=[0])
    if labels := findings.labels:
        number = count(len(labels.names), "number" if labels.vectors else "class")
        lines.append(f"{number} for --labels: {listed(labels.names, MOST_CLASSES, ', ')}")
    return lines + ([f"ignored: {kinds_of(findings.ignored)}"] if findings.ignored else [])


def chosen_lines(config: TrainConfig, hindrance: str) -> list[str]:
    """Return lines on the choices for pictures and machine."""
    resolution = config.network.resolution
    line = (
        f"chosen for them and this machine: --resolution {resolution} "
        f"--width {config.network.max_channels} --kimg {config.schedule.total_kimg:g} "
        f"-o schedule.batch_size={batch_size_at(resolution, config.schedule)} "
        f"-o 'r1_gamma={toml_value(config.r1_gamma)}' "
        f"-o 'augment.kind=\"{config.augment.kind}\"' "
        f"-o ema_half_life_kimg={config.ema_half_life_kimg:g}"
    )
    line += f" --batch-gpu {config.batch_gpu}" if config.batch_gpu else ""
    why = [f"not a larger resolution: {hindrance}"] if hindrance else []
    return [f"{line}; your own options are kept", *why]


def length_lines(
    minutes: float, config: TrainConfig, *, usual_kimg: float, started: bool
) -> list[str]:
    """Return lines on the length that fits into the minutes; `started` from other weights."""
    kimg = config.schedule.total_kimg
    resolution = config.network.resolution
    unit = "minute" if minutes == 1 else "minutes"
    lines = [f"{minutes:g} {unit} of training here: {kimg:g} kimg at {resolution}x{resolution}"]
    share = kimg / usual_kimg
    if share < FAR_TOO_SHORT:
        outcome = "pictures near those of the weights" if started else "blotches, not pictures"
        lines.append(
            f"that is {share:.1%} of the usual length: expect {outcome}; about "
            f"{minutes / share:.0f} minutes would be usual"
        )
    return lines


def advice(images: int, config: TrainConfig, *, started: bool) -> list[str]:
    """Return advice for few pictures; `started` from other weights already."""
    pictures = count(images, "usable picture")
    if images < HANDFUL:
        return [f"WARNING: {pictures}: the network will learn them by heart and show little else"]
    lines = ["--mirror doubles them, if left and right may be exchanged"]
    if config.data.mirror:
        lines = ["half of them are shown mirrored; if that is wrong: -o data.mirror=false"]
    if images < FEW:
        lines.insert(0, f"{pictures} are few: more would help most; stop when samples get worse")
        if config.augment.kind == "none" and config.schedule.total_kimg >= LEAST_AUGMENTED_KIMG:
            lines.append("-o 'augment.kind=\"ada\"' keeps the network from learning them by heart")
        if not started:
            lines.append("trained weights of a similar kind help: --init-from, docs/training.md")
    return lines


def plan_lines(config: TrainConfig, costs: Costs, device: torch.device) -> list[str]:
    """Return a row for each phase: length, batch, learning rates, memory, time."""
    has_times = bool(costs.seconds)
    head = ["kimg", "resolution", "batch", "G rate", "D rate", "steps", "memory"]
    rows = [[*head, "time"] if has_times else head]
    for first, end, stage in phases(config.schedule):
        images = end - first
        kimg = "-".join(f"{n / 1000:,.10g}" for n in (first, end))
        resolution = f"{stage.resolution}{' fades in' if stage.alpha < 1 else ''}"
        row = [kimg, resolution, str(stage.batch_size), f"{stage.g_lr:g}", f"{stage.d_lr:g}"]
        row += [f"{-(-images // stage.batch_size):,}", gib(costs.memory[stage.resolution])]
        if has_times:
            mark = "~" if stage.resolution in costs.guessed else ""
            row.append(mark + duration(costs.seconds[stage.resolution] * images))
        rows.append(row)
    lines = [*aligned(rows), *warmup_lines(config)]
    if ramp := config.schedule.ramp_kimg:
        lines.append(f"rates rise linearly from 0 over the first {ramp:,.10g} kimg (ramp_kimg)")
    kind = "measured" if has_times and device.type == "cuda" else "estimated"
    legend = f"precision {config.precision}; memory is that of one step, {kind}"
    legend += "; ~ = guessed from a smaller step" if costs.guessed and has_times else ""
    batches = "batches: of all processes together, whatever their number"
    processes = config.schedule.num_processes
    if config.schedule.batch_size == official_batch_sizes(processes):
        batches = (
            f"batches: the official ones for {count(processes, 'process')}, all together; they "
            "follow the number of processes with which a run begins"
        )
    return [*lines, legend, batches]
