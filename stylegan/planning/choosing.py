"""Options chosen for pictures and a machine, or fitted to a resolution, length or width."""

import dataclasses
import math
from collections.abc import Mapping
from contextlib import suppress
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Context

from stylegan import schedule
from stylegan.config import TrainConfig, check_batches, load_config
from stylegan.losses import full_size_factor
from stylegan.machine.messages import count, gib
from stylegan.planning.known import Known
from stylegan.planning.request import LENGTH, RESOLUTION
from stylegan.planning.told import LEAST_AUGMENTED_KIMG
from stylegan.training.costs import Costs, Machine, largest_step

Options = Mapping[str, object]  # of a configuration, by `name` or `section.name`

FINEST_CHANNELS = 16  # of the paper's networks at 1024x1024
MOST_GROWING = 0.5  # of a training
LEAST_TICKS = 12  # grids of samples in a training, unless it is shorter than so many kimg
LEAST_KIMG = 0.1
LEAST_TICK_KIMG = 1.0  # samples are named by their kimg

FULL_DETAIL_IMAGES = 1000  # fewer do not teach finer detail than at 256
FEW_RESOLUTION = 256
PLENTY = 50_000  # pictures
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
# By GPUs and resolution: longer trainings took these V100s more than 15 days, as published.
GPU_KIMG: Mapping[int, Mapping[int, float]] = {1: {1024: 10_300, 512: 16_900}, 2: {1024: 18_200}}
AVERAGE_KIMG = 10.0  # the paper's half-life of the average
HALF_LIVES = 12  # in a training, at least: an average that lags behind shows dark blobs
PUBLISHED_IMAGES = 70_000  # FFHQ
PUBLISHED_KIMG = 25_000  # the length of the paper's training
R1_RULE = 0.0002
LEAST_GAMMA = 1.0
CPU_LEAST_GAMMA = 0.1  # of the narrow networks of a CPU, with which the rendered faces came best
MOST_SPEED_KIMG = 500.0  # in which the strength of augmentation goes from 0 to 1, as published
TRANSFER_KIMG = 2000  # at most, with other weights to start from
TRANSFER_SPEED_KIMG = 100.0  # likewise
MEMORY_SHARE = 0.6  # of a device that a step is expected to need: kernels take more than tensors


def choose(asked: Options, known: Known, *, width: int | None = None) -> tuple[TrainConfig, str]:
    """Choose all that depends on the number of pictures, their size and the machine, to fit what is
    `asked`. Also why the resolution is not that of the pictures; empty if it is."""
    hindrance = ""
    candidates: list[int | None] = [None]  # the one asked for
    if RESOLUTION not in asked:
        candidates = [*reversed(schedule.resolutions(known.possible))]
    for resolution in candidates:
        config = proposal(asked, known, resolution, width)
        too_fine = resolution not in (None, schedule.MIN_RESOLUTION)
        problem = too_large(known, config) if too_fine else ""
        if not problem:
            if "batch_gpu" not in asked:
                config = images_at_once(config, known.machine)
            if largest_step(config) <= MEMORY_SHARE * known.machine.memory:
                break
            problem = f"takes more memory than {gib(known.machine.memory)}"
        if resolution is not None:  # else it is asked for
            hindrance = hindrance or f"{known.possible} {problem}"
    return config, hindrance


