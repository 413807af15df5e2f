"""Configuration: one frozen dataclass, read from flat TOML, overridden by more TOML."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

from pydantic import Discriminator, Field, Tag

from stylegan.augment import AugmentConfig
from stylegan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from stylegan.machine.lineage import SECTION as LINEAGE
from stylegan.machine.messages import suggestion
from stylegan.machine.plain import AtLeast0, Count, Decay, Positive, Probability, checked, read
from stylegan.machine.toml import parse_override, read_toml, toml_value
from stylegan.networks import DISCRIMINATORS, GENERATORS, NetworkConfig, known
from stylegan.ops import Precision
from stylegan.schedule import (
    MIN_RESOLUTION,
    ScheduleConfig,
    at_resolution,
    check_resolution,
    check_table,
    official_batch_sizes,
    phases,
)

PACKAGE = Path(__file__).parent
AUTO = "auto"  # the name of a configuration that `planning` makes
# Tags, so that a fault of one kind is not told as a fault of the other.
NUMBER = "(number)"
TABLE = "(table)"
NumberOrTable = Annotated[
    Annotated[AtLeast0, Tag(NUMBER)] | Annotated[Mapping[int, AtLeast0], Tag(TABLE)],
    Discriminator(lambda value: TABLE if isinstance(value, Mapping) else NUMBER),
]


@checked
@dataclass(frozen=True)
class DataConfig:
    """The choice of images, and how they become squares."""

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


@checked
@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a training run computes; the defaults are the paper's. Comments
    of fields, with units in brackets, are their meaning in `stylegan configs`.
    """

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0  # seed of all random numbers
    # loss of the generator: nonsaturating, saturating, wgan, relativistic
    generator_loss: str = "nonsaturating"
    # loss of the discriminator: logistic, wgan, wgan_gp, hinge, hinge_gp, relativistic
    discriminator_loss: str = "logistic"
    # weight of R1, the penalty on gradients at reals; a number, or by resolution; 0 = off
    r1_gamma: NumberOrTable = 10.0
    # compute R1 in every n-th step, n times as strong; other penalties in every step
    r1_interval: Count = 1
    r2_gamma: AtLeast0 = 0.0  # weight of R2, the same penalty at fakes; 0 = off
    gp_weight: AtLeast0 = 10.0  # weight of the gradient penalty of wgan_gp and hinge_gp
    gp_target: Positive = 1.0  # gradient norm that wgan_gp and hinge_gp aim at
    drift: AtLeast0 = 0.001  # weight of the squared real logits in the WGAN losses
    adam_beta1: Decay = 0.0  # Adam: decay of the mean of the gradients
    adam_beta2: Decay = 0.99  # Adam: decay of the mean of the squared gradients
    adam_eps: Positive = 1e-8  # Adam: added to the root of the mean square
    ema_half_life_kimg: Positive = 10.0  # half-life of the average generator [kimg]
    w_avg_decay: Probability = 0.995  # decay of the average w (for truncation), per pass
    style_mixing: Probability = 0.9  # probability that a batch mixes two styles
    noise: Literal["random", "const"] = "random"  # noise: drawn for each image, or stored maps
    # arithmetic; auto = tf32 on GPUs that have it, else fp32; bf16 helps some CPUs, too
    precision: Precision = "auto"
    # images at once per process, gradients accumulated; 0 = the whole share
    batch_gpu: Annotated[int, Field(ge=0)] = 0
    # train the discriminator alone for so long, where it starts beside a trained generator [kimg]
    d_warmup_kimg: AtLeast0 = 0.0
    freeze_d: int = 0  # do not train the discriminator's blocks from this resolution up; 0 = off
    checkpoint_activations: bool = False  # recompute activations: less memory, more time
    deterministic: bool = False  # repeat to the last bit on a GPU, too (slower)
    log_kimg: Positive = 1.0  # from one line of log.jsonl to the next [kimg]
    snapshot_ticks: Count = 10  # ticks between two generator files
    # longest time between two states; every tick also saves one; 0 = only ticks do [minutes]
    save_minutes: AtLeast0 = 15.0
    keep_states: Count = 3  # number of newest states that are kept
    milestone_kimg: AtLeast0 = 5000.0  # keep the first state after each multiple; 0 = none [kimg]
    max_skipped: Count = 50  # end the run after so many updates skipped in a row
    max_saturated_kimg: AtLeast0 = 4.0  # end the run if logits saturate for so long; 0 = off [kimg]
    network: NetworkConfig = field(default_factory=NetworkConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)

    def __post_init__(self) -> None:
        if self.freeze_d:
            check_resolution(self.freeze_d, self.network.resolution, name="freeze_d")
        if isinstance(self.r1_gamma, Mapping):
            check_table("r1_gamma", self.r1_gamma, self.schedule.start)

    def r1_gamma_at(self, resolution: int) -> float:
        """Return the weight of R1 while the network has that resolution."""
        if isinstance(self.r1_gamma, Mapping):
            return at_resolution(self.r1_gamma, resolution)
        return self.r1_gamma

    def micro_batch_size(self, images: int) -> int:
        """How many of the `images` of a rank go through the networks at a time."""
        return min(self.batch_gpu or images, images)


