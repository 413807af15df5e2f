"""What is trained when: a pure function of the number of real images shown. No torch."""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from stylegan.machine.plain import AtLeast0, Count, Positive, checked

# Tables are steps: an entry holds from its resolution up to the next one.
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
    """Return 4, 8, ... `largest`."""
    return [2**k for k in range(2, largest.bit_length())]


def check_resolution(
    resolution: int, largest: int = MAX_RESOLUTION, *, name: str = "resolution"
) -> int:
    """Return `resolution` if it is a power of two from 4 to `largest`; else raise ValueError."""
    if resolution & (resolution - 1) or not MIN_RESOLUTION <= resolution <= largest:
        raise ValueError(
            f"{name} {resolution} is not a power of two from {MIN_RESOLUTION} to {largest}"
        )
    return resolution


def at_resolution(table: Mapping[int, Value], resolution: int) -> Value:
    """Return the entry of the largest resolution in `table` that is not above `resolution`."""
    return table[max(r for r in table if r <= resolution)]


def check_table(name: str, table: Mapping[int, float], start: int) -> None:
    """Raise ValueError unless the table is by resolution, with an entry for the first, `start`."""
    for resolution in table:
        check_resolution(resolution, name=f"{name}: resolution")
    if min(table, default=math.inf) > start:
        raise ValueError(f"{name} has no entry for resolution {start}, where training starts")


def official_batch_sizes(num_processes: int) -> dict[int, int]:
    """Return the official table of the largest number of GPUs that is not above `num_processes`."""
    return dict(OFFICIAL_BATCH_SIZES[max(n for n in OFFICIAL_BATCH_SIZES if n <= num_processes)])


@checked
@dataclass(frozen=True)
class ScheduleConfig:
    """Durations in thousands of real images (kimg); tables by resolution, in which an entry holds
    up to the next, and a plain number is an entry for all."""

    resolution: int = 1024  # of the finished network
    initial_resolution: int = 8  # where training starts [pixels]
    stable_kimg: AtLeast0 = 600  # length of a resolution once it is fully grown [kimg]
    fade_kimg: AtLeast0 = 600  # length of the fade into the next resolution [kimg]
    total_kimg: Positive = 25_000  # length of the training [kimg]
    ramp_kimg: AtLeast0 = 0  # learning rates rise linearly from 0 for so long; 0 = off [kimg]
    # images per step, all processes together; by resolution
    batch_size: Mapping[int, Count] = field(default_factory=lambda: official_batch_sizes(1))
    # most images per step of one process; by resolution, below the first entry there is no limit
    max_batch_per_process: Mapping[int, Count] = field(default_factory=dict)
    # learning rate of the generator; by resolution
    g_lr: Mapping[int, Positive] = field(default_factory=lambda: dict(OFFICIAL_LEARNING_RATES))
    # learning rate of the discriminator; by resolution
    d_lr: Mapping[int, Positive] = field(default_factory=lambda: dict(OFFICIAL_LEARNING_RATES))
    # from one tick (a grid of samples and a state) to the next; by resolution [kimg]
    tick_kimg: Mapping[int, Positive] = field(default_factory=lambda: dict(OFFICIAL_TICK_KIMG))
    minibatch_repeats: Count = 4  # steps between two readings of the schedule
    num_processes: Count = 1  # number of processes for which the batches are chosen

    def __post_init__(self) -> None:
        check_resolution(self.resolution)
        check_resolution(self.initial_resolution, name="initial_resolution")
        for name in ("batch_size", "g_lr", "d_lr", "tick_kimg"):
            check_table(name, getattr(self, name), self.start)
        for resolution in self.max_batch_per_process:
            check_resolution(resolution, name="max_batch_per_process: resolution")

    @property
    def start(self) -> int:
        """Return the resolution at image 0: the full one if nothing is to grow."""
        grows = self.stable_kimg + self.fade_kimg > 0
        return min(self.initial_resolution, self.resolution) if grows else self.resolution

    @property
    def total_images(self) -> int:
        return math.ceil(self.total_kimg * 1000)