def proposal(
    asked: Options, known: Known, resolution: int | None, width: int | None
) -> TrainConfig:
    """Propose a configuration at a resolution, or at that asked for, with whole batches."""
    on_cpu = known.machine.on_cpu
    few = known.images < PLENTY
    chosen: dict[str, object] = {
        "data.mirror": few,
        "schedule.batch_size": whole_batches(known),
    }
    if resolution is not None:
        chosen[RESOLUTION] = resolution
    base = CPU_BASE if on_cpu else None

    def built() -> TrainConfig:
        return load_config(base, {**chosen, **asked}, known.machine.processes)

    size = built().network.resolution
    chosen[LENGTH] = length(known, size)
    if on_cpu:
        chosen |= CPU_TRANSFER if known.grown else CPU_SCHEDULE
    if known.grown:
        chosen["schedule.initial_resolution"] = min(known.grown, size)
    kimg = built().schedule.total_kimg
    if few and kimg >= LEAST_AUGMENTED_KIMG:
        chosen["augment.kind"] = "ada"
    config = built()
    batch_size = schedule.batch_size_at(size, config.schedule)
    chosen["r1_gamma"] = gamma_for(config, batch_size, on_cpu=on_cpu)
    chosen["ema_half_life_kimg"] = AVERAGE_KIMG * batch_size / GPU_BATCH
    if config.augment.kind == "ada" and config.augment.adaptive:
        most = TRANSFER_SPEED_KIMG if known.grown else MOST_SPEED_KIMG
        chosen["augment.speed_kimg"] = min(most, kimg / 2)
    chosen |= fitted(built(), load_config(base).network.resolution, width=width)
    return built()


def gamma_for(config: TrainConfig, batch_size: int, *, on_cpu: bool) -> float | dict[int, float]:
    """Return the weight of R1 by the rule of Karras et al. 2020 ("Training Generative Adversarial
    Networks with Limited Data", their program's `auto`), at least the 1 that they published for
    parts of FFHQ at 256x256; on a CPU as strong for each pixel of every stage."""
    size = config.network.resolution
    gamma = short(R1_RULE * size**2 / batch_size, digits=2)
    if not on_cpu:
        return max(gamma, LEAST_GAMMA)
    per_pixel = dict.fromkeys(stages_of(config), max(gamma, CPU_LEAST_GAMMA))
    return gammas_of(per_pixel) if len(per_pixel) > 1 else per_pixel[size]


def stages_of(config: TrainConfig) -> list[int]:
    """Return the trained resolutions."""
    return [
        r for r in schedule.resolutions(config.network.resolution) if r >= config.schedule.start
    ]


def gammas_of(per_pixel: Mapping[int, float]) -> dict[int, float]:
    """Return the weights of R1 by resolution that are so strong for each pixel of a stage.

    The official penalty is that of images enlarged to the full size, by which small stages have
    hardly any: there a narrow discriminator wins at once.
    """
    size = max(per_pixel)
    return {
        stage: short(gamma / full_size_factor(size, stage) ** 2, digits=2)
        for stage, gamma in per_pixel.items()
    }


def gamma_of_size(config: TrainConfig, usual_resolution: int) -> float | dict[int, float]:
    """Scale the weights of R1 of a configuration for `usual_resolution` to the one it has now: as
    strong as before for each pixel of every stage. A single weight stays."""
    if not isinstance(config.r1_gamma, Mapping):
        return config.r1_gamma
    per_pixel = {}
    for stage in stages_of(config):
        like = min(stage, usual_resolution)
        factor = full_size_factor(usual_resolution, like)
        per_pixel[stage] = config.r1_gamma_at(like) * factor**2
    return gammas_of(per_pixel)


