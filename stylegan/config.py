"""Configuration: one frozen dataclass, read from flat TOML, overridden by more TOML."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

from pydantic import Discriminator, Field, Tag

from stylegan.augment import AugmentConfig
from stylegan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES, DiscriminatorLoss, PairLoss
from stylegan.networks import DISCRIMINATORS, GENERATORS, NetworkConfig, lookup
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
from stylegan.utils.lineage import SECTION as LINEAGE
from stylegan.utils.text import suggestion
from stylegan.utils.toml import parse_override, read_toml, toml_value
from stylegan.utils.validation import (
    Decay,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Probability,
    validate,
    validated,
)

PACKAGE = Path(__file__).parent
AUTO = "auto"  # name of the configuration that `planning` chooses
# Tags keep a fault in a table from being reported as a fault in a number.
NUMBER = "(number)"
TABLE = "(table)"
NumberOrTable = Annotated[
    Annotated[NonNegativeFloat, Tag(NUMBER)]
    | Annotated[Mapping[int, NonNegativeFloat], Tag(TABLE)],
    Discriminator(lambda value: TABLE if isinstance(value, Mapping) else NUMBER),
]


@validated
@dataclass(frozen=True)
class DataConfig:
    """Which images are used, and how they become square."""

    # center: the middle square; pad (4:3), "pad 3:4", ...: the middle of that aspect, with bars;
    # stretch: all of the image, squeezed
    crop: str = "center"
    include: tuple[str, ...] = ()  # subfolders to use; none = all
    labels: bool = False  # condition on the class, or the vector, of each image
    mirror: bool = False  # flip half of the images left to right

    def __post_init__(self) -> None:
        if self.crop != "center":
            from stylegan.data.images import Fit  # imports Pillow, which a step does without

            Fit.parse(self.crop)


@validated
@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a training run computes; the defaults are the paper's.

    `stylegan configs` shows the comments of the fields as help, with units in brackets.
    """

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0  # seed of all random numbers
    # loss of the generator: nonsaturating, saturating, wgan, relativistic
    generator_loss: str = "nonsaturating"
    # loss of the discriminator: logistic, wgan, wgan_gp, hinge, hinge_gp, relativistic
    discriminator_loss: str = "logistic"
    # weight of R1, the penalty on gradients at reals; a number, or by resolution; 0 = off
    r1_gamma: NumberOrTable = 10.0
    # compute R1 in every n-th step only, n times as strong
    r1_interval: PositiveInt = 1
    r2_gamma: NonNegativeFloat = 0.0  # weight of R2, the same penalty at fakes; 0 = off
    gp_weight: NonNegativeFloat = 10.0  # weight of the gradient penalty of wgan_gp and hinge_gp
    gp_target: PositiveFloat = 1.0  # target gradient norm of wgan_gp and hinge_gp
    drift: NonNegativeFloat = 0.001  # weight of the squared real logits in the WGAN losses
    adam_beta1: Decay = 0.0  # Adam: decay of the mean of the gradients
    adam_beta2: Decay = 0.99  # Adam: decay of the mean of the squared gradients
    adam_eps: PositiveFloat = 1e-8  # Adam: added to the root of the mean square
    ema_half_life_kimg: PositiveFloat = 10.0  # half-life of the average generator [kimg]
    w_avg_decay: Probability = 0.995  # decay of the average w (for truncation), per pass
    style_mixing: Probability = 0.9  # probability that a batch mixes two styles
    noise_mode: Literal["random", "const"] = "random"  # noise maps: drawn for each image, or stored
    # arithmetic; auto = tf32 on GPUs that have it, else fp32; bf16 is faster on some CPUs, too
    precision: Precision = "auto"
    # images per process at a time, accumulating gradients; 0 = all
    batch_gpu: Annotated[int, Field(ge=0)] = 0
    # train D alone at first, to catch up with a trained generator; 0 = off [kimg]
    d_only_kimg: NonNegativeFloat = 0.0
    freeze_d_from: int = 0  # freeze D's blocks from this resolution up; 0 = off
    checkpoint_activations: bool = False  # recompute activations: less memory, more time
    deterministic: bool = False  # bit-identical results on a GPU, too (slower)
    log_kimg: PositiveFloat = 1.0  # interval of lines in log.jsonl [kimg]
    snapshot_ticks: PositiveInt = 10  # interval of generator files, in ticks
    # save a state at least this often, besides every tick; 0 = ticks only [minutes]
    save_minutes: NonNegativeFloat = 15.0
    keep_states: PositiveInt = 3  # number of newest states to keep
    # keep the first state after each multiple; 0 = off [kimg]
    milestone_kimg: NonNegativeFloat = 5000.0
    max_skipped: PositiveInt = 50  # stop after this many consecutive skipped updates
    # stop once logits are saturated this long; 0 = off [kimg]
    max_saturated_kimg: NonNegativeFloat = 4.0
    network: NetworkConfig = field(default_factory=NetworkConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    data: DataConfig = field(default_factory=DataConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)

    def __post_init__(self) -> None:
        if self.freeze_d_from:
            check_resolution(self.freeze_d_from, self.network.resolution, name="freeze_d_from")
        if isinstance(self.r1_gamma, Mapping):
            check_table("r1_gamma", self.r1_gamma, self.schedule.start_resolution)

    def r1_gamma_at(self, resolution: int) -> float:
        """Weight of R1 while the network has this resolution."""
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
DERIVED = "schedule.resolution"  # follows from network.resolution, so it is no option
CHANGEABLE_WITHIN_RUN = {  # options that a resumed run may change
    "batch_gpu", "checkpoint_activations", "deterministic", "keep_states",
    "log_kimg", "max_saturated_kimg", "max_skipped", "milestone_kimg", "save_minutes",
    "schedule.total_kimg", "snapshot_ticks",
}  # fmt: skip


def option_names() -> list[str]:
    """All options, as `name` or `section.name`."""
    return [name for name in flatten(to_dict(TrainConfig())) if name != DERIVED]


FORMER_NAMES = {  # of options, in runs of earlier versions and still accepted
    "augment.speed_kimg": "augment.ada_kimg",
    "augment.strength": "augment.probability",
    "d_warmup_kimg": "d_only_kimg",
    "freeze_d": "freeze_d_from",
    "noise": "noise_mode",
}


def flatten(values: Mapping[str, object]) -> dict[str, object]:
    """Values by `name` or `section.name`, also for former names; tables by resolution stay whole.

    Raises ValueError if an option is given by its former and its present name."""
    flat: dict[str, object] = {}
    for name, value in values.items():
        if name not in SECTIONS:
            flat[name] = value
        elif not isinstance(value, Mapping):
            example = f"{name}.{SECTIONS[name][0]}"
            raise ValueError(f"{name} is a section, not an option; set its options, as {example}")
        else:
            flat |= {f"{name}.{key}": v for key, v in value.items()}
    if twice := [old for old, new in FORMER_NAMES.items() if old in flat and new in flat]:
        raise ValueError(f"{twice[0]} is now {FORMER_NAMES[twice[0]]}: give one of them")
    return {FORMER_NAMES.get(name, name): value for name, value in flat.items()}


def unflatten(flat: Mapping[str, object]) -> dict[str, object]:
    """The inverse of `flatten`."""
    sections: dict[str, dict[str, object]] = {"": {}}
    for name, value in flat.items():
        section, _, key = name.rpartition(".")
        sections.setdefault(section, {})[key] = value
    return {**sections.pop(""), **sections}


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """All options as plain Python values, nested; `build_config` is the inverse."""
    return dataclasses.asdict(config)


def check_batches(config: TrainConfig, processes: int) -> None:
    """Raises ValueError unless batches split evenly into ranks, micro-batches and groups."""
    group = config.network.deviation_group
    for _, _, stage in phases(config.schedule):
        batch = stage.batch_size
        share = stage.batch_size // processes
        fault = ""
        at_once = config.micro_batch_size(share)
        if batch % processes:
            fault = "the batch is not divisible by the processes"
        elif share % at_once:
            fault = f"the {share} images of each process are not divisible by batch_gpu {at_once}"
        elif group > 1 and at_once % min(group, at_once):
            fault = f"{at_once} images at a time are not divisible by deviation_group {group}"
        if fault:
            raise ValueError(
                f"batch {batch} at resolution {stage.resolution}, processes {processes}: {fault}; "
                "change schedule.batch_size, schedule.max_batch_per_process, batch_gpu or "
                "network.deviation_group"
            )


def bundled(name: str) -> Path:
    """A file that ships with the package: inside it once installed, next to it in a clone."""
    for path in (PACKAGE / name, PACKAGE.parent / name):
        if path.exists():
            return path
    raise FileNotFoundError(f"{name} is missing from this installation of stylegan")


def config_names() -> list[str]:
    """The names that `--config` accepts: the files under `configs/`."""
    root = bundled("configs")
    return sorted(p.relative_to(root).with_suffix("").as_posix() for p in root.rglob("*.toml"))


def config_file(name: str) -> Path:
    """The file of a bundled configuration, or `name` itself if it is a file."""
    if (path := Path(name)).is_file():
        return path
    if name == AUTO:
        raise FileNotFoundError(
            f"{AUTO} has no file; `stylegan train --data IMAGES --dry-run` shows what it chooses"
        )
    if name not in config_names():
        hint = suggestion(name, config_names()).partition("; known")[0]
        raise FileNotFoundError(
            f"no configuration or file {name!r}{hint or ';'} `stylegan configs` lists them"
        )
    return bundled(f"configs/{name}.toml")


def read_options(name: str | Path) -> dict[str, Any]:
    """Options of a bundled configuration or a file, without the lineage of its run."""
    values = read_toml(config_file(str(name)))
    return flatten({key: value for key, value in values.items() if key != LINEAGE})


def parse_options(texts: Sequence[str]) -> dict[str, object]:
    """Parse options as `-o` takes them, `section.key=value` in TOML; later ones win.

    That includes later ones by a former name.
    """
    return {name: value for text in texts for name, value in flatten(parse_override(text)).items()}


def load_config(
    name: str | Path | None,
    overrides: Sequence[str] | Mapping[str, object] = (),
    num_processes: int = 1,
    *,
    allow_unregistered: bool = False,
) -> TrainConfig:
    """Load a configuration by name or file (None: the paper's defaults), with `overrides`.

    These are values by name, or texts as for `-o`. For the rest see `build_config`.
    """
    try:
        values = read_options(name) if name else {}
        changes = flatten(overrides) if isinstance(overrides, Mapping) else parse_options(overrides)
        return build_config(
            {**values, **changes}, num_processes, allow_unregistered=allow_unregistered
        )
    except ValueError as error:
        named = f"{name} with the given options" if overrides else name
        raise ValueError(f"{named}: {error}" if name else str(error)) from error


def build_config(
    values: Mapping[str, object], num_processes: int = 1, *, allow_unregistered: bool = False
) -> TrainConfig:
    """Validate `values`, by `name` and `section.name` or nested by section; defaults fill the rest.

    Without a batch table, the official one for `num_processes` is used. A plain number in place of
    a table by resolution is its only entry. Losses and networks must be registered, unless
    `allow_unregistered` is true.
    """
    flat = {"schedule.num_processes": num_processes, **flatten(values)}
    for name in TABLES:
        if isinstance(number := flat.get(name), int | float):
            flat[name] = {MIN_RESOLUTION: number}
    resolution = flat.get("network.resolution", NetworkConfig.resolution)
    if flat.setdefault(DERIVED, resolution) != resolution:
        raise ValueError(f"{DERIVED} cannot be set; it follows from network.resolution")
    config = validate(TrainConfig, unflatten(flat))
    plan = config.schedule
    if "schedule.batch_size" not in flat:
        plan = dataclasses.replace(plan, batch_size=official_batch_sizes(plan.num_processes))
        config = dataclasses.replace(config, schedule=plan)
    check_batches(config, plan.num_processes)
    if not allow_unregistered:
        lookup("generator_loss", GENERATOR_LOSSES, config.generator_loss)
        loss = lookup("discriminator_loss", DISCRIMINATOR_LOSSES, config.discriminator_loss)
        if not isinstance(loss, DiscriminatorLoss | PairLoss):
            kinds = "a DiscriminatorLoss or PairLoss"
            raise ValueError(f"discriminator_loss must be the name of {kinds}, got {loss}")
        lookup("network.generator", GENERATORS, config.network.generator)
        lookup("network.discriminator", DISCRIMINATORS, config.network.discriminator)
    return config


def to_toml(config: TrainConfig, comments: Callable[[str], Sequence[str]] = lambda name: ()) -> str:
    """The complete configuration as TOML; `comments(name)` are lines to put above an option."""
    lines = []
    section = ""
    values, defaults = (flatten(to_dict(c)) for c in (config, TrainConfig()))
    for name in option_names():
        head, _, key = name.rpartition(".")
        lines += [] if head == section else ["", f"[{head}]"]
        section = head
        value = values[name]
        lines += comments(name)
        # A file that was read may have made 0.0 of 0; a default is written as in the code.
        lines.append(f"{key} = {toml_value(defaults[name] if value == defaults[name] else value)}")
    return "\n".join(lines) + "\n"


def differences(a: TrainConfig, b: TrainConfig) -> list[str]:
    """Options that differ between two runs and affect results, as "name: a there, b asked"."""
    flat_a = flatten(to_dict(a))
    flat_b = flatten(to_dict(b))
    return [
        f"{name}: {toml_value(flat_a[name])} there, {toml_value(flat_b[name])} asked"
        for name in option_names()
        if name not in CHANGEABLE_WITHIN_RUN and flat_a[name] != flat_b[name]
    ]
