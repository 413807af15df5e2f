"""When a run says that it looks overfitted: by lines of a log, and in a small training."""

import json

import pytest
from tiny_training import run, tiny_config, tiny_store

from stylegan.training.overfitting import LARGEST_GAP, LARGEST_SIGNS, Overfitting

LINE = 1000  # images from one line of the log to the next


def line(kimg, signs, gap=None, *, resolution=16, alpha=1.0, probability=0.0):
    """A line of the log of `gap`: D(training) 1, D(generated) -1."""
    values = {"d/real_signs": signs, "augment/probability": probability}
    if gap is not None:
        values |= {"d/training_logits": 1.0, "d/generated_logits": -1.0}
        values["d/validation_logits"] = 1 - 2 * gap
    growth = {"schedule/resolution": resolution, "schedule/alpha": alpha}
    return {"event": "progress", "images_seen": kimg * LINE} | growth | values


def messages(lines, num_images=50, before=(), **options):
    """The lines after which something is told, in thousands of images, and what."""
    watch = Overfitting(tiny_config(**options), num_images)
    watch.replay(before)
    found = {}
    for values in lines:
        watch.add(values["images_seen"], values)
        if text := watch.message():
            found[values["images_seen"] // LINE] = text
    return found


HIGH, LOW = LARGEST_SIGNS + 0.04, LARGEST_SIGNS - 0.04
ADA = {"augment": {"kind": "ada"}}


def test_it_is_said_once_after_two_windows_with_the_numbers_and_what_to_do():
    found = messages([line(kimg, HIGH) for kimg in range(1, 60)])
    assert list(found) == [21]  # two of 10,000 images after the first line
    text = found[21]
    assert f"over the last 10000 images, of 50 different ones, r_t is {HIGH:.2f}" in text
    assert f"recognises {50 + 50 * HIGH:.0f} % of them" in text
    for advice in ("augmentation (augment.kind)", "more images", "the best", "data.holdout"):
        assert advice in text


def test_windows_are_several_passes_over_the_images():
    lines = [line(kimg, HIGH) for kimg in range(1, 60)]
    assert list(messages(lines, num_images=1000)) == [41]  # 20 passes, twice
    assert messages(lines, num_images=10_000) == {}


@pytest.mark.parametrize(
    "lines",
    [
        [line(kimg, LOW) for kimg in range(1, 60)],
        [line(kimg, HIGH if kimg < 12 else 0.4) for kimg in range(1, 60)],
        [line(kimg, HIGH, resolution=8) for kimg in range(1, 60)],
        [line(kimg, HIGH, alpha=0.5) for kimg in range(1, 60)],
        [line(kimg, HIGH, LARGEST_GAP - 0.05) for kimg in range(1, 60)],
        [line(kimg, None) for kimg in range(1, 60)],
    ],
    ids=["low", "high at first", "growing", "fading", "held-out images as others", "not finite"],
)
def test_a_healthy_run_is_not_told_anything(lines):
    assert messages(lines) == {}


def test_images_held_out_tell_it_where_signs_do_not():
    lines = [line(kimg, 0.4, LARGEST_GAP + 0.05) for kimg in range(1, 30)]
    (text,) = messages(lines).values()
    assert f"r_t is 0.40 (it recognises 70 % of them) and r_v {LARGEST_GAP + 0.05:.2f}" in text


def test_signs_of_losses_whose_logits_have_no_zero_are_not_compared():
    lines = [line(kimg, HIGH) for kimg in range(1, 30)]
    assert messages(lines, discriminator_loss="wgan_gp") == {}
    assert len(messages(lines, discriminator_loss="hinge")) == 1


def test_with_an_augmentation_the_advice_is_another():
    rising = [line(kimg, HIGH, probability=0.5) for kimg in range(1, 30)]
    assert messages(rising, **ADA) == {}  # the augmentation is about to correct it
    saturated = [line(kimg, HIGH, probability=0.9) for kimg in range(1, 30)]
    fixed = {"augment": {"kind": "diffaugment"}}
    for found in (messages(saturated, **ADA), messages(saturated, **fixed)):
        (text,) = found.values()
        assert "with more images, or with smaller learning rates" in text
        assert "augment.kind" not in text
    held_out = [line(kimg, 0.5, 0.9, probability=0.1) for kimg in range(1, 30)]
    (text,) = messages(held_out, **ADA).values()
    assert "a smaller augment.target than 0.6" in text


def test_it_is_not_said_again_after_a_resume_and_windows_go_on():
    lines = [line(kimg, HIGH) for kimg in range(1, 30)]
    start, resume = {"event": "start", "images_seen": 0}, {"event": "resume", "images_seen": 8000}
    said = {"event": "overfitted", "images_seen": 21_000, "reason": ""}
    assert list(messages(lines[8:], before=[start, *lines[:8]])) == [21]
    assert list(messages(lines[8:], before=[start, *lines[:10], resume])) == [21]
    assert messages(lines[8:], before=[start, *lines[:21], said, resume]) == {}
    assert list(messages(lines[8:])) == [29]  # without a log it begins anew


def test_lines_of_a_log_that_say_nothing_sensible_are_passed_over():
    lines = [line(kimg, HIGH) for kimg in range(1, 30)]
    odd = [dict(values) for values in lines[:8]]
    del odd[0]["schedule/alpha"]
    odd[3]["d/real_signs"] = "high"
    odd[5]["images_seen"] = None
    assert list(messages(lines[8:], before=odd)) == [22]  # the first does not count as grown


def test_a_discriminator_that_knows_four_pictures_by_heart_is_told_once(tmp_path):
    """The generator rests, so that reals are always recognised."""
    store = tiny_store(tmp_path, n=4)
    schedule = {"initial_resolution": 8, "stable_kimg": 1, "fade_kimg": 1, "total_kimg": 24}
    schedule |= {"batch_size": {4: 256}, "g_lr": {4: 1e-6}, "tick_kimg": {4: 7}}
    config = tiny_config(schedule=schedule, log_kimg=1.0, network={"resolution": 8})
    told = []
    run(config, store, tmp_path / "run", stop_at=22_016, tell=told.append)
    run(config, store, tmp_path / "run", tell=told.append)
    (text,) = [text for text in told if "looks overfitted" in text]
    assert text.startswith("the discriminator looks overfitted at image 21248: over the last 10000")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    (event,) = [line for line in lines if line["event"] == "overfitted"]
    assert (event["images_seen"], event["reason"]) == (21_248, text)
