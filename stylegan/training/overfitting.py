"""Whether the discriminator learns its images by heart: Karras et al. 2020 ("Training Generative
Adversarial Networks with Limited Data"), section 3.1.

r_t, the mean sign of the logits of reals, is `d/real_signs` of every line of the log; r_v is
`d/validation_gap`, where images are held out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import torch

from stylegan import augment
from stylegan.config import TrainConfig
from stylegan.schedule import Stage
from stylegan.training.feed import Feed
from stylegan.training.parallel import GeneratorPass
from stylegan.training.state import TrainState
from stylegan.training.step import Metrics, micro_batches
from stylegan.training.terms import autocast, forward

SIGNS, GAP, PROBABILITY = "d/real_signs", "d/validation_gap", "augment/probability"
TRAINING, VALIDATION, GENERATED = KINDS = tuple(
    f"d/{name}_logits" for name in ("training", "validation", "generated")
)
LEAST_IMAGES = 64  # of each kind, for a value of r_v


@torch.no_grad()
def validation_metrics(state: TrainState, feed: Feed, stage: Stage) -> Metrics:
    """Mean logits of images that are trained on, of images that are not, and of generated ones, all
    transformed as those of a step; nothing if no images are held out.

    All are of one moment: from step to step the logits of all images move together, so far that an
    average over steps cannot be compared with them.
    """
    if not len(feed.held_out):
        return {}
    config, size = state.config, stage.batch_size
    generate = GeneratorPass(state.generator)
    found: dict[str, list[torch.Tensor]] = {name: [] for name in KINDS}
    positions = [state.images_seen + i * size for i in range(-(-LEAST_IMAGES // size))]
    for position in positions:
        draws = feed.draws(position, stage)
        real, fake = draws.real_transform, draws.discriminator.transform
        reals = [feed.look(among, position, stage) for among in (feed.training, feed.held_out)]
        for micro in micro_batches(len(draws.discriminator.latents), config.batch_gpu):
            take = itemgetter(micro.rows)
            (training, labels), (validation, other_labels) = (
                (take(images), None if labels is None else take(labels)) for images, labels in reals
            )
            with autocast(config, state.device):
                fakes, _ = generate(draws.discriminator.part(micro.rows), labels, stage)
            for name, images, classes, transform in (
                (TRAINING, training, labels, real),
                (VALIDATION, validation, other_labels, real),
                (GENERATED, fakes, labels, fake),
            ):
                transform = augment.part(transform, micro.rows)
                logits, _ = forward(
                    config, state.discriminator, images, classes, stage, False, transform
                )
                found[name].append(logits.mean() * micro.weight)
    return {name: torch.stack(means).sum() / len(positions) for name, means in found.items()}


def validation_gap(metrics: Mapping[str, float]) -> dict[str, float]:
    """r_v: how far images that are not trained on have moved from those that are (0) to generated
    ones (1), by their logits; equation 1."""
    if VALIDATION not in metrics:
        return {}
    training, validation, generated = (metrics[name] for name in KINDS)
    if training == generated:
        return {}
    return {GAP: (training - validation) / (training - generated)}


# When the run says that it looks overfitted; docs/diagnostics.md has the measurements
LARGEST_SIGNS = 0.9  # r_t, without images held out
LARGEST_GAP = 0.15  # r_v, with them
SATURATED_PROBABILITY = 0.8  # of the augmentation: from there on it leaks into the samples
PASSES, LEAST_WINDOW = 20, 10_000  # over the images, and images, over which it is averaged


@dataclass
class Overfitting:
    """Decides from the lines of the log, once in a run, that the discriminator looks overfitted.

    They are averaged over a window, the first of which after growth is left out: logits are large
    at a new resolution.
    """

    config: TrainConfig
    num_images: int  # trained on
    rows: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)  # images seen, values
    grown_at: int | None = None  # images seen; None: growing
    said: bool = False

    @property
    def window(self) -> int:
        """Its length in images."""
        return max(PASSES * self.num_images, LEAST_WINDOW)

    def replay(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take in the log of the run so far."""
        for event in events:
            seen, kind = event.get("images_seen"), event["event"]
            if not isinstance(seen, int):
                continue
            if kind in ("start", "resume"):
                self.forget_after(seen)
            elif kind == "progress":
                self.add(seen, event)
            self.said |= kind == "overfitted"

    def forget_after(self, images_seen: int) -> None:
        """What a run that was killed had done beyond its last state is done again."""
        self.rows = [row for row in self.rows if row[0] <= images_seen]
        if self.grown_at is not None and self.grown_at > images_seen:
            self.grown_at = None

    def add(self, images_seen: int, values: Mapping[str, Any]) -> None:
        """One line of the log."""
        resolution = self.config.network.resolution
        growth = values.get("schedule/resolution"), values.get("schedule/alpha")
        if growth != (resolution, 1):
            self.grown_at, self.rows = None, []
            return
        if self.grown_at is None:
            self.grown_at = images_seen
        oldest = images_seen - self.window
        self.rows = [row for row in self.rows if row[0] > oldest]
        self.rows.append((images_seen, values))

    def means(self) -> dict[str, float]:
        """Over the window, of what there is."""
        found: dict[str, float] = {}
        for name in (SIGNS, PROBABILITY, *KINDS):
            values = [row[name] for _, row in self.rows if isinstance(row.get(name), int | float)]
            if values:
                found[name] = sum(values) / len(values)
        return found

    def message(self) -> str | None:
        """What to tell, when it is time, once."""
        if self.said or self.grown_at is None:
            return None
        images_seen = self.rows[-1][0]
        if images_seen - self.grown_at < 2 * self.window:
            return None
        means, augment = self.means(), self.config.augment
        signs, gap = means.get(SIGNS, 0.0), validation_gap(means).get(GAP, 0.0)
        saturated = means.get(PROBABILITY, 0.0) >= SATURATED_PROBABILITY
        # logits of the WGAN losses have no zero between reals and fakes, nor perhaps a user's
        comparable = self.config.discriminator_loss.startswith(("logistic", "hinge"))
        rising = augment.adaptive and not saturated  # the augmentation is about to correct r_t
        if VALIDATION in means:  # what r_t stands for, and tells apart from a weak generator
            overfitted = gap >= LARGEST_GAP
        else:
            overfitted = signs >= LARGEST_SIGNS and comparable and not rising
        if not overfitted:
            return None
        found = [f"r_t is {signs:.2f} (it recognises {50 + 50 * signs:.0f} % of them)"]
        if VALIDATION in means:
            found.append(f"r_v {gap:.2f} (0: held-out images are to it as these, 1: as generated)")
        else:
            found[0] += "; data.holdout would tell for certain"
        if augment.kind == "none":
            advice = "train another run with augmentation (augment.kind), or with more images"
        elif rising:
            advice = f"train another run with a smaller augment.target than {augment.target:g}"
        else:
            advice = "train another run with more images, or with smaller learning rates"
        self.said = True
        return (
            f"the discriminator looks overfitted at image {images_seen}: over the last "
            f"{self.window} images, of {self.num_images} different ones, {' and '.join(found)}; "
            f"{advice}; or stop, and keep the best generator (--metrics finds it) instead of the "
            "last; see docs/diagnostics.md"
        )
