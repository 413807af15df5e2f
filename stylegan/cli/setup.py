"""Which configuration and data a `train` command means: what is asked, remembered or chosen."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stylegan.cli.common import progress_bar
from stylegan.cli.guidance import chosen_lines, found_lines
from stylegan.disk import name_of
from stylegan.messages import readable

if TYPE_CHECKING:
    from stylegan.config import TrainConfig
    from stylegan.data import Findings
    from stylegan.run_folder import RunFolder
    from stylegan.training.transfer import Start

BUNDLED_DATA = "datasets/people-64.zip"
DEFAULT_CONFIG = "quickstart"
FITTED = ("resolution", "kimg", "width")  # plain options to which others are fitted


@dataclass(frozen=True)
class TrainRequest:
    """What a command line says."""

    run: "RunFolder"
    config_name: str | None
    data: Path | None
    overrides: Sequence[str]  # of plain options first, then of `-o`
    width: int | None
    fits: bool  # to the plain options that are FITTED
    device: str  # its type
    memory: float = math.inf  # of the device, for each process [bytes]
    cores: int = 1  # that a process computes with
    init_from: str | None = None


@dataclass(frozen=True)
class TrainSetup:
    """What is trained."""

    config: "TrainConfig"
    source: Path
    own: bool  # data of the user's, not the bundled
    lines: list[str]  # what was found and chosen
    start: "Start | None"  # the weights that a new run begins with


def resolve_setup(request: TrainRequest) -> TrainSetup:
    """The configuration and the data: those of the run that has begun, but for what is asked.

    Without a configuration a user's own pictures are trained as `fitting.choose` says, the bundled
    ones by the quickstart. With weights to start from and no configuration asked for, the network
    has their sizes; growth begins where theirs has ended.
    """
    from stylegan import distributed
    from stylegan.config import AUTO, load_config, parse_override, read_config_file
    from stylegan.fitting import Facts, as_options, choose, fitted, implied
    from stylegan.training.cost import largest_step
    from stylegan.training.transfer import beginning, opened, sizes

    run, stored, width = request.run, request.run.stored_config(), request.width
    source = request.data or (data_of(run) if stored else bundled_data())
    own, remembered = source != bundled_data(), str(run.config_file)
    name = request.config_name or (remembered if stored else AUTO if own else DEFAULT_CONFIG)
    lines: list[str] = []
    if stored and (name == AUTO or (own and name == DEFAULT_CONFIG)):  # which once chose, too
        lines.append(f"{readable(run.path)} keeps the options that it began with")
        name = remembered
    overrides = list(request.overrides)
    start = opened(request.init_from) if request.init_from and not stored else None
    if start and request.config_name in (None, AUTO):
        overrides = [*as_options(sizes(start, width=width)), *overrides]
    processes = stored.schedule.num_processes if stored else distributed.world_size()

    if name == AUTO:
        found = looked_at(source, load_config(None, [*implied(overrides), *overrides]))
        machine = request.device, request.memory, request.cores, processes
        facts = Facts(found.num_good, found.reach(), *machine, start.grown if start else 0)
        choice = choose(facts, overrides, largest_step, width=width)
        config = choice.config
        lines += [*found_lines(found), *chosen_lines(choice)]
    else:
        config = load_config(name, overrides, processes)
        if own and not stored:
            lines += found_lines(looked_at(source, config))
        elif not (own or stored or request.config_name):
            lines.append(f"no --data, and no run in {readable(run.path)}: the bundled faces")

    given = [parse_override(text) for text in overrides]
    files = given if name == AUTO else [read_config_file(name), *given]
    grows_from = any("initial_resolution" in values.get("schedule", {}) for values in files)
    begins: dict[str, object] = {}
    if start:
        begins, line = beginning(start, config, asked=grows_from)
        lines.append(line)
    elif stored and run.lineage():
        begins = {"schedule.initial_resolution": stored.schedule.initial_resolution}
    if name == AUTO:  # the choice begins there, and has fitted the rest
        return TrainSetup(config, source, own, lines, start)
    if begins and not grows_from:
        overrides = [*as_options(begins), *overrides]
        config = load_config(name, overrides, processes)
    if request.fits:
        sized = any("resolution" in values.get("network", {}) for values in given)
        usual = load_config(name, num_processes=processes) if sized else config
        begun = stored.schedule if stored else None
        fits = fitted(config, usual.network.resolution, width=width, begun=begun)
        config = load_config(name, [*fits, *overrides], processes)
    return TrainSetup(config, source, own, lines, start)


def channel_options(
    channels: int | Literal["auto"],
    run: "RunFolder",
    data: Path | None,
    overrides: Sequence[str],
    tell: Callable[[str], None],
) -> list[str]:
    """What --channels says, as options of the configuration; a run that has begun keeps its own
    with `auto`."""
    from stylegan.config import load_config
    from stylegan.data.channels import chosen
    from stylegan.fitting import as_options

    stored = run.stored_config()
    if channels == "auto":
        if stored:
            return []
        include = load_config(None, overrides).data.include
        channels, why = chosen(data or bundled_data(), include)
        tell(why)
    multiplied = stored.network.premultiplied if stored else True  # older runs are not
    values = {"image_channels": channels, "premultiplied": channels == 4 and multiplied}
    return as_options({f"network.{name}": value for name, value in values.items()})


def usual_folder(config_name: str | None, data: Path | None) -> Path:
    """Where a run goes without --out: `runs/<config>`."""
    from stylegan.config import AUTO

    if config_name is not None:
        return Path("runs") / name_of(Path(config_name))
    return Path("runs") / (DEFAULT_CONFIG if data in (None, bundled_data()) else AUTO)


def bundled_data() -> Path:
    from stylegan.config import bundled

    return bundled(BUNDLED_DATA)


def data_of(run: "RunFolder") -> Path:
    """Where the images of a run are; those of the package may have moved."""
    source = run.data() or bundled_data()
    if source.exists():
        return source
    if source.name == Path(BUNDLED_DATA).name:
        return bundled_data()
    raise FileNotFoundError(
        f"the images of {run.path} were in {source}, where there is nothing; give them by --data"
    )


def looked_at(source: Path, config: "TrainConfig", *, decode: bool = False) -> "Findings":
    """What the images of a source are like, of which there is at least one, with labels if those
    are asked for."""
    from stylegan.data import check
    from stylegan.training.run import fit_to_data

    with progress_bar("img") as progress:
        found = check(
            source,
            resolution=config.network.resolution if decode else None,
            crop=config.data.crop,
            channels=config.network.image_channels,
            include=config.data.include,
            decode=decode,
            progress=progress,
        )
    if not found.reach():
        raise ValueError("; ".join([f"no image of {source} can be used", *found.left_out_lines()]))
    if not found.label_names:
        fit_to_data(config, found)  # refuses those that are asked for, before anything is told
    return found
