"""What to train: options chosen for images and a machine, or a configuration fitted to them."""

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Context
from pathlib import Path
from typing import Any, Literal

import torch

from stylegan import schedule
from stylegan.config import (
    AUTO,
    TrainConfig,
    bundled,
    check_batches,
    flatten,
    load_config,
    read_options,
)
from stylegan.data import Findings, Source, Store, check, is_store, open_source
from stylegan.data.check import detect_channels, grouped
from stylegan.data.images import MODES, channels_of
from stylegan.data.prepare import refuse_skipped
from stylegan.data.sources import kinds_of
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.files.weights import Weights
from stylegan.losses import full_size_factor, has_signs
from stylegan.networks import NetworkConfig
from stylegan.schedule import (
    ScheduleConfig,
    batch_size_at,
    official_batch_sizes,
    phases,
    remaining_stages,
)
from stylegan.training.costs import Machine, StepCosts, cost_lines, possible_costs
from stylegan.training.meaning import check_meaning
from stylegan.training.run import (
    backend_flags,
    check_resumable,
    check_unstarted,
    newest_state,
    preparation_for,
    resolve_config,
    set_label_dim,
    set_threads,
    start,
    with_precision,
)
from stylegan.training.state import TrainState
from stylegan.training.transfer import (
    INITIAL_RESOLUTION,
    beginning,
    check_frozen,
    sizes,
    warmup,
    warmup_lines,
)
from stylegan.utils import distributed
from stylegan.utils.console import SILENT, Console
from stylegan.utils.distributed import resolve_device, run_on_all_ranks, run_on_rank0
from stylegan.utils.filesystem import not_found
from stylegan.utils.limits import limits
from stylegan.utils.text import (
    align_columns,
    approximate_duration,
    duration,
    gib,
    join_truncated,
    pluralize,
    require_module,
)
from stylegan.utils.toml import toml_value

Options = Mapping[str, object]  # of a configuration, by `name` or `section.name`
RESOLUTION = "network.resolution"
CROP = "data.crop"
LENGTH = "schedule.total_kimg"
WARMUP = "d_only_kimg"
BUNDLED_DATA = "datasets/faces-64.zip"
DEFAULT_CONFIG = "quickstart"

MAX_REACH = 0.9  # fraction of the images that must reach the chosen resolution
FINEST_CHANNELS = 16  # of the paper's networks at 1024x1024
MAX_GROWING = 0.5  # fraction of a training
MIN_TICKS = 12  # grids of samples in a training of at least as many kimg
MIN_TICK_KIMG = 1.0  # samples are named by their kimg
MIN_KIMG = 0.1  # of a training
FULL_DETAIL_IMAGES = 1000  # fewer do not teach finer detail than at FEW_RESOLUTION
FEW_RESOLUTION = 256
PLENTY = 50_000  # images
CPU_BASE = "quickstart"  # configuration of the network, and of the interval of R1, on a CPU
CPU_RESOLUTION = 64  # upper limit with two cores, or from weights that have grown to it
CPU_KIMG_AT_32 = 48.0  # the length doubles with the resolution: at 64, an hour on two cores
CPU_BATCH = 16
CPU_PHASES = {"schedule.stable_kimg": 7.0, "schedule.fade_kimg": 5.0}  # tested with few images
CPU_RATES = {"schedule.g_lr": 0.004, "schedule.d_lr": 0.004}
# Higher ones destroy a trained generator.
CPU_TRANSFER_RATES = {"schedule.g_lr": 0.001, "schedule.d_lr": 0.002}
GPU_BATCH = 32  # the paper's images per step
# By number of GPUs and resolution: length of 15 days on V100s, as published.
GPU_KIMG: Mapping[int, Mapping[int, float]] = {1: {1024: 10_300, 512: 16_900}, 2: {1024: 18_200}}
AVERAGE_KIMG = 10.0  # the paper's half-life of the average
HALF_LIVES = 12  # least number in a training: an average that lags behind shows dark blobs
PUBLISHED_IMAGES = 70_000  # FFHQ
PUBLISHED_KIMG = 25_000  # length of the paper's training
R1_RULE = 0.0002  # Karras et al. 2020 (limited data), `auto` in their code
MIN_GAMMA = 1.0  # published for StyleGAN2 on subsets of FFHQ at 256x256; a guess here
CPU_LEAST_GAMMA = 0.1  # gave the best rendered faces with the narrow networks of a CPU
MIN_AUGMENTED_KIMG = 200.0  # shorter trainings did not overfit: docs/experiments.md
MAX_SPEED_KIMG = 500.0  # for the probability of augmentation to rise from 0 to 1, as published
TRANSFER_KIMG = 2000  # upper limit when starting from other weights
TRANSFER_SPEED_KIMG = 100.0  # likewise, of the augmentation
MEMORY_SHARE = 0.6  # of a device, for the estimate of a step: kernels need workspace
TRAINING_SHARE = 0.95  # of the minutes of a run; the rest is for samples, files, the report
MIN_SHARE = 0.5  # of the usual length of a training; below it, a smaller resolution is tried
MIN_RESOLUTION = 32  # where that stops
HANDFUL = 10  # images
FEW = 2000  # images


