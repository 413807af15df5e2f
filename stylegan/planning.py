"""What to train: options chosen for pictures and a machine, or a configuration made to fit."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Context
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from stylegan import schedule
from stylegan.config import AUTO, TrainConfig, bundled, check_batches, load_config, read_options
from stylegan.data import Findings, Source, Store, check, is_store, open_source
from stylegan.data.check import grouped, needed_channels
from stylegan.data.images import channels_of
from stylegan.data.labels import Labels
from stylegan.data.sources import kinds_of
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.files.weights import Weights
from stylegan.losses import full_size_factor
from stylegan.machine import distributed
from stylegan.machine.console import SILENT, Console
from stylegan.machine.distributed import from_rank0, on_all_ranks, pick_device
from stylegan.machine.limits import limits
from stylegan.machine.messages import aligned, count, duration, gib, listed, require
from stylegan.machine.toml import toml_value
from stylegan.networks import NetworkConfig
from stylegan.schedule import ScheduleConfig, batch_size_at, coming, official_batch_sizes, phases
from stylegan.training.costs import (
    Costs,
    Machine,
    disk_warning,
    largest_step,
    outlook,
    possible_costs,
)
from stylegan.training.meaning import check_meaning
from stylegan.training.run import (
    backend_flags,
    fit_to_data,
    newest_state,
    preparation_for,
    resolve_config,
    saved_config,
    settle_threads,
    start,
    with_precision,
)
from stylegan.training.state import TrainState
from stylegan.training.transfer import (
    GROWS_AGAIN,
    beginning,
    check_frozen,
    sizes,
    warmup,
    warmup_lines,
)

Value = TypeVar("Value")
Options = Mapping[str, object]  # of a configuration, by `name` or `section.name`
RESOLUTION = "network.resolution"
CROP = "data.crop"
LENGTH = "schedule.total_kimg"
WARMUP = "d_warmup_kimg"
BUNDLED_DATA = "datasets/faces-64.zip"
DEFAULT_CONFIG = "quickstart"

MOST_REACH = 0.9  # of the pictures reach a resolution that is chosen
FINEST_CHANNELS = 16  # of the paper's networks at 1024x1024
MOST_GROWING = 0.5  # of a training
LEAST_TICKS = 12  # grids of samples in a training, unless it is shorter than so many kimg
LEAST_TICK_KIMG = 1.0  # samples are named by their kimg
LEAST_KIMG = 0.1
FULL_DETAIL_IMAGES = 1000  # fewer do not teach finer detail than at 256
FEW_RESOLUTION = 256
PLENTY = 50_000  # pictures
CPU_BASE = "quickstart"  # whose network and steps with R1 are a CPU's
CPU_RESOLUTION = 64  # at most, on two cores or from weights that have grown to it
CPU_KIMG_AT_32 = 48.0  # about an hour on two cores; kimg double with the size
CPU_BATCH = 16
CPU_PHASES = {"schedule.stable_kimg": 7.0, "schedule.fade_kimg": 5.0}  # tried with few pictures
CPU_RATES = 0.004, 0.004
CPU_TRANSFER_RATES = 0.001, 0.002  # with the others a trained generator falls apart
GPU_BATCH = 32  # the paper's images per step
# By GPUs and resolution: longer trainings took these V100s more than 15 days, as published.
GPU_KIMG: Mapping[int, Mapping[int, float]] = {1: {1024: 10_300, 512: 16_900}, 2: {1024: 18_200}}
AVERAGE_KIMG = 10.0  # the paper's half-life of the average
HALF_LIVES = 12  # in a training, at least: an average that lags behind shows dark blobs
PUBLISHED_IMAGES = 70_000  # FFHQ
PUBLISHED_KIMG = 25_000  # the length of the paper's training
R1_RULE = 0.0002  # Karras et al. 2020 (limited data), their program's `auto`
LEAST_GAMMA = 1.0  # published for parts of FFHQ at 256x256
CPU_LEAST_GAMMA = 0.1  # of the narrow networks of a CPU, with which the rendered faces came best
LEAST_AUGMENTED_KIMG = 200.0  # shorter trainings did not overfit: docs/experiments.md
MOST_SPEED_KIMG = 500.0  # in which the strength of augmentation goes from 0 to 1, as published
TRANSFER_KIMG = 2000  # at most, with other weights to start from
TRANSFER_SPEED_KIMG = 100.0  # likewise
MEMORY_SHARE = 0.6  # of a device that a step is expected to need: kernels take more than tensors
TRAINING_SHARE = 0.95  # of the minutes of a run; the rest goes into samples, files, the report
LEAST_SHARE = 0.5  # of the usual length of a training; for less, a smaller resolution
LEAST_RESOLUTION = 32  # at which that ends
HANDFUL = 10  # pictures
FEW = 2000


@dataclass(frozen=True)
class Request:
    """A training, as far as it is asked for. None: as the run in `out` remembers, else chosen."""

    out: str | Path | None = None  # run folder; of none the default is runs/<config>
    data: str | Path | None = None  # pictures; a new run without takes the bundled ones
    config: str | None = None  # name, TOML file, or auto
    # Lengths and widths of a named configuration are fitted to these four.
    resolution: int | None = None
    kimg: float | None = None  # length, in thousands of pictures shown
    minutes: float | None = None  # length, in minutes on this machine
    width: int | None = None  # the largest number of channels of a layer
    options: Options = field(default_factory=dict)  # others, by `name`, `section.name`
    channels: int | Literal["auto", "L", "RGB", "RGBA"] | None = None  # kept as a number, or auto
    init_from: str | Path | None = None  # weights to begin from

    def __post_init__(self) -> None:
        """Raise ValueError if something is given twice, or is no mode."""
        if isinstance(self.channels, str):
            object.__setattr__(self, "channels", channels_of(self.channels))
        if self.minutes is not None and LENGTH in self.asked:
            raise ValueError("--minutes and --kimg both give the length; leave one out")
        own = {
            RESOLUTION: self.resolution,
            LENGTH: self.kimg,
            "network.max_channels": self.width,
            "network.image_channels": self.channels,
        }
        for name, value in own.items():
            if value is not None and name in self.options:
                raise ValueError(f"{name} is given twice, also among the other options (-o)")

    @property
    def asked(self) -> dict[str, object]:
        """The requested options of the configuration, by their names."""
        fitted = {RESOLUTION: self.resolution, LENGTH: self.kimg}
        return {**{k: value for k, value in fitted.items() if value is not None}, **self.options}


@dataclass(frozen=True)
class Facts:
    """What a plan depends on besides the request, looked up once."""

    run: RunFolder
    stored: TrainConfig | None  # of the run, if it has begun
    base: str  # configuration: a name, a file, or auto
    data: Path | Source  # a source where this process has listed the files
    is_own: bool  # data of the user's, not the bundled
    machine: Machine
    start: Weights | None = None  # that a new run begins with
    findings: Findings | None = None  # of pictures that no run was begun on
    given: Options = field(default_factory=dict)  # that weights and pictures give, unless asked for

    @property
    def images(self) -> int:
        """The number of usable pictures; only asked where they were looked at."""
        assert self.findings is not None
        return self.findings.num_good

    @property
    def possible(self) -> int:
        """The largest resolution that nine of ten pictures reach."""
        assert self.findings is not None
        reach = self.findings.reach()
        enough = (r for r, n in reach.items() if n >= MOST_REACH * self.images)
        return max(enough, default=min(reach))

    @property
    def labels(self) -> Labels | None:
        return self.findings.labels if self.findings else None

    @property
    def grown(self) -> int:
        """The resolution of the weights to begin with; 0: none."""
        return self.start.require_loaded().grown if self.start else 0


@dataclass(frozen=True)
class Plan:
    """The plan of a training, with reasons."""

    config: TrainConfig
    lines: list[str]  # what was found and chosen, for the user
    request: Request
    facts: Facts
    threads: int | None = None  # that compute on a CPU
    costs: Costs | None = None  # of the steps that were tried, if any were

    def train(self, **rest: Any) -> TrainState:
        """Train to the end of this plan; `rest` are options of `training.start`."""
        facts = self.facts
        if not facts.stored:
            check_frozen(self.config, facts.start)
        return start(
            self.config,
            facts.data,
            facts.run.path,
            device=facts.machine.device,
            init_from=facts.start or self.request.init_from,
            costs=self.costs,
            threads=self.threads,
            **rest,
        )

    def advice(self) -> list[str]:
        """Lines on what helps a new run on images of the user's."""
        facts = self.facts
        if facts.stored or not facts.is_own or facts.findings is None:
            return []
        return advice(facts.images, self.config, started=facts.start is not None)

    def preview(self, *, console: Console = SILENT) -> list[str]:
        """Decode every picture, or read a store whole, and try steps at every resolution: what is
        left out, the phases with their memory and time, what helps. Nothing is written."""
        facts = self.facts
        device = facts.machine.device
        findings = looked_at(facts.data, self.config, decode=True, console=console)
        config = resolve_config(self.config, facts.run, device, findings)
        lines = self.image_lines(findings, config)
        with backend_flags(config):
            newest, payload = newest_state(facts.run)
            if newest:
                saved_config(config, payload, newest, findings, facts.run)
            of_threads = settle_threads(self.threads, payload)
            stages = coming(config.schedule, 0)
            costs = possible_costs(config, device, stages, console, self.costs)
        lines += [*plan_lines(config, costs, device), *of_threads]
        last = outlook(config, costs, device, facts.run.saved())
        return [*lines, last, *disk_warning(config, facts.run)]

    def preview_elsewhere(self) -> list[str]:
        """Preview for GPUs that are not here: no steps are tried, so no times are known. Raise
        ValueError if the processes do not divide the batches."""
        machine = self.facts.machine
        config = self.config
        lines: list[str] = []
        if self.facts.is_own:  # else the pictures are where the GPUs are
            findings = looked_at(self.facts.data, config, decode=True)
            config = fit_to_data(config, findings)
            lines = self.image_lines(findings, config)
        check_batches(config, machine.processes)
        costs = Costs.estimated(config, coming(config.schedule, 0), machine.processes)
        at = costs.largest
        lines += plan_lines(config, costs, machine.device)
        return [
            *lines,
            f"memory of each GPU: about {gib(costs.memory[at])}, at {at}x{at}; kernels take more",
            f"begin: torchrun --nproc-per-node {machine.processes} -m stylegan train, and the "
            "options of this command without --dry-run, --processes and --device",
        ]

    def image_lines(self, findings: Findings, config: TrainConfig) -> list[str]:
        """Images that would be left out, and advice. Raises ValueError if none is usable."""
        left_out = grouped(findings.skipped)
        if not findings.num_good:
            reasons = "; ".join(left_out)
            raise ValueError(f"none of the images of {findings.path} is usable: {reasons}")
        lines = [*findings.notes, *(f"left out: {line}" for line in left_out)]
        if self.facts.is_own:
            started = self.facts.start is not None or bool(self.facts.run.lineage())
            lines += advice(findings.num_good, config, started=started)
        return lines