@dataclass(frozen=True)
class Stage:
    """The settings in force at one moment of training."""

    resolution: int  # the one growing in counts already
    alpha: float  # weight of `resolution` against the one below it; 1.0 = fully grown
    batch_size: int  # all processes together
    g_lr: float
    d_lr: float
    tick_kimg: float

    @property
    def growth(self) -> tuple[int, bool]:
        """Return (resolution, fading): optimizers are cleared when it changes."""
        return self.resolution, self.alpha < 1


def level_of_detail(kimg: float, config: ScheduleConfig) -> float:
    """Return the doublings missing to the full resolution, fractional while one fades in."""
    phase_kimg = config.stable_kimg + config.fade_kimg
    if phase_kimg == 0:
        return 0.0
    missing = round(math.log2(config.resolution)) - round(math.log2(config.initial_resolution))
    phase = math.floor(kimg / phase_kimg)
    lod = float(missing - phase)
    if config.fade_kimg > 0:
        lod -= max(kimg - phase * phase_kimg - config.stable_kimg, 0.0) / config.fade_kimg
    return max(lod, 0.0)


def batch_size_at(resolution: int, config: ScheduleConfig) -> int:
    """Return the whole batch: rounded down to a multiple of processes, then limited for each."""
    wanted = at_resolution(config.batch_size, resolution)
    batch_size = wanted - wanted % config.num_processes
    if batch_size == 0:
        raise ValueError(
            f"a batch of {wanted} images at resolution {resolution} (schedule.batch_size) is too "
            f"small for {config.num_processes} processes"
        )
    if min(config.max_batch_per_process, default=math.inf) <= resolution:
        most = at_resolution(config.max_batch_per_process, resolution)
        batch_size = min(batch_size, most * config.num_processes)
    return batch_size


def stage_at(images_seen: int, config: ScheduleConfig) -> Stage:
    """Return the stage after `images_seen` real images. Karras et al. 2018, section A.1."""
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
class Position:
    """The position of a run, which reads its schedule once per `minibatch_repeats` steps."""

    images_seen: int = 0  # real images, all processes together
    schedule_images: int = 0  # images_seen when the schedule was last read
    repeats_left: int = 0  # steps until it is read again

    def next_stage(self, config: ScheduleConfig) -> Stage:
        """Return the stage of the next step; read the schedule anew where that is due."""
        if self.repeats_left == 0:
            self.schedule_images = self.images_seen
            self.repeats_left = config.minibatch_repeats
        return self.stage(config)

    def stage(self, config: ScheduleConfig) -> Stage:
        """Return the stage when the schedule was last read."""
        return stage_at(self.schedule_images, config)

    def advance(self, batch_size: int) -> None:
        self.images_seen += batch_size
        self.repeats_left = max(self.repeats_left - 1, 0)

    def finished(self, config: ScheduleConfig) -> bool:
        """Return True if the end is reached, which is decided where the schedule is read."""
        return self.repeats_left == 0 and self.images_seen >= config.total_images


def phases(config: ScheduleConfig) -> list[tuple[int, int, Stage]]:
    """List every stable or fading phase: first image, image after the last, stage in its middle,
    with the learning rates that a ramp ends in."""
    lengths: list[float] = []
    if config.stable_kimg + config.fade_kimg > 0:
        growths = max(math.log2(config.resolution / config.initial_resolution), 0)
        lengths = [config.stable_kimg, config.fade_kimg] * round(growths)
    ends = [round(1000 * kimg) for kimg in itertools.accumulate(lengths)]
    edges = [0, *(end for end in ends if end < config.total_images), config.total_images]
    spans = [(a, b) for a, b in itertools.pairwise(edges) if a < b]
    risen = dataclasses.replace(config, ramp_kimg=0)
    return [(a, b, stage_at((a + b) // 2, risen)) for a, b in spans]


def coming(schedule: ScheduleConfig, images_seen: int) -> list[Stage]:
    """List a stage of every resolution still to come: the fading one if any, as it takes more."""
    stages: dict[int, Stage] = {}
    for _, end, stage in phases(schedule):
        if end > images_seen and not (stage.resolution in stages and stage.alpha == 1):
            stages[stage.resolution] = stage
    return list(stages.values())
