"""The facts behind a plan, besides the request: run, pictures, weights and machine."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stylegan.config import AUTO, TrainConfig, bundled, load_config
from stylegan.data import Findings, Source, check, is_store, open_source
from stylegan.data.check import needed_channels
from stylegan.data.labels import Labels
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.files.weights import Weights
from stylegan.machine.console import SILENT, Console
from stylegan.machine.distributed import from_rank0, on_all_ranks
from stylegan.machine.messages import readable
from stylegan.planning import told
from stylegan.planning.request import Request
from stylegan.training.costs import Machine
from stylegan.training.run import fit_to_data, preparation_for
from stylegan.training.transfer import sizes

BUNDLED_DATA = "datasets/faces-64.zip"
DEFAULT_CONFIG = "quickstart"
MOST_REACH = 0.9  # of the pictures reach a resolution that is chosen


@dataclass(frozen=True)
class Known:
    """The facts, looked up once, before anything is decided."""

    run: RunFolder
    stored: TrainConfig | None  # of the run, if it has begun
    base: str  # configuration: a name, a file, or auto
    data: Path | Source  # a source where this process has listed the files
    is_own: bool  # data of the user's, not the bundled
    machine: Machine
    start: Weights | None = None  # that a new run begins with
    findings: Findings | None = None  # of pictures that no run was begun on
    # options that weights and pictures give, unless they are asked for
    given: Mapping[str, object] = dataclasses.field(default_factory=dict)
    lines: tuple[str, ...] = ()  # what was found, for the user

    @property
    def images(self) -> int:
        """Return the number of usable pictures; only asked where they were looked at."""
        assert self.findings is not None
        return self.findings.num_good

    @property
    def labels(self) -> Labels | None:
        """Return the labels of the pictures; None where they were not looked at, or have none."""
        return self.findings.labels if self.findings else None

    @property
    def possible(self) -> int:
        """Return the largest resolution that nine of ten pictures reach."""
        assert self.findings is not None
        reach = self.findings.reach()
        enough = (r for r, n in reach.items() if n >= MOST_REACH * self.images)
        return max(enough, default=min(reach))

    @property
    def grown(self) -> int:
        """Return the resolution of the weights to begin with; 0: none."""
        return self.start.require_loaded().grown if self.start else 0


def look(request: Request, machine: Machine, console: Console = SILENT) -> Known:
    """Open the run and the weights, and look at the pictures; the first process does that for all.

    Raise FileNotFoundError or ValueError if a requested thing is missing or useless.
    """
    run = RunFolder(request.out or usual_folder(request.config, request.data))
    stored = on_all_ranks(run.stored_config)
    path = Path(request.data or (data_of(run) if stored else bundled_data()))
    is_own = path.resolve() != bundled_data().resolve()
    base = base_of(request, run, stored, is_own=is_own)
    is_looked_at = base == AUTO or (is_own and not stored)
    lines: list[str] = []
    if stored and request.config and base != request.config:
        lines.append(f"{readable(run.path)} keeps the options that it began with")
    start = None if stored else weights_of(request)  # first: it may be a mistake
    given = {}
    if start and request.config in (None, AUTO):
        given = sizes(start, width=request.width)
    include = config_of_pictures(base, request.asked, machine).data.include
    data = listed(path, include) if is_looked_at and not is_store(path) else path
    channels, why = channels_of(request, stored, data, include)
    given |= channels
    lines += why
    findings: Findings | None = None
    if is_looked_at:
        config = config_of_pictures(base, {**given, **request.asked}, machine)
        findings = looked_at(data, config, console=console)
        lines += told.found_lines(findings)
    elif not is_own and not stored and request.config is None:
        lines.append(f"no --data, and no run in {readable(run.path)}: the bundled faces")
    return Known(run, stored, base, data, is_own, machine, start, findings, given, tuple(lines))


def weights_of(request: Request) -> Weights | None:
    """Open the weights that a new run is to begin with."""
    if request.init_from is None:
        return None
    origin = str(request.init_from)
    return on_all_ranks(lambda: open_weights(origin, need="training"))


def config_of_pictures(base: str, options: Mapping[str, object], machine: Machine) -> TrainConfig:
    """Return the options of data and networks; for `auto` all others are chosen by the pictures."""
    if base != AUTO:
        return load_config(base, options, machine.processes)
    sections = ("data.", "network.")
    return load_config(None, {k: value for k, value in options.items() if k.startswith(sections)})


def channels_of(
    request: Request, stored: TrainConfig | None, data: Path | Source, include: tuple[str, ...]
) -> tuple[dict[str, object], list[str]]:
    """Return the options for the requested channels. A run that has begun ignores `auto`."""
    channels = request.channels
    why: list[str] = []
    if channels is None or (stored and channels == "auto"):
        return {}, why
    if channels == "auto":
        channels, reason = from_rank0(lambda: needed_channels(data, include))
        why.append(reason)
    # older runs are not premultiplied
    premultiplied = channels == 4 and (not stored or stored.network.premultiplied)
    return {"network.image_channels": channels, "network.premultiplied": premultiplied}, why


def base_of(request: Request, run: RunFolder, stored: TrainConfig | None, *, is_own: bool) -> str:
    """Return the configuration to begin with: that of a run that has begun, a chosen one for a
    user's own data, else that of the bundled data."""
    remembered = str(run.config_file)
    usual = remembered if stored else AUTO if is_own else DEFAULT_CONFIG
    base = request.config or usual
    chose_once = base == AUTO or (is_own and base == DEFAULT_CONFIG)
    return remembered if stored and chose_once else base


def listed(data: Path, include: tuple[str, ...]) -> Path | Source:
    """List the files of the data in the first process; the others get their path."""
    sources: list[Source] = []
    from_rank0(lambda: sources.append(open_source(data, include=include)))
    return sources[0] if sources else data


def looked_at(
    data: Path | Source,
    config: TrainConfig,
    *,
    decode: bool = False,
    console: Console = SILENT,
) -> Findings:
    """Look at the pictures. Raise ValueError if there are none, or labels are missing."""
    preparation = preparation_for(config)
    if not decode:  # then all sizes are of interest
        preparation = dataclasses.replace(preparation, resolution=None)
    findings = from_rank0(lambda: check(data, preparation, decode=decode, console=console))
    if not findings.reach():
        raise ValueError(
            "; ".join([f"no image of {findings.path} can be used", *findings.left_out_lines()])
        )
    if not findings.label_names:
        fit_to_data(config, findings)  # refuses those that are asked for, before anything is told
    return findings


def usual_folder(config_name: str | None, data: str | Path | None) -> Path:
    """Return the default run folder: `runs/<config>`."""
    usual = DEFAULT_CONFIG if data is None or Path(data) == bundled_data() else AUTO
    return Path("runs") / (usual if config_name is None else Path(config_name).stem)


def bundled_data() -> Path:
    return bundled(BUNDLED_DATA)


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
        return bundled_data()
    raise FileNotFoundError(
        f"the images of {run.path} were in {source}, where there is nothing; give them by --data"
    )
