"""TensorBoard files, read back with TensorBoard's own reader."""

import contextlib
import io
import threading
import time

import numpy as np
import pytest
import tensorboard.summary.writer.event_file_writer
import torch.utils.tensorboard.writer
from helpers.consoles import RecordingConsole
from helpers.runs import log_of
from helpers.tiny_training import SHORT, largest_file, tiny_config, train_tiny
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from stylegan.files.run_folder import RunFolder

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
    train_tiny(config, store, out, **{"tensorboard": True} | (options or {}))
    return out


@pytest.fixture(scope="module")
def plain(store, tmp_path_factory):
    """A run without further wishes."""
    return recorded(store, tmp_path_factory.mktemp("plain") / "run")


def test_tensorboard_has_every_number_of_the_log_as_a_scalar(plain):
    reader = events(plain)
    assert set(reader.Tags()["scalars"]) == LOSSES | RATES | SPEED
    lines = log_of(plain, "progress")
    assert [line["images_seen"] for line in lines] == [4, 8, 12]
    for name in reader.Tags()["scalars"]:
        found = [(event.step, event.value) for event in reader.Scalars(name)]
        expected = [(line["images_seen"], np.float32(line[name])) for line in lines]
        assert found == expected, name


def test_tensorboard_has_the_grids_of_samples_and_reals(plain):
    reader = events(plain)
    assert sorted(reader.Tags()["images"]) == ["reals", "samples"]
    assert [event.step for event in reader.Images("reals")] == [0]
    assert [event.step for event in reader.Images("samples")] == [8, 12]
    for name, path in (("reals", "reals.png"), ("samples", "samples/000000_012.png")):
        last = reader.Images(name)[-1]
        with (
            Image.open(io.BytesIO(last.encoded_image_string)) as shown,
            Image.open(plain / path) as written,
        ):
            assert np.array_equal(np.asarray(shown), np.asarray(written))


def test_tensorboard_writer_can_be_patched_by_other_programs(store, tmp_path, monkeypatch):
    """As `wandb.init(sync_tensorboard=True)` does, before training."""
    seen = []
    for module in (tensorboard.summary.writer.event_file_writer, torch.utils.tensorboard.writer):

        class Patched(module.EventFileWriter):
            def __init__(self, logdir, *args, **kwargs):
                seen.append(logdir)
                super().__init__(logdir, *args, **kwargs)

            def add_event(self, event):
                seen.extend((event.step, value.tag) for value in event.summary.value)
                super().add_event(event)

        monkeypatch.setattr(module, "EventFileWriter", Patched)
    recorded(store, tmp_path / "run")
    assert seen[0] == str(tmp_path / "run/tensorboard")
    assert {(step, name) for step in (4, 8, 12) for name in LOSSES} <= set(seen)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_tensorboard_write_error_ends_the_curves_but_not_the_run(store, tmp_path):
    told = []
    with contextlib.ExitStack() as disk:

        def fill(progress):
            if progress.images_seen == 4:
                disk.enter_context(largest_file(10))
            if progress.images_seen == 8:
                disk.close()

        recorded(store, tmp_path / "run", {"console": RecordingConsole(told, act=fill)})
    assert sum("could not write tensorboard: File too large" in line for line in told) == 1
    assert [event.step for event in events(tmp_path / "run").Scalars("d/fake_logits")] == [4]
    assert "_AsyncWriterThread" not in {type(thread).__name__ for thread in threading.enumerate()}


def test_tensorboard_purges_steps_beyond_the_resumed_state(store, tmp_path):
    config, out = tiny_config(schedule=SCHEDULE), tmp_path / "run"
    for stop_at in (4, 8, None):
        train_tiny(config, store, out, stop_at=stop_at, tensorboard=True)
        if stop_at:
            time.sleep(1)  # TensorBoard reads the files of one second in the order of their names
        if stop_at == 8:
            RunFolder(out).states()[-1].unlink()  # as if it were never written
    assert [event.step for event in events(out).Scalars("d/fake_logits")] == [4, 8, 12]