@dataclass(frozen=True)
class TrainRequest:
    """The requested training. None means: as stored in the run `out`, or else chosen."""

    out: str | Path | None = None  # run folder; None: runs/<config>
    data: str | Path | None = None  # images; None: those of the run, or the bundled ones
    config: str | None = None  # name, TOML file, or auto
    # Phases and widths of a named configuration are fitted to the next four.
    resolution: int | None = None
    kimg: float | None = None  # length, in thousands of real images
    minutes: float | None = None  # length, in minutes on this machine
    max_channels: int | None = None  # maximum number of channels of a layer
    options: Options = field(default_factory=dict)  # others, by `name`, `section.name`
    channels: int | Literal["auto", "L", "RGB", "RGBA"] | None = None  # stored as int or auto
    init_from: str | Path | None = None  # weights to start from

    def __post_init__(self) -> None:
        """Raises ValueError if an option is given twice, or `channels` is not a mode."""
        if not isinstance(self.config, str | None):
            raise ValueError(
                f"config must be a str, a name or path, got a {type(self.config).__name__}"
            )
        object.__setattr__(self, "options", flatten(self.options))
        if isinstance(self.channels, str):
            object.__setattr__(self, "channels", channels_of(self.channels))
        if self.minutes is not None and LENGTH in self.explicit_options:
            raise ValueError("--minutes and --kimg both specify the length; leave one out")
        own = {
            RESOLUTION: self.resolution,
            LENGTH: self.kimg,
            "network.max_channels": self.max_channels,
            "network.image_channels": self.channels,
        }
        for name, value in own.items():
            if value is not None and name in self.options:
                raise ValueError(f"{name} is given twice, once by -o; leave one out")

    @property
    def explicit_options(self) -> dict[str, object]:
        """Requested options of the configuration, by name."""
        fitted = {RESOLUTION: self.resolution, LENGTH: self.kimg}
        return {**{k: value for k, value in fitted.items() if value is not None}, **self.options}


@dataclass(frozen=True)
class Facts:
    """What a plan depends on besides the request."""

    run: RunFolder
    stored_config: TrainConfig | None  # of the run, if it exists
    base: str  # configuration: a name, a file, or auto
    data: Path | Source  # a source if this rank has listed the files
    is_own: bool  # the user's data, not the bundled images
    machine: Machine
    init_weights: Weights | None = None  # that a new run starts from
    findings: Findings | None = None  # on the images, if they were inspected
    given: Options = field(default_factory=dict)  # that follow from weights and images

    @property
    def images(self) -> int:
        """Number of usable images, which must have been inspected."""
        assert self.findings is not None
        return self.findings.num_usable

    def images_at(self, resolution: int) -> int:
        """Number of images that reach a resolution, since smaller ones are left out; of all if
        nearly all do."""
        number = self.reach.get(resolution, 0)
        return self.images if number >= MAX_REACH * self.images else number

    @functools.cached_property
    def reach(self) -> dict[int, int]:
        """Resolution -> number of images that are large enough for it, if any."""
        assert self.findings is not None
        return self.findings.counts_by_resolution()

    @property
    def grown(self) -> int:
        """Resolution that the weights to start from have grown to; 0 without weights."""
        return self.init_weights.require_loaded().grown_resolution if self.init_weights else 0


@dataclass(frozen=True)
class Plan:
    """A configuration to train, with the reasons for it."""

    config: TrainConfig
    lines: list[str]  # report of what was found and chosen
    request: TrainRequest
    facts: Facts
    threads: int | None = None  # on a CPU
    costs: StepCosts | None = None  # if steps were tried

    def train(self, **rest: Any) -> TrainState:
        """Train to the end; `rest` are further options of `training.start`."""
        facts = self.facts
        if not facts.stored_config:
            check_frozen(self.config, facts.init_weights)
        return start(
            self.config,
            facts.data,
            facts.run.path,
            device=facts.machine.device,
            init_from=facts.init_weights or self.request.init_from,
            costs=self.costs,
            threads=self.threads,
            **rest,
        )

    def preview(self, *, strict: bool = False, console: Console = SILENT) -> list[str]:
        """Decode all images and try steps at every resolution, without writing anything.

        Returns lines on skipped images, which `strict` refuses, and the memory and time of each
        phase.
        """
        facts = self.facts
        device = facts.machine.device
        config = resolve_config(self.config, facts.run, device)  # before images are decoded
        findings = inspect_images(facts.data, config, decode=True, console=console)
        config = set_label_dim(config, findings)
        if strict:
            refuse_skipped(findings.skipped, findings.num_usable, findings.path)
        lines = left_out_lines(findings)
        if facts.is_own and not facts.stored_config and findings.num_usable < HANDFUL:
            lines += advice(findings.num_usable, config, started=facts.init_weights is not None)
        with backend_flags(config):
            newest, payload = newest_state(facts.run)
            if newest:
                check_resumable(config, payload, newest, findings, facts.run)
            else:
                init_from = facts.init_weights or self.request.init_from
                run_on_rank0(lambda: check_unstarted(facts.run, findings.path, init_from))
            of_threads = set_threads(self.threads, payload)
            stages = remaining_stages(config.schedule, 0)
            costs = possible_costs(config, device, stages, console, self.costs)
        lines += [*plan_lines(config, costs, device), *of_threads]
        return [*lines, *cost_lines(config, costs, device, facts.run, payload)]

    def preview_elsewhere(self) -> list[str]:
        """Preview for GPUs of another machine: no steps are tried, so no times are known."""
        machine = self.facts.machine
        config = self.config
        lines: list[str] = []
        if self.facts.is_own:  # the bundled images are there, too
            findings = inspect_images(self.facts.data, config, decode=True)
            config = set_label_dim(config, findings)
            lines = left_out_lines(findings)
        check_batches(config, machine.processes)
        costs = StepCosts.estimate(config, machine.processes)
        at = costs.largest
        lines += plan_lines(config, costs, machine.device)
        return [
            *lines,
            f"memory of each GPU: about {gib(costs.memory[at])}, at {at}x{at}, without workspace",
            f"start it by torchrun --nproc-per-node {machine.processes} -m stylegan train with the "
            "options of this command, except --dry-run, --plan-gpus and --device",
        ]


