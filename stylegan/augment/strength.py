"""The probability of transforms: fixed, or adapted to the discriminator."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag
from torch import Tensor

from stylegan.utils.validation import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    Probability,
    validated,
)

from . import ada, diffaugment

PIPELINES = {"ada": ada, "diffaugment": diffaugment}
BATCHES = 4  # between updates of the probability
# The tags keep an error in a number from being reported as an error in a word.
NumberOrWord = Annotated[
    Annotated[Probability, Tag("(number)")]
    | Annotated[Literal["adaptive", "published"], Tag("(word)")],
    Discriminator(lambda value: "(word)" if isinstance(value, str) else "(number)"),
]
DEFAULTS = {"none": (), "ada": ("bgc",), "diffaugment": diffaugment.NAMES}


@validated
@dataclass(frozen=True)
class AugmentConfig:
    """Random transforms before the discriminator; the default is none, as in the paper."""

    kind: Literal["none", "diffaugment", "ada"] = "none"  # for few images
    transforms: tuple[str, ...] = ()  # names or groups; none = color, translation, cutout, or bgc
    # probability of each transform; published = 1 with diffaugment, adaptive with ada
    probability: NumberOrWord = "published"
    # r_t, the mean sign of real logits, that an adaptive strength holds
    target: Annotated[float, Field(gt=-1, lt=1)] = 0.6
    ada_kimg: PositiveFloat = 500.0  # least time for an adaptive strength from 0 to 1 [kimg]

    def __post_init__(self) -> None:
        if self.kind == "none" and (self.transforms or self.probability != "published"):
            raise ValueError(
                'transforms and probability need kind "ada" or "diffaugment", got "none"'
            )
        if self.kind != "none":
            PIPELINES[self.kind].parse_names(self.transforms)

    @property
    def names(self) -> tuple[str, ...]:
        return self.transforms or DEFAULTS[self.kind]

    @property
    def adaptive(self) -> bool:
        """Whether the probability is adapted to the discriminator."""
        return self.probability == "adaptive" or (
            self.probability == "published" and self.kind == "ada"
        )

    @property
    def initial_probability(self) -> float:
        """The probability at the start."""
        if self.kind == "none" or self.adaptive:
            return 0.0
        return 1.0 if isinstance(self.probability, str) else float(self.probability)


@dataclass(frozen=True)
class StrengthValues:
    """An `AugmentStrength` as stored in a file."""

    probability: NonNegativeFloat
    signs: float
    images: NonNegativeInt
    batches: NonNegativeInt


@dataclass(eq=False)
class AugmentStrength:
    """The probability of each transform, which may be adapted to the mean sign of D(real)."""

    config: AugmentConfig
    probability: float  # of the next batch
    signs: Tensor | float = 0.0  # of D(real), summed over the images since the last change
    images: int = 0  # since the last change
    batches: int = 0  # since the last change

    def observe(self, mean_sign: Tensor, batch_size: int) -> None:
        """Accumulate the mean sign of D(real) of a batch, without a device sync."""
        self.signs = self.signs + mean_sign * batch_size
        self.images += batch_size
        self.batches += 1

    def adapt(self) -> None:
        """Every fourth step, move the probability up or down, as r_t is above or below `target`.

        Only then is the device read. Karras et al. 2020, section 3.2.
        """
        if self.batches < BATCHES:
            return
        excess = float(self.signs) / self.images - self.config.target
        direction = (excess > 0) - (excess < 0)
        moved = self.images / (1000 * self.config.ada_kimg)
        self.probability = max(self.probability + direction * moved, 0.0)
        self.signs = 0.0
        self.images = 0
        self.batches = 0

    def to_plain(self) -> dict[str, float]:
        """The arguments after `config`, as plain values."""
        return vars(StrengthValues(self.probability, float(self.signs), self.images, self.batches))
