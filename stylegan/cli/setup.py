"""What a `train` command means: asked, remembered or chosen; and what a user is told of it."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from stylegan.cli.common import progress_bar, working
from stylegan.disk import name_of
from stylegan.messages import aligned, count, readable
from stylegan.schedule import batch_size_at
from stylegan.toml import toml_value

if TYPE_CHECKING:
    import torch

    from stylegan.config import TrainConfig
    from stylegan.data import Findings
    from stylegan.files.weights import Weights
    from stylegan.run_folder import RunFolder
    from stylegan.schedule import ScheduleConfig
    from stylegan.training.preflight import Cost
    from stylegan.training.state import Payload

BUNDLED_DATA = "datasets/faces-64.zip"
DEFAULT_CONFIG = "quickstart"
BEFORE = {  # options of the command line that are options of the configuration, before `-o`
    "resolution": "network.resolution",
    "kimg": "schedule.total_kimg",
}
AFTER = {  # likewise, after `-o`
    "labels": "data.labels",
    "mirror": "data.mirror",
    "crop": "data.crop",
    "precision": "precision",
    "batch_gpu": "batch_gpu",
    "seed": "seed",
}
HANDFUL = 10  # pictures
FEW = 2000  # pictures
TRAINING_SHARE = 0.95  # of the minutes of a run; the rest goes into samples, files, the report
LEAST_SHARE = 0.5  # of the usual length of a training; for less, a smaller resolution
FAR_TOO_SHORT = 0.25  # likewise; of less is warned
LEAST_RESOLUTION = 32  # at which that ends
FITTED = {"resolution", "kimg", "width"}  # options to which others are fitted


class Options(TypedDict, total=False):
    """The other options of `train`, by their names; None or False: not given."""

    resolution: int | None
    kimg: float | None
    width: int | None
    labels: bool
    mirror: bool
    crop: str | None
    channels: int | Literal["auto"] | None
    strict: bool
    init_from: str | None
    precision: str | None
    batch_gpu: int | None
    seed: int | None
    threads: int | None
    workers: int
    preflight: bool
    hang_minutes: float
    tensorboard: bool


@dataclass(frozen=True)
class Asked:
    """What a command line asks for."""

    run: "RunFolder"
    config_name: str | None
    data: Path | None
    overrides: Sequence[str]  # those of `-o`
    options: Options

    @property
    def explicit(self) -> dict[str, object]:
        """The options that are given, by their names."""
        items = self.options.items()
        return {name: value for name, value in items if value is not None and value is not False}

    def but(self, *, resolution: int | None = None, kimg: float | None = None) -> "Asked":
        """Also for this resolution and this length, where they are given."""
        options: Options = {**self.options}
        if resolution is not None:
            options["resolution"] = resolution
        if kimg is not None:
            options["kimg"] = kimg
        return dataclasses.replace(self, options=options)

    def asks_for(self, option: str) -> bool:
        """Whether an option of the configuration is asked for, by either way."""
        from stylegan.config import parse_options

        return option in {**self.configured(BEFORE), **parse_options(self.overrides)}

    def configured(self, names: Mapping[str, str]) -> dict[str, object]:
        """Those of these `names`, by the names that the configuration has for them."""
        values = self.explicit
        return {option: values[name] for name, option in names.items() if name in values}


@dataclass(frozen=True)
class Machine:
    """What is trained on; memory and cores are those of each process."""

    device: str  # its type
    memory: float = math.inf  # bytes
    cores: int = 1
    processes: int | None = None  # None: as many as there are now


@dataclass(frozen=True)
class TrainSetup:
    config: "TrainConfig"
    source: Path
    is_own: bool  # data of the user's, not the bundled
    lines: list[str]  # what was found and chosen
    start: "Weights | None"  # the weights that a new run begins with


def resolve_setup(asked: Asked, machine: Machine) -> TrainSetup:
    """The configuration and the data: those of the run that has begun, except what is asked.

    With weights to start from and no configuration asked for, the network has their sizes; growth
    begins where theirs has ended.
    """
    from stylegan.config import AUTO
    from stylegan.files.loading import open_weights
    from stylegan.training.transfer import sizes

    stored = asked.run.stored_config()
    source = asked.data or (data_of(asked.run) if stored else bundled_data())
    is_own = source != bundled_data()
    name, lines = configuration_of(asked, stored, is_own=is_own)
    start = None
    init_from = asked.options.get("init_from")
    if init_from and not stored:  # first: it may be a mistake
        start = open_weights(init_from, need="training")
    values, of_channels = asked_values(asked, source, stored)
    lines += of_channels
    if start and asked.config_name in (None, AUTO):
        values = sizes(start, width=asked.options.get("width")) | values
    if name == AUTO:
        config, of_config = fitted_config(asked, machine, source, values, start)
    else:
        config, of_config = named_config(asked, machine, name, source, values, start)
    return TrainSetup(config, source, is_own, lines + of_config, start)


def resolve_within(
    minutes: float, asked: Asked, machine: Machine, device: "torch.device"
) -> TrainSetup:
    """`resolve_setup`, with the length that takes so many minutes here, as steps that are tried
    tell. What is too short for the resolution that would be chosen gets a smaller one."""
    from stylegan.config import AUTO
    from stylegan.distributed import on_all_ranks
    from stylegan.training.run import with_precision

    if stored := asked.run.stored_config():
        as_long = asked.but(kimg=stored.schedule.total_kimg)
        setup = on_all_ranks(lambda: resolve_setup(as_long, machine))
        line = f"{readable(asked.run.path)} keeps its length; --kimg changes it"
        return dataclasses.replace(setup, lines=[*setup.lines, line])
    setup = on_all_ranks(lambda: resolve_setup(asked, machine))
    is_chosen = asked.config_name in (None, AUTO) and not asked.asks_for("network.resolution")
    is_free = is_chosen and setup.start is None and setup.is_own
    too_large: list[str] = []
    while True:
        usual = setup.config
        kimg = kimg_within(minutes, with_precision(usual, device, asked.run), device, asked)
        resolution = usual.network.resolution
        length = usual.schedule.total_kimg
        if not is_free or resolution <= LEAST_RESOLUTION or kimg >= LEAST_SHARE * length:
            break
        size = f"{resolution}x{resolution}"
        too_large.append(f"not {size}: {kimg:g} of the usual {length:g} kimg would fit")
        setup = on_all_ranks(partial(resolve_setup, asked.but(resolution=resolution // 2), machine))
    fitting = asked.but(resolution=resolution if is_chosen else None, kimg=kimg)
    setup = on_all_ranks(lambda: resolve_setup(fitting, machine))
    unit = "minute" if minutes == 1 else "minutes"
    lines = [f"{minutes:g} {unit} of training here: {kimg:g} kimg at {resolution}x{resolution}"]
    share = kimg / length
    if share < FAR_TOO_SHORT:
        lines.append(
            f"that is {share:.1%} of the usual length: expect blotches, not pictures; about "
            f"{minutes / share:.0f} minutes would be usual"
        )
    return dataclasses.replace(setup, lines=[*setup.lines, *lines, *too_large])


def kimg_within(
    minutes: float, config: "TrainConfig", device: "torch.device", asked: Asked
) -> float:
    """How much training takes so long on this device, in kimg."""
    from stylegan.fitting import kimg_of_seconds, shortened

    threads = asked.options["threads"]
    plan = shortened(config.schedule)  # which reaches every resolution
    costs, _ = tried_costs(config, plan, device, threads, {})
    return kimg_of_seconds(
        60 * TRAINING_SHARE * minutes,
        config.schedule,
        {resolution: cost.seconds_per_image for resolution, cost in costs.items()},
        keep_phases=any(asked.asks_for(f"schedule.{name}_kimg") for name in ("stable", "fade")),
    )


def tried_costs(
    config: "TrainConfig",
    plan: "ScheduleConfig",
    device: "torch.device",
    threads: int | None,
    payload: "Payload",
) -> tuple[dict[int, "Cost"], list[str]]:
    """What steps cost at the resolutions of a plan, tried as the training will compute them that
    goes on from `payload`, empty for a new one; and what to say of its threads."""
    from stylegan.schedule import coming
    from stylegan.training.preflight import costs_of
    from stylegan.training.resuming import settle_threads
    from stylegan.training.run import backend_flags

    with backend_flags(config):
        notes = settle_threads(threads, payload, device)
        with working("trying steps"):
            return costs_of(config, device, coming(plan, 0)), notes


def configuration_of(
    asked: Asked, stored: "TrainConfig | None", *, is_own: bool
) -> tuple[str, list[str]]:
    """The name of the configuration, and what to say of it: that of a run that has begun, a fitted
    one for a user's own data, else that of the bundled data."""
    from stylegan.config import AUTO

    run = asked.run
    remembered = str(run.config_file)
    name = asked.config_name or (remembered if stored else AUTO if is_own else DEFAULT_CONFIG)
    if stored and (name == AUTO or (is_own and name == DEFAULT_CONFIG)):  # which once chose, too
        return remembered, [f"{readable(run.path)} keeps the options that it began with"]
    return name, []


