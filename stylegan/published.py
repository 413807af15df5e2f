"""How long a training takes: by the operations of its steps, and as published for V100s."""

import math
from collections.abc import Callable

from stylegan.config import TrainConfig
from stylegan.schedule import ScheduleConfig, phases, resolutions

# The official program's trainings on FFHQ took 41.2 days on one V100 at 1024x1024 and 6.6 on eight,
# 14.9 and 3.3 at 256x256. By the operations of its plan that is, of one V100 and lost with more:
SMALL, LARGE = 256, 1024
RATES = {SMALL: 9.4e12, LARGE: 4.8e12}  # operations per second
LOSSES = {SMALL: 0.28, LARGE: 0.12}  # each of n GPUs has n ** -loss of the rate of one
MEMORY_OF_V100 = 16 * 2**30  # bytes, of the smaller ones, which the official program was run on


def step_flops(config: TrainConfig, resolution: int) -> float:
    """Floating-point operations per image of a step, to a tenth: nearly all are those of the two
    3x3 convolutions per resolution. In passes forward, the generator makes one for the
    discriminator's step and three for its own, the discriminator eleven, with R1."""
    channels = config.network.channels
    pairs = ((r, channels(r), channels(max(r // 2, 4))) for r in resolutions(resolution))
    return 10 * sum(18 * c * (c + lower) * r**2 for r, c, lower in pairs)


def seconds_left(
    plan: ScheduleConfig, images_seen: int, seconds_per_image: Callable[[int], float]
) -> float:
    """Time to train from image `images_seen` to the end; `seconds_per_image` at a resolution."""
    return sum(
        (end - max(first, images_seen)) * seconds_per_image(stage.resolution)
        for first, end, stage in phases(plan)
        if end > images_seen
    )


def published_rate(resolution: int, processes: int) -> float:
    """Operations per second of all V100s together, in a training for that resolution."""
    part = math.log2(min(max(resolution, SMALL), LARGE) / SMALL) / math.log2(LARGE / SMALL)
    rate = RATES[SMALL] * (RATES[LARGE] / RATES[SMALL]) ** part
    loss = LOSSES[SMALL] + (LOSSES[LARGE] - LOSSES[SMALL]) * part
    return rate * processes ** (1 - loss)


def published_seconds(config: TrainConfig, images_seen: int, processes: int) -> float:
    """Time to train from image `images_seen` to the end on so many V100s."""
    rate = published_rate(config.network.resolution, processes)
    return seconds_left(config.schedule, images_seen, lambda r: step_flops(config, r) / rate)