def plan(
    request: Request,
    machine: Machine | None = None,
    *,
    threads: int | None = None,
    console: Console = SILENT,
) -> Plan:
    """Decide what to train: what is asked for, remembered, or chosen for pictures and machine.

    With `minutes`, steps are tried, with so many `threads`, to find the length; a training that is
    too short for the resolution that would be chosen gets a smaller one. `machine` is this one
    unless given; all its processes call this together, and the first looks at the pictures.
    FileNotFoundError or ValueError if something that is asked for is not there, or not possible.
    """
    if distributed.world_size() < int(os.environ.get("WORLD_SIZE", "1")):
        raise ValueError(
            "several processes were started, which must plan together: call plan() inside "
            "`with stylegan.machine.distributed.process_group(device):`"
        )
    if request.minutes is not None:  # for which steps are tried
        require("torchvision", packages="torch torchvision", purpose="a grid of samples")
    machine = machine or Machine.here(pick_device())
    if threads is not None:
        machine = dataclasses.replace(machine, cores=min(threads, limits().cores))
    facts, lines = look(request, machine, console)
    stored = facts.stored
    costs: Costs | None = None
    if request.minutes is None:
        config, more = decide(request, facts)
    elif stored and facts.run.saved():
        length = stored.schedule.total_kimg
        config, more = decide(dataclasses.replace(request, minutes=None, kimg=length), facts)
        more.append(f"{facts.run.path} keeps its length of {length:g} kimg; --kimg changes it")
    else:
        config, more, costs = decide_within(request.minutes, request, facts, threads)
    if facts.start:
        check_frozen(config, facts.start)
        check_meaning(facts.start, config.network)
    data = facts.data
    if isinstance(data, Path) and is_store(data):
        from_rank0(lambda: Store(data).check_fits(preparation_for(config)))
    return Plan(config, [*lines, *more], request, facts, threads, costs)


