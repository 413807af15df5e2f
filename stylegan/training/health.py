"""When training cannot go on: what is wrong, and what helps."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch.distributed import DistError

from stylegan.machine import distributed
from stylegan.machine.memory import is_out_of_memory
from stylegan.machine.messages import count
from stylegan.schedule import Stage
from stylegan.training.progress import TrainingProgress
from stylegan.training.state import TrainState

SATURATED_LOGIT = 10.0  # docs/running.md has the measurements
SATURATED_UPDATES = 500  # at least, whatever `max_saturated_kimg` is
DOUBTFUL_SKIPS = 3  # in a row; fp16 skips one now and then to find its scale
OVERFITTED_SIGNS = 0.9  # r_t; docs/running.md has the measurements
WINDOW_IMAGES = 10_000  # the least to average r_t over
WINDOW_PASSES = 20  # or so many times all images
BLIND_GAP = 0.3  # between the logits of reals and fakes; docs/running.md has the measurements
BLIND_IMAGES = 5_000  # to average it over
LEAKING_PROBABILITY = 0.8  # of the augmentation: from there on it leaks into the samples
ADVICE = (
    "start another run with a larger r1_gamma, smaller learning rates (schedule.g_lr, "
    "schedule.d_lr) or precision fp32, from a state whose samples were still good (--init-from); "
    "`stylegan configs quickstart` explains these options"
)
LOST = ("connection closed by peer", "connection reset by peer", "gloo", "nccl")


class Diverged(ValueError):
    """Training has broken down and was stopped before it spoiled what was saved."""

    exit_code = 3


class LostContact(ConnectionError):
    """Another process is gone or stuck; all end, and the same command continues."""

    exit_code = 4


@dataclass
class Window:
    """Averages a number over stretches of images at full resolution. The first stretch does not
    count: logits are large after growth."""

    images: int = 0  # of the present stretch
    total: float = 0.0  # of the number, for each of them
    first: bool = True

    def average(self, value: float, images: int, least: int) -> tuple[float, int] | None:
        """Return (average, images) of the finished window; None until it holds `least` images."""
        self.images += images
        self.total += value * images
        if self.images < least:
            return None
        average = None if self.first else (self.total / self.images, self.images)
        self.images, self.total, self.first = 0, 0.0, False
        return average


@dataclass
class Health:
    """Watches for skipped updates, saturated logits, an overfitted or a blind discriminator."""

    state: TrainState
    num_images: int = 0  # different ones
    saturated_images: int = 0  # length of the stretch that lasts until now
    signs: Window = field(default_factory=Window)  # r_t
    gaps: Window = field(default_factory=Window)  # between the mean logits of reals and fakes
    said: set[str] = field(default_factory=set)

    @property
    def in_doubt(self) -> bool:
        """True if something seems wrong at the moment, so that no checkpoint should be written."""
        return max(self.skipped_in_a_row().values()) >= DOUBTFUL_SKIPS or self.saturated_images > 0

    def skipped_in_a_row(self) -> dict[str, int]:
        """Return the updates skipped until now, by network; the host waits for the device."""
        counts = self.state.skipped()
        names = {"generator": "skipped_in_a_row_g", "discriminator": "skipped_in_a_row_d"}
        return {network: counts[name] for network, name in names.items()}

    def check_updates(self) -> None:
        """Raise Diverged if too many updates in a row were skipped."""
        for network, skipped in self.skipped_in_a_row().items():
            if skipped >= self.state.config.max_skipped:
                raise Diverged(
                    f"the gradients of the {network} were not finite in {skipped} updates in a row "
                    f"(max_skipped), at image {self.state.images_seen}; {ADVICE}"
                )

    def check_logits(self, progress: TrainingProgress) -> None:
        """Raise Diverged if both logits have been saturated for `max_saturated_kimg`. Only those of
        the logistic loss are log-odds."""
        limit = round(self.state.config.max_saturated_kimg * 1000)
        if self.state.config.discriminator_loss != "logistic" or not limit:
            return
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
        """Return new warnings, each once, by the name of its line in the log."""
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
        """Warn if the discriminator looks overfitted: by the mean sign of the reals' logits, r_t of
        Karras et al. 2020 (arXiv 2006.06676), section 3.1."""
        config = self.state.config
        metrics = progress.metrics
        least = max(WINDOW_IMAGES, WINDOW_PASSES * self.num_images)
        window = self.signs.average(metrics["d/real_signs"], progress.images, least)
        # logits of the WGAN losses have no zero between reals and fakes, nor perhaps a user's
        comparable = config.discriminator_loss in ("logistic", "hinge", "hinge_gp")
        rising = config.augment.adaptive and metrics["augment/probability"] < LEAKING_PROBABILITY
        if window is None or window[0] < OVERFITTED_SIGNS or not comparable or rising:
            return None
        signs, images = window
        return (
            f"the discriminator looks overfitted at image {progress.images_seen}: r_t was "
            f"{signs:.2f} over the last {images} images, of {self.num_images} different ones; stop "
            "and keep the best generator (--metrics finds it), or train another run with more "
            "images or augmentation (augment.kind)"
        )

    def blindness(self, progress: TrainingProgress) -> str | None:
        """Warn if the discriminator hardly tells reals from fakes: by the mean of their logits,
        which are log-odds with the logistic loss only."""
        real, fake = (progress.metrics[f"d/{name}_logits"] for name in ("real", "fake"))
        window = self.gaps.average(real - fake, progress.images, BLIND_IMAGES)
        logistic = self.state.config.discriminator_loss == "logistic"
        if window is None or window[0] > BLIND_GAP or not logistic:
            return None
        gap, images = window
        return (
            f"the discriminator hardly tells samples from images at image {progress.images_seen}: "
            f"their mean logits differed by {gap:.2f} over the last {images} images; where samples "
            "are not good yet, train another run with a smaller r1_gamma, or without augmentation"
        )


@contextmanager
def runtime_errors_explained(state: TrainState, stage: Stage | None = None) -> Iterator[None]:
    """Turn out of memory into a ValueError, and a failed collective into LostContact; both say
    where (`stage`, else the state's) and what to do."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).strip().split("\n")[0]
        processes = distributed.world_size()
        if is_out_of_memory(error):
            stage = stage or state.stage
            own_images = stage.batch_size // processes
            at_once = min(state.config.batch_gpu or own_images, own_images)
            raise ValueError(
                f"out of memory at resolution {stage.resolution}, batch {stage.batch_size} on "
                f"{count(processes, 'process')}, {at_once} images at once; "
                "try a smaller --batch-gpu, -o checkpoint_activations=true, --precision "
                f"bf16 or, in a new run, a smaller schedule.batch_size ({text})"
            ) from error
        lost = isinstance(error, DistError) or any(sign in str(error).lower() for sign in LOST)
        if processes > 1 and lost:
            raise LostContact(
                f"process {distributed.rank()} of {processes} has lost contact with another, at "
                f"image {state.images_seen}; the same command continues "
                f"({text.partition('. ')[0]})"
            ) from error
        raise
