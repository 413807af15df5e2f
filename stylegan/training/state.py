"""All of a training run that must survive a restart."""

import copy
import dataclasses
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

import torch
from pydantic import AllowInfNan
from torch import Tensor

from stylegan import config as configuration
from stylegan.augment import AugmentStrength, StrengthValues
from stylegan.config import TrainConfig
from stylegan.files import checkpoint
from stylegan.networks import Discriminator, Generator, make_discriminator, make_generator
from stylegan.sampling import Resolution
from stylegan.schedule import SchedulePosition, Stage
from stylegan.training.optimizer import Adam
from stylegan.training.parallel import StageNetworks
from stylegan.utils.lineage import Lineage, StoredLineage, to_dicts
from stylegan.utils.validation import NonNegativeInt, PositiveInt, validate

NETWORKS = ("generator", "discriminator", "generator_ema")
OPTIMIZATION = ("g_optimizer", "d_optimizer", "g_scaler", "d_scaler")
Payload = dict[str, Any]  # content of a state file: tensors and plain Python, by name
Score = int | Annotated[float, AllowInfNan()]  # NaN: could not be measured
SKIPS = ("skipped_g", "skipped_d", "skipped_in_a_row_g", "skipped_in_a_row_d")


@dataclass(frozen=True)
class Counters:
    """The plain values in a state file, apart from its configuration."""

    images_seen: NonNegativeInt  # these three are the `SchedulePosition`
    schedule_images: NonNegativeInt
    repeats_left: NonNegativeInt
    growth: tuple[Resolution, bool] | None
    strength: StrengthValues
    scores: list[dict[str, Score]]
    lineage: StoredLineage
    skipped_g: NonNegativeInt
    skipped_d: NonNegativeInt
    skipped_in_a_row_g: NonNegativeInt
    skipped_in_a_row_d: NonNegativeInt
    processes: PositiveInt = 1  # number at the time of writing
    threads: PositiveInt = 1  # per process
    best_by: str = ""  # missing in older files

    @classmethod
    def of(cls, payload: Payload) -> "Counters":
        """Read them from a payload. Raises ValueError naming an invalid or missing one."""
        names = [field.name for field in dataclasses.fields(cls)]
        return validate(cls, {name: payload[name] for name in names if name in payload})


@dataclass(eq=False)
class TrainState:
    """Networks, optimizers, counters and position of a run.

    `train_step` updates it; `to_payload` is the content of a state file.
    """

    config: TrainConfig
    generator: Generator
    discriminator: Discriminator
    generator_ema: Generator
    g_optimizer: Adam
    d_optimizer: Adam
    g_scaler: torch.amp.GradScaler
    d_scaler: torch.amp.GradScaler
    strength: AugmentStrength  # of the augmentation
    # int64 (2, 2) on the device: updates of (G, D) skipped because a gradient was not finite, in
    # row 0 since the start, in row 1 consecutively up to now
    skips: Tensor
    position: SchedulePosition = field(default_factory=SchedulePosition)
    growth: tuple[int, bool] | None = None  # of the last step; a change clears the optimizers
    # measurements with their images_seen, since `best_by` decides which generator is best
    scores: list[dict[str, float]] = field(default_factory=list)
    best_by: str = ""
    lineage: Lineage = ()  # origin of the initial weights
    stage_networks: StageNetworks | None = None  # not saved; None until the stage's first step

    @classmethod
    def create(
        cls,
        config: TrainConfig,
        generator: Generator | None = None,
        discriminator: Discriminator | None = None,
        device: torch.device | str = "cpu",
    ) -> "TrainState":
        """The state before the first image; networks, unless given, are drawn on the CPU."""
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.default_generator.manual_seed(config.seed)  # does not touch those of GPUs
            generator = (generator or make_generator(config.network)).to(device)
            discriminator = (discriminator or make_discriminator(config.network)).to(device)
        for network in (generator.synthesis, discriminator):
            network.checkpoint_activations = config.checkpoint_activations

        average = copy.deepcopy(generator).requires_grad_(False).eval()
        adam = partial(Adam, betas=(config.adam_beta1, config.adam_beta2), eps=config.adam_eps)
        scaler = partial(
            torch.amp.GradScaler, torch.device(device).type, enabled=config.precision == "fp16"
        )
        return cls(
            config=config,
            generator=generator,
            discriminator=discriminator,
            generator_ema=average,
            g_optimizer=adam(generator.parameters()),
            d_optimizer=adam(discriminator.parameters()),
            g_scaler=scaler(),
            d_scaler=scaler(),
            strength=AugmentStrength(config.augment, config.augment.initial_probability),
            skips=torch.zeros(2, 2, dtype=torch.int64, device=device),
        )

    @property
    def device(self) -> torch.device:
        return self.generator.w_avg.device

    @property
    def images_seen(self) -> int:
        return self.position.images_seen

    @property
    def stage(self) -> Stage:
        return self.position.stage(self.config.schedule)

    @property
    def finished(self) -> bool:
        return self.position.finished(self.config.schedule)

    def count_update(self, network: Literal["g", "d"], made: Tensor) -> None:
        """Count an update as made or skipped; `made`, bool (), stays on its device."""
        counts = self.skips[:, ("g", "d").index(network)]
        counts += ~made
        counts[1] *= ~made

    def skipped(self) -> dict[str, int]:
        """`skips` by the names in SKIPS. Waits for the device."""
        return dict(zip(SKIPS, self.skips.flatten().tolist(), strict=True))

    def to_payload(self) -> Payload:
        """Tensors and plain Python; `restore` is the inverse."""
        return {
            "config": configuration.to_dict(self.config),
            **{name: getattr(self, name).state_dict() for name in (*NETWORKS, *OPTIMIZATION)},
            "growth": self.growth,
            "strength": self.strength.to_plain(),
            "scores": [dict(scores) for scores in self.scores],
            "best_by": self.best_by,
            "lineage": to_dicts(self.lineage),
            **dataclasses.asdict(self.position),
            **self.skipped(),
        }

    def restore(self, payload: Payload) -> None:
        """Restore what `to_payload` saved.

        Raises an error of any type if the payload does not fit this configuration or is not finite;
        this state is unusable then.
        """
        counters = Counters.of(payload)
        for name in NETWORKS:
            network = getattr(self, name)
            network.load_state_dict(
                checkpoint.match_state_dict(network.state_dict(), payload[name])
            )
        for name in OPTIMIZATION:
            getattr(self, name).load_state_dict(payload[name])
        self.stage_networks = None
        self.growth = counters.growth
        self.strength = AugmentStrength(self.config.augment, **vars(counters.strength))
        self.scores = counters.scores
        self.best_by = counters.best_by
        self.lineage = counters.lineage
        self.position = SchedulePosition(
            counters.images_seen, counters.schedule_images, counters.repeats_left
        )
        skips = [getattr(counters, name) for name in SKIPS]
        self.skips.copy_(torch.tensor(skips).view(2, 2))