# The facts


def look(request: Request, machine: Machine, console: Console) -> tuple[Facts, list[str]]:
    """Open the run and the weights, and look at the pictures; the first process does that for all.
    Also what was found. FileNotFoundError or ValueError if a requested thing is not there."""
    run = RunFolder(request.out or usual_folder(request.config, request.data))
    stored = on_all_ranks(run.stored_config)
    path = Path(request.data or (data_of(run) if stored else bundled(BUNDLED_DATA)))
    is_own = path.resolve() != bundled(BUNDLED_DATA).resolve()
    remembered = str(run.config_file)
    base = request.config or (remembered if stored else AUTO if is_own else DEFAULT_CONFIG)
    if stored and (base == AUTO or (is_own and base == DEFAULT_CONFIG)):  # which chose it once
        base = remembered
    lines: list[str] = []
    if stored and request.config and base != request.config:
        lines.append(f"{run.path} keeps the options that it began with")
    start: Weights | None = None
    given: dict[str, object] = {}
    if (origin := request.init_from) is not None and not stored:  # first: it may be a mistake
        start = on_all_ranks(lambda: open_weights(origin, need="training"))
        if request.config in (None, AUTO):
            given |= sizes(start, width=request.width)
    drawn = start.require_loaded().crop if start else stored.data.crop if stored else ""
    is_fixed = base != AUTO and CROP in read_options(base)
    fits = from_rank0(lambda: not is_store(path) or Store(path).meta.crop == drawn)
    if drawn and not is_fixed and fits:
        given[CROP] = drawn

    def of_pictures(options: Options) -> TrainConfig:
        """The options of data and networks; for auto all others are chosen by the pictures."""
        if base != AUTO:
            return load_config(base, options, machine.processes)
        own = {k: value for k, value in options.items() if k.startswith(("data.", "network."))}
        return load_config(None, own)

    of_data = of_pictures({**given, **request.asked}).data
    include = of_data.include
    if start and {drawn, of_data.crop} != {"center"}:
        lines.append(f"{start} draws crop {drawn}; the run has {of_data.crop} (--crop, --aspect)")
    is_looked_at = base == AUTO or (is_own and not stored)
    data: Path | Source = path
    if is_looked_at and not is_store(path):  # listed in the first process alone
        opened = from_rank0_alone(lambda: open_source(path, include=include))
        data = opened or path
    channels = request.channels
    if channels == "auto" and not stored:  # a run that has begun ignores it
        channels, why = from_rank0(lambda: needed_channels(data, include))
        lines.append(why)
    if isinstance(channels, int):
        # older runs are not premultiplied
        premultiplied = channels == 4 and (not stored or stored.network.premultiplied)
        given |= {"network.image_channels": channels, "network.premultiplied": premultiplied}
    findings: Findings | None = None
    if is_looked_at:
        findings = looked_at(data, of_pictures({**given, **request.asked}), console=console)
        lines += found_lines(findings)
    elif not is_own and not stored and request.config is None:
        lines.append(f"no --data, and no run in {run.path}: the bundled faces")
    return Facts(run, stored, base, data, is_own, machine, start, findings, given), lines