def plan(
    request: TrainRequest,
    machine: Machine | None = None,
    *,
    threads: int | None = None,
    console: Console = SILENT,
) -> Plan:
    """Decide what to train: as requested, as stored in the run, or chosen for images and machine.

    If `minutes` are requested, steps are tried with `threads` to find the length, and the
    resolution is reduced if the length would be too short for it. `machine` defaults to this one,
    all of whose ranks must call this together; rank 0 inspects the images. Raises FileNotFoundError
    or ValueError if the request cannot be met.
    """
    if not isinstance(request, TrainRequest):
        raise ValueError(f"request must be a TrainRequest, got {request!r:.80}")
    if distributed.world_size() < int(os.environ.get("WORLD_SIZE", "1")):
        raise ValueError(
            "several processes must plan together; call plan() inside "
            "`with stylegan.utils.distributed.process_group(device):`"
        )
    if request.minutes is not None:  # for which steps are tried
        require_module("torchvision", packages="torch torchvision", purpose="a grid of samples")
    machine = machine or Machine.here(resolve_device())
    if threads is not None:
        machine = dataclasses.replace(machine, cores=min(threads, limits().cores))
    facts, lines = inspect_inputs(request, machine, console)
    stored = facts.stored_config
    costs: StepCosts | None = None
    if request.minutes is None:
        config, more = decide(request, facts)
    elif stored and run_on_rank0(facts.run.latest_images_seen):
        kimg = stored.schedule.total_kimg
        config, more = decide(dataclasses.replace(request, minutes=None, kimg=kimg), facts)
        more.append(f"{facts.run.path} keeps its length of {kimg:g} kimg; --kimg changes it")
    else:
        config, more, costs = decide_within(request.minutes, request, facts, threads)
    if facts.init_weights:
        check_frozen(config, facts.init_weights)
        check_meaning(facts.init_weights, config.network)
    run_on_rank0(lambda: check_store(facts.data, config))
    if facts.findings and facts.is_own and not stored:
        images = facts.images_at(config.network.resolution)
        lines += advice(images, config, started=facts.init_weights is not None)
    return Plan(config, [*lines, *more], request, facts, threads, costs)


def check_store(data: Path | Source, config: TrainConfig) -> None:
    if isinstance(data, Path) and is_store(data):
        Store(data).check_fits(preparation_for(config))


# The facts


