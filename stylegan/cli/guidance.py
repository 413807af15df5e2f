"""What `train` tells a user: what was found, what is chosen, what helps, and what comes next."""

import shlex
from typing import TYPE_CHECKING

from stylegan.messages import aligned, count, readable
from stylegan.schedule import batch_size_at

if TYPE_CHECKING:
    from stylegan.config import TrainConfig
    from stylegan.data import Findings
    from stylegan.fitting import Choice
    from stylegan.run_folder import RunFolder

HANDFUL, FEW = 10, 2000  # pictures


def found_lines(findings: "Findings") -> list[str]:
    """What a source holds: pictures, sizes, and how many reach each resolution."""
    from stylegan.data.sources import kinds_of

    line = f"{readable(findings.path)}: {count(findings.num_good, 'picture')}"
    if findings.sizes:
        small, large = findings.ends()
        line += f" of {small}" if small == large else f" from {small} to {large}"
    lines, reach = [line], findings.reach()
    # from 32, or the largest that all reach
    least = max(findings.resolution() or 0, min(32, max(reach, default=0)))
    table = {r: n for r, n in reach.items() if r >= least}
    if set(table.values()) != {findings.num_good}:
        counts = [f"{n:,}" for n in table.values()]
        rows = [["  resolution", *map(str, table)], ["  pictures that reach it", *counts]]
        lines += aligned(rows, left=[0])
    return lines + ([f"ignored: {kinds_of(findings.ignored)}"] if findings.ignored else [])


def chosen_lines(choice: "Choice") -> list[str]:
    """What is chosen for pictures and machine."""
    config, resolution = choice.config, choice.config.network.resolution
    line = (
        f"chosen for them and this machine: --resolution {resolution} "
        f"--width {config.network.max_channels} --kimg {config.schedule.total_kimg:g} "
        f"-o schedule.batch_size={batch_size_at(resolution, config.schedule)} "
        f"-o r1_gamma={config.r1_gamma:g} -o 'augment.kind=\"{config.augment.kind}\"'"
    )
    line += f" --batch-gpu {config.batch_gpu}" if config.batch_gpu else ""
    why = [f"not a larger resolution: {choice.hindrance}"] if choice.hindrance else []
    return [f"{line}; what you ask for stays", *why]


def advice(images: int, config: "TrainConfig", *, started: bool) -> list[str]:
    """What helps if pictures are few; `started` from other weights already."""
    from stylegan.fitting import LEAST_AUGMENTED_KIMG

    pictures = count(images, "picture")
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


def closing_lines(run: "RunFolder", config: "TrainConfig", label: str | None) -> list[str]:
    """How to look at a finished run, use it, go on and measure; how good it is."""
    path, longer = shlex.quote(str(run.path)), f"{2 * config.schedule.total_kimg:.10g}"
    of_class = f" --class {shlex.quote(label)}" if label else ""
    return [
        f"look:      {run.report_file if run.report_file.exists() else run.samples}",
        f"generate:  stylegan generate {path} --seeds 0-31{of_class} --out pictures/",
        f"film:      stylegan video walk {path} --out walk.mp4",
        f"play:      stylegan explore {path}",
        f"go on:     stylegan train --out {path} --kimg {longer}",
        f"measure:   stylegan metrics {path}",
        "No loss tells how good it is: compare samples/ with reals.png, or measure.",
    ]