def from_rank0_alone(make: Callable[[], Value]) -> Value | None:
    """Run `make()` in the first process, which keeps the result; None in the others."""
    made: list[Value] = []
    from_rank0(lambda: made.append(make()))
    return made[0] if made else None


def looked_at(
    data: Path | Source, config: TrainConfig, *, decode: bool = False, console: Console = SILENT
) -> Findings:
    """Look at the pictures. Raise ValueError if there are none, or labels are missing."""
    preparation = preparation_for(config)
    if not decode:  # then all sizes are of interest
        preparation = dataclasses.replace(preparation, resolution=None)
    findings = from_rank0(lambda: check(data, preparation, decode=decode, console=console))
    if not findings.reach():
        why = [f"no image of {findings.path} can be used", *findings.left_out_lines()]
        raise ValueError("; ".join(why))
    if not findings.label_names:
        fit_to_data(config, findings)  # refuses those that are asked for, before anything is told
    return findings


def usual_folder(config_name: str | None, data: str | Path | None) -> Path:
    """Return the default run folder: `runs/<config>`."""
    usual = DEFAULT_CONFIG if data is None or Path(data) == bundled(BUNDLED_DATA) else AUTO
    return Path("runs") / (usual if config_name is None else Path(config_name).stem)


def data_of(run: RunFolder) -> Path:
    """Return the place of a run's images; those of the package may have moved."""
    source = run.data()
    if source is None:
        raise FileNotFoundError(
            f"{run.data_file} does not say where the images of the run are; give them by --data"
        )
    if source.exists():
        return source
    if source.name == Path(BUNDLED_DATA).name:
        return bundled(BUNDLED_DATA)
    raise FileNotFoundError(
        f"the images of {run.path} were in {source}, where there is nothing; give them by --data"
    )


