"""Configurations fitted to a resolution, length and width of one's own, and chosen for pictures."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Context

from stylegan import schedule
from stylegan.config import TrainConfig, check_batches, load_config
from stylegan.losses import full_size_factor
from stylegan.messages import count, gib
from stylegan.published import published_seconds, seconds_left

Options = Mapping[str, object]  # of a configuration, by `name` or `section.name`

FINEST_CHANNELS = 16  # of the paper's networks at 1024x1024
MOST_GROWING = 0.5  # of a training
LEAST_TICKS = 12  # grids of samples in a training, unless it is shorter than so many kimg
LEAST_KIMG = 0.1
LEAST_TICK_KIMG = 1.0  # samples are named by their kimg

RESOLUTION = "network.resolution"
MOST_REACH = 0.9  # of the pictures reach a resolution that is chosen
FEW = 1000  # pictures
PLENTY = 50_000  # pictures
FEW_RESOLUTION = 256  # few pictures do not teach finer detail
CPU_BASE = "quickstart"  # whose network and steps with R1 are a CPU's
CPU_RESOLUTION = 64  # at most, on two cores
CPU_KIMG_AT_32 = 48.0  # about an hour on two cores; kimg double with the size
CPU_BATCH = 16
CPU_SCHEDULE: Options = {  # slower than the quickstart's: tried with few pictures and at 64x64
    "schedule.stable_kimg": 7.0,
    "schedule.fade_kimg": 5.0,
    "schedule.g_lr": {schedule.MIN_RESOLUTION: 0.004},
    "schedule.d_lr": {schedule.MIN_RESOLUTION: 0.004},
}
CPU_TRANSFER: Options = {
    **CPU_SCHEDULE,  # with its rates a trained generator falls apart
    "schedule.g_lr": {schedule.MIN_RESOLUTION: 0.001},
    "schedule.d_lr": {schedule.MIN_RESOLUTION: 0.002},
}
GPU_BATCH = 32  # the paper's images per step
AVERAGE_KIMG = 10.0  # the paper's half-life of the average
PUBLISHED_IMAGES = 70_000  # FFHQ
PUBLISHED_KIMG = 25_000  # the length of the paper's training
MOST_DAYS = 15  # of V100s
R1_RULE = 0.0002
LEAST_GAMMA = 1.0
CPU_LEAST_GAMMA = 0.1  # of the narrow networks of a CPU, with which the rendered faces came best
LEAST_AUGMENTED_KIMG = 200.0  # shorter trainings did not overfit: docs/training.md
MOST_SPEED_KIMG = 500.0  # in which the strength of augmentation goes from 0 to 1, as published
TRANSFER_KIMG = 2000  # at most, with other weights to start from
TRANSFER_SPEED_KIMG = 100.0  # likewise
MEMORY_SHARE = 0.6  # of a device that a step is expected to need: kernels take more than tensors


Needed = Callable[[TrainConfig], float]  # bytes that a step is expected to take in each process


@dataclass(frozen=True)
class Facts:
    """What decides how pictures are trained."""

    images: int
    reach: Mapping[int, int]  # resolution -> pictures that are large enough
    device: str  # its type: cpu, cuda, mps
    memory: float  # of the device, for each process [bytes]
    cores: int = 1  # that a process computes with
    processes: int = 1
    grown: int = 0  # resolution of the weights to start from; 0 = none

    @property
    def possible(self) -> int:
        """The largest resolution that nine of ten pictures reach."""
        enough = (r for r, n in self.reach.items() if n >= MOST_REACH * self.images)
        return max(enough, default=min(self.reach))


def choose(
    facts: Facts, asked: Options, needed: Needed, *, width: int | None = None
) -> tuple[TrainConfig, str]:
    """All that depends on the number of pictures, their size and the device, chosen to fit what is
    `asked`. `needed` is the memory that a step is expected to take, in bytes for each process. Also
    why the resolution is not the pictures', empty if it is."""
    asked = {**implied(asked), **asked}
    hindrance = ""
    candidates: list[int | None] = [None]  # the one asked for
    if RESOLUTION not in asked:
        candidates = [*reversed(schedule.resolutions(facts.possible))]
    for resolution in candidates:
        config = proposal(facts, asked, resolution, width)
        too_fine = resolution not in (None, schedule.MIN_RESOLUTION)
        problem = too_large(facts, config) if too_fine else ""
        if not problem:
            if "batch_gpu" not in asked:
                config = images_at_once(config, facts, needed)
            if needed(config) <= MEMORY_SHARE * facts.memory:
                break
            problem = f"takes more memory than {gib(facts.memory)}"
        hindrance = hindrance or f"{facts.possible} {problem}"
    return config, hindrance


