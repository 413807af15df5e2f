"""When training cannot go on: what is wrong, and what helps."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch.distributed import DistError

from stylegan import distributed
from stylegan.memory import is_out_of_memory
from stylegan.messages import count
from stylegan.schedule import Stage
from stylegan.training.progress import TrainingProgress
from stylegan.training.state import TrainState

SATURATED_LOGIT = 10.0  # docs/diagnostics.md has the measurements
SATURATED_UPDATES = 500  # at least, whatever `max_saturated_kimg` is
DOUBTFUL_SKIPS = 3  # in a row; fp16 skips one now and then to find its scale
OVERFITTED_SIGNS = 0.9  # r_t; docs/diagnostics.md has the measurements
WINDOW_IMAGES = 10_000  # the least to average r_t over
WINDOW_PASSES = 20  # or so many times all images
LEAKING_PROBABILITY = 0.8  # of the augmentation: from there on it leaks into the samples
ADVICE = (
    "start another run with a larger r1_gamma, smaller learning rates (schedule.g_lr, "
    "schedule.d_lr) or precision fp32, from a state whose samples were still good (--init-from); "
    "see docs/diagnostics.md"
)
LOST = ("connection closed by peer", "connection reset by peer", "gloo", "nccl")


class Diverged(ValueError):
    """Training has broken down and was stopped before it spoiled what was saved."""

    exit_code = 3


class LostContact(ConnectionError):
    """Another process is gone or stuck; all end, and the same command continues."""

    exit_code = 4


@dataclass
class Health:
    """Watches for skipped updates, saturated logits and an overfitted discriminator."""

    state: TrainState
    num_images: int = 0  # different ones
    saturated_images: int = 0  # length of the stretch that lasts until now
    first: bool = True  # window at full resolution
    images: int = 0  # of the present window
    signs: float = 0.0  # their r_t, summed
    said: bool = False  # that it looks overfitted

    @property
    def in_doubt(self) -> bool:
        """Whether something seems wrong at the moment, so that no checkpoint should be written."""
        return max(self.skipped_in_a_row().values()) >= DOUBTFUL_SKIPS or self.saturated_images > 0

    def skipped_in_a_row(self) -> dict[str, int]:
        """The number of updates skipped until now, by network; the host waits for the device."""
        counts = self.state.skipped()
        names = {"generator": "skipped_in_a_row_g", "discriminator": "skipped_in_a_row_d"}
        return {network: counts[name] for network, name in names.items()}

    def check_updates(self) -> None:
        """Diverged if too many updates in a row were skipped."""
        for network, skipped in self.skipped_in_a_row().items():
            if skipped >= self.state.config.max_skipped:
                raise Diverged(
                    f"the gradients of the {network} were not finite in {skipped} updates in a row "
                    f"(max_skipped), at image {self.state.images_seen}; {ADVICE}"
                )

    def check_logits(self, progress: TrainingProgress) -> None:
        """Diverged if both logits have been saturated for `max_saturated_kimg`; only for the
        logistic loss, as the logits of the others are not log-odds."""
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

    def overfitting(self, progress: TrainingProgress) -> str | None:
        """What to tell, once, if it looks overfitted: by the mean sign of the reals' logits, r_t of
        Karras et al. 2020 (arXiv 2006.06676), section 3.1, averaged over windows. The first at full
        resolution does not count: logits are large after growth."""
        stage = progress.stage
        config = self.state.config
        metrics = progress.metrics
        if (stage.resolution, stage.alpha) != (config.network.resolution, 1):
            self.first = True
            self.images = 0
            self.signs = 0.0
            return None
        self.images += progress.images
        self.signs += metrics["d/real_signs"] * progress.images
        if self.said or self.images < max(WINDOW_IMAGES, WINDOW_PASSES * self.num_images):
            return None
        signs = self.signs / self.images
        images = self.images
        first = self.first
        self.first = False
        self.images = 0
        self.signs = 0.0
        # logits of the WGAN losses have no zero between reals and fakes, nor perhaps a user's
        comparable = config.discriminator_loss.startswith(("logistic", "hinge"))
        rising = config.augment.adaptive and metrics["augment/probability"] < LEAKING_PROBABILITY
        self.said = signs >= OVERFITTED_SIGNS and comparable and not (first or rising)
        if not self.said:
            return None
        return (
            f"the discriminator looks overfitted at image {progress.images_seen}: r_t was "
            f"{signs:.2f} over the last {images} images, of {self.num_images} different ones; stop "
            "and keep the best generator (--metrics finds it), or train another run with more "
            "images or augmentation (augment.kind); see docs/diagnostics.md"
        )


@contextmanager
def explained(state: TrainState, stage: Stage | None = None) -> Iterator[None]:
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