def whole_batches(known: Known) -> dict[int, int]:
    """Return the images per step: few on a CPU; on a GPU the paper's, but where growing is short,
    without the large batches of its first resolutions."""
    on_cpu = known.machine.on_cpu
    batches = {schedule.MIN_RESOLUTION: CPU_BATCH if on_cpu else GPU_BATCH}
    if not on_cpu and known.images >= PLENTY:
        batches = schedule.official_batch_sizes(8)
    group = 4 * known.machine.processes  # each has whole groups of the minibatch deviation
    return {r: -(-batch // group) * group for r, batch in batches.items()}


def length(known: Known, resolution: int) -> float:
    """Return the length of a training, in kimg."""
    if known.machine.on_cpu:
        return CPU_KIMG_AT_32 * max(resolution, 32) / 32
    kimg = short(PUBLISHED_KIMG * math.sqrt(min(known.images / PUBLISHED_IMAGES, 1)), digits=2)
    return min(kimg, TRANSFER_KIMG) if known.grown and known.images < PLENTY else kimg


def too_large(known: Known, config: TrainConfig) -> str:
    """Return the reason why the resolution is not sensible; empty if it is."""
    resolution = config.network.resolution
    channels = config.network.channels(resolution)
    processes = known.machine.processes
    if resolution > known.grown > 0 and channels < FINEST_CHANNELS:
        return f"would have {count(channels, 'channel')} in the network to start from"
    if known.machine.on_cpu:
        most = CPU_RESOLUTION if known.machine.cores * processes > 1 else CPU_RESOLUTION // 2
        return "takes a CPU several times as long, as every doubling" if resolution > most else ""
    if known.images < FULL_DETAIL_IMAGES and resolution > max(FEW_RESOLUTION, known.grown):
        return f"wants {FULL_DETAIL_IMAGES:,} pictures, or weights to start from"
    most_kimg = GPU_KIMG.get(processes, {}).get(resolution, math.inf)
    kimg = config.schedule.total_kimg
    return f"takes {count(processes, 'GPU')} weeks for {kimg:,g} kimg" if kimg > most_kimg else ""


def images_at_once(config: TrainConfig, machine: Machine) -> TrainConfig:
    """Choose as many images at once as memory holds, at least a group of the deviation."""
    processes = machine.processes
    share = schedule.batch_size_at(config.network.resolution, config.schedule) // processes
    group = min(max(config.network.deviation_group, 1), share)
    parts = [n for n in range(share - 1, group - 1, -1) if share % n == n % group == 0]
    for n in (0, *parts):
        with suppress(ValueError):  # where it does not divide the batch of another resolution
            tried = dataclasses.replace(config, batch_gpu=n)
            check_batches(tried, processes)
            config = tried
            if largest_step(config) <= MEMORY_SHARE * machine.memory:
                break
    return config


def fitted(
    config: TrainConfig,
    usual_resolution: int,
    *,
    width: int | None = None,
    begun: TrainConfig | None = None,
) -> dict[str, object]:
    """Return the options that follow from another resolution, length or width: layers beyond the
    usual resolution get as many channels as the paper's finest, and `width` caps all in proportion.
    A run that has begun keeps its phases and its average; others are `shortened`, with a half-life
    of at most a twelfth of the length."""
    network = config.network
    plan = begun.schedule if begun else shortened(config.schedule)
    half_life = begun.ema_half_life_kimg if begun else config.ema_half_life_kimg
    if begun is None:
        half_life = min(half_life, short(plan.total_kimg / HALF_LIVES, digits=2))
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
        "ema_half_life_kimg": half_life,
    }


def shortened(plan: schedule.ScheduleConfig) -> schedule.ScheduleConfig:
    """Shorten phases and ticks that are too long for the length of the plan."""
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
    seconds: float, plan: schedule.ScheduleConfig, costs: Costs, *, keep_phases: bool
) -> float:
    """Return the length of a training, in kimg, that takes so long; phases are shortened with it
    unless they are kept. Raise ValueError if the time is not enough for any."""

    def takes(kimg: float) -> float:
        planned = dataclasses.replace(plan, total_kimg=kimg)
        return costs.seconds_left(planned if keep_phases else shortened(planned))

    longest = seconds / min(costs.seconds.values()) / 1000
    shortest = LEAST_KIMG
    if takes(shortest) > seconds:
        raise ValueError(
            f"{LEAST_KIMG:g} kimg would take {takes(shortest) / 60:.1f} minutes here; give it more "
            "--minutes, or a smaller --resolution"
        )
    while longest > 1.001 * shortest:
        middle = math.sqrt(shortest * longest)
        if takes(middle) <= seconds:
            shortest = middle
        else:
            longest = middle
    return short(shortest, digits=3)


def short(number: float, digits: int = 4, rounding: str = ROUND_HALF_EVEN) -> float:
    return float(Context(digits, rounding).create_decimal_from_float(number))