def asked_values(
    asked: Asked, source: Path, stored: "TrainConfig | None"
) -> tuple[dict[str, object], list[str]]:
    """What is asked for, as options of the configuration; and why as many channels."""
    from stylegan.config import load_config, parse_options
    from stylegan.data.check import needed_channels

    values: dict[str, object] = {
        **asked.configured(BEFORE),
        **parse_options(asked.overrides),
        **asked.configured(AFTER),
    }
    lines: list[str] = []
    channels = asked.options.get("channels")
    if channels == "auto" and not stored:  # a run that has begun keeps its own
        channels, why = needed_channels(source, load_config(None, values).data.include)
        lines.append(why)
    if isinstance(channels, int):
        # older runs are not premultiplied
        premultiplied = channels == 4 and (not stored or stored.network.premultiplied)
        values["network.image_channels"] = channels
        values["network.premultiplied"] = premultiplied
    return values, lines


def fitted_config(
    asked: Asked,
    machine: Machine,
    source: Path,
    values: Mapping[str, object],
    start: "Weights | None",
) -> tuple["TrainConfig", list[str]]:
    """A configuration fitted to pictures and machine, with the `values` asked for; what to say."""
    from stylegan import distributed
    from stylegan.config import load_config
    from stylegan.fitting import Facts, choose, implied
    from stylegan.training.preflight import largest_step
    from stylegan.training.transfer import GROWS_AGAIN, beginning, warmup

    asked_for = load_config(None, {**implied(values), **values})
    values = {**(warmup(start, asked_for) if start else {}), **values}
    findings = looked_at(source, asked_for)
    facts = Facts(
        images=findings.num_good,
        reach=findings.reach(),
        device=machine.device,
        memory=machine.memory,
        cores=machine.cores,
        processes=machine.processes or distributed.world_size(),
        grown=start.require_loaded().grown if start else 0,
    )
    config, hindrance = choose(facts, values, largest_step, width=asked.options.get("width"))
    lines = [*found_lines(findings), *chosen_lines(config, hindrance)]
    if start:  # the choice has begun there
        lines.append(beginning(start, config, is_asked=GROWS_AGAIN in values)[1])
    return config, lines