def inspect_inputs(
    request: TrainRequest, machine: Machine, console: Console
) -> tuple[Facts, list[str]]:
    """Open the run and the weights and inspect the images, on rank 0 for all; lines on these."""
    run = RunFolder(request.out or usual_folder(request.config, request.data))
    stored = run_on_rank0(run.stored_config)
    if request.out is not None and not stored and request == TrainRequest(request.out):
        how = (
            "to resume one, go to its folder; to start one, add --data IMAGES, or --config "
            "quickstart for the bundled faces"
        )
        raise FileNotFoundError(not_found(run.path, how, what="run"))
    remembered_data = (
        run_on_all_ranks(lambda: data_of(run)) if stored and not request.data else None
    )
    path = Path(request.data or remembered_data or bundled(BUNDLED_DATA))
    is_own = not is_bundled(path)
    remembered = str(run.config_file)
    base = request.config or (remembered if stored else AUTO if is_own else DEFAULT_CONFIG)
    if stored and (base == AUTO or (is_own and base == DEFAULT_CONFIG)):  # which chose it
        base = remembered
    lines: list[str] = []
    if stored and request.config and base != request.config:
        lines.append(f"{run.path} keeps the options that it was started with")
    weights: Weights | None = None
    channels = request.channels
    given: dict[str, object] = {}
    if (origin := request.init_from) is not None and not stored:  # first, to fail early
        weights = run_on_all_ranks(lambda: open_weights(origin, need="training"))
        if request.config in (None, AUTO):
            given |= sizes(weights, max_channels=request.max_channels)
            number = weights.require_loaded().generator.config.image_channels
            mode = MODES.get(number, f"{number} channels")
            if (
                mode != "RGB"
                and channels is None
                and "network.image_channels" not in request.options
            ):
                lines.append(f"channels: {mode}, as {weights} has (--channels RGB for color)")
    crop = weights.require_loaded().crop if weights else stored.data.crop if stored else ""
    is_fixed = base != AUTO and CROP in read_options(base)
    fits = run_on_rank0(lambda: not is_store(path) or Store(path).meta.crop == crop)
    if crop and not is_fixed and fits:
        given[CROP] = crop

    def of_images(options: Options) -> TrainConfig:
        """Options of data and networks; with auto, the others depend on the images."""
        if base != AUTO:
            return load_config(base, options, machine.processes)
        parts = ("data.", "network.", "schedule.batch_size")
        own = {k: value for k, value in options.items() if k.startswith(parts)}
        return load_config(None, own)

    of_data = of_images({**given, **request.explicit_options}).data
    include = of_data.include
    if weights and {crop, of_data.crop} != {"center"}:
        lines.append(f"crop: {weights} has {crop}, the run {of_data.crop} (--crop, --aspect)")
    is_looked_at = base == AUTO or (is_own and not stored)
    opened: list[Source] = []  # on rank 0, which alone lists the files
    if is_looked_at and not run_on_rank0(lambda: is_store(path)):
        run_on_rank0(lambda: opened.append(open_source(path, include=include)))
    data = opened[0] if opened else path
    if channels == "auto" and stored:  # what was found then
        channels = stored.network.image_channels
    elif channels == "auto":
        channels, why = run_on_rank0(lambda: detect_channels(data, include))
        lines.append(why)
    if isinstance(channels, int):
        # older runs are not premultiplied
        premultiplied = channels == 4 and (not stored or stored.network.premultiplied)
        given |= {"network.image_channels": channels, "network.premultiplied": premultiplied}
    findings: Findings | None = None
    if is_looked_at:
        findings = inspect_images(
            data, of_images({**given, **request.explicit_options}), console=console
        )
        lines += found_lines(findings)
    elif not is_own and not stored and request.config is None:
        missing = "" if request.data else f"no --data, and no run in {run.path.absolute()}: "
        lines.append(f"{missing}the bundled faces")
    return Facts(run, stored, base, data, is_own, machine, weights, findings, given), lines


def inspect_images(
    data: Path | Source, config: TrainConfig, *, decode: bool = False, console: Console = SILENT
) -> Findings:
    """Inspect the images. Raises ValueError if none is usable, or labels are missing."""
    preparation = preparation_for(config)
    if not decode:  # report all sizes
        preparation = dataclasses.replace(preparation, resolution=None)
    findings = run_on_rank0(lambda: check(data, preparation, decode=decode, console=console))
    if not findings.num_usable:
        why = [f"no image in {findings.path} is usable", *findings.left_out_lines()]
        raise ValueError("; ".join(why))
    if not findings.label_names:
        set_label_dim(config, findings)  # raises if labels are requested
    return findings


def usual_folder(config_name: str | None, data: str | Path | None) -> Path:
    """The default run folder, `runs/<config>`."""
    usual = DEFAULT_CONFIG if data is None or is_bundled(data) else AUTO
    return Path("runs") / (usual if config_name is None else Path(config_name).stem)


def is_bundled(data: str | Path) -> bool:
    """Whether a path is that of the bundled images."""
    return Path(data).resolve() == bundled(BUNDLED_DATA).resolve()


def data_of(run: RunFolder) -> Path:
    """Where the images of a run are; the bundled ones may have moved."""
    source = run.data()
    if source is None:
        raise FileNotFoundError(
            f"{run.data_file} does not contain the path of the images; pass --data"
        )
    if source.exists():
        return source
    if source.name == Path(BUNDLED_DATA).name:
        return bundled(BUNDLED_DATA)
    raise FileNotFoundError(
        f"the images of {run.path} were in {source}, which does not exist; pass --data"
    )


# The decision, a function of request and facts


def decide(request: TrainRequest, facts: Facts) -> tuple[TrainConfig, list[str]]:
    asked = {**facts.given, **request.explicit_options}
    if facts.base == AUTO:
        config, lines = chosen(asked, facts, request.max_channels)
        file: Options = {}
    else:
        file = read_options(facts.base)
        config = named(request, asked, file, facts)
        lines = []
    weights = facts.init_weights
    if weights and WARMUP not in file.keys() | asked.keys():  # depends on the final widths
        labels = facts.findings.labels if facts.findings else None
        config = dataclasses.replace(config, **warmup(weights, config, labels))  # type: ignore[arg-type]
    if weights:
        is_asked = INITIAL_RESOLUTION in file.keys() | asked.keys()
        lines.append(beginning(weights, config, is_asked=is_asked)[1])
    return config, lines


