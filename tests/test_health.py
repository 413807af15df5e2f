"""When training cannot go on, or should not: what is noticed, and what is said."""

import re

import pytest
import torch
from helpers.tiny_training import stage, tiny_config
from torch.distributed import DistBackendError

from stylegan.losses import DISCRIMINATOR_LOSSES, PairLoss, relativistic
from stylegan.training import Diverged, TrainingProgress, TrainState
from stylegan.training.health import (
    BLIND_GAP,
    BLIND_IMAGES,
    OVERFITTED_SIGNS,
    SATURATED_LOGIT,
    WINDOW_IMAGES,
    Health,
    ProcessLostError,
    runtime_errors_explained,
)
from stylegan.utils import distributed

GROWN = stage(16, 1.0)


def progress(images, now=GROWN, **metrics):
    """What a line of the log would say after `images` more."""
    return TrainingProgress(
        images_seen=123,
        total_images=0,
        stage=now,
        metrics={f"d/{name}": value for name, value in metrics.items()},
        images=images,
        images_per_second=1.0,
        data_wait=0.0,
        skipped_updates=0,
        config=tiny_config(),
    )


def test_check_logits_ends_a_run_after_long_saturation():
    health = Health(TrainState.create(tiny_config()))
    far = 2 * SATURATED_LOGIT
    half = 2000  # images, of max_saturated_kimg
    for _ in range(3):
        health.check_logits(progress(half, real_logits=far, fake_logits=-far))
        assert health.in_doubt
        health.check_logits(progress(half, real_logits=far, fake_logits=0.0))  # it is back
        assert not health.in_doubt
    health.check_logits(progress(half, real_logits=far, fake_logits=-far))
    with pytest.raises(Diverged, match="the discriminator has won"):
        health.check_logits(progress(half, real_logits=far, fake_logits=-far))


def told(windows, *, num_images=14, window=WINDOW_IMAGES, **options):
    """What is said after each half of these windows of stages and metrics, by its name."""
    health = Health(TrainState.create(tiny_config(**options)), num_images)
    usual = {"real_logits": 1.0, "fake_logits": -1.0, "real_signs": 0.0}
    said = []
    for now, metrics in windows:
        for _ in range(2):
            line = progress(window // 2, now, **usual | metrics)
            line.metrics["augment/probability"] = 0.5
            said.append(health.warnings(line))
    return said


GROWS = stage(16, 0.9)
HIGH, LOW = ({"real_signs": OVERFITTED_SIGNS + change} for change in (0.01, -0.01))
BLIND = {"real_logits": 0.03, "fake_logits": -0.02}
OF_BLIND = {"window": BLIND_IMAGES}
ADA = {"kind": "ada"}  # whose strength rises yet, unless it is fixed
FIRST_WHOLE = 3  # half of the second window, the first that is not also the first at its size
SAID = [  # windows, options, and what is said once, after which half
    ([(GROWN, HIGH)] * 4, {}, {"overfitted": FIRST_WHOLE}),
    ([(GROWN, HIGH)] * 2, {"augment": ADA | {"probability": 0.5}}, {"overfitted": FIRST_WHOLE}),
    ([(GROWN, LOW)] * 4, {}, {}),
    ([(GROWS, HIGH)] * 4, {}, {}),
    ([(stage(8, 1.0), HIGH)] * 4, {}, {}),  # still grows
    ([(GROWN, HIGH), (GROWS, HIGH), (GROWN, HIGH)], {}, {}),  # each is the first
    ([(GROWN, HIGH)] * 2, {"num_images": 501}, {}),  # 20 times all of them is another window
    ([(GROWN, HIGH)] * 4, {"discriminator_loss": "wgan"}, {}),
    ([(GROWN, HIGH)] * 4, {"discriminator_loss": "hinge_pairs"}, {}),  # a user's own
    ([(GROWN, HIGH)] * 4, {"augment": ADA}, {}),
    ([(GROWN, BLIND)] * 4, OF_BLIND, {"blind": FIRST_WHOLE}),
    ([(GROWN, BLIND | {"real_logits": BLIND_GAP})] * 4, OF_BLIND, {}),
    ([(GROWS, BLIND)] * 4, OF_BLIND, {}),
    ([(GROWN, BLIND)] * 4, OF_BLIND | {"discriminator_loss": "wgan"}, {}),  # no log odds
]


@pytest.mark.parametrize(("windows", "options", "expected"), SAID)
def test_health_warns_once_of_overfitted_or_blind_discriminators(
    monkeypatch, windows, options, expected
):
    """After the first whole window at full size, where its logits say so."""
    monkeypatch.setitem(DISCRIMINATOR_LOSSES, "hinge_pairs", PairLoss(relativistic))
    said = told(windows, **options)
    assert [(name, i) for i, names in enumerate(said) for name in names] == [*expected.items()]


def test_health_warnings_give_numbers_and_advice():
    line = told([(GROWN, HIGH)] * 2)[FIRST_WHOLE]["overfitted"]
    assert re.search("overfitted at image 123: r_t .* 0.91 .* 10000 images.* 14 .*--metrics", line)
    assert "augment.kind" in line
    line = told([(GROWN, BLIND)] * 2, **OF_BLIND)[FIRST_WHOLE]["blind"]
    assert re.search("image 123: .* logits .* 0.05 .* 5000 images.* r1_gamma.* augmentation", line)


def exhaust_a_gpu():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_runtime_errors_explained_gives_advice_on_out_of_memory():
    state = TrainState.create(tiny_config(batch_gpu=2))
    for exhaust in (lambda: torch.empty(2**60), exhaust_a_gpu):
        with pytest.raises(ValueError) as caught, runtime_errors_explained(state, stage(8)):
            exhaust()
        text = str(caught.value)
        assert re.search("resolution 8, batch 4 on 1 process, 2 images.* --batch-gpu", text)
        assert "\n" not in text
        assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(RuntimeError, match="of another kind"), runtime_errors_explained(state):
        raise RuntimeError("of another kind")


@pytest.mark.parametrize("error", [DistBackendError("x"), RuntimeError("Connection reset by peer")])
def test_process_lost_error_is_raised_if_another_process_is_gone(error, monkeypatch):
    state = TrainState.create(tiny_config())
    with pytest.raises(type(error)), runtime_errors_explained(state):
        raise error  # alone, there is nobody to lose
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "rank", lambda: 1)
    with (
        pytest.raises(
            ProcessLostError, match=r"process 1 of 2 has lost contact .* at image 0; the same"
        ),
        runtime_errors_explained(state),
    ):
        raise error
