"""Configuration: one frozen dataclass, read from flat TOML, overridden by more TOML."""

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stylegan.networks import NetworkConfig
from stylegan.schedule import ScheduleConfig, batch_size_at, official_batch_sizes

PACKAGE = Path(__file__).parent
GeneratorLoss = Literal["nonsaturating", "saturating", "wgan"]
DiscriminatorLoss = Literal["logistic", "wgan", "wgan_gp", "hinge", "hinge_gp"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]


@dataclass(frozen=True)
class DataConfig:
    """Which images, and how they become squares."""

    crop: Literal["center", "pad"] = "center"
    include: tuple[str, ...] = ()  # sub-folders to use; none = all
    labels: bool = False  # condition on the sub-folder of each image
    mirror: bool = False  # flip half of the images left to right


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a training run computes; the defaults are the paper's."""

    seed: int = 0
    generator_loss: GeneratorLoss = "nonsaturating"
    discriminator_loss: DiscriminatorLoss = "logistic"
    r1_gamma: float = 10.0
    r2_gamma: float = 0.0
    gp_weight: float = 10.0  # of the gradient penalty of wgan_gp and hinge_gp
    gp_target: float = 1.0
    drift: float = 0.001  # of the WGAN losses
    adam_beta1: float = 0.0
    adam_beta2: float = 0.99
    adam_eps: float = 1e-8
    ema_half_life_kimg: float = 10.0
    w_avg_decay: float = 0.995
    style_mixing: float = 0.9  # probability that a batch mixes two styles
    noise: Literal["random", "const"] = "random"
    precision: Precision = "fp32"
    batch_gpu: int = 0  # images at once per process, gradients accumulated; 0 = the whole share
    log_kimg: float = 1.0  # between two lines of log.jsonl
    snapshot_ticks: int = 10  # ticks between two generator files
    keep_states: int = 3  # newest files to resume from that stay
    network: NetworkConfig = field(default_factory=NetworkConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    data: DataConfig = field(default_factory=DataConfig)

    def __post_init__(self) -> None:
        for name in ("style_mixing", "w_avg_decay", "adam_beta1", "adam_beta2"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, not {getattr(self, name)}")
        for name in ("ema_half_life_kimg", "gp_target", "adam_eps", "log_kimg"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        for name in ("r1_gamma", "r2_gamma", "gp_weight", "drift", "batch_gpu", "seed"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        for name in ("keep_states", "snapshot_ticks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


HARMLESS = {"log_kimg", "snapshot_ticks", "keep_states"}  # may differ between a run's parts


def bundled(name: str) -> Path:
    """A file or folder that ships with the package: beside it in a clone, in it once installed."""
    inside, beside = PACKAGE / name, PACKAGE.parent / name
    path = beside if beside.exists() else inside
    if not path.exists():
        raise FileNotFoundError(f"{name} is missing from this installation of stylegan")
    return path


def config_names() -> list[str]:
    """Names that `--config` accepts: the files under `configs/`."""
    root = bundled("configs")
    return sorted(p.relative_to(root).with_suffix("").as_posix() for p in root.rglob("*.toml"))


def suggest(name: str, known: Sequence[str]) -> str:
    """`; did you mean ...?` if a known name is close."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def read_config_file(name: str) -> dict[str, Any]:
    """The TOML of a bundled configuration or of a file."""
    path = Path(name)
    if not path.is_file():
        if name not in config_names():
            hint = suggest(name, config_names()) or f"; known: {', '.join(config_names())}"
            raise FileNotFoundError(f"no configuration file or name {name!r}{hint}")
        path = bundled(f"configs/{name}.toml")
    return parse_toml(path.read_text(encoding="utf-8"), str(path))


def parse_toml(text: str, origin: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{origin} is not valid TOML: {error}") from error


def merge(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `extra`; sections are merged, tables by resolution replaced."""
    sections = {f.name for f in dataclasses.fields(TrainConfig) if is_section(f.name)}
    merged = dict(base)
    for name, value in extra.items():
        if name in sections and isinstance(value, Mapping):
            merged[name] = {**merged.get(name, {}), **value}
        else:
            merged[name] = value
    return merged


def is_section(name: str) -> bool:
    return name in ("network", "schedule", "data")


def parse_override(text: str) -> dict[str, Any]:
    """One `section.key=value` of the command line, in TOML."""
    if "=" not in text:
        raise ValueError(f"option {text!r} is not of the form section.key=value")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        name, value = text.split("=", 1)
        raise ValueError(
            f"{value.strip()!r} in {text!r} is not a TOML value ({error}); "
            f"text needs quotes: '{name.strip()}=\"{value.strip()}\"'"
        ) from error


def check_names(values: Mapping[str, Any]) -> None:
    """Refuses unknown options, with the nearest known one."""
    known = option_names()
    found = [
        f"{name}.{key}" if is_section(name) and isinstance(value, Mapping) else name
        for name, value in values.items()
        for key in (value if is_section(name) and isinstance(value, Mapping) else [None])
    ]
    for name in found:
        if name in ("schedule.resolution", "schedule.num_processes"):
            raise ValueError(
                f"{name} is not set by itself: it follows from the network and torchrun"
            )
        if name not in known:
            raise ValueError(f"unknown option {name}{suggest(name, known)}")


def option_names() -> list[str]:
    """Every option as `name` or `section.name`."""
    names = []
    for f in dataclasses.fields(TrainConfig):
        if is_section(f.name):
            inner = {"network": NetworkConfig, "schedule": ScheduleConfig, "data": DataConfig}[
                f.name
            ]
            names += [f"{f.name}.{g.name}" for g in dataclasses.fields(inner)]
        else:
            names.append(f.name)
    derived = {"schedule.resolution", "schedule.num_processes"}
    return [name for name in names if name not in derived]


def build_config(values: Mapping[str, Any], num_processes: int = 1) -> TrainConfig:
    """A checked configuration; the batch table is the one for `num_processes` unless given."""
    from pydantic import TypeAdapter, ValidationError

    check_names(values)
    network = values.get("network", {})
    schedule = dict(values.get("schedule", {}))
    schedule.setdefault("batch_size", official_batch_sizes(num_processes))
    schedule["num_processes"] = num_processes
    schedule["resolution"] = network.get("resolution", NetworkConfig.resolution)
    try:
        config = TypeAdapter(TrainConfig).validate_python({**values, "schedule": schedule})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        found = first["input"]
        message = first["msg"].removeprefix("Value error, ")
        is_rule = first["type"] == "value_error"
        raise ValueError(
            f"{where}: {message}"
            if is_rule and where
            else message
            if is_rule
            else f"option {where} is {found!r}: {message}"
        ) from error
    check_batches(config)
    return config


def check_batches(config: TrainConfig) -> None:
    """Every share of a batch must split into groups of the minibatch deviation."""
    group = config.network.deviation_group
    processes = config.schedule.num_processes
    resolution = min(config.schedule.initial_resolution, config.network.resolution)
    while resolution <= config.network.resolution:
        share = batch_size_at(resolution, config.schedule) // processes
        at_once = min(config.batch_gpu or share, share)
        if share % at_once:
            raise ValueError(f"batch_gpu {at_once} does not divide the {share} images of a process")
        if group > 1 and at_once % min(group, at_once):
            raise ValueError(
                f"at resolution {resolution} a process handles {at_once} images at once, which do "
                f"not split into groups of {group} (network.deviation_group)"
            )
        resolution *= 2


def load_config(
    name: str | None, overrides: Sequence[str] = (), num_processes: int = 1
) -> TrainConfig:
    """The configuration NAME (or the paper's defaults) with `section.key=value` overrides."""
    values: dict[str, Any] = read_config_file(name) if name else {}
    check_names(values)
    for override in overrides:
        values = merge(values, parse_override(override))
    return build_config(values, num_processes)


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Plain Python values, complete; `from_dict` is the inverse."""
    return dataclasses.asdict(config)


def from_dict(values: Mapping[str, Any]) -> TrainConfig:
    """The configuration that `to_dict` or a run's `config.toml` holds."""
    schedule = dict(values.get("schedule", {}))
    num_processes = int(schedule.pop("num_processes", 1))
    schedule.pop("resolution", None)
    return build_config({**values, "schedule": schedule}, num_processes)


def to_toml(config: TrainConfig) -> str:
    """The complete configuration as TOML text."""
    values = to_dict(config)
    sections = [name for name in values if is_section(name)]
    lines = [f"{k} = {toml_value(v)}" for k, v in values.items() if k not in sections]
    for name in sections:
        lines += ["", f"[{name}]", *(f"{k} = {toml_value(v)}" for k, v in values[name].items())]
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


def differences(a: TrainConfig, b: TrainConfig) -> list[str]:
    """Options that matter and differ, each as `name: value in a, value in b`."""
    flat_a, flat_b = flatten(to_dict(a)), flatten(to_dict(b))
    return [
        f"{name}: {flat_a[name]} there, {flat_b[name]} asked"
        for name in flat_a
        if name not in HARMLESS and flat_a[name] != flat_b[name]
    ]


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner = {f"{name}.{k}": v for k, v in value.items()} if is_section(name) else {name: value}
        flat |= inner
    return flat
