"""`stylegan train` as a user meets it: what it writes, says, refuses and starts from."""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner
from helpers import commands
from helpers.runs import contents
from helpers.tiny_generators import assert_same_weights
from helpers.tiny_training import SHORT, tiny_config, write_pictures

from stylegan import load_generator
from stylegan.cli.train import TrainingTerminal, train
from stylegan.config import load_config, to_toml
from stylegan.files import checkpoint
from stylegan.files.run_folder import RunFolder
from stylegan.schedule import Stage
from stylegan.training.progress import TrainingProgress

NETWORKS = ("generator", "discriminator", "generator_ema")
STILL = {  # a run that leaves its weights where they were
    "schedule": {**SHORT, "g_lr": {4: 1e-30}, "d_lr": {4: 1e-30}},
    "ema_half_life_kimg": 1e12,
    "w_avg_decay": 1.0,
}


BROKEN = b"\x89PNG\r\n\x1a\n"
BRIEF = ("--no-preflight", "-o", "schedule.total_kimg=0.004")


def write_config(path, **changes):
    path.write_text(to_toml(tiny_config(**{"schedule": SHORT, **changes})))
    return path


def fill(folder):
    """Pictures and a configuration."""
    write_pictures(folder / "pictures")
    write_config(folder / "tiny.toml")
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with pictures and a configuration; prepared images lie elsewhere, and no
    report is written."""
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("stylegan.cli.train.write_page", lambda out, device: None)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(fill(tmp_path / "here"))
    return tmp_path / "here"


def command(*more, data="pictures", config="tiny.toml", out="run"):
    """The command line; None leaves an option out."""
    given = {"--data": data, "--config": config, "--out": out}
    paths = [word for pair in given.items() if pair[1] is not None for word in pair]
    return [*map(str, paths), "--device", "cpu", "--no-tensorboard", *map(str, more)]


def told(*more, **paths):
    """What the command prints when it succeeds."""
    return commands.run_ok("train", *command(*more, **paths))


def refused(*more, **paths):
    """The one line of the command when it fails, which makes and changes nothing here."""
    before = contents(Path())
    line = commands.run_fails("train", *command(*more, **paths))
    assert contents(Path()) == before
    return line


def newest_state(out):
    return checkpoint.load(RunFolder(Path(out)).states()[-1], "state")


# A run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with the finished run `run`, and what the command had printed."""
    folder = fill(tmp_path_factory.mktemp("finished"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STYLEGAN_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.chdir(folder)
        return folder, told()


@pytest.fixture
def at_finished(finished, tmp_path, monkeypatch):
    """The current folder is the one with the finished run."""
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(finished[0])
    return finished[0]


def test_train_writes_config_log_images_states_and_generators(finished):
    out = finished[0] / "run"
    assert sorted(path.name for path in out.iterdir()) == [
        "config.toml",
        "data.txt",
        "generator-000000012.pt",
        "log.jsonl",
        "reals.png",
        "report.html",
        "samples",
        "state-000000008.pt",
        "state-000000012.pt",
    ]
    grids = sorted(path.name for path in (out / "samples").iterdir())
    assert grids == ["000000_008.png", "000000_012.png"]
    for name, rows in (("reals.png", 2), ("samples/000000_012.png", 4)):
        assert commands.open_image(out / name).size == (8 * 16, rows * 16)
    loaded = load_generator(out / "generator-000000012.pt")
    assert (loaded.images_seen, loaded.resolution, loaded.settings.alpha) == (12, 16, 1.0)
    assert loaded.label_names == ()


def test_train_says_it_is_finished_after_the_report_is_written(here, monkeypatch):
    def fail(out, device):
        raise OSError("stopped")

    monkeypatch.setattr("stylegan.cli.train.write_page", fail)
    result = commands.stylegan("train", *command(*BRIEF))
    assert result.exit_code == 1 and "is finished" not in result.output
    assert (here / "run" / "generator-000000004.pt").exists()


@pytest.mark.parametrize("more", [(), ("--init-from", "run/generator-000000012.pt")])
def test_train_again_says_it_is_finished_and_changes_no_file(at_finished, more):
    before, text = contents(at_finished), told(*more)
    assert "run is finished, with 12 images seen" in text and "copied" not in text
    assert "trying steps" not in text and "nothing is measured" not in text
    assert "so nothing is measured" in told(*more, "--metrics", "swd9")
    assert contents(at_finished) == before


def test_train_refuses_another_option_for_a_run_and_names_it(at_finished, tmp_path):
    message = refused("--seed", 1, "-o", "schedule.fade_kimg=1")
    assert "seed: 0 there, 1 asked" in message
    assert "schedule.fade_kimg: 0.004 there, 1" in message
    assert not (tmp_path / "cache").exists()  # refused before images are prepared


# Data


def test_train_skips_and_records_a_broken_image(here):
    (here / "pictures" / "a" / "broken.png").write_bytes(BROKEN)
    text = told(*BRIEF)
    assert "14 images of " in text
    assert "1 of 15 images left out; see run/skipped.txt" in text
    name, reason = (here / "run" / "skipped.txt").read_text().rstrip("\n").split("\t")
    assert name == "a/broken.png"
    assert len(reason) > 5


@pytest.mark.parametrize("option", ["--labels", "--cond", "--cond=1"])
def test_train_labels_stores_the_label_names_in_the_generator(here, option):
    assert "2 labels" in told(option, *BRIEF)
    loaded = load_generator(here / "run" / "generator-000000004.pt")
    assert loaded.label_names == ("a", "b")
    assert loaded.generator.config.label_dim == 2
    assert newest_state("run")["config"]["data"]["labels"] is True


def test_train_options_reach_the_configuration(here):
    options = ["--mirror", "--crop", "pad", "--precision", "bf16", "--batch-gpu", 2, "--seed", 3]
    write_config(here / "tiny.toml", data={"mirror": False})
    told(*options, *BRIEF)
    config = load_config("run/config.toml")
    assert (config.data.mirror, config.data.crop) == (True, "pad")
    assert (config.precision, config.batch_gpu, config.seed) == ("bf16", 2, 3)


# The plan


@pytest.mark.parametrize("more", [(), ("--labels",)])
def test_train_dry_run_prints_a_row_per_phase_and_writes_nothing(here, more):
    before = contents(here)
    rows = [re.split(r"\s{2,}", line.strip()) for line in told("--dry-run", *more).splitlines()]
    assert contents(here) == before
    start = next(i for i, row in enumerate(rows) if row[0] == "kimg")
    assert [(*row[:3], row[5]) for row in rows[start + 1 : start + 4]] == [
        ("0-0.002", "8", "4", "1"),
        ("0.002-0.006", "16 fades in", "4", "1"),
        ("0.006-0.012", "16", "4", "2"),
    ]
    assert all(row[-2].endswith("GiB") for row in rows[start + 1 : start + 4])


def test_train_dry_run_refuses_what_the_run_would_refuse(here):
    told(*BRIEF)
    assert "run of another configuration (seed: 0 there, 7" in refused(
        *BRIEF, "--dry-run", "--seed", 7
    )


def test_train_plan_gpus_reports_official_batches_and_memory(here):
    before = contents(here)
    words = ["--data", "pictures", "--out", "run", "--dry-run", "--device", "cuda"]
    small = ["--config", "ffhq-1024", "-o", "network.resolution=16", "--plan-gpus", "8"]
    result = CliRunner().invoke(train, [*words, *small])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines]
    start = next(i for i, row in enumerate(rows) if row[0] == "kimg")
    assert [row[2] for row in rows[start + 1 : start + 4]] == ["256", "128", "128"]
    assert "batches: the official ones for 8 processes, all together" in lines[-3]
    assert lines[-2].startswith("memory of each GPU: about ")
    assert contents(here) == before


# Starting from other weights


@pytest.fixture
def transfer(finished, here):
    """Starts the still run `run` from a source; the text, and its last state."""
    write_config(here / "still.toml", **STILL)

    def start(source, *more):
        text = told("--init-from", source, "--no-preflight", *more, config="still.toml")
        return text, newest_state("run")

    return start


def copied(text, source):
    """How many tensors of how many were copied into each network, as told."""
    pattern = rf"(\w+): (\d+) of (\d+) tensors copied from {re.escape(str(source))}\n"
    return {name: (int(n), int(of)) for name, n, of in re.findall(pattern, text)}


@pytest.mark.parametrize("name", ["", "generator-000000012.pt"])
def test_train_init_from_copies_a_run_or_a_generator(finished, transfer, name):
    source = finished[0] / "run" / name
    text, state = transfer(source)
    if name.startswith("generator"):
        wanted = dict.fromkeys(("generator", "generator_ema"), checkpoint.load(source)["weights"])
        other = newest_state(finished[0] / "run")["discriminator"]["head.conv.weight"]
        assert not torch.equal(state["discriminator"]["head.conv.weight"], other)
    else:
        held = newest_state(source)
        wanted = {network: held[network] for network in NETWORKS}
    assert copied(text, source) == {name: (len(held), len(held)) for name, held in wanted.items()}
    assert "not copied" not in text
    for network in wanted:
        # growth has left the RGB layers below 16x16 behind; they are fitted anew
        stale = {part for part in wanted[network] if re.search(r"_rgb\.[48]\.", part)}
        assert_same_weights(state[network], wanted[network], but={"w_avg", *stale}, atol=1e-15)
    for network in ("generator", "generator_ema"):  # the first step copies the average
        assert torch.equal(state[network]["w_avg"], wanted["generator"]["w_avg"])


def test_train_init_from_a_lower_resolution_copies_shared_layers(here):
    told("--no-preflight", "-o", "network.resolution=8", out="low")
    write_config(here / "still.toml", **STILL)
    text = told("--no-preflight", "--init-from", "low", config="still.toml")
    low, high = newest_state("low"), newest_state("run")
    expected = {}
    for network in NETWORKS:
        new = high[network].keys() - low[network].keys()
        assert new and all("16" in name for name in new)
        named = [name for name in new if f"not copied: {name} is missing" in text]
        assert len(named) == min(len(new), 5)  # and the others are counted
        expected[network] = len(high[network]) - len(new), len(high[network])
        assert_same_weights(high[network], low[network], but={"w_avg", *new}, atol=1e-15)
    assert copied(text, "low") == expected
    assert torch.equal(high["generator"]["w_avg"], low["generator"]["w_avg"])


def test_train_exits_3_on_divergence_and_names_the_last_good_state(here):
    write_config(
        here / "tiny.toml",
        schedule={"total_kimg": 4.0, "g_lr": {4: 1e12}, "d_lr": {4: 1e12}, "tick_kimg": {4: 0.004}},
        max_skipped=5,
    )
    result = CliRunner().invoke(train, command())
    assert result.exit_code == 3, result.output
    line = result.stderr.splitlines()[-1]
    assert line.startswith("Error: the gradients of the ")
    assert "r1_gamma" in line and "stylegan configs" in line
    (said,) = (line for line in result.stdout.splitlines() if line.startswith("stopped at image"))
    newest = RunFolder(here / "run").states()[-1]
    assert said.endswith(f"last good state: {newest.name}")
    assert all(x.isfinite().all() for x in newest_state("run")["generator"].values())


def test_train_debug_names_the_operation_that_made_nan(here, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "0")
    with torch.autograd.set_detect_anomaly(False):  # and as it was afterwards
        CliRunner().invoke(train, ["--debug", "--data", "pictures", "--plan-gpus", "8"])
        x = torch.zeros(1, requires_grad=True)
        with (
            pytest.warns(UserWarning, match="Error detected in SqrtBackward"),
            pytest.raises(RuntimeError, match="returned nan values"),
        ):
            (x.sqrt() * 0).backward()
    assert os.environ["CUDA_LAUNCH_BLOCKING"] == "1"


def show_progress():
    stage = Stage(8, 1.0, 4, g_lr=1e-3, d_lr=1e-3, tick_kimg=1)
    progress = TrainingProgress(
        images_seen=8, total_images=100, stage=stage, metrics={}, images=8, images_per_second=1.0,
        data_wait=0.0, skipped_updates=0, config=load_config("quickstart"),
    )  # fmt: skip
    with click.Context(train):
        TrainingTerminal().progress(progress, 8, 100)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_training_terminal_accepts_a_closed_stream(stream, monkeypatch):
    monkeypatch.setattr(sys, stream, None)
    show_progress()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a file that takes nothing")
def test_training_terminal_accepts_a_full_stdout(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        full.write("what was told before")
        show_progress()
        monkeypatch.undo()
        with pytest.raises(OSError, match="No space"):  # it waits there still
            full.flush()
        with suppress(OSError):
            full.close()
