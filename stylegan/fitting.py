"""Configurations fitted to a resolution, length and width of one's own, and to pictures."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from stylegan.config import TrainConfig
from stylegan.schedule import ScheduleConfig
from stylegan.toml import toml_value

FINEST_CHANNELS = 16  # of the paper's networks at 1024x1024
MOST_GROWING = 0.5  # of a training
LEAST_TICKS = 12  # grids of samples in a training, unless it is shorter than so many kimg
LEAST_TICK_KIMG = 1.0  # samples are named by their kimg
MOST_REACH = 0.9  # of the pictures reach a resolution that is chosen
CPU_RESOLUTION, GPU_RESOLUTION = 64, 256  # what one of them trains within about an hour
KIMG_AT_32 = 48.0  # of a chosen training at 32x32 or less; twice as many at each doubling


@dataclass(frozen=True)
class Choice:
    """How the quickstart's network is trained on pictures of one's own."""

    resolution: int
    total_kimg: float
    possible: int  # the resolution that most pictures reach


def choose(reach: Mapping[int, int], images: int, device: str) -> Choice:
    """The resolution that nine of ten pictures reach, but at most what the device trains within
    about an hour; `reach` is the number of pictures that are large enough for each resolution."""
    possible = max((r for r, n in reach.items() if n >= MOST_REACH * images), default=min(reach))
    resolution = min(possible, CPU_RESOLUTION if device == "cpu" else GPU_RESOLUTION)
    return Choice(resolution, KIMG_AT_32 * max(resolution, 32) / 32, possible)


def fitted(
    config: TrainConfig,
    usual_resolution: int,
    *,
    width: int | None = None,
    begun: ScheduleConfig | None = None,
) -> list[str]:
    """Overrides that make sense of another resolution, length or width than the usual.

    Beyond the usual resolution the finest layers have as many channels as the paper's finest. With
    `width` no layer has more channels, and all keep their proportions. Growing takes at most half
    of the training; there are at least twelve grids of samples, at most one per kimg. A run that
    has begun keeps its phases.
    """
    network, plan = config.network, begun or shortened(config.schedule)
    base, most = network.channel_base, network.max_channels
    if network.resolution > usual_resolution:
        base = max(base, FINEST_CHANNELS * network.resolution // 2)
    if width is not None:
        base, most = max(round(base * width / most), 1), width
    values = {
        "network.channel_base": base,
        "network.max_channels": most,
        "schedule.stable_kimg": plan.stable_kimg,
        "schedule.fade_kimg": plan.fade_kimg,
        "schedule.tick_kimg": plan.tick_kimg,
    }
    return [f"{name}={toml_value(value)}" for name, value in values.items()]


def shortened(plan: ScheduleConfig) -> ScheduleConfig:
    """`plan` with phases and ticks that are not too long for its length."""
    doublings = max(math.log2(plan.resolution / plan.initial_resolution), 0)
    growing = doublings * (plan.stable_kimg + plan.fade_kimg)
    most = MOST_GROWING * plan.total_kimg
    if growing > most:
        stable, fade = (short(x * most / growing) for x in (plan.stable_kimg, plan.fade_kimg))
        plan = dataclasses.replace(plan, stable_kimg=stable, fade_kimg=fade)
    tick = short(max(plan.total_kimg / LEAST_TICKS, min(plan.total_kimg, LEAST_TICK_KIMG)))
    if max(plan.tick_kimg.values()) > tick:
        ticks = {r: min(kimg, tick) for r, kimg in plan.tick_kimg.items()}
        plan = dataclasses.replace(plan, tick_kimg=ticks)
    return plan


def short(kimg: float) -> float:
    return float(f"{kimg:.4g}")