def named_config(
    asked: Asked,
    machine: Machine,
    name: str,
    source: Path,
    values: Mapping[str, object],
    start: "Weights | None",
) -> tuple["TrainConfig", list[str]]:
    """The configuration of that name with the `values` asked for; what to say of it and the data.
    Lengths and widths are fitted where a resolution, a length or a width is asked for."""
    from stylegan import distributed
    from stylegan.config import load_config, read_options
    from stylegan.fitting import fitted, gamma_of_size
    from stylegan.networks import NetworkConfig
    from stylegan.training.transfer import GROWS_AGAIN, beginning, warmup

    stored = asked.run.stored_config()
    processes = machine.processes or distributed.world_size()
    if stored:
        processes = stored.schedule.num_processes
    config = load_config(name, values, processes)
    file = read_options(name)
    lines = data_lines(asked, stored, source, config)
    grows_from = GROWS_AGAIN in file.keys() | values.keys()
    begins: dict[str, object] = {}
    if start:
        begins, line = beginning(start, config, is_asked=grows_from)
        begins = begins | warmup(start, config)
        lines.append(line)
    elif stored and asked.run.lineage():
        begins = {
            GROWS_AGAIN: stored.schedule.initial_resolution,
            "d_warmup_kimg": stored.d_warmup_kimg,
        }
    begins = {option: value for option, value in begins.items() if option not in file}
    if begins:
        values = {**begins, **values}
        config = load_config(name, values, processes)
    if FITTED & asked.explicit.keys():
        usual = file.get("network.resolution", NetworkConfig.resolution)
        begun = stored.schedule if stored else None
        fits = fitted(config, usual, width=asked.options.get("width"), begun=begun)
        if not stored and config.network.resolution != usual:
            fits["r1_gamma"] = gamma_of_size(config, usual)
        config = load_config(name, {**fits, **values}, processes)
    return config, lines


