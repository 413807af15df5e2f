"""From what is asked of a training to a plan: look once, decide, try steps where time counts."""

import dataclasses
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from stylegan.config import AUTO, TrainConfig, check_batches, load_config, read_options
from stylegan.data import Findings, Store, is_store
from stylegan.data.check import grouped
from stylegan.machine import distributed
from stylegan.machine.console import SILENT, Console
from stylegan.machine.distributed import from_rank0, pick_device
from stylegan.machine.messages import gib, readable
from stylegan.networks import NetworkConfig
from stylegan.planning import choosing, told
from stylegan.planning.known import Known, look, looked_at
from stylegan.planning.request import RESOLUTION, Request
from stylegan.schedule import coming
from stylegan.training.costs import Costs, Machine, disk_warning, outlook, possible_costs
from stylegan.training.evaluation import Evaluation
from stylegan.training.resuming import newest_state, settle_threads
from stylegan.training.run import (
    Run,
    backend_flags,
    fit_to_data,
    preparation_for,
    settled,
    with_precision,
)
from stylegan.training.state import TrainState
from stylegan.training.transfer import GROWS_AGAIN, beginning, check_frozen, warmup

TRAINING_SHARE = 0.95  # of the minutes of a run; the rest goes into samples, files, the report
LEAST_SHARE = 0.5  # of the usual length of a training; for less, a smaller resolution
LEAST_RESOLUTION = 32  # at which that ends
WARMUP = "d_warmup_kimg"


