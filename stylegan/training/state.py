"""All of a training run that must survive a restart."""

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from stylegan import config as configuration
from stylegan.augment import Strength
from stylegan.config import TrainConfig
from stylegan.files import checkpoint
from stylegan.lineage import Lineage, from_plain, to_plain
from stylegan.networks import Discriminator, Generator, make_discriminator, make_generator
from stylegan.schedule import Position, Stage
from stylegan.training.optimizer import Adam, host_decides
from stylegan.training.parallel import StageNetworks

NETWORKS = checkpoint.NETWORKS["state"]
OPTIMIZATION = ("g_optimizer", "d_optimizer", "g_scaler", "d_scaler")
COUNTERS = ("skipped_g", "skipped_d", "skipped_in_a_row_g", "skipped_in_a_row_d")


@dataclass(eq=False)
class TrainState:
    """Networks, optimizers, counters and position of a run; `to_payload` says what a state file
    holds, `train_step` moves it."""

    config: TrainConfig
    generator: Generator
    discriminator: Discriminator
    generator_ema: Generator
    g_optimizer: Adam
    d_optimizer: Adam
    g_scaler: torch.amp.GradScaler
    d_scaler: torch.amp.GradScaler
    position: Position = field(default_factory=Position)
    growth: tuple[int, bool] | None = None  # the last stage's: a new one clears the optimizers
    strength: Strength = field(default_factory=Strength)  # of the augmentation
    skipped_g: int = 0  # updates left out because a gradient was not finite
    skipped_d: int = 0
    skipped_in_a_row_g: int = 0
    skipped_in_a_row_d: int = 0
    scores: list[dict[str, float]] = field(default_factory=list)  # of metrics, with images_seen
    data: str = ""  # identity of the images, as the first state says; the recorder saves it
    lineage: Lineage = ()  # where the weights that it began with came from
    # not saved: calls that wait for numbers of the device
    pending: list[tuple[Tensor, Callable[[float], None]]] = field(default_factory=list)
    stage_networks: StageNetworks | None = None  # not saved; None: to be made for the stage

    @classmethod
    def create(
        cls,
        config: TrainConfig,
        generator: Generator | None = None,
        discriminator: Discriminator | None = None,
        device: torch.device | str = "cpu",
    ) -> "TrainState":
        """The state before the first image; networks are drawn from the seed unless given."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            generator = (generator or make_generator(config.network)).to(device)
            discriminator = (discriminator or make_discriminator(config.network)).to(device)
        for network in (generator.synthesis, discriminator):
            network.recompute_blocks = config.checkpoint_activations

        average = copy.deepcopy(generator).requires_grad_(False).eval()
        networks = (generator, discriminator)
        betas, eps = (config.adam_beta1, config.adam_beta2), config.adam_eps
        g_adam, d_adam = (Adam(each.parameters(), betas=betas, eps=eps) for each in networks)
        kind, scaled = torch.device(device).type, config.precision == "fp16"
        g_scaler, d_scaler = (torch.amp.GradScaler(kind, enabled=scaled) for _ in networks)
        moved = (*networks, average, g_adam, d_adam, g_scaler, d_scaler)
        return cls(config, *moved, strength=Strength(config.augment.first))

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

    def when_known(self, number: Tensor, then: Callable[[float], None]) -> None:
        """Call `then` with the value of `number`: on a GPU at the next `settle`, else at once."""
        if host_decides(self.device):
            then(number.item())
        else:
            self.pending.append((number.double(), then))

    def settle(self) -> None:
        """Make the calls whose numbers are pending; the host waits once for all of them."""
        if not self.pending:
            return
        numbers, calls = zip(*self.pending, strict=True)
        self.pending.clear()
        for number, then in zip(torch.stack(numbers).tolist(), calls, strict=True):
            then(number)

    def count_update(self, network: str, made: float) -> None:
        """Count an update of the network "g" or "d"; `made` is 0 if it was skipped."""
        skipped, optimizer = not made, getattr(self, f"{network}_optimizer")
        if skipped and not host_decides(self.device):
            optimizer.uncount()
        in_a_row = getattr(self, f"skipped_in_a_row_{network}")
        setattr(self, f"skipped_in_a_row_{network}", in_a_row + 1 if skipped else 0)
        setattr(self, f"skipped_{network}", getattr(self, f"skipped_{network}") + skipped)

    def to_payload(self) -> dict[str, Any]:
        """Plain tensors and plain Python; `restore` is the inverse."""
        self.settle()
        return {
            "config": configuration.to_dict(self.config),
            **{name: getattr(self, name).state_dict() for name in (*NETWORKS, *OPTIMIZATION)},
            "growth": self.growth,
            "strength": dataclasses.asdict(self.strength),
            "scores": [dict(scores) for scores in self.scores],
            "lineage": to_plain(self.lineage),
            **dataclasses.asdict(self.position),
            **{name: getattr(self, name) for name in COUNTERS},
        }

    def restore(self, payload: dict[str, Any]) -> None:
        """Continue where `payload` was saved."""
        self.pending.clear()
        for name in NETWORKS:
            network = getattr(self, name)
            network.load_state_dict(checkpoint.fitting(network.state_dict(), payload[name]))
        for name in OPTIMIZATION:
            getattr(self, name).load_state_dict(payload[name])
        growth = payload["growth"]
        self.growth = None if growth is None else (growth[0], growth[1])
        self.stage_networks = None
        if "strength" in payload:  # files of before have none, and no augmentation
            self.strength = Strength(**payload["strength"])
        self.scores = [dict(scores) for scores in payload["scores"]]
        self.lineage = from_plain(payload.get("lineage", ()))
        self.position = Position(**{f.name: payload[f.name] for f in dataclasses.fields(Position)})
        for name in COUNTERS:
            setattr(self, name, payload[name])