def data_lines(
    asked: Asked, stored: "TrainConfig | None", source: Path, config: "TrainConfig"
) -> list[str]:
    """What to say of the data of a run under a named configuration. ValueError if the bundled ones
    are probably not meant."""
    if source != bundled_data() and not stored:
        return found_lines(looked_at(source, config))
    if source != bundled_data() or stored or asked.config_name:
        return []
    path = readable(asked.run.path)
    if near := asked.run.nearly():
        raise ValueError(
            f"there is no run in {path}; did you mean {readable(near)}? "
            f"--config {DEFAULT_CONFIG} begins a new one, on the bundled faces"
        )
    return [f"no --data, and no run in {path}: the bundled faces"]


def usual_folder(config_name: str | None, data: Path | None) -> Path:
    """Where a run goes without --out: `runs/<config>`."""
    from stylegan.config import AUTO

    usual = DEFAULT_CONFIG if data in (None, bundled_data()) else AUTO
    return Path("runs") / (usual if config_name is None else name_of(Path(config_name)))


def bundled_data() -> Path:
    from stylegan.config import bundled

    return bundled(BUNDLED_DATA)


def data_of(run: "RunFolder") -> Path:
    """Where the images of a run are; those of the package may have moved."""
    source = run.data()
    if source is None:
        raise FileNotFoundError(
            f"{run.data_file} does not say where the images of the run are; give them by --data"
        )
    if source.exists():
        return source
    if source.name == Path(BUNDLED_DATA).name:
        return bundled_data()
    raise FileNotFoundError(
        f"the images of {run.path} were in {source}, where there is nothing; give them by --data"
    )


def looked_at(source: Path, config: "TrainConfig", *, decode: bool = False) -> "Findings":
    """What the images of a source are like. ValueError if there are none, or no labels although
    `config` asks for them."""
    from stylegan.data import check
    from stylegan.training.run import fit_to_data, preparation_for

    with progress_bar("img") as progress:
        preparation = preparation_for(config)
        if not decode:  # then all sizes are of interest
            preparation = dataclasses.replace(preparation, resolution=None)
        findings = check(source, preparation, decode=decode, progress=progress)
    if not findings.reach():
        raise ValueError(
            "; ".join([f"no image of {source} can be used", *findings.left_out_lines()])
        )
    if not findings.label_names:
        fit_to_data(config, findings)  # refuses those that are asked for, before anything is told
    return findings


def found_lines(findings: "Findings") -> list[str]:
    """What a source holds: pictures, sizes, and how many reach each resolution."""
    from stylegan.data.sources import kinds_of

    sizes = " to ".join(dict.fromkeys(findings.ends()))
    line = f"{readable(findings.path)}: {count(findings.num_good, 'picture')} of {sizes}"
    line += "" if findings.kind == "store" else ", by the headers of the files"
    lines = [line]
    reach = findings.reach()
    if oblong := sum(n for (width, height), n in findings.sizes.items() if width != height):
        treatments = {
            "center": "only the middle square is used",
            "pad": "the middle {}:{} is used, between bars".format(*findings.fit.aspect),
            "stretch": "squeezed to a square",
        }
        lines.append(f"{oblong:,} not square: {treatments[findings.fit.kind]} (--crop, --aspect)")
    # from 32, or the largest that all reach
    least = max(findings.resolution() or 0, min(32, max(reach, default=0)))
    table = {r: n for r, n in reach.items() if r >= least}
    if set(table.values()) != {findings.num_good}:
        counts = [f"{n:,}" for n in table.values()]
        rows = [["  resolution", *map(str, table)], ["  pictures that reach it", *counts]]
        lines += aligned(rows, left=[0])
    return lines + ([f"ignored: {kinds_of(findings.ignored)}"] if findings.ignored else [])


def chosen_lines(config: "TrainConfig", hindrance: str) -> list[str]:
    """What is chosen for pictures and machine."""
    resolution = config.network.resolution
    line = (
        f"chosen for them and this machine: --resolution {resolution} "
        f"--width {config.network.max_channels} --kimg {config.schedule.total_kimg:g} "
        f"-o schedule.batch_size={batch_size_at(resolution, config.schedule)} "
        f"-o 'r1_gamma={toml_value(config.r1_gamma)}' "
        f"-o 'augment.kind=\"{config.augment.kind}\"'"
    )
    line += f" --batch-gpu {config.batch_gpu}" if config.batch_gpu else ""
    why = [f"not a larger resolution: {hindrance}"] if hindrance else []
    return [f"{line}; what you ask for stays", *why]


def advice(images: int, config: "TrainConfig", *, started: bool) -> list[str]:
    """What helps if pictures are few; `started` from other weights already."""
    from stylegan.fitting import LEAST_AUGMENTED_KIMG

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
            lines.append("trained weights of a similar kind help: --init-from, docs/training.md")
    return lines
