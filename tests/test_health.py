"""When training cannot go on, or should not: what is noticed, and what is said."""

import pytest
import torch
from helpers.tiny_training import stage, tiny_config
from torch.distributed import DistBackendError

from stylegan.losses import DISCRIMINATOR_LOSSES, PairLoss, relativistic
from stylegan.machine import distributed
from stylegan.training import Diverged, TrainingProgress, TrainState
from stylegan.training.health import (
    BLIND_GAP,
    BLIND_IMAGES,
    OVERFITTED_SIGNS,
    SATURATED_LOGIT,
    WINDOW_IMAGES,
    Health,
    LostContact,
    runtime_errors_explained,
)

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


def test_logits_that_saturate_for_long_end_the_run():
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
    """What is said after each window of these stages and metrics, each reported in two parts."""
    health = Health(TrainState.create(tiny_config(**options)), num_images)
    said = []
    for now, metrics in windows:
        for _ in range(2):
            line = progress(window // 2, now, **{"real_logits": 1.0, "fake_logits": -1.0} | metrics)
            line.metrics.setdefault("d/real_signs", 0.0)
            line.metrics["augment/probability"] = 0.5
            said.append(health.warnings(line))
    return said


def overfitting(windows, **options):
    """Whether it is said after each half of a window of these stages and signs; and what."""
    lines = told([(now, {"real_signs": signs}) for now, signs in windows], **options)
    return ["overfitted" in said for said in lines], next(filter(None, lines), {}).get("overfitted")


HIGH = OVERFITTED_SIGNS + 0.01


def test_an_overfitted_discriminator_is_told_of_once_after_the_first_window_at_full_size():
    told, line = overfitting([(GROWN, HIGH)] * 4)
    assert told == [False, False, False, True] + [False] * 4
    found = "overfitted at image 123: r_t was 0.91 over the last 10000 images, with 14 in the data"
    assert found in line and "--metrics" in line and "augment.kind" in line


@pytest.mark.parametrize(
    ("windows", "options"),
    [
        ([(GROWN, HIGH - 0.02)] * 4, {}),
        ([(stage(16, 0.9), HIGH)] * 4, {}),  # still grows
        ([(stage(8, 1.0), HIGH)] * 4, {}),
        ([(GROWN, HIGH), (stage(16, 0.9), HIGH), (GROWN, HIGH)], {}),  # each is the first
        ([(GROWN, HIGH)] * 2, {"num_images": 501}),  # 20 times all of them is another window
        ([(GROWN, HIGH)] * 4, {"discriminator_loss": "wgan"}),
        ([(GROWN, HIGH)] * 4, {"augment": {"kind": "ada"}}),  # which rises yet
    ],
)
def test_where_it_is_not_or_may_not_be_overfitted_nothing_is_said(windows, options):
    assert not any(overfitting(windows, **options)[0])


def test_of_a_users_loss_called_hinge_something_nothing_is_said(monkeypatch):
    monkeypatch.setitem(DISCRIMINATOR_LOSSES, "hinge_pairs", PairLoss(relativistic))
    assert not any(overfitting([(GROWN, HIGH)] * 4, discriminator_loss="hinge_pairs")[0])


def test_a_strength_that_no_longer_rises_does_not_excuse_it():
    fixed = {"augment": {"kind": "ada", "strength": 0.5}}
    assert any(overfitting([(GROWN, HIGH)] * 2, **fixed)[0])


BLIND = {"real_logits": 0.03, "fake_logits": -0.02}


def test_a_blind_discriminator_is_told_of_once_after_the_first_window_at_full_size():
    said = told([(GROWN, BLIND)] * 4, window=BLIND_IMAGES)
    assert [list(names) for names in said] == [[]] * 3 + [["blind"]] + [[]] * 4
    line = said[3]["blind"]
    assert "at image 123: their mean logits differed by 0.05 over the last 5000 images" in line
    assert "r1_gamma" in line and "augmentation" in line


@pytest.mark.parametrize(
    ("windows", "options"),
    [
        ([(GROWN, BLIND | {"real_logits": BLIND_GAP})] * 4, {}),
        ([(stage(16, 0.9), BLIND)] * 4, {}),
        ([(GROWN, BLIND)] * 4, {"discriminator_loss": "wgan"}),
    ],
)
def test_where_it_sees_or_no_log_odds_are_known_nothing_is_said(windows, options):
    assert not any(told(windows, window=BLIND_IMAGES, **options))


def exhaust_a_gpu():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_out_of_memory_says_where_and_what_helps():
    state = TrainState.create(tiny_config(batch_gpu=2))
    for exhaust in (lambda: torch.empty(2**60), exhaust_a_gpu):
        with pytest.raises(ValueError) as caught, runtime_errors_explained(state, stage(8)):
            exhaust()
        text = str(caught.value)
        assert text.startswith(
            "out of memory at resolution 8, batch 4 on 1 process, 2 images at a time; "
            "try a smaller --batch-gpu"
        )
        assert "\n" not in text
        assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(RuntimeError, match="of another kind"), runtime_errors_explained(state):
        raise RuntimeError("of another kind")


@pytest.mark.parametrize("error", [DistBackendError("x"), RuntimeError("Connection reset by peer")])
def test_a_process_that_is_gone_is_lost_contact_for_the_other(error, monkeypatch):
    state = TrainState.create(tiny_config())
    with pytest.raises(type(error)), runtime_errors_explained(state):
        raise error  # alone, there is nobody to lose
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "rank", lambda: 1)
    with (
        pytest.raises(
            LostContact, match=r"process 1 of 2 has lost contact .* at image 0; the same"
        ),
        runtime_errors_explained(state),
    ):
        raise error
