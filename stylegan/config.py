"""Configuration: one frozen dataclass, read from flat TOML, overridden by more TOML."""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_origin

from stylegan.augment import AugmentConfig
from stylegan.lineage import SECTION as LINEAGE
from stylegan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from stylegan.messages import readable, suggestion
from stylegan.networks import NetworkConfig
from stylegan.networks.making import DISCRIMINATORS, GENERATORS, known
from stylegan.schedule import (
    MIN_RESOLUTION,
    ScheduleConfig,
    check_resolution,
    official_batch_sizes,
    phases,
)
from stylegan.toml import parse_override, read_toml, toml_value

if TYPE_CHECKING:
    from pydantic import TypeAdapter

PACKAGE = Path(__file__).parent
AUTO = "auto"  # the name of a configuration that `fitting.choose` makes
Precision = Literal["fp32", "tf32", "bf16", "fp16"]


@dataclass(frozen=True)
class DataConfig:
    """Which images, and how they become squares."""

    # the middle square (center), the middle of an aspect with bars (pad for 4:3, "pad 3:4"), all of
    # the picture squeezed (stretch)
    crop: str = "center"
    include: tuple[str, ...] = ()  # sub-folders to use; none = all
    labels: bool = False  # condition on the class of each image, or its vector of numbers
    mirror: bool = False  # flip half of the images left to right

    def __post_init__(self) -> None:
        if self.crop != "center":
            from stylegan.data.images import Fit  # and Pillow, which steps do without

            Fit.of(self.crop)


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a training run computes; the defaults are the paper's.

    The comment of a field, here and in the sections, is its meaning in `stylegan configs` and
    docs/options.md; its unit stands in brackets.
    """

    __pydantic_config__: ClassVar = {"strict": True, "allow_inf_nan": False}  # sections included
    seed: int = 0  # seed of all random numbers
    # loss of the generator: nonsaturating, saturating, wgan
    generator_loss: str = "nonsaturating"
    # loss of the discriminator: logistic, wgan, wgan_gp, hinge, hinge_gp
    discriminator_loss: str = "logistic"
    r1_gamma: float = 10.0  # weight of R1, the penalty on gradients at reals; 0 = off
    r1_interval: int = 1  # steps from one R1 (no other) to the next, which weighs as much more
    r2_gamma: float = 0.0  # weight of R2, the same penalty at fakes; 0 = off
    gp_weight: float = 10.0  # weight of the gradient penalty of wgan_gp and hinge_gp
    gp_target: float = 1.0  # gradient norm that this penalty asks for
    drift: float = 0.001  # weight of the squared real logits in the WGAN losses
    adam_beta1: float = 0.0  # Adam: decay of the mean of the gradients
    adam_beta2: float = 0.99  # Adam: decay of the mean of their squares
    adam_eps: float = 1e-8  # Adam: added to the root of that mean
    ema_half_life_kimg: float = 10.0  # half-life of the average generator [kimg]
    w_avg_decay: float = 0.995  # decay of the mean of w (that truncation uses), per pass
    style_mixing: float = 0.9  # probability that a batch mixes two styles
    noise: Literal["random", "const"] = "random"  # drawn for each image, or the stored maps
    precision: Precision = "fp32"  # arithmetic; the last three are for GPUs
    batch_gpu: int = 0  # images at once per process, gradients accumulated; 0 = the whole share
    freeze_d: int = 0  # discriminator's blocks from this resolution up are not trained; 0 = all are
    checkpoint_activations: bool = False  # recompute blocks instead of keeping what they saved
    deterministic: bool = False  # the same bits every time on a GPU too, where it is slower
    log_kimg: float = 1.0  # between two lines of log.jsonl [kimg]
    snapshot_ticks: int = 10  # ticks between two generator files
    save_minutes: float = 15.0  # between two states, also saved every tick; 0 = only then [minutes]
    keep_states: int = 3  # newest files to resume from that stay
    milestone_kimg: float = 5000.0  # the first state after each multiple stays too; 0 = none [kimg]
    max_skipped: int = 50  # updates skipped in a row, their gradients not finite, that end a run
    max_saturated_kimg: float = 4.0  # both logits saturated for so long end a run; 0 = never [kimg]
    network: NetworkConfig = field(default_factory=NetworkConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)

    def __post_init__(self) -> None:
        for condition, holds, names in RANGES:
            for name in names.split():
                if not holds(value := getattr(self, name)):
                    raise ValueError(f"{name} must {condition}, but is {readable(value, 40)}")
        if self.freeze_d:
            check_resolution(self.freeze_d, self.network.resolution, what="freeze_d")
        for name, value in flatten(to_dict(self)).items():
            numbers = value.values() if isinstance(value, Mapping) else [value]
            largest = max((n for n in numbers if isinstance(n, int | float)), default=0)
            if largest > LARGEST and name != "seed":
                found = readable(largest, 40)
                raise ValueError(f"{name} must be at most {LARGEST:,}, but is {found}")


LARGEST = 10**12  # of the numbers of options; what is computed from them stays finite


RANGES: tuple[tuple[str, Callable[[float], bool], str], ...] = (  # what must hold for options
    ("be from 0 to 1", lambda x: 0 <= x <= 1, "style_mixing w_avg_decay"),
    ("be from 0 to below 1", lambda x: 0 <= x < 1, "adam_beta1 adam_beta2"),
    ("be positive", lambda x: x > 0, "ema_half_life_kimg gp_target adam_eps log_kimg"),
    ("be at least 1", lambda x: x >= 1, "keep_states snapshot_ticks max_skipped r1_interval"),
    ("not be negative", lambda x: x >= 0, "seed r1_gamma r2_gamma gp_weight drift batch_gpu"),
    (
        "not be negative",
        lambda x: x >= 0,
        "save_minutes milestone_kimg max_saturated_kimg",
    ),
    ("be below 2**63", lambda x: x < 2**63, "seed"),
)
SECTIONS: dict[str, list[str]] = {  # name of a section -> names of its options
    f.name: [option.name for option in dataclasses.fields(f.type)]
    for f in dataclasses.fields(TrainConfig)
    if isinstance(f.type, type) and dataclasses.is_dataclass(f.type)
}
TABLES = {f.name for f in dataclasses.fields(ScheduleConfig) if get_origin(f.type) is Mapping}
REMOVED: dict[str, object] = {  # gone options -> the value that did nothing; None: every value
    "cuda_graphs": None,
    "data.balanced": False,
    "data.holdout": 0.0,
    "freeze_mapping": False,
    "lecam_decay": None,
    "lecam_weight": 0.0,
}
DERIVED = "schedule.resolution"  # follows from network.resolution, so nobody writes it
HARMLESS = {  # may change within a run; a message warns if batch_gpu changes groups
    "batch_gpu",
    "checkpoint_activations",
    "deterministic",
    "keep_states",
    "log_kimg",
    "max_saturated_kimg",
    "max_skipped",
    "milestone_kimg",
    "save_minutes",
    "schedule.total_kimg",
    "snapshot_ticks",
}


def option_names() -> list[str]:
    """Every option as `name` or `section.name`."""
    return [name for name in flatten(to_dict(TrainConfig())) if name != DERIVED]


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by `name` or `section.name`; tables by resolution stay whole."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if name not in SECTIONS:
            flat[name] = value
        elif isinstance(value, Mapping):
            flat |= {f"{name}.{key}": v for key, v in value.items()}
        else:
            raise ValueError(
                f"{name} is a section, not a value: give its options, as {name}.{SECTIONS[name][0]}"
            )
    return flat


def merge(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `extra`; sections are merged, tables by resolution replaced."""
    merged = dict(base)
    for name, value in extra.items():
        merged[name] = {**merged.get(name, {}), **value} if name in SECTIONS else value
    return merged


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Plain Python values, complete; `from_dict` is the inverse."""
    return dataclasses.asdict(config)


def check_batches(config: TrainConfig, processes: int) -> None:
    """Each batch must divide among the processes, into parts that the networks can take."""
    group = config.network.deviation_group
    for _, _, stage in phases(config.schedule):
        batch = stage.batch_size
        share = batch // processes
        at_once = min(config.batch_gpu or share, share)
        fault = ""
        if batch % processes:
            fault = "a batch must divide among them"
        elif share % at_once:
            fault = f"batch_gpu {at_once} does not divide the {share} images of each"
        elif group > 1 and at_once % min(group, at_once):
            fault = f"{at_once} images at once do not split into groups of {group}"
        if fault:
            raise ValueError(
                f"batch {batch} at resolution {stage.resolution}, processes {processes}: {fault}; "
                "change schedule.batch_size, batch_gpu or network.deviation_group"
            )


def bundled(name: str) -> Path:
    """A file or folder that ships with the package: in it once installed, beside it in a clone."""
    inside, beside = PACKAGE / name, PACKAGE.parent / name
    path = inside if inside.exists() else beside
    if not path.exists():
        raise FileNotFoundError(f"{name} is missing from this installation of stylegan")
    return path


def config_names() -> list[str]:
    """Names that `--config` accepts: the files under `configs/`."""
    root = bundled("configs")
    return sorted(p.relative_to(root).with_suffix("").as_posix() for p in root.rglob("*.toml"))


def config_file(name: str) -> Path:
    """The file of a bundled configuration, or a file itself."""
    if (path := Path(name)).is_file():
        return path
    names = config_names()
    if name == AUTO:
        raise FileNotFoundError(
            f"{AUTO} is not a file: it is chosen for your pictures and machine; `stylegan train "
            "--data PICTURES --dry-run` shows what is chosen, and why"
        )
    if name not in names:
        hint = f"{suggestion(name, names).partition('; known')[0]}; `stylegan configs` lists them"
        raise FileNotFoundError(f"no configuration file or name {name!r}{hint}")
    return bundled(f"configs/{name}.toml")


def read_config_file(name: str) -> dict[str, Any]:
    """The options of a bundled configuration or of a file."""
    return options(read_toml(config_file(name)))


def options(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a configuration file holds, without where the weights of its run came from."""
    return without_removed({name: value for name, value in values.items() if name != LINEAGE})