def implied(asked: Options) -> dict[str, object]:
    """A kind of augmentation, if options are asked for that mean nothing without one."""
    augmented = any(name.startswith("augment.") for name in asked)
    return {"augment.kind": "ada"} if augmented and "augment.kind" not in asked else {}


def proposal(
    facts: Facts, asked: Options, resolution: int | None, width: int | None
) -> TrainConfig:
    """The configuration at a resolution, or at that asked for, with whole batches."""
    values: dict[str, object] = {"data.mirror": facts.images < PLENTY}
    values["schedule.batch_size"] = whole_batches(facts)
    if resolution is not None:
        values[RESOLUTION] = resolution
    base = CPU_BASE if facts.device == "cpu" else None

    def built(fits: Options) -> TrainConfig:
        return load_config(base, {**values, **fits, **asked}, facts.processes)

    size = built({}).network.resolution
    values["schedule.total_kimg"] = length(facts, size)
    if facts.device == "cpu":
        values |= CPU_TRANSFER if facts.grown else CPU_SCHEDULE
    if facts.grown:
        values["schedule.initial_resolution"] = min(facts.grown, size)
    config = built({})
    kimg = config.schedule.total_kimg
    batch_size = schedule.batch_size_at(size, config.schedule)
    if facts.images < PLENTY and kimg >= LEAST_AUGMENTED_KIMG:
        values["augment.kind"] = "ada"
        config = built({})
    # The rule of Karras et al. 2020 ("Training Generative Adversarial Networks with Limited Data",
    # their program's `auto`), at least the 1 that they published for parts of FFHQ at 256x256.
    gamma = short(R1_RULE * size**2 / batch_size, digits=2)
    if facts.device == "cpu":
        per_pixel = dict.fromkeys(stages_of(config), max(gamma, CPU_LEAST_GAMMA))
        values["r1_gamma"] = gammas_of(per_pixel) if len(per_pixel) > 1 else per_pixel[size]
    else:
        values["r1_gamma"] = max(gamma, LEAST_GAMMA)
    values["ema_half_life_kimg"] = AVERAGE_KIMG * batch_size / GPU_BATCH
    if config.augment.kind == "ada" and config.augment.adaptive:
        most = TRANSFER_SPEED_KIMG if facts.grown else MOST_SPEED_KIMG
        values["augment.speed_kimg"] = min(most, kimg / 2)
    return built(fitted(built({}), load_config(base).network.resolution, width=width))


def stages_of(config: TrainConfig) -> list[int]:
    """The resolutions that are trained."""
    return [
        r for r in schedule.resolutions(config.network.resolution) if r >= config.schedule.start
    ]


def gammas_of(per_pixel: Mapping[int, float]) -> dict[int, float]:
    """Weights of R1 by resolution that are so strong for each pixel of a stage.

    The official penalty is that of images enlarged to the full size, by which small stages have
    hardly any: there a narrow discriminator wins at once.
    """
    size = max(per_pixel)
    return {
        stage: short(gamma / full_size_factor(size, stage) ** 2, digits=2)
        for stage, gamma in per_pixel.items()
    }


def gamma_of_size(config: TrainConfig, usual_resolution: int) -> float | dict[int, float]:
    """The weights of R1 of a configuration for `usual_resolution`, for the one it has now: as
    strong as before for each pixel of every stage. A single weight stays."""
    if not isinstance(config.r1_gamma, Mapping):
        return config.r1_gamma
    per_pixel = {}
    for stage in stages_of(config):
        like = min(stage, usual_resolution)
        factor = full_size_factor(usual_resolution, like)
        per_pixel[stage] = config.r1_gamma_at(like) * factor**2
    return gammas_of(per_pixel)