SECTIONS: dict[str, list[str]] = {  # name of a section -> names of its options
    f.name: [option.name for option in dataclasses.fields(f.type)]
    for f in dataclasses.fields(TrainConfig)
    if isinstance(f.type, type) and dataclasses.is_dataclass(f.type)
}
TABLES = {
    f"schedule.{f.name}"
    for f in dataclasses.fields(ScheduleConfig)
    if get_origin(f.type) is Mapping
}
DERIVED = "schedule.resolution"  # follows from network.resolution, so nobody writes it
CHANGEABLE_WITHIN_RUN = {  # may change within a run; a message warns if batch_gpu changes groups
    "batch_gpu", "checkpoint_activations", "deterministic", "keep_states",
    "log_kimg", "max_saturated_kimg", "max_skipped", "milestone_kimg", "save_minutes",
    "schedule.total_kimg", "snapshot_ticks",
}  # fmt: skip


def option_names() -> list[str]:
    """Return every option as `name` or `section.name`."""
    return [name for name in flatten(to_dict(TrainConfig())) if name != DERIVED]


def flatten(values: Mapping[str, object]) -> dict[str, object]:
    """Return the values by `name` or `section.name`; tables by resolution stay whole."""
    flat: dict[str, object] = {}
    for name, value in values.items():
        if name not in SECTIONS:
            flat[name] = value
        elif not isinstance(value, Mapping):
            example = f"{name}.{SECTIONS[name][0]}"
            raise ValueError(f"{name} is a section, not a value: give its options, as {example}")
        else:
            flat |= {f"{name}.{key}": v for key, v in value.items()}
    return flat


def nested(flat: Mapping[str, object]) -> dict[str, object]:
    """Undo `flatten`."""
    sections: dict[str, dict[str, object]] = {"": {}}
    for name, value in flat.items():
        section, _, key = name.rpartition(".")
        sections.setdefault(section, {})[key] = value
    return {**sections.pop(""), **sections}


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """Return plain Python values, complete; `build_config` is the inverse."""
    return dataclasses.asdict(config)


def check_batches(config: TrainConfig, processes: int) -> None:
    """Raise ValueError unless batches divide among the processes into parts that networks take."""
    group = config.network.deviation_group
    for _, _, stage in phases(config.schedule):
        batch = stage.batch_size
        share = stage.batch_size // processes
        fault = ""
        at_once = config.micro_batch_size(share)
        if batch % processes:
            fault = "a batch must divide among them"
        elif share % at_once:
            fault = f"batch_gpu {at_once} does not divide the {share} images of each"
        elif group > 1 and at_once % min(group, at_once):
            fault = f"{at_once} images at once do not split into groups of {group}"
        if fault:
            raise ValueError(
                f"batch {batch} at resolution {stage.resolution}, processes {processes}: {fault}; "
                "change schedule.batch_size, schedule.max_batch_per_process, batch_gpu or "
                "network.deviation_group"
            )


def bundled(name: str) -> Path:
    """Return a file that ships with the package: in it once installed, beside it in a clone."""
    for path in (PACKAGE / name, PACKAGE.parent / name):
        if path.exists():
            return path
    raise FileNotFoundError(f"{name} is missing from this installation of stylegan")


def config_names() -> list[str]:
    """Return the names that `--config` accepts: the files under `configs/`."""
    root = bundled("configs")
    return sorted(p.relative_to(root).with_suffix("").as_posix() for p in root.rglob("*.toml"))