@dataclass(frozen=True)
class Plan:
    """The plan of a training, with reasons."""

    config: TrainConfig
    lines: list[str]  # what was found and chosen, for the user
    request: Request
    known: Known
    threads: int | None = None  # that compute on a CPU
    costs: Costs | None = None  # of the steps that were tried, if any were

    def open(
        self, *, console: Console = SILENT, strict: bool = False, hang_minutes: float = 30.0
    ) -> AbstractContextManager[Run]:
        """Open the run of this plan, with its images prepared; see `training.Run.open`."""
        if not self.known.stored:
            check_frozen(self.config, self.known.start)
        return Run.open(
            self.config,
            self.known.data,
            self.known.run.path,
            device=self.known.machine.device,
            init_from=self.known.start or self.request.init_from,
            console=console,
            strict=strict,
            hang_minutes=hang_minutes,
        )

    def train(
        self, evaluation: Evaluation | None = None, *, console: Console = SILENT
    ) -> TrainState:
        """Train to the end of this plan; see `training.start`."""
        with self.open(console=console) as run:
            return run.train(evaluation, threads=self.threads, costs=self.costs)

    def preview(self, *, console: Console = SILENT) -> list[str]:
        """Decode every picture, or read a store whole, and try steps at every resolution: tell
        what is left out, the phases with their memory and time, what helps. Nothing is written."""
        device = self.known.machine.device
        run = self.known.run
        findings = looked_at(self.known.data, self.config, decode=True, console=console)
        config = settled(self.config, run, device, findings)
        lines = self.told_of(findings, config)
        _, payload = newest_state(run)
        with backend_flags(config):
            lines_of_threads = settle_threads(self.threads, payload, device)
            costs = possible_costs(config, device, coming(config.schedule, 0), console, self.costs)
        lines += [*told.plan_lines(config, costs, device), *lines_of_threads]
        return [*lines, outlook(config, costs, device, run.saved()), *disk_warning(config, run)]

    def preview_elsewhere(self) -> list[str]:
        """Preview for GPUs that are not here: no steps are tried, so no times are known. Raise
        ValueError if the processes do not divide the batches."""
        machine = self.known.machine
        config = self.config
        lines: list[str] = []
        if self.known.is_own:  # else the pictures are where the GPUs are
            findings = looked_at(self.known.data, config, decode=True)
            config = fit_to_data(config, findings)
            lines = self.told_of(findings, config)
        check_batches(config, machine.processes)
        costs = Costs.estimated(config, coming(config.schedule, 0), machine.processes)
        at = costs.largest
        lines += told.plan_lines(config, costs, machine.device)
        return [
            *lines,
            f"memory of each GPU: about {gib(costs.memory[at])}, at {at}x{at}; kernels take more",
            f"begin there: torchrun --nproc-per-node {machine.processes} train.py, and the options "
            "of this command without --dry-run, --processes and --device",
        ]

    def told_of(self, findings: Findings, config: TrainConfig) -> list[str]:
        """Return lines on pictures that would be left out, and advice."""
        left_out = grouped(findings.skipped)
        if not findings.num_good:
            path = readable(findings.path)
            raise ValueError(f"none of the images of {path} is usable: {'; '.join(left_out)}")
        lines = [*findings.notes, *(f"left out: {line}" for line in left_out)]
        started = self.known.start is not None or bool(self.known.run.lineage())
        helps = told.advice(findings.num_good, config, started=started)
        return [*lines, *helps] if self.known.is_own else lines


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
    FileNotFoundError or ValueError if something that is asked for is not there, or is not possible.
    """
    if distributed.world_size() < int(os.environ.get("WORLD_SIZE", "1")):
        raise ValueError(
            "several processes were started, which must plan together: call plan() inside "
            "`with stylegan.machine.distributed.process_group(device):`"
        )
    machine = machine or Machine.here(pick_device())
    if threads is not None:
        machine = dataclasses.replace(machine, cores=threads)
    known = look(request, machine, console)
    costs: Costs | None = None
    if request.minutes is None:
        config, lines = decide(request, known)
    elif known.stored:
        length = known.stored.schedule.total_kimg
        config, lines = decide(dataclasses.replace(request, minutes=None, kimg=length), known)
        path = readable(known.run.path)
        lines.append(f"{path} keeps its length of {length:g} kimg; --kimg changes it")
    else:
        config, lines, costs = decide_within(request.minutes, request, known, threads)
    if known.start:
        check_frozen(config, known.start)
    data = known.data
    if isinstance(data, Path) and is_store(data):
        from_rank0(lambda: Store(data).check_fits(preparation_for(config)))
    return Plan(config, [*known.lines, *lines], request, known, threads, costs)


def decide(request: Request, known: Known) -> tuple[TrainConfig, list[str]]:
    """Return the configuration and notes on it, without looking or trying."""
    asked = {**known.given, **request.asked}
    if known.base == AUTO:
        return chosen_config(asked, known, width=request.width)
    return named_config(request, asked, known)


def chosen_config(
    asked: Mapping[str, object], known: Known, *, width: int | None
) -> tuple[TrainConfig, list[str]]:
    """Choose a configuration for pictures and machine."""
    if any(name.startswith("augment.") for name in asked):  # these mean nothing without a kind
        asked = {"augment.kind": "ada", **asked}
    config, hindrance = choosing.choose(asked, known, width=width)
    if known.start and (begins := warmup(known.start, config, known.labels)):  # by its widths
        config, hindrance = choosing.choose({**begins, **asked}, known, width=width)
    lines = told.chosen_lines(config, hindrance)
    if known.start:  # the choice has begun there
        lines.append(beginning(known.start, config, is_asked=GROWS_AGAIN in asked)[1])
    return config, lines


def named_config(
    request: Request, asked: Mapping[str, object], known: Known
) -> tuple[TrainConfig, list[str]]:
    """Return the configuration of that name, or of the run. Lengths and widths are fitted where a
    resolution, a length or a width is asked for."""
    stored = known.stored
    processes = stored.schedule.num_processes if stored else known.machine.processes
    file = read_options(known.base)

    def built(chosen: Mapping[str, object]) -> TrainConfig:
        return load_config(known.base, {**chosen, **asked}, processes)

    begins: dict[str, object] = {}
    lines: list[str] = []
    if known.start:
        is_asked = GROWS_AGAIN in file.keys() | asked.keys()
        begins, line = beginning(known.start, built({}), is_asked=is_asked)
        lines.append(line)
    elif stored and known.run.lineage():
        begins = {
            GROWS_AGAIN: stored.schedule.initial_resolution,
            WARMUP: stored.d_warmup_kimg,
        }
    chosen = {option: value for option, value in begins.items() if option not in file}
    if request.is_to_fit:
        config = built(chosen)
        usual = file.get(RESOLUTION, NetworkConfig.resolution)
        chosen |= choosing.fitted(config, usual, width=request.width, begun=stored)
        if stored:
            chosen["r1_gamma"] = stored.r1_gamma
        elif config.network.resolution != usual:
            chosen["r1_gamma"] = choosing.gamma_of_size(config, usual)
    if known.start and WARMUP not in file:
        # by the widths that it will have
        chosen |= warmup(known.start, built(chosen), known.labels)
    return built(chosen), lines


def decide_within(
    minutes: float, request: Request, known: Known, threads: int | None
) -> tuple[TrainConfig, list[str], Costs]:
    """Return the configuration with the length that takes so many minutes here, notes on it, and
    the costs of the steps that were tried."""
    is_chosen = request.config in (None, AUTO) and RESOLUTION not in request.asked
    is_free = is_chosen and known.start is None and known.is_own
    trial = dataclasses.replace(request, minutes=None)
    too_large: list[str] = []
    while True:
        usual, _ = decide(trial, known)
        resolution = usual.network.resolution
        length = usual.schedule.total_kimg
        costs = costs_here(usual, known, threads)
        try:
            kimg = kimg_within(minutes, usual, request, costs)
        except ValueError:  # not enough for anything
            if not is_free or resolution <= LEAST_RESOLUTION:
                raise
            kimg = 0.0
        if not is_free or resolution <= LEAST_RESOLUTION or kimg >= LEAST_SHARE * length:
            break
        size = f"{resolution}x{resolution}"
        too_large.append(f"not {size}: {kimg:g} of the usual {length:g} kimg would fit")
        trial = dataclasses.replace(trial, resolution=resolution // 2)
    if is_chosen:
        trial = dataclasses.replace(trial, resolution=resolution)
    config, lines = decide(dataclasses.replace(trial, kimg=kimg), known)
    begun = known.start is not None
    told_of_length = told.length_lines(minutes, config, usual_kimg=length, started=begun)
    return config, [*lines, *told_of_length, *too_large], costs


def costs_here(config: TrainConfig, known: Known, threads: int | None) -> Costs:
    """Try steps at every resolution on this machine."""
    device = known.machine.device
    config = with_precision(config, device, known.stored)
    with backend_flags(config):
        settle_threads(threads, {}, device)
        return Costs.tried(config, device, coming(choosing.shortened(config.schedule), 0))


def kimg_within(minutes: float, config: TrainConfig, request: Request, costs: Costs) -> float:
    """Return the length in kimg that takes so long with these costs."""
    keep = any(f"schedule.{name}_kimg" in request.asked for name in ("stable", "fade"))
    seconds = 60 * TRAINING_SHARE * minutes
    return choosing.kimg_of_seconds(seconds, config.schedule, costs, keep_phases=keep)
