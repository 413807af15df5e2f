"""Whether the discriminator learns its images by heart: Karras et al. 2020 ("Training Generative
Adversarial Networks with Limited Data"), section 3.1.

r_t, the mean sign of the logits of reals, is `d/real_signs` of every line of the log.
"""

from collections.abc import Mapping

import torch

from stylegan import augment
from stylegan.schedule import Stage
from stylegan.training.draws import draw_transforms
from stylegan.training.feed import Feed
from stylegan.training.state import TrainState
from stylegan.training.step import Metrics
from stylegan.training.terms import forward

VALIDATION = "d/validation_logits"


@torch.no_grad()
def validation_metrics(state: TrainState, feed: Feed, stage: Stage) -> Metrics:
    """The mean logit of one batch of images that are not trained on, transformed as the reals of
    a step would be; nothing if there are none."""
    if not len(feed.held_out):
        return {}
    images, labels = feed.validation(state.images_seen, stage)
    probability = state.strength.probability
    of_reals, *_ = draw_transforms(state.config, state.images_seen, stage, probability)
    transform = augment.mapped(of_reals, feed.share.floats)
    logits, _ = forward(state.config, state.discriminator, images, labels, stage, False, transform)
    return {VALIDATION: logits.mean()}


def validation_gap(metrics: Mapping[str, float]) -> dict[str, float]:
    """r_v: how far images that are not trained on have moved from reals (0) to fakes (1), by their
    logits; equation 1."""
    if VALIDATION not in metrics:
        return {}
    real, fake = metrics["d/real_logits"], metrics["d/fake_logits"]
    if real == fake:
        return {}
    return {"d/validation_gap": (real - metrics[VALIDATION]) / (real - fake)}