def whole_batches(facts: Facts) -> dict[int, int]:
    """Images of a step: many small steps on a CPU; on a GPU the paper's, but where growing is
    short, without the large batches of its first resolutions."""
    batches = {schedule.MIN_RESOLUTION: CPU_BATCH if facts.device == "cpu" else GPU_BATCH}
    if facts.device != "cpu" and facts.images >= PLENTY:
        batches = schedule.official_batch_sizes(8)
    group = 4 * facts.processes  # each has whole groups of the minibatch deviation
    return {r: -(-batch // group) * group for r, batch in batches.items()}


def length(facts: Facts, resolution: int) -> float:
    """Of a training, in kimg."""
    if facts.device == "cpu":
        return CPU_KIMG_AT_32 * max(resolution, 32) / 32
    kimg = short(PUBLISHED_KIMG * math.sqrt(min(facts.images / PUBLISHED_IMAGES, 1)), digits=2)
    return min(kimg, TRANSFER_KIMG) if facts.grown and facts.images < PLENTY else kimg


def too_large(facts: Facts, config: TrainConfig) -> str:
    """Why the resolution is not sensible, if it is not."""
    resolution = config.network.resolution
    channels = config.network.channels(resolution)
    if resolution > facts.grown > 0 and channels < FINEST_CHANNELS:
        return f"would have {count(channels, 'channel')} in the network to start from"
    if facts.device == "cpu":
        most = CPU_RESOLUTION if facts.cores * facts.processes > 1 else CPU_RESOLUTION // 2
        return "takes a CPU several times as long, as every doubling" if resolution > most else ""
    if facts.images < FEW and resolution > max(FEW_RESOLUTION, facts.grown):
        return f"wants {FEW:,} pictures, or weights to start from"
    processes = config.schedule.num_processes
    days = published_seconds(config, 0, processes) / 86_400
    gpus = f"{processes} V100s" if processes > 1 else "a V100"
    return f"takes {gpus} {days:.0f} days" if days > MOST_DAYS else ""


def images_at_once(config: TrainConfig, facts: Facts, needed: Needed) -> TrainConfig:
    """`config` with as many images at once as memory holds, at least a group of the deviation."""
    share = schedule.batch_size_at(config.network.resolution, config.schedule) // facts.processes
    group = min(max(config.network.deviation_group, 1), share)
    parts = [n for n in range(share - 1, group - 1, -1) if share % n == n % group == 0]
    for n in (0, *parts):
        with suppress(ValueError):  # where it does not divide the batch of another resolution
            tried = dataclasses.replace(config, batch_gpu=n)
            check_batches(tried, facts.processes)
            config = tried
            if needed(config) <= MEMORY_SHARE * facts.memory:
                break
    return config


def fitted(
    config: TrainConfig,
    usual_resolution: int,
    *,
    width: int | None = None,
    begun: schedule.ScheduleConfig | None = None,
) -> dict[str, object]:
    """Options that make sense of another resolution, length or width than the usual: beyond it
    the finest layers have as many channels as the paper's finest, and with `width` none has more,
    in the same proportions. A run that has begun keeps its phases; for others see `shortened`."""
    network = config.network
    plan = begun or shortened(config.schedule)
    base = network.channel_base
    most = network.max_channels
    if network.resolution > usual_resolution:
        base = max(base, FINEST_CHANNELS * network.resolution // 2)
    if width is not None:
        base = max(round(base * width / most), 1)
        most = width
    return {
        "network.channel_base": base,
        "network.max_channels": most,
        "schedule.stable_kimg": plan.stable_kimg,
        "schedule.fade_kimg": plan.fade_kimg,
        "schedule.tick_kimg": plan.tick_kimg,
    }


def shortened(plan: schedule.ScheduleConfig) -> schedule.ScheduleConfig:
    """`plan` with phases and ticks that are not too long for its length."""
    doublings = max(math.log2(plan.resolution / plan.initial_resolution), 0)
    growing = doublings * (plan.stable_kimg + plan.fade_kimg)
    most = MOST_GROWING * plan.total_kimg
    if growing > most:
        stable, fade = (  # rounded down, so that all phases fit into `most`
            short(x * most / growing, rounding=ROUND_DOWN)
            for x in (plan.stable_kimg, plan.fade_kimg)
        )
        plan = dataclasses.replace(plan, stable_kimg=stable, fade_kimg=fade)
    tick = short(max(plan.total_kimg / LEAST_TICKS, min(plan.total_kimg, LEAST_TICK_KIMG)))
    if max(plan.tick_kimg.values()) > tick:
        ticks = {r: min(kimg, tick) for r, kimg in plan.tick_kimg.items()}
        plan = dataclasses.replace(plan, tick_kimg=ticks)
    return plan


def kimg_of_seconds(
    seconds: float,
    plan: schedule.ScheduleConfig,
    seconds_per_image: Mapping[int, float],
    *,
    keep_phases: bool = False,
) -> float:
    """The length of a training, in kimg, that takes so long; phases are shortened with it unless
    they are kept. `seconds_per_image` at every resolution that is trained. ValueError if the time
    is not enough for any."""

    def takes(kimg: float) -> float:
        planned = dataclasses.replace(plan, total_kimg=kimg)
        planned = planned if keep_phases else shortened(planned)
        return seconds_left(planned, 0, seconds_per_image.__getitem__)

    longest = seconds / min(seconds_per_image.values()) / 1000
    shortest = LEAST_KIMG
    if takes(shortest) > seconds:
        raise ValueError(
            f"{LEAST_KIMG:g} kimg would take {takes(shortest) / 60:.1f} minutes here; give it more "
            "--minutes, or a smaller --resolution"
        )
    while longest > 1.001 * shortest:
        middle = math.sqrt(shortest * longest)
        shortest, longest = (middle, longest) if takes(middle) <= seconds else (shortest, middle)
    return short(shortest, digits=3)


def short(number: float, digits: int = 4, rounding: str = ROUND_HALF_EVEN) -> float:
    return float(Context(digits, rounding).create_decimal_from_float(number))