# The decision, without looking or trying


def decide(request: Request, facts: Facts) -> tuple[TrainConfig, list[str]]:
    """Return the configuration and notes on it."""
    asked = {**facts.given, **request.asked}
    if facts.base == AUTO:
        config, lines = chosen(asked, facts, request.width)
        file: Options = {}
    else:
        file = read_options(facts.base)
        config, lines = named(request, asked, file, facts)
    start = facts.start
    if start and WARMUP not in file.keys() | asked.keys():  # by the widths that it will have
        config = dataclasses.replace(config, **warmup(start, config, facts.labels))  # type: ignore[arg-type]
    if start:
        is_asked = GROWS_AGAIN in file.keys() | asked.keys()
        lines.append(beginning(start, config, is_asked=is_asked)[1])
    return config, lines


def named(
    request: Request, asked: Options, file: Options, facts: Facts
) -> tuple[TrainConfig, list[str]]:
    """Return the configuration of that name, or of the run. Lengths and widths are fitted where a
    resolution, a length or a width is asked for."""
    stored = facts.stored
    processes = stored.schedule.num_processes if stored else facts.machine.processes
    kept: dict[str, object] = {}  # where the weights of the beginning leave nothing to choose
    if stored and facts.run.lineage():
        kept = {
            GROWS_AGAIN: stored.schedule.initial_resolution,
            WARMUP: stored.d_warmup_kimg,
        }
    elif facts.start:
        whole = load_config(facts.base, asked, processes)
        kept = beginning(facts.start, whole, is_asked=GROWS_AGAIN in asked)[0]
    kept = {name: value for name, value in kept.items() if name not in file}
    config = load_config(facts.base, {**kept, **asked}, processes)
    to_fit = (request.resolution, request.kimg, request.width, request.minutes) != (None,) * 4
    if not to_fit:
        return config, []
    usual = int(file.get(RESOLUTION, NetworkConfig.resolution))  # type: ignore[call-overload]
    kept |= fitted(config, usual, width=request.width, begun=stored)
    if stored:
        kept["r1_gamma"] = stored.r1_gamma
    elif config.network.resolution != usual:
        kept["r1_gamma"] = gamma_of_size(config, usual)
    return load_config(facts.base, {**kept, **asked}, processes), []