def without_removed(values: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Without options that are gone. ValueError where one has another value than REMOVED says."""
    kept = {}
    for key, value in values.items():
        name = f"{section}{key}"
        if name in SECTIONS and isinstance(value, Mapping):
            kept[key] = without_removed(value, f"{name}.")
        elif name not in REMOVED:
            kept[key] = value
        elif REMOVED[name] not in (None, value):
            raise ValueError(f"option {name} is gone, and was {readable(toml_value(value))}")
    return kept


@contextlib.contextmanager
def naming(origin: str | None) -> Iterator[None]:
    """A ValueError names the configuration that it is about."""
    try:
        yield
    except ValueError as error:
        text = readable(str(error), 1500)  # a number may have thousands of digits
        raise ValueError(f"{origin}: {text}" if origin else text) from error


def check_names(values: Mapping[str, Any]) -> None:
    """Refuses unknown options, with the nearest known one."""
    known = option_names()
    for name, value in flatten(values).items():
        if name == DERIVED:
            raise ValueError(f"{name} cannot be set: it follows from network.resolution")
        if name not in known:
            full = f"{name}.{next(iter(value))}" if isinstance(value, Mapping) and value else name
            hint = suggestion(full, known)
            if full.partition(".")[0] not in SECTIONS and "did you mean" not in hint:
                hint = "; `stylegan configs NAME` shows every option"
            raise ValueError(f"unknown option {readable(full)}{hint}")


def build_config(values: Mapping[str, Any], num_processes: int = 1) -> TrainConfig:
    """A checked configuration; unless given, the batch table is the one for `num_processes`."""
    config = parse_config(values, num_processes)
    check_registered(config)
    return config


def check_registered(config: TrainConfig) -> None:
    """ValueError for losses and networks that are not known in this process."""
    network = config.network
    known("generator_loss", GENERATOR_LOSSES, config.generator_loss)
    known("discriminator_loss", DISCRIMINATOR_LOSSES, config.discriminator_loss)
    known("network.generator", GENERATORS, network.generator)
    known("network.discriminator", DISCRIMINATORS, network.discriminator)


def parse_config(values: Mapping[str, Any], num_processes: int = 1) -> TrainConfig:
    """As `build_config`, but what a script adds need not be known: a run is read without it.

    A plain number is a table by resolution with that one entry. Types are strict. JSON has TOML's:
    keys of tables are text there too, arrays become tuples.
    """
    from pydantic import ValidationError

    check_names(values)
    schedule = {"num_processes": num_processes, **values.get("schedule", {})}
    schedule |= {k: {MIN_RESOLUTION: v} for k, v in schedule.items() if k in TABLES and plain(v)}
    schedule["resolution"] = values.get("network", {}).get("resolution", NetworkConfig.resolution)
    try:
        text = json.dumps({**values, "schedule": schedule}, default=str)
    except ValueError as error:  # a hexadecimal number of thousands of digits
        raise ValueError(f"a number is too long: {error}") from error
    try:
        config = validator().validate_json(text)
    except ValidationError as error:
        raise ValueError(explain(error.errors()[0])) from error
    processes = config.schedule.num_processes
    if "batch_size" not in schedule:
        plan = dataclasses.replace(config.schedule, batch_size=official_batch_sizes(processes))
        config = dataclasses.replace(config, schedule=plan)
    check_batches(config, processes)
    return config


def plain(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@functools.cache
def validator() -> "TypeAdapter[TrainConfig]":
    from pydantic import TypeAdapter

    return TypeAdapter(TrainConfig)


def explain(fault: Mapping[str, Any]) -> str:
    """What pydantic found, with the name of the option and its value in TOML."""
    where = ".".join(str(part) for part in fault["loc"] if part != "[key]")
    message = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "json_invalid":
        return "tables or arrays are nested too deep"
    if fault["type"] != "value_error":
        value = readable(toml_value(fault["input"]))
        return f"option {readable(where)} is {value}: {message[0].lower()}{message[1:]}"
    if not where:
        return message
    names_option = message.split()[0].rstrip(":") in SECTIONS.get(where, [])
    return f"{where}{'.' if names_option else ': '}{message}"


def load_config(
    name: str | None, overrides: Sequence[str] = (), num_processes: int = 1
) -> TrainConfig:
    """The configuration NAME (or the paper's defaults) with `section.key=value` overrides."""
    values = read_config_file(name) if name else {}
    with naming(name):
        check_names(values)
    for override in overrides:
        extra = options(parse_override(override))
        check_names(extra)
        values = merge(values, extra)
    with naming(f"{name} with the given options" if name and overrides else name):
        return build_config(values, num_processes)


def from_dict(values: Mapping[str, Any]) -> TrainConfig:
    """The configuration that `to_dict` gave or a run's `config.toml` holds."""
    schedule = values.get("schedule", {})
    if isinstance(schedule, Mapping):  # else `parse_config` refuses it
        schedule = {k: v for k, v in schedule.items() if k != "resolution"}
    return parse_config(without_removed({**values, "schedule": schedule}))


def read_stored_config(path: Path) -> TrainConfig:
    """The complete configuration that `to_toml` wrote; a ValueError names the file."""
    values = options(read_toml(path))
    with naming(str(path)):
        return from_dict(values)


def to_toml(config: TrainConfig) -> str:
    """The complete configuration as TOML text: a configuration file like any other. Defaults are
    written as the code has them, also where a file that was read makes 0.0 of 0."""
    lines, section = [], ""
    defaults = flatten(to_dict(TrainConfig()))
    for name, found in flatten(to_dict(config)).items():
        value = defaults[name] if found == defaults[name] else found
        if name != DERIVED:
            head, _, key = name.rpartition(".")
            if head != section:
                section = head
                lines += ["", f"[{section}]"]
            lines.append(f"{key} = {toml_value(value)}")
    return "\n".join(lines) + "\n"


def differences(a: TrainConfig, b: TrainConfig) -> list[str]:
    """Options that matter and differ: `name: value in a there, value in b asked`."""
    flat_a, flat_b = flatten(to_dict(a)), flatten(to_dict(b))
    return [
        f"{name}: {toml_value(flat_a[name])} there, {toml_value(flat_b[name])} asked"
        for name in option_names()
        if name not in HARMLESS and flat_a[name] != flat_b[name]
    ]
