"""The training schedule: a pure function of the number of real images shown. No torch."""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from stylegan.utils.validation import NonNegativeFloat, PositiveFloat, PositiveInt, validated

# In tables by resolution, an entry holds from its resolution up to the next one.
OFFICIAL_BATCH_SIZES: dict[int, dict[int, int]] = {  # by number of processes
    1: {4: 128, 32: 64, 64: 32, 128: 16, 256: 8, 512: 4},
    2: {4: 256, 16: 128, 32: 64, 64: 32, 128: 16, 256: 8},
    4: {4: 512, 8: 256, 16: 128, 32: 64, 64: 32, 128: 16},
    8: {4: 512, 8: 256, 16: 128, 32: 64, 64: 32},
}
OFFICIAL_LEARNING_RATES = {4: 0.001, 128: 0.0015, 256: 0.002, 512: 0.003}
OFFICIAL_TICK_KIMG = {4: 160, 8: 140, 16: 120, 32: 100, 64: 80, 128: 60, 256: 40, 512: 30, 1024: 20}
MIN_RESOLUTION = 4
MAX_RESOLUTION = 1024

Value = TypeVar("Value")


def resolutions(largest: int) -> list[int]:
    """Powers of two: 4, 8, ... `largest`."""
    return [2**k for k in range(2, largest.bit_length())]


def check_resolution(
    resolution: int, largest: int = MAX_RESOLUTION, *, name: str = "resolution"
) -> int:
    """Return `resolution`; raises ValueError if it is not a power of two from 4 to `largest`."""
    if resolution & (resolution - 1) or not MIN_RESOLUTION <= resolution <= largest:
        raise ValueError(
            f"{name} must be a power of two from {MIN_RESOLUTION} to {largest}, got {resolution}"
        )
    return resolution


def at_resolution(table: Mapping[int, Value], resolution: int) -> Value:
    """The entry in force: that of the largest resolution in `table` up to `resolution`."""
    return table[max(r for r in table if r <= resolution)]


def check_table(name: str, table: Mapping[int, float], start: int) -> None:
    """Raises ValueError unless the keys are resolutions and one applies at `start`, the first."""
    for resolution in table:
        check_resolution(resolution, name=f"{name}: resolution")
    if min(table, default=math.inf) > start:
        raise ValueError(f"{name} has no entry for resolution {start}, where training starts")


def official_batch_sizes(num_processes: int) -> dict[int, int]:
    """The official table for the largest number of GPUs up to `num_processes`."""
    return dict(OFFICIAL_BATCH_SIZES[max(n for n in OFFICIAL_BATCH_SIZES if n <= num_processes)])


@validated
@dataclass(frozen=True)
class ScheduleConfig:
    """Durations in thousands of real images (kimg), and tables by resolution.

    An entry of a table holds up to the next one; a plain number is one entry for all resolutions.
    """

    resolution: int = 1024  # of the finished network
    initial_resolution: int = 8  # where training starts [pixels]
    stable_kimg: NonNegativeFloat = 600  # time at a resolution before the next one fades in [kimg]
    fade_kimg: NonNegativeFloat = 600  # time in which the next resolution fades in [kimg]
    total_kimg: PositiveFloat = 25_000  # length of the training [kimg]
    ramp_kimg: NonNegativeFloat = 0  # linear learning-rate warm-up; 0 = off [kimg]
    # images per step over all processes; by resolution
    batch_size: Mapping[int, PositiveInt] = field(default_factory=lambda: official_batch_sizes(1))
    # upper limit of images per step and process; by resolution, none below the first entry
    max_batch_per_process: Mapping[int, PositiveInt] = field(default_factory=dict)
    # learning rate of the generator; by resolution
    g_lr: Mapping[int, PositiveFloat] = field(default_factory=lambda: dict(OFFICIAL_LEARNING_RATES))
    # learning rate of the discriminator; by resolution
    d_lr: Mapping[int, PositiveFloat] = field(default_factory=lambda: dict(OFFICIAL_LEARNING_RATES))
    # interval of ticks, each a grid of samples and a state; by resolution [kimg]
    tick_kimg: Mapping[int, PositiveFloat] = field(default_factory=lambda: dict(OFFICIAL_TICK_KIMG))
    minibatch_repeats: PositiveInt = 4  # steps between two evaluations of the schedule
    num_processes: PositiveInt = 1  # number of processes that batch_size is chosen for

    def __post_init__(self) -> None:
        check_resolution(self.resolution)
        check_resolution(self.initial_resolution, name="initial_resolution")
        for name in ("batch_size", "g_lr", "d_lr", "tick_kimg"):
            check_table(name, getattr(self, name), self.start_resolution)
        for resolution in self.max_batch_per_process:
            check_resolution(resolution, name="max_batch_per_process: resolution")

    @property
    def start_resolution(self) -> int:
        """Resolution of the first image; the final one if nothing grows."""
        grows = self.stable_kimg + self.fade_kimg > 0
        return min(self.initial_resolution, self.resolution) if grows else self.resolution

    @property
    def total_images(self) -> int:
        return math.ceil(self.total_kimg * 1000)