def named(request: TrainRequest, asked: Options, file: Options, facts: Facts) -> TrainConfig:
    """The named configuration, or that of the run, fitted to a requested size or length."""
    stored = facts.stored_config
    processes = stored.schedule.num_processes if stored else facts.machine.processes
    kept: dict[str, object] = {}  # options that follow from the initial weights
    if stored and facts.run.lineage():
        kept = {INITIAL_RESOLUTION: stored.schedule.initial_resolution, WARMUP: stored.d_only_kimg}
    elif facts.init_weights:
        whole = load_config(facts.base, asked, processes)
        kept = beginning(facts.init_weights, whole, is_asked=INITIAL_RESOLUTION in asked)[0]
    kept = {name: value for name, value in kept.items() if name not in file}
    config = load_config(facts.base, {**kept, **asked}, processes)
    if (request.resolution, request.kimg, request.max_channels) == (None,) * 3:
        return config
    usual = int(file.get(RESOLUTION, NetworkConfig.resolution))  # type: ignore[call-overload]
    kept |= dependent_options(config, usual, max_channels=request.max_channels, begun=stored)
    if stored:
        kept["r1_gamma"] = stored.r1_gamma
    elif config.network.resolution != usual:
        kept["r1_gamma"] = gamma_of_size(config, usual)
    return load_config(facts.base, {**kept, **asked}, processes)


def chosen(asked: Options, facts: Facts, max_channels: int | None) -> tuple[TrainConfig, list[str]]:
    """Choose what is not requested, by images and machine, at the largest sensible resolution."""
    if any(name.startswith("augment.") for name in asked):  # without effect unless a kind is set
        asked = {"augment.kind": "ada", **asked}
    sizes_: list[object] = [r for r in facts.reach if facts.images_at(r) == facts.images]
    if RESOLUTION in asked:
        sizes_ = [asked[RESOLUTION]]
    hindrances = []
    for size in reversed(sizes_):
        config = chosen_at({**asked, RESOLUTION: size}, facts, max_channels)
        is_last = size == sizes_[0]
        problem = "" if is_last else too_large(facts, config)
        if not problem:
            if "batch_gpu" not in asked:
                config = images_at_once(config, facts.machine)
            if is_last or fits_in_memory(config, facts.machine):
                break
            problem = f"takes more memory than {gib(facts.machine.memory)}"
        hindrances.append(f"not a larger resolution: {size} {problem}")
    return config, [chosen_line(config), *hindrances[:1]]


def chosen_at(asked: Options, facts: Facts, max_channels: int | None) -> TrainConfig:
    """Choose the options that are not in `asked`, which contains the resolution."""
    machine = facts.machine
    on_cpu = machine.on_cpu
    base = CPU_BASE if on_cpu else None
    usual = load_config(base).network.resolution
    size: Any = asked[RESOLUTION]  # validated by `of_images`
    images = facts.images_at(size)
    few = images < PLENTY
    options: dict[str, object] = {"data.mirror": few, LENGTH: length(facts, size)}
    options["schedule.batch_size"] = whole_batches(images, machine)
    if on_cpu:
        options |= CPU_PHASES | (CPU_TRANSFER_RATES if facts.grown else CPU_RATES)
    if facts.grown:
        options[INITIAL_RESOLUTION] = min(facts.grown, size)
    config = load_config(base, {**options, **asked}, machine.processes)
    is_long = config.schedule.total_kimg >= MIN_AUGMENTED_KIMG
    if few and is_long and has_signs(config.discriminator_loss):
        options["augment.kind"] = "ada"
    config = load_config(base, {**options, **asked}, machine.processes)
    batch_size = batch_size_at(size, config.schedule)
    options["r1_gamma"] = gamma_for(config, batch_size, on_cpu=on_cpu)
    if config.augment.kind == "ada" and config.augment.adaptive:
        most = TRANSFER_SPEED_KIMG if facts.grown else MAX_SPEED_KIMG
        options["augment.ada_kimg"] = min(most, config.schedule.total_kimg / 2)
    average = AVERAGE_KIMG * batch_size / GPU_BATCH
    if "ema_half_life_kimg" not in asked:
        config = dataclasses.replace(config, ema_half_life_kimg=average)
    options |= dependent_options(config, usual, max_channels=max_channels)
    return load_config(base, {**options, **asked}, machine.processes)