def chosen(asked: Options, facts: Facts, width: int | None) -> tuple[TrainConfig, list[str]]:
    """Choose all that depends on the number of pictures, their size and the machine, to fit what is
    asked for, at the largest sensible resolution."""
    if any(name.startswith("augment.") for name in asked):  # these mean nothing without a kind
        asked = {"augment.kind": "ada", **asked}
    hindrance = ""
    fixed = RESOLUTION in asked
    machine = facts.machine
    for size in [None] if fixed else reversed(schedule.resolutions(facts.possible)):
        config = chosen_at(asked if size is None else {**asked, RESOLUTION: size}, facts, width)
        too_fine = size not in (None, schedule.MIN_RESOLUTION)
        problem = too_large(facts, config) if too_fine else ""
        if not problem:
            if "batch_gpu" not in asked:
                config = images_at_once(config, machine)
            if largest_step(config) <= MEMORY_SHARE * machine.memory:
                break
            problem = f"takes more memory than {gib(machine.memory)}"
        if not fixed:
            hindrance = hindrance or f"not a larger resolution: {facts.possible} {problem}"
    return config, [chosen_line(config), *filter(None, [hindrance])]


def chosen_at(asked: Options, facts: Facts, width: int | None) -> TrainConfig:
    """Choose the options that are not asked for, at a resolution that is."""
    machine = facts.machine
    on_cpu = machine.on_cpu
    few = facts.images < PLENTY
    base = CPU_BASE if on_cpu else None
    usual = load_config(base).network.resolution
    options: dict[str, object] = {"data.mirror": few, "schedule.batch_size": whole_batches(facts)}
    if on_cpu:
        rates = CPU_TRANSFER_RATES if facts.grown else CPU_RATES
        tables = ({schedule.MIN_RESOLUTION: rate} for rate in rates)
        options |= CPU_PHASES | dict(zip(("schedule.g_lr", "schedule.d_lr"), tables, strict=True))
    config = load_config(base, {**options, **asked}, machine.processes)  # of what stands alone
    size = config.network.resolution
    kimg = config.schedule.total_kimg if LENGTH in asked else length(facts, size)
    options[LENGTH] = kimg
    if facts.grown:
        options["schedule.initial_resolution"] = min(facts.grown, size)
    if few and kimg >= LEAST_AUGMENTED_KIMG:
        options["augment.kind"] = "ada"
    config = load_config(base, {**options, **asked}, machine.processes)
    batch_size = batch_size_at(size, config.schedule)
    options["r1_gamma"] = gamma_for(config, batch_size, on_cpu=on_cpu)
    if config.augment.kind == "ada" and config.augment.adaptive:
        most = TRANSFER_SPEED_KIMG if facts.grown else MOST_SPEED_KIMG
        options["augment.speed_kimg"] = min(most, config.schedule.total_kimg / 2)
    average = AVERAGE_KIMG * batch_size / GPU_BATCH
    if "ema_half_life_kimg" not in asked:
        config = dataclasses.replace(config, ema_half_life_kimg=average)
    options |= fitted(config, usual, width=width)
    return load_config(base, {**options, **asked}, machine.processes)


def too_large(facts: Facts, config: TrainConfig) -> str:
    """Return the reason why the resolution is not sensible; empty if it is."""
    resolution = config.network.resolution
    channels = config.network.channels(resolution)
    processes = facts.machine.processes
    if resolution > facts.grown > 0 and channels < FINEST_CHANNELS:
        return f"would have {count(channels, 'channel')} in the network to start from"
    if facts.machine.on_cpu:
        is_quick = facts.machine.cores * processes > 1 or facts.grown >= CPU_RESOLUTION
        most = CPU_RESOLUTION if is_quick else CPU_RESOLUTION // 2
        return "takes a CPU several times as long, as every doubling" if resolution > most else ""
    if facts.images < FULL_DETAIL_IMAGES and resolution > max(FEW_RESOLUTION, facts.grown):
        return f"wants {FULL_DETAIL_IMAGES:,} pictures, or weights to start from"
    kimg = config.schedule.total_kimg
    if kimg > GPU_KIMG.get(processes, {}).get(resolution, math.inf):
        return f"takes {count(processes, 'GPU')} weeks for {kimg:,g} kimg"
    return ""