@dataclass(frozen=True)
class Stage:
    """The settings in force at one moment of training."""

    resolution: int  # includes one that is still fading in
    alpha: float  # weight of `resolution` relative to the one below; 1.0 = fully grown
    batch_size: int  # over all processes
    g_lr: float
    d_lr: float
    tick_kimg: float

    @property
    def growth(self) -> tuple[int, bool]:
        """(resolution, is fading in); the optimizers are cleared when it changes."""
        return self.resolution, self.alpha < 1


def level_of_detail(kimg: float, config: ScheduleConfig) -> float:
    """Number of doublings left until the full resolution, fractional during a fade."""
    phase_kimg = config.stable_kimg + config.fade_kimg
    if phase_kimg == 0:
        return 0.0
    missing = round(math.log2(config.resolution)) - round(math.log2(config.initial_resolution))
    # Bounded first, as infinity has no floor.
    phase = math.floor(min(max(kimg / phase_kimg, 0.0), max(missing, 0)))
    lod = float(missing - phase)
    if config.fade_kimg > 0:
        lod -= max(kimg - phase * phase_kimg - config.stable_kimg, 0.0) / config.fade_kimg
    return max(lod, 0.0)


def batch_size_at(resolution: int, config: ScheduleConfig) -> int:
    """Batch size over all processes: a multiple of their number, capped per process."""
    wanted = at_resolution(config.batch_size, resolution)
    batch_size = wanted - wanted % config.num_processes
    if batch_size == 0:
        raise ValueError(
            f"schedule.batch_size at resolution {resolution} must be at least the number of "
            f"processes, {config.num_processes}, got {wanted}"
        )
    if min(config.max_batch_per_process, default=math.inf) <= resolution:
        most = at_resolution(config.max_batch_per_process, resolution)
        batch_size = min(batch_size, most * config.num_processes)
    return batch_size


def stage_at(images_seen: int, config: ScheduleConfig) -> Stage:
    """The stage after `images_seen` real images. Karras et al. 2018, section A.1."""
    kimg = images_seen / 1000
    lod = level_of_detail(kimg, config)
    resolution = config.resolution // 2 ** math.floor(lod)
    ramp = min(kimg / config.ramp_kimg, 1.0) if config.ramp_kimg > 0 else 1.0
    return Stage(
        resolution=resolution,
        alpha=1 - (lod - math.floor(lod)),
        batch_size=batch_size_at(resolution, config),
        g_lr=at_resolution(config.g_lr, resolution) * ramp,
        d_lr=at_resolution(config.d_lr, resolution) * ramp,
        tick_kimg=at_resolution(config.tick_kimg, resolution),
    )


@dataclass
class SchedulePosition:
    """Position in the schedule, which as in the official code is read every few steps only."""

    images_seen: int = 0  # real images, over all processes
    schedule_images: int = 0  # images_seen when the schedule was last read
    repeats_left: int = 0  # steps until it is read again

    def next_stage(self, config: ScheduleConfig) -> Stage:
        """Read the schedule again if due; the stage of the next step."""
        if self.repeats_left == 0:
            self.schedule_images = self.images_seen
            self.repeats_left = config.minibatch_repeats
        return self.stage(config)

    def stage(self, config: ScheduleConfig) -> Stage:
        """The stage when the schedule was last read."""
        return stage_at(self.schedule_images, config)

    def advance(self, batch_size: int) -> None:
        self.images_seen += batch_size
        self.repeats_left = max(self.repeats_left - 1, 0)

    def finished(self, config: ScheduleConfig) -> bool:
        """Whether the end is reached, which is decided only where the schedule is read."""
        return self.repeats_left == 0 and self.images_seen >= config.total_images


def phases(config: ScheduleConfig) -> list[tuple[int, int, Stage]]:
    """All phases, stable or fading: first image, image after the last, stage in the middle.

    Learning rates are those after the warm-up.
    """
    lengths: list[float] = []
    if config.stable_kimg + config.fade_kimg > 0:
        growths = max(math.log2(config.resolution / config.initial_resolution), 0)
        lengths = [config.stable_kimg, config.fade_kimg] * round(growths)
    ends = [round(1000 * kimg) for kimg in itertools.accumulate(lengths)]
    edges = [0, *(end for end in ends if end < config.total_images), config.total_images]
    spans = [(a, b) for a, b in itertools.pairwise(edges) if a < b]
    risen = dataclasses.replace(config, ramp_kimg=0)
    return [(a, b, stage_at((a + b) // 2, risen)) for a, b in spans]


def remaining_stages(schedule: ScheduleConfig, images_seen: int) -> list[Stage]:
    """One stage per remaining resolution: the one that fades in, if any, since it costs more."""
    stages: dict[int, Stage] = {}
    for _, end, stage in phases(schedule):
        if end > images_seen and not (stage.resolution in stages and stage.alpha == 1):
            stages[stage.resolution] = stage
    return list(stages.values())
