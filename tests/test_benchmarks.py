"""The benchmarks count and measure as documented; how fast anything is, is not tested."""

import contextlib
import json

import contest
import everything
import loader
import pytest
import torch
import work
from click.testing import CliRunner
from textbook import textbook_state, textbook_step
from tiny_training import stage, tiny_config
from torch.utils.flop_counter import FlopCounterMode

from stylegan.networks import NetworkConfig
from stylegan.ops.fast import MANY_CHANNELS
from stylegan.schedule import resolutions
from stylegan.training import Share, TrainState, draw

GROWTH = [(4, 1.0), (16, 1.0), (16, 0.5)]
WIDE = {"resolution": 16, "max_channels": 24, "z_dim": 20, "w_dim": 28, "mapping_width": 16}
BATCH = 4


class Whole(contextlib.nullcontext):
    """Replaces the counter's tracking of modules, which refuses gradients of gradients."""

    parents = ("Global",)


def counted(call):
    """Floating-point operations per image that PyTorch counts in a call."""
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = Whole()
    with counter:
        call()
    return counter.get_total_flops() / BATCH


@pytest.mark.parametrize(
    ("resolution", "official", "everywhere"), [(8, 10, 8), (32, 192, 139), (128, 546, 413)]
)
def test_work_of_an_iteration_is_the_known_gigaflops(resolution, official, everywhere):
    for fusing, gigaflops in (("official", official), ("everywhere", everywhere)):
        flops = work.iteration(NetworkConfig(), resolution, fusing=fusing).flops
        assert flops / 1e9 == pytest.approx(gigaflops, abs=0.5)


@pytest.mark.parametrize(("resolution", "alpha"), GROWTH)
def test_an_iteration_has_the_operations_that_pytorch_counts(resolution, alpha):
    config = tiny_config(network={**WIDE, "mapping_layers": 8}, style_mixing=0.0)
    ours, now, network = TrainState.create(config), stage(resolution, alpha, BATCH), config.network
    state = textbook_state(config, ours.generator.state_dict(), ours.discriminator.state_dict())
    fading, images = alpha < 1, torch.randn(BATCH, 3, resolution, resolution)
    draws = draw(config, 0, now, None, Share())
    step = counted(lambda: textbook_step(state, images, now, draws))
    expected = work.iteration(network, resolution, fading=fading, fusing="nowhere", mixing=0.0)
    # low-pass filters, which `work` leaves out: six passes forward, and back
    blurred = sum(18 * network.channels(r) * r * r for r in resolutions(resolution)[1:])
    g = list(work.generator_layers(network, resolution, fading, "nowhere", mixing=0.0))
    d = list(work.discriminator_layers(network, resolution, fading, "nowhere"))
    # gradients of the reals; what a constant needs not pass on
    needless = sum(layer.flops for layer in d if layer.first) - d[-1].flops
    assert step == pytest.approx(expected.flops + 12 * blurred + needless, rel=1e-9)
    for layers, module in ((g, ours.generator), (d, ours.discriminator)):
        active = sum(p.numel() for p in module.active_parameters(resolution, alpha))
        assert sum(layer.parameters for layer in layers) == active


def test_minimal_filtering_is_counted_where_it_is_used():
    assert work.MANY_CHANNELS == MANY_CHANNELS
    wide = NetworkConfig(resolution=16, max_channels=256)
    plainly = list(work.discriminator_layers(wide, 16, False, "everywhere"))
    ours = list(work.discriminator_layers(wide, 16, False, "winograd"))
    shares = [b.flops / a.flops for a, b in zip(plainly, ours, strict=True)]
    assert {round(share, 6) for share in shares} == {1.0, round(4 / 9, 6), 9 / 16}


def test_ratios_are_of_rounds():
    slow = contest.Result("slow", seconds=[2.0, 30.0, 8.0, 1.0])
    fast = contest.Result("fast", seconds=[1.0, 10.0, 4.0])  # failed in the fourth round
    assert contest.ratio(slow, fast).median == 2.0  # not 8 / 4 of medians: rounds are compared


def test_a_contest_runs_in_rounds_and_says_who_failed(tmp_path):
    log = tmp_path / "log"
    (tmp_path / "trials.py").write_text(
        "import pathlib, time\n"
        "from contest import Trial\n"
        "def good(settings):\n"
        "    def once():\n"
        "        time.sleep(0.31)\n"
        "        with pathlib.Path(settings['log']).open('a') as file:\n"
        "            file.write(settings['name'])\n"
        "    return Trial(once)\n"
        "def bad(settings):\n"
        "    raise MemoryError('far too\\nlarge')\n"
        "def gone(settings):\n"
        "    raise SystemExit(3)\n"
    )
    contenders = [
        contest.Contender(name, f"trials:{task}", {"log": str(log), "name": name}, tmp_path)
        for name, task in (("a", "good"), ("b", "good"), ("bad", "bad"), ("gone", "gone"))
    ]
    environment = contest.environment_for(1, "default")
    a, b, bad, gone = contest.contest(contenders, environment, seconds=0)
    assert log.read_text() == "aaabbb" + "abbaab"  # three calls each that warm up
    assert len(a.seconds) == len(b.seconds) == 3
    assert (bad.seconds, bad.error) == ([], "MemoryError: far too large")
    assert (gone.seconds, gone.error) == ([], "exit code 3")


def test_a_part_that_fails_or_takes_too_long_says_so(tmp_path):
    def result(program, limit=60.0):
        return everything.run(everything.Part("part", ["-c", program]), "cpu", limit, tmp_path)

    assert result("print('yes')") == "passed"
    assert (tmp_path / "part.log").read_text() == "yes\n"
    assert result("raise SystemExit(2)") == "failed"
    assert result("import time; time.sleep(600)", 0.2) == "cut off"


@pytest.mark.slow
def test_a_machine_is_checked_and_measured(tmp_path):
    options = ["--device", "cpu", "--minutes", "60", "--out", str(tmp_path)]
    done = CliRunner().invoke(everything.main, options, catch_exceptions=False)
    text = (tmp_path / "everything.md").read_text()
    assert done.exit_code == 0, text
    assert text.count("| passed |") == 6
    for title in ("# One training iteration", "# Generation", "# A real run of quickstart"):
        assert title in text


@pytest.mark.slow
def test_loading_is_measured_beside_image_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(loader, "COUNTS", {16: 40})
    command = ["16", "--workers", "0", "--seconds", "0", "--threads", "1", "--out", str(tmp_path)]
    done = CliRunner().invoke(loader.main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for result in json.loads((tmp_path / "loader.json").read_text())["rows"][0]["results"]:
        assert len(result["seconds"]) == 3, result["error"]
