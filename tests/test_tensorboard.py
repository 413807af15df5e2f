"""TensorBoard files, read back with TensorBoard's own reader."""

import io
import time

import numpy as np
import pytest
from helpers.runs import log_of
from helpers.tiny_training import SHORT, run, tiny_config
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from stylegan.run_folder import RunFolder

LOSSES = {
    "d/fake_logits",
    "d/real_logits",
    "d/real_signs",
    "d/logistic_fake",
    "d/logistic_real",
    "d/r1_penalty",
    "d/r2_penalty",
    "g/nonsaturating",
}
RATES = {"schedule/resolution", "schedule/alpha", "schedule/batch_size"}
RATES |= {"schedule/g_lr", "schedule/d_lr"}
SPEED = {"speed/images_per_second", "speed/data_wait_share", "health/skipped_updates"}
SPEED |= {"augment/probability"}


def events(folder):
    """All events of a run, none left out."""
    sizes = dict.fromkeys(("scalars", "images", "histograms"), 0)
    return EventAccumulator(str(folder / "tensorboard"), sizes).Reload()


SCHEDULE = {**SHORT, "g_lr": {4: 0.002, 16: 0.003}, "d_lr": {4: 0.001}}


def recorded(store, out, options=None, **changes):
    """A run with events, and with what else is asked for."""
    config = tiny_config(schedule=SCHEDULE, r2_gamma=1.0, **changes)
    run(config, store, out, **{"tensorboard": True} | (options or {}))
    return out


@pytest.fixture(scope="module")
def plain(store, tmp_path_factory):
    """A run without further wishes."""
    return recorded(store, tmp_path_factory.mktemp("plain") / "run")


def test_every_loss_logit_rate_and_speed_is_a_scalar_at_every_line_of_the_log(plain):
    reader = events(plain)
    assert set(reader.Tags()["scalars"]) == LOSSES | RATES | SPEED
    lines = log_of(plain, "progress")
    assert [line["images_seen"] for line in lines] == [4, 8, 12]
    for name in reader.Tags()["scalars"]:
        found = [(event.step, event.value) for event in reader.Scalars(name)]
        expected = [(line["images_seen"], np.float32(line[name])) for line in lines]
        assert found == expected, name


def test_the_grids_of_samples_and_reals_are_images(plain):
    reader = events(plain)
    assert sorted(reader.Tags()["images"]) == ["reals", "samples"]
    assert [event.step for event in reader.Images("reals")] == [0]
    assert [event.step for event in reader.Images("samples")] == [8, 12]
    for name, path in (("reals", "reals.png"), ("samples", "samples/000000.png")):
        last = reader.Images(name)[-1]
        with (
            Image.open(io.BytesIO(last.encoded_image_string)) as shown,
            Image.open(plain / path) as written,
        ):
            assert np.array_equal(np.asarray(shown), np.asarray(written))


def test_what_a_killed_process_wrote_beyond_its_state_is_purged(store, tmp_path):
    config, out = tiny_config(schedule=SCHEDULE), tmp_path / "run"
    for stop_at in (4, 8, None):
        run(config, store, out, stop_at=stop_at, tensorboard=True)
        if stop_at:
            time.sleep(1)  # TensorBoard reads the files of one second in the order of their names
        if stop_at == 8:
            RunFolder(out).states()[-1].unlink()  # as if it were never written
    assert [event.step for event in events(out).Scalars("d/fake_logits")] == [4, 8, 12]