def whole_batches(facts: Facts) -> dict[int, int]:
    """Return the images per step: few on a CPU; on a GPU the paper's, but where growing is short,
    without the large batches of its first resolutions."""
    on_cpu = facts.machine.on_cpu
    batches = {schedule.MIN_RESOLUTION: CPU_BATCH if on_cpu else GPU_BATCH}
    if not on_cpu and facts.images >= PLENTY:
        batches = official_batch_sizes(8)
    group = 4 * facts.machine.processes  # each has whole groups of the minibatch deviation
    return {r: -(-batch // group) * group for r, batch in batches.items()}


def length(facts: Facts, resolution: int) -> float:
    """Return the length of a training, in kimg."""
    if facts.machine.on_cpu:
        return CPU_KIMG_AT_32 * max(resolution, 32) / 32
    kimg = short(PUBLISHED_KIMG * math.sqrt(min(facts.images / PUBLISHED_IMAGES, 1)), digits=2)
    return min(kimg, TRANSFER_KIMG) if facts.grown and facts.images < PLENTY else kimg


def gamma_for(config: TrainConfig, batch_size: int, *, on_cpu: bool) -> float | dict[int, float]:
    """Return the weight of R1 by the published rule; on a CPU as strong for each pixel of every
    stage."""
    size = config.network.resolution
    gamma = short(R1_RULE * size**2 / batch_size, digits=2)
    if not on_cpu:
        return max(gamma, LEAST_GAMMA)
    per_pixel = dict.fromkeys(stages_of(config), max(gamma, CPU_LEAST_GAMMA))
    return gammas_of(per_pixel) if len(per_pixel) > 1 else per_pixel[size]


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


def stages_of(config: TrainConfig) -> list[int]:
    """Return the trained resolutions."""
    sizes_ = schedule.resolutions(config.network.resolution)
    return [r for r in sizes_ if r >= config.schedule.start]


def gammas_of(per_pixel: Mapping[int, float]) -> dict[int, float]:
    """Return the weights of R1 by resolution that are so strong for each pixel of a stage: the
    official penalty is that of images enlarged to the full size, by which small stages have hardly
    any, and there a narrow discriminator wins at once."""
    size = max(per_pixel)
    return {
        stage: short(gamma / full_size_factor(size, stage) ** 2, digits=2)
        for stage, gamma in per_pixel.items()
    }


def images_at_once(config: TrainConfig, machine: Machine) -> TrainConfig:
    """Choose as many images at once as memory holds, at least a group of the deviation."""
    processes = machine.processes
    share = batch_size_at(config.network.resolution, config.schedule) // processes
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
    if network.resolution > usual_resolution:
        base = max(base, FINEST_CHANNELS * network.resolution // 2)
    if width is not None:
        base = max(round(base * width / network.max_channels), 1)
    return {
        "network.channel_base": base,
        "network.max_channels": network.max_channels if width is None else width,
        "schedule.stable_kimg": plan.stable_kimg,
        "schedule.fade_kimg": plan.fade_kimg,
        "schedule.tick_kimg": plan.tick_kimg,
        "ema_half_life_kimg": half_life,
    }


def shortened(plan: ScheduleConfig) -> ScheduleConfig:
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


def short(number: float, digits: int = 4, rounding: str = ROUND_HALF_EVEN) -> float:
    return float(Context(digits, rounding).create_decimal_from_float(number))


# A length in minutes


def decide_within(
    minutes: float, request: Request, facts: Facts, threads: int | None
) -> tuple[TrainConfig, list[str], Costs]:
    """Return the configuration with the length that takes so many minutes here, notes on it, and
    the costs of the steps that were tried."""
    is_chosen = facts.base == AUTO and RESOLUTION not in request.asked
    is_free = is_chosen and facts.start is None
    trial = dataclasses.replace(request, minutes=None)
    too_large: list[str] = []
    while True:
        usual, _ = decide(trial, facts)
        size = usual.network.resolution
        length = usual.schedule.total_kimg
        costs = costs_here(usual, facts, threads)
        is_least = not is_free or size <= LEAST_RESOLUTION
        kimg = kimg_within(minutes, usual, request, costs)
        if is_least or kimg >= LEAST_SHARE * length:
            break
        too_large.append(f"not {size}x{size}: {kimg:g} of the usual {length:g} kimg would fit")
        trial = dataclasses.replace(trial, resolution=size // 2)
    if kimg < LEAST_KIMG:
        raise ValueError(
            f"{minutes:g} minutes do not suffice for {LEAST_KIMG:g} kimg here; give it more "
            "--minutes, or a smaller --resolution"
        )
    if is_chosen:
        trial = dataclasses.replace(trial, resolution=size)
    config, lines = decide(dataclasses.replace(trial, kimg=kimg), facts)
    begun = facts.start is not None
    lines += length_lines(minutes, config, usual_kimg=length, started=begun)
    return config, [*lines, *too_large], costs


def costs_here(config: TrainConfig, facts: Facts, threads: int | None) -> Costs:
    """Try steps at every resolution on this machine."""
    device = facts.machine.device
    config = with_precision(config, device, facts.stored)
    with backend_flags(config):
        settle_threads(threads, {})
        return Costs.tried(config, device, coming(shortened(config.schedule), 0))


def kimg_within(minutes: float, config: TrainConfig, request: Request, costs: Costs) -> float:
    """Return the length in kimg that takes so long with these costs; 0: less than `LEAST_KIMG`.
    Phases are shortened with it unless they are asked for."""
    keep = any(f"schedule.{name}_kimg" in request.asked for name in ("stable", "fade"))
    seconds = 60 * TRAINING_SHARE * minutes

    def takes(kimg: float) -> float:
        planned = dataclasses.replace(config.schedule, total_kimg=kimg)
        return costs.seconds_left(planned if keep else shortened(planned))

    shortest = LEAST_KIMG
    longest = seconds / min(costs.seconds.values()) / 1000
    if takes(shortest) > seconds:
        return 0.0
    while longest > 1.001 * shortest:
        middle = math.sqrt(shortest * longest)
        if takes(middle) <= seconds:
            shortest = middle
        else:
            longest = middle
    return short(shortest, digits=3)


# Lines for the user


def found_lines(findings: Findings) -> list[str]:
    """Return lines on a source: pictures, sizes, and how many reach each resolution."""
    pictures = count(findings.num_good, "picture")
    line = f"{findings.path}: {pictures} of {' to '.join(dict.fromkeys(findings.ends()))}"
    lines = [line + ("" if findings.kind == "store" else ", by the headers of the files")]
    if oblong := sum(n for (width, height), n in findings.sizes.items() if width != height):
        treatments = {
            "center": "only the middle square is used",
            "pad": "the middle {}:{} is used, between bars".format(*findings.fit.aspect),
            "stretch": "squeezed to a square",
        }
        lines.append(f"{oblong:,} not square: {treatments[findings.fit.kind]} (--crop, --aspect)")
    reach = findings.reach()
    # from 32, or the largest that all reach
    least = max(findings.resolution() or 0, min(32, max(reach, default=0)))
    table = {r: n for r, n in reach.items() if r >= least}
    if set(table.values()) != {findings.num_good}:
        counts = [f"{n:,}" for n in table.values()]
        rows = [["  resolution", *map(str, table)], ["  pictures that reach it", *counts]]
        lines += aligned(rows, left=[0])
    if labels := findings.labels:
        number = count(len(labels.names), "number" if labels.vectors else "class")
        lines.append(f"{number} for --labels: {listed(labels.names, 12, ', ')}")
    return lines + ([f"ignored: {kinds_of(findings.ignored)}"] if findings.ignored else [])


def chosen_line(config: TrainConfig) -> str:
    """Return a line on the choices for pictures and machine."""
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
    return f"{line}; your own options are kept"


def length_lines(
    minutes: float, config: TrainConfig, *, usual_kimg: float, started: bool
) -> list[str]:
    """Return lines on the length that fits into the minutes; `started` from other weights."""
    kimg = config.schedule.total_kimg
    size = f"{config.network.resolution}x{config.network.resolution}"
    unit = "minute" if minutes == 1 else "minutes"
    lines = [f"{minutes:g} {unit} of training here: {kimg:g} kimg at {size}"]
    if (share := kimg / usual_kimg) < LEAST_SHARE:
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
            lines.append("trained weights of a similar kind help: --init-from")
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