def config_file(name: str) -> Path:
    """Return the file of a bundled configuration, or a file itself."""
    if (path := Path(name)).is_file():
        return path
    if name == AUTO:
        raise FileNotFoundError(
            f"{AUTO} is not a file: `stylegan train --data PICTURES --dry-run` shows what is chosen"
        )
    if name not in config_names():
        hint = suggestion(name, config_names()).partition("; known")[0]
        raise FileNotFoundError(
            f"no configuration file or name {name!r}{hint or ';'} `stylegan configs` lists them"
        )
    return bundled(f"configs/{name}.toml")


def read_options(name: str | Path) -> dict[str, Any]:
    """Return the options of a bundled configuration or a file, without the lineage of its run."""
    values = read_toml(config_file(str(name)))
    return flatten({key: value for key, value in values.items() if key != LINEAGE})


def parse_options(texts: Sequence[str]) -> dict[str, object]:
    """Parse options in TOML, `section.key=value`, as for `-o`; later ones win."""
    return {name: value for text in texts for name, value in flatten(parse_override(text)).items()}


def load_config(
    name: str | Path | None,
    overrides: Sequence[str] | Mapping[str, object] = (),
    num_processes: int = 1,
    *,
    unknown_parts: bool = False,
) -> TrainConfig:
    """Return the configuration NAME (or the paper's defaults) with other options: values by their
    names, or texts as `-o` has them. Further see `build_config`."""
    try:
        values = read_options(name) if name else {}
        changes = overrides if isinstance(overrides, Mapping) else parse_options(overrides)
        return build_config({**values, **changes}, num_processes, unknown_parts=unknown_parts)
    except ValueError as error:
        named = f"{name} with the given options" if overrides else name
        raise ValueError(f"{named}: {error}" if name else str(error)) from error


def build_config(
    values: Mapping[str, object], num_processes: int = 1, *, unknown_parts: bool = False
) -> TrainConfig:
    """Return a checked configuration; unless given, the batch table is the one for `num_processes`.

    Values are by `name` and `section.name`, or sections are nested. A plain number is a table by
    resolution with that one entry. Losses and networks that a script adds must be known, unless
    `unknown_parts` are allowed.
    """
    flat = {"schedule.num_processes": num_processes, **flatten(values)}
    for name in TABLES:
        if isinstance(number := flat.get(name), int | float):
            flat[name] = {MIN_RESOLUTION: number}
    resolution = flat.get("network.resolution", NetworkConfig.resolution)
    if flat.setdefault(DERIVED, resolution) != resolution:
        raise ValueError(f"{DERIVED} cannot be set: it follows from network.resolution")
    config = read(TrainConfig, nested(flat))
    plan = config.schedule
    if "schedule.batch_size" not in flat:
        plan = dataclasses.replace(plan, batch_size=official_batch_sizes(plan.num_processes))
        config = dataclasses.replace(config, schedule=plan)
    check_batches(config, plan.num_processes)
    if not unknown_parts:
        known("generator_loss", GENERATOR_LOSSES, config.generator_loss)
        known("discriminator_loss", DISCRIMINATOR_LOSSES, config.discriminator_loss)
        known("network.generator", GENERATORS, config.network.generator)
        known("network.discriminator", DISCRIMINATORS, config.network.discriminator)
    return config


def to_toml(config: TrainConfig, comments: Callable[[str], Sequence[str]] = lambda name: ()) -> str:
    """Return the complete configuration as TOML text, with comments above options if there are any.
    Defaults are written as the code has them, also where a file that was read makes 0.0 of 0."""
    lines = []
    section = ""
    values, defaults = (flatten(to_dict(c)) for c in (config, TrainConfig()))
    for name in option_names():
        head, _, key = name.rpartition(".")
        lines += [] if head == section else ["", f"[{head}]"]
        section = head
        value = values[name]
        lines += comments(name)
        lines.append(f"{key} = {toml_value(defaults[name] if value == defaults[name] else value)}")
    return "\n".join(lines) + "\n"


def differences(a: TrainConfig, b: TrainConfig) -> list[str]:
    """List the options that matter and differ: `name: value in a there, value in b asked`."""
    flat_a = flatten(to_dict(a))
    flat_b = flatten(to_dict(b))
    return [
        f"{name}: {toml_value(flat_a[name])} there, {toml_value(flat_b[name])} asked"
        for name in option_names()
        if name not in CHANGEABLE_WITHIN_RUN and flat_a[name] != flat_b[name]
    ]