def too_large(facts: Facts, config: TrainConfig) -> str:
    """Why the resolution is not sensible; empty if it is."""
    resolution = config.network.resolution
    channels = config.network.channels(resolution)
    processes = facts.machine.processes
    if resolution > facts.grown > 0 and channels < FINEST_CHANNELS:
        return f"would have only {pluralize(channels, 'channel')} in the network to start from"
    if facts.machine.on_cpu:
        is_quick = facts.machine.cores * processes > 1 or facts.grown >= CPU_RESOLUTION
        most = CPU_RESOLUTION if is_quick else CPU_RESOLUTION // 2
        return "takes several times as long on a CPU" if resolution > most else ""
    if facts.images_at(resolution) < FULL_DETAIL_IMAGES and resolution > max(
        FEW_RESOLUTION, facts.grown
    ):
        return f"needs {FULL_DETAIL_IMAGES:,} images, or weights to start from"
    kimg = config.schedule.total_kimg
    if kimg > GPU_KIMG.get(processes, {}).get(resolution, math.inf):
        return f"takes {pluralize(processes, 'GPU')} weeks for {kimg:,g} kimg"
    return ""


def whole_batches(images: int, machine: Machine) -> dict[int, int]:
    """Batch sizes by resolution: small on a CPU, the paper's on a GPU.

    With few images, growing is short, and the large batches of the first resolutions are left out.
    """
    on_cpu = machine.on_cpu
    batches = {schedule.MIN_RESOLUTION: CPU_BATCH if on_cpu else GPU_BATCH}
    if not on_cpu and images >= PLENTY:
        batches = official_batch_sizes(8)
    group = 4 * machine.processes  # whole groups of the minibatch deviation on each rank
    return {r: -(-batch // group) * group for r, batch in batches.items()}


def length(facts: Facts, resolution: int) -> float:
    """Usual length of a training [kimg]."""
    if facts.machine.on_cpu:
        return CPU_KIMG_AT_32 * max(resolution, 32) / 32
    images = max(facts.images_at(resolution), 1)  # none: refused later, with the reason
    kimg = short(PUBLISHED_KIMG * math.sqrt(min(images / PUBLISHED_IMAGES, 1)), digits=2)
    return min(kimg, TRANSFER_KIMG) if facts.grown and images < PLENTY else kimg


def gamma_for(config: TrainConfig, batch_size: int, *, on_cpu: bool) -> float | dict[int, float]:
    """Weight of R1 by the published rule; on a CPU, equally strong per pixel at every stage.

    The official penalty is that of images enlarged to the full size. It is tiny at low resolutions,
    where a narrow discriminator then wins immediately.
    """
    size = config.network.resolution
    gamma = short(R1_RULE * size**2 / batch_size, digits=2)
    if not on_cpu:
        return max(gamma, MIN_GAMMA)
    gamma = max(gamma, CPU_LEAST_GAMMA)
    gammas = {r: short(gamma / full_size_factor(size, r) ** 2, digits=2) for r in stages_of(config)}
    return gammas if len(gammas) > 1 else gamma


def gamma_of_size(config: TrainConfig, usual_resolution: int) -> float | dict[int, float]:
    """Scale R1 from `usual_resolution` to that of `config`, equally strong per pixel as before."""
    if not isinstance(config.r1_gamma, Mapping):
        return config.r1_gamma
    size = config.network.resolution
    gammas = {}
    for stage in stages_of(config):
        like = min(stage, usual_resolution)
        factor = full_size_factor(usual_resolution, like) / full_size_factor(size, stage)
        gammas[stage] = short(config.r1_gamma_at(like) * factor**2, digits=2)
    return gammas


def stages_of(config: TrainConfig) -> list[int]:
    """Resolutions that are trained."""
    sizes_ = schedule.resolutions(config.network.resolution)
    return [r for r in sizes_ if r >= config.schedule.start_resolution]


def images_at_once(config: TrainConfig, machine: Machine) -> TrainConfig:
    """Choose the largest `batch_gpu` that fits into memory, at least a group of the deviation."""
    processes = machine.processes
    share = batch_size_at(config.network.resolution, config.schedule) // processes
    group = max(min(config.network.deviation_group, share), 1)
    counts = (k for k in range(2, share // group + 1) if share % k == share // k % group == 0)
    for n in itertools.chain([0], (share // k for k in counts)):
        with suppress(ValueError):  # another resolution's batch may not be divisible by it
            tried = dataclasses.replace(config, batch_gpu=n)
            check_batches(tried, processes)
            config = tried
            if fits_in_memory(config, machine):
                break
    return config


def fits_in_memory(config: TrainConfig, machine: Machine) -> bool:
    costs = StepCosts.estimate(config, config.schedule.num_processes)
    return costs.memory[costs.largest] <= MEMORY_SHARE * machine.memory


def dependent_options(
    config: TrainConfig,
    usual_resolution: int,
    *,
    max_channels: int | None = None,
    begun: TrainConfig | None = None,
) -> dict[str, object]:
    """Options that follow from another resolution, length or number of channels.

    Layers above the usual resolution get as many channels as the paper's finest; `max_channels`
    scales all in proportion. An existing run (`begun`) keeps its phases and the half-life of its
    average; a new one is `shortened`, with a half-life of at most a twelfth of its length.
    """
    network = config.network
    fitted = begun.schedule if begun else shortened(config.schedule)
    half_life = begun.ema_half_life_kimg if begun else config.ema_half_life_kimg
    if begun is None:
        half_life = min(half_life, short(fitted.total_kimg / HALF_LIVES, digits=2))
    base = network.channel_base
    if network.resolution > usual_resolution:
        base = max(base, FINEST_CHANNELS * network.resolution // 2)
    if max_channels is not None:
        base = max(round(base * max_channels / network.max_channels), 1)
    return {
        "network.channel_base": base,
        "network.max_channels": network.max_channels if max_channels is None else max_channels,
        "schedule.stable_kimg": fitted.stable_kimg,
        "schedule.fade_kimg": fitted.fade_kimg,
        "schedule.tick_kimg": fitted.tick_kimg,
        "ema_half_life_kimg": half_life,
    }


def shortened(config: ScheduleConfig) -> ScheduleConfig:
    """Shorten phases and ticks that are too long for the length."""
    doublings = max(math.log2(config.resolution / config.initial_resolution), 0)
    growing = doublings * (config.stable_kimg + config.fade_kimg)
    most = MAX_GROWING * config.total_kimg
    if growing > most:
        stable, fade = (  # rounded down, so that all phases fit
            short(x * most / growing, rounding=ROUND_DOWN)
            for x in (config.stable_kimg, config.fade_kimg)
        )
        config = dataclasses.replace(config, stable_kimg=stable, fade_kimg=fade)
    tick = short(max(config.total_kimg / MIN_TICKS, min(config.total_kimg, MIN_TICK_KIMG)))
    if max(config.tick_kimg.values()) > tick:
        ticks = {r: min(kimg, tick) for r, kimg in config.tick_kimg.items()}
        config = dataclasses.replace(config, tick_kimg=ticks)
    return config


def short(number: float, digits: int = 4, rounding: str = ROUND_HALF_EVEN) -> float:
    return float(Context(digits, rounding).create_decimal_from_float(number))


# A length in minutes


def decide_within(
    minutes: float, request: TrainRequest, facts: Facts, threads: int | None
) -> tuple[TrainConfig, list[str], StepCosts]:
    """The configuration with the length that takes `minutes`, lines on it, and the tried costs."""
    is_chosen = facts.base == AUTO and RESOLUTION not in request.explicit_options
    is_free = is_chosen and facts.init_weights is None
    trial = of_size = dataclasses.replace(request, minutes=None)
    rejected: list[str] = []

    def config_of(kimg: float) -> TrainConfig:
        return decide(dataclasses.replace(of_size, kimg=kimg), facts)[0]

    while True:
        usual, _ = decide(trial, facts)
        size = usual.network.resolution
        usual_kimg = usual.schedule.total_kimg
        of_size = dataclasses.replace(trial, resolution=size) if is_chosen else trial
        costs = costs_here(usual, facts, threads)
        kimg = kimg_within(minutes, config_of, costs)
        if kimg and config_of(kimg).augment.kind != usual.augment.kind:  # depends on the length
            costs = costs_here(config_of(kimg), facts, threads)
            again = kimg_within(minutes, config_of, costs)
            # near the threshold each length would change it again: the shorter one fits
            is_back = again and config_of(again).augment.kind == usual.augment.kind
            kimg = min(kimg, again) if is_back else again
        is_least = not is_free or size <= MIN_RESOLUTION
        if is_least or kimg >= MIN_SHARE * usual_kimg:
            break
        rejected.append(f"not {size}x{size}: {kimg:g} of the usual {usual_kimg:g} kimg would fit")
        trial = dataclasses.replace(trial, resolution=size // 2)
    if kimg < MIN_KIMG:
        least = costs.seconds_left(config_of(MIN_KIMG).schedule) / (60 * TRAINING_SHARE)
        share = minutes / least  # of the time at `size`
        quick = [r for r, s in costs.seconds.items() if s < share * costs.seconds[size]]
        smaller = f" or --resolution {max(quick)}" if quick else ""
        raise ValueError(
            f"--minutes {minutes:g} is not enough: {MIN_KIMG:g} kimg at {size}x{size} takes about "
            f"{least:.2g} minutes here; pass --minutes {math.ceil(1.2 * least)}{smaller}"
        )
    config, lines = decide(dataclasses.replace(of_size, kimg=kimg), facts)
    started = facts.init_weights is not None
    lines += length_lines(minutes, config, usual_kimg=usual_kimg, started=started)
    return config, [*lines, *rejected], costs


def costs_here(config: TrainConfig, facts: Facts, threads: int | None) -> StepCosts:
    """Try steps at every resolution on this machine."""
    device = facts.machine.device
    config = with_precision(config, device, facts.stored_config)
    with backend_flags(config):
        set_threads(threads, {})
        return StepCosts.measure(config, device, remaining_stages(shortened(config.schedule), 0))


def kimg_within(
    minutes: float, config_of: Callable[[float], TrainConfig], costs: StepCosts
) -> float:
    """Length in kimg whose configuration takes `minutes` at these costs; 0 if below `MIN_KIMG`."""
    seconds = 60 * TRAINING_SHARE * minutes
    shortest = MIN_KIMG
    longest = seconds / min(costs.seconds.values()) / 1000
    if costs.seconds_left(config_of(shortest).schedule) > seconds:
        return 0.0
    while longest > 1.001 * shortest:
        middle = math.sqrt(shortest * longest)
        if costs.seconds_left(config_of(middle).schedule) <= seconds:
            shortest = middle
        else:
            longest = middle
    return short(shortest, digits=3)


# Lines for the user


def found_lines(findings: Findings) -> list[str]:
    """Lines on a source: number of images, sizes, how many reach each resolution, labels."""
    images = pluralize(findings.num_usable, "image")
    line = f"{findings.path}: {images} of {' to '.join(dict.fromkeys(findings.ends()))}"
    lines = [line + ("" if findings.kind == "store" else ", by the headers of the files")]
    if oblong := sum(n for (width, height), n in findings.sizes.items() if width != height):
        treatments = {
            "center": "only the middle square is used",
            "pad": "the middle {}:{} is used, between bars".format(*findings.fit.aspect),
            "stretch": "squeezed to a square",
        }
        lines.append(f"{oblong:,} not square: {treatments[findings.fit.kind]} (--crop, --aspect)")
    reach = findings.counts_by_resolution()
    # from 32 up, or from the largest that all reach
    least = max(findings.resolution() or 0, min(32, max(reach, default=0)))
    table = {r: n for r, n in reach.items() if r >= least}
    if set(table.values()) != {findings.num_usable}:
        counts = [f"{n:,}" for n in table.values()]
        rows = [["  resolution", *map(str, table)], ["  images that reach it", *counts]]
        lines += align_columns(rows, left=[0])
    if labels := findings.labels:
        number = pluralize(len(labels.names), "number" if labels.are_vectors else "class")
        lines.append(f"{number} for --labels: {join_truncated(labels.names, 12, ', ')}")
    return lines + ([f"ignored: {kinds_of(findings.ignored)}"] if findings.ignored else [])


def left_out_lines(findings: Findings) -> list[str]:
    return [*findings.notes, *(f"left out: {line}" for line in grouped(findings.skipped))]


def chosen_line(config: TrainConfig) -> str:
    resolution = config.network.resolution
    line = (
        f"chosen for these images and this machine: --resolution {resolution} "
        f"--max-channels {config.network.max_channels} --kimg {config.schedule.total_kimg:g} "
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
    """Lines on the length that fits into `minutes`; `started`: from other weights."""
    kimg = config.schedule.total_kimg
    size = f"{config.network.resolution}x{config.network.resolution}"
    unit = "minute" if minutes == 1 else "minutes"
    lines = [f"{minutes:g} {unit} of training here: {kimg:g} kimg at {size}"]
    if (share := kimg / usual_kimg) < MIN_SHARE:
        outcome = "samples close to those of the weights" if started else "artifacts, not images"
        lines.append(
            f"that is {share:.1%} of the usual length: expect {outcome}; the usual length takes "
            f"about {approximate_duration(60 * minutes / share)}"
        )
    return lines


def advice(images: int, config: TrainConfig, *, started: bool) -> list[str]:
    """Advice for a small number of images; `started`: from other weights."""
    if images < HANDFUL:
        usable = pluralize(images, "usable image")
        return [f"WARNING: {usable}: the network will memorize them and generate little else"]
    lines = ["--mirror doubles them, if left and right may be swapped"]
    if config.data.mirror:
        lines = ["half of them are mirrored; if that is wrong: -o data.mirror=false"]
    if images < FEW:
        lines.insert(0, "the images are few: more would help most; stop when samples get worse")
        if config.augment.kind == "none" and config.schedule.total_kimg >= MIN_AUGMENTED_KIMG:
            lines.append("-o 'augment.kind=\"ada\"' keeps the network from memorizing them")
        if not started:
            lines.append("trained weights of a similar kind help: --init-from")
    return lines


def plan_lines(config: TrainConfig, costs: StepCosts, device: torch.device) -> list[str]:
    """A table of the phases with length, batch, learning rates, memory and time."""
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
    lines = [*align_columns(rows), *warmup_lines(config)]
    if ramp := config.schedule.ramp_kimg:
        lines.append(f"rates rise linearly from 0 over the first {ramp:,.10g} kimg (ramp_kimg)")
    kind = "measured" if has_times and device.type == "cuda" else "estimated"
    legend = f"precision {config.precision}; memory is that of one step, {kind}"
    legend += "; ~ = estimated from a smaller step" if costs.guessed and has_times else ""
    batches = "batches: over all processes, whatever their number"
    processes = config.schedule.num_processes
    if config.schedule.batch_size == official_batch_sizes(processes):
        batches = (
            f"batches: the official ones for {pluralize(processes, 'process')}, all together; they "
            "are chosen by the number of processes that a run is started with"
        )
    return [*lines, legend, batches]
