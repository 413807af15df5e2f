"""Detection of failed training, with advice on what helps."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch.distributed import DistError

from stylegan.losses import DISCRIMINATOR_LOSSES, DiscriminatorLoss
from stylegan.schedule import Stage
from stylegan.training.progress import TrainingProgress
from stylegan.training.state import TrainState
from stylegan.utils import distributed
from stylegan.utils.memory import is_out_of_memory
from stylegan.utils.text import pluralize

SATURATED_LOGIT = 10.0  # docs/running.md has the measurements
SATURATED_UPDATES = 500  # lower limit, whatever `max_saturated_kimg` is
DOUBTFUL_SKIPS = 3  # in a row; fp16 occasionally skips one to find its scale
OVERFITTED_SIGNS = 0.9  # r_t; docs/running.md has the measurements
WINDOW_IMAGES = 10_000  # least number to average r_t over
WINDOW_PASSES = 20  # least number of epochs to average r_t over
BLIND_GAP = 0.3  # between mean logits of reals and fakes; docs/running.md has the measurements
BLIND_IMAGES = 5_000  # least number to average the gap over
LEAKING_PROBABILITY = 0.8  # above it, augmentations leak into the samples
ADVICE = (
    "start another run with a larger r1_gamma, smaller learning rates (schedule.g_lr, "
    "schedule.d_lr) or precision fp32, from a state whose samples were still good (--init-from); "
    "`stylegan configs quickstart` explains these options"
)
LOST = ("connection closed by peer", "connection reset by peer", "gloo", "nccl")


class Diverged(ValueError):
    """Training has diverged and was stopped before it overwrote good states."""

    exit_code = 3


class ProcessLostError(ConnectionError):
    """Another process is gone or stuck; all exit, and the same command continues."""

    exit_code = 4


@dataclass
class Window:
    """Running averages over windows of images at full resolution.

    The first window is dropped, since logits are large right after growth.
    """

    images: int = 0  # in the current window
    total: float = 0.0  # sum of the values over its images
    first: bool = True

    def update(self, value: float, images: int, least: int) -> tuple[float, int] | None:
        """Add a value; once `least` images are in, restart and return (average, images).

        Returns None before that, and for the first window.
        """
        self.images += images
        self.total += value * images
        if self.images < least:
            return None
        average = None if self.first else (self.total / self.images, self.images)
        self.images, self.total, self.first = 0, 0.0, False
        return average


@dataclass
class Health:
    """Detects skipped updates, saturated logits, an overfitted or a blind discriminator."""

    state: TrainState
    num_images: int = 0  # of the data set
    saturated_images: int = 0  # number seen since logits became saturated
    signs: Window = field(default_factory=Window)  # r_t
    gaps: Window = field(default_factory=Window)  # between mean logits of reals and fakes
    said: set[str] = field(default_factory=set)  # names of the warnings given

    @property
    def in_doubt(self) -> bool:
        """Whether updates are being skipped or logits are saturated: no state should be saved."""
        in_a_row = self.state.skips[1].max()  # waits for the device
        return int(in_a_row) >= DOUBTFUL_SKIPS or self.saturated_images > 0

    def check_updates(self) -> None:
        """Raises Diverged if `max_skipped` consecutive updates were skipped."""
        in_a_row = self.state.skips[1].tolist()
        for network, skipped in zip(("generator", "discriminator"), in_a_row, strict=True):
            if skipped >= self.state.config.max_skipped:
                raise Diverged(
                    f"the gradients of the {network} were not finite in {skipped} consecutive "
                    f"updates (max_skipped), at image {self.state.images_seen}; {ADVICE}"
                )

    def check_logits(self, progress: TrainingProgress) -> None:
        """Raises Diverged if both logits have been saturated for `max_saturated_kimg`."""
        limit = round(self.state.config.max_saturated_kimg * 1000)
        if self.state.config.discriminator_loss != "logistic" or not limit:
            return  # logits of other losses are not log-odds
        real, fake = (progress.metrics[f"d/{name}_logits"] for name in ("real", "fake"))
        saturated = real > SATURATED_LOGIT and fake < -SATURATED_LOGIT
        self.saturated_images = self.saturated_images + progress.images if saturated else 0
        if self.saturated_images >= max(limit, SATURATED_UPDATES * progress.stage.batch_size):
            raise Diverged(
                f"the discriminator has won: its logits were above {SATURATED_LOGIT:g} for reals "
                f"and below {-SATURATED_LOGIT:g} for fakes over the last {self.saturated_images} "
                f"images ({real:.0f} and {fake:.0f} now), so the generator learns nothing; {ADVICE}"
            )

    def warnings(self, progress: TrainingProgress) -> dict[str, str]:
        """New warnings, each given once, by the event in the log."""
        stage = progress.stage
        if (stage.resolution, stage.alpha) != (self.state.config.network.resolution, 1):
            self.signs = Window()
            self.gaps = Window()
            return {}
        texts = {"overfitted": self.overfitting(progress), "blind": self.blindness(progress)}
        new = {name: text for name, text in texts.items() if text and name not in self.said}
        self.said.update(new)
        return new

    def overfitting(self, progress: TrainingProgress) -> str | None:
        """A warning if D looks overfitted, by r_t, the mean sign of the logits of reals.

        Karras et al. 2020 (arXiv 2006.06676), section 3.1.
        """
        config = self.state.config
        metrics = progress.metrics
        least = max(WINDOW_IMAGES, WINDOW_PASSES * self.num_images)
        window = self.signs.update(metrics["d/real_signs"], progress.images, least)
        loss = DISCRIMINATOR_LOSSES[config.discriminator_loss]
        comparable = isinstance(loss, DiscriminatorLoss) and loss.signed
        rising = config.augment.adaptive and metrics["augment/probability"] < LEAKING_PROBABILITY
        if window is None or window[0] < OVERFITTED_SIGNS or not comparable or rising:
            return None
        signs, images = window
        return (
            f"the discriminator looks overfitted at image {progress.images_seen}: r_t was "
            f"{signs:.2f} over the last {images} images, with {self.num_images} in the data; stop "
            "and keep the best generator (--metrics finds it), or start another run with more "
            "images or augmentation (augment.kind)"
        )

    def blindness(self, progress: TrainingProgress) -> str | None:
        """A warning if D hardly separates reals from fakes, by the gap between mean logits."""
        real, fake = (progress.metrics[f"d/{name}_logits"] for name in ("real", "fake"))
        window = self.gaps.update(real - fake, progress.images, BLIND_IMAGES)
        logistic = self.state.config.discriminator_loss == "logistic"
        if window is None or window[0] > BLIND_GAP or not logistic:
            return None
        gap, images = window
        return (
            f"the discriminator hardly separates reals from fakes at image {progress.images_seen}: "
            f"their mean logits differed by {gap:.2f} over the last {images} images; if samples "
            "are not good yet, start another run with a smaller r1_gamma, or without augmentation"
        )


@contextmanager
def runtime_errors_explained(state: TrainState, stage: Stage | None = None) -> Iterator[None]:
    """Turn out-of-memory errors into ValueError, and failed collectives into ProcessLostError."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).strip().split("\n")[0]
        processes = distributed.world_size()
        if is_out_of_memory(error):
            stage = stage or state.stage
            at_once = state.config.micro_batch_size(stage.batch_size // processes)
            raise ValueError(
                f"out of memory at resolution {stage.resolution}, batch {stage.batch_size} on "
                f"{pluralize(processes, 'process')}, {at_once} images at a time; "
                "try a smaller --batch-gpu, -o checkpoint_activations=true or, in a new run, "
                f"--precision bf16 or a smaller schedule.batch_size ({text})"
            ) from error
        lost = isinstance(error, DistError) or any(sign in str(error).lower() for sign in LOST)
        if processes > 1 and lost:
            raise ProcessLostError(
                f"process {distributed.rank()} of {processes} has lost contact with another at "
                f"image {state.images_seen}; the same command continues "
                f"({text.partition('. ')[0]})"
            ) from error
        raise
