"""The benchmarks count and measure as documented; how fast anything is, is not tested."""

import contextlib
import json
import sys
import time
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from tiny_training import stage, tiny_config
from torch.utils.flop_counter import FlopCounterMode

from stylegan.networks import NetworkConfig
from stylegan.ops.fast import MANY_CHANNELS
from stylegan.schedule import resolutions
from stylegan.training import Share, TrainState, draw

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import contest  # noqa: E402
import everything  # noqa: E402
import iteration  # noqa: E402
import work  # noqa: E402
from textbook import textbook_state, textbook_step  # noqa: E402

PAPER = NetworkConfig()
GROWTH = [(4, 1.0), (8, 1.0), (8, 0.5), (16, 1.0), (16, 0.5)]
WIDE = {"resolution": 16, "max_channels": 24, "z_dim": 20, "w_dim": 28, "mapping_width": 16}
BATCH = 4


class Whole(contextlib.nullcontext):
    """Stands for the counter's tracking of modules, which refuses gradients of gradients."""

    parents = ("Global",)


def counted(call):
    """Floating-point operations per image that PyTorch counts in a call."""
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = Whole()
    with counter:
        call()
    return counter.get_total_flops() / BATCH


def blurs(network, resolution):
    """Operations of the low-pass filters of one network, which `work` leaves out."""
    return sum(18 * network.channels(r) * r * r for r in resolutions(resolution)[1:])


def textbook_of(config):
    ours = TrainState.create(config)
    weights = ours.generator.state_dict(), ours.discriminator.state_dict()
    return textbook_state(config, *weights)


@pytest.mark.parametrize(
    ("resolution", "official", "everywhere"),
    [(8, 10, 8), (16, 47, 34), (32, 192, 139), (64, 409, 276), (128, 546, 413)],
)
def test_work_of_an_iteration_is_the_known_gigaflops(resolution, official, everywhere):
    for fusing, gigaflops in (("official", official), ("everywhere", everywhere)):
        flops = work.iteration(PAPER, resolution, fusing=fusing).flops
        assert flops / 1e9 == pytest.approx(gigaflops, abs=0.5)


@pytest.mark.parametrize(("resolution", "alpha"), GROWTH)
def test_layers_have_the_operations_that_pytorch_counts(resolution, alpha):
    config = tiny_config(network={**WIDE, "mapping_layers": 8}, style_mixing=0.0)
    state, now, network = textbook_of(config), stage(resolution, alpha, BATCH), config.network
    fading, images = alpha < 1, torch.randn(BATCH, 3, resolution, resolution)
    g = list(work.generator_layers(network, resolution, fading, "nowhere", mixing=0.0))
    d = list(work.discriminator_layers(network, resolution, fading, "nowhere"))
    g_flops, d_flops = (sum(layer.flops for layer in layers) for layers in (g, d))
    g_first, d_first = (sum(x.flops for x in layers if x.first) for layers in (g, d))
    blurred = blurs(network, resolution)
    z = torch.randn(BATCH, network.z_dim)

    def forward():
        return state.generator(z, resolution=resolution, alpha=alpha, noise="const")

    assert counted(forward) == g_flops + blurred
    assert counted(lambda: forward().sum().backward()) == 3 * g_flops - g_first + 2 * blurred
    assert counted(lambda: state.discriminator(images, alpha)) == d_flops + blurred
    backward = counted(lambda: state.discriminator(images, alpha).sum().backward())
    assert backward == 3 * d_flops - d_first + 2 * blurred
    draws = draw(config, 0, now, None, Share())
    step = counted(lambda: textbook_step(state, images, now, draws))
    expected = work.iteration(network, resolution, fading=fading, fusing="nowhere", mixing=0.0)
    needless = d_first - d[-1].flops  # gradients of the reals; what a constant needs not pass on
    assert step == pytest.approx(expected.flops + 12 * blurred + needless, rel=1e-9)


def test_fused_resampling_has_four_of_nine_taps():
    x, kernel = torch.randn(BATCH, 5, 8, 8), torch.randn(5, 7, 4, 4)
    up = counted(lambda: torch.conv_transpose2d(x, kernel, stride=2, padding=1))
    layer = work.convolution(5, 7, 3, 16 * 16)
    assert up == work.resampled(layer, 16, "everywhere").flops == layer.flops * 4 / 9
    down = counted(lambda: torch.conv2d(x, kernel.transpose(0, 1), stride=2, padding=1))
    assert down == work.resampled(work.convolution(5, 7, 3, 8 * 8), 8, "everywhere").flops


def test_minimal_filtering_is_counted_where_it_is_used():
    assert work.MANY_CHANNELS == MANY_CHANNELS
    wide = NetworkConfig(resolution=16, max_channels=256)
    for layers, arguments in (
        (work.generator_layers, (wide, 16, False)),
        (work.discriminator_layers, (wide, 16, False)),
    ):
        extra = (0.0,) if layers is work.generator_layers else ()
        plainly = list(layers(*arguments, "everywhere", *extra))
        ours = list(layers(*arguments, "winograd", *extra))
        shares = [b.flops / a.flops for a, b in zip(plainly, ours, strict=True) if a.flops]
        assert {round(s, 6) for s in shares} == {1.0, round(4 / 9, 6), 9 / 16}
        assert shares.count(9 / 16) == 2  # 8 and 16 px
        assert sum(round(s, 6) == round(4 / 9, 6) for s in shares) == 2


@pytest.mark.parametrize(("resolution", "alpha"), GROWTH)
def test_layers_have_all_active_parameters(resolution, alpha):
    config = tiny_config(network={**WIDE, "mapping_layers": 8})
    state, network = TrainState.create(config), config.network
    g = work.generator_layers(network, resolution, alpha < 1, "everywhere", mixing=0.9)
    d = work.discriminator_layers(network, resolution, alpha < 1, "everywhere")
    for layers, module in ((g, state.generator), (d, state.discriminator)):
        active = sum(p.numel() for p in module.active_parameters(resolution, alpha))
        assert sum(layer.parameters for layer in layers) == active


def test_work_and_bytes_grow_with_the_batch_but_weights_are_read_once_for_all():
    one, eight = (work.iteration(PAPER, 8, batch=n) for n in (1, 8))
    assert eight.flops == pytest.approx(8 * one.flops, rel=1e-12)
    assert one.moved < eight.moved < 2 * one.moved
    half = work.iteration(PAPER, 8, batch=8, number_bytes=2)
    assert half.flops == eight.flops
    assert half.moved < eight.moved
    assert work.Work(flops=6.0, moved=8.0).bound(3.0, 2.0) == 6.0


def test_medians_quartiles_and_ratios_of_rounds():
    found = contest.Spread.of([4.0, 1.0, 3.0, 2.0, 5.0])
    assert (found.median, found.low, found.high) == (3.0, 2.0, 4.0)
    assert contest.Spread.of([7.0]) == contest.Spread(7.0, 7.0, 7.0)
    assert found.per(12.0) == contest.Spread(4.0, 3.0, 6.0)
    slow = contest.Result("slow", seconds=[2.0, 30.0, 8.0, 1.0])
    fast = contest.Result("fast", seconds=[1.0, 10.0, 4.0])  # failed in the fourth round
    assert contest.ratio(slow, fast).median == 2.0  # not 8 / 4 of medians: rounds are compared


def test_numbers_have_three_digits():
    values = [0.0, 0.0123456, 1.5, 99.96, 123.4, 12345.6]
    assert [*map(contest.number, values)] == ["0", "0.0123", "1.5", "100", "123", "12,346"]
    table = contest.markdown([{"a": "1"}, {"a": "22", "b": "3"}])
    assert table.splitlines() == ["|  a | b |", "|---:|--:|", "|  1 |   |", "| 22 | 3 |"]


def test_both_workers_of_a_contest_have_the_same_threads_and_allocator(monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    tuned, default = (contest.environment_for(2, malloc) for malloc in ("tuned", "default"))
    assert tuned["OMP_NUM_THREADS"] == default["OMP_NUM_THREADS"] == "2"
    assert not [name for name in default if name.startswith("MALLOC_")]
    assert tuned.keys() - default.keys() == set(contest.MALLOC["tuned"])


def test_a_contest_runs_in_rounds_and_tells_who_failed(tmp_path):
    log = tmp_path / "log"
    (tmp_path / "trials.py").write_text(
        "import pathlib\n"
        "from contest import Trial\n"
        "def good(settings):\n"
        "    def once():\n"
        "        with pathlib.Path(settings['log']).open('a') as file:\n"
        "            file.write(settings['name'])\n"
        "    return Trial(once, facts={'n': settings['n']})\n"
        "def bad(settings):\n"
        "    raise MemoryError('far too\\nlarge')\n"
        "def gone(settings):\n"
        "    raise SystemExit(3)\n"
    )
    settings = {"log": str(log), "repeat_seconds": 0, "n": 5}
    contenders = [
        contest.Contender("a", "trials:good", settings | {"name": "a"}, tmp_path),
        contest.Contender("b", "trials:good", settings | {"name": "b"}, tmp_path),
        contest.Contender("bad", "trials:bad", settings, tmp_path),
        contest.Contender("gone", "trials:gone", settings, tmp_path),
    ]
    environment = contest.environment_for(1, "default")
    results = contest.contest(contenders, environment, seconds=0, min_rounds=3)
    a, b, bad, gone = results
    assert log.read_text().endswith("abbaab")  # after calls that warm up
    assert len(a.seconds) == len(b.seconds) == 3
    assert (a.calls, a.facts) == (1, {"n": 5})
    assert (bad.seconds, bad.error) == ([], "MemoryError: far too large")
    assert (gone.seconds, gone.error) == ([], "the process ended with exit code 3")


def test_memory_is_what_is_needed_beyond_the_beginning():
    memory = contest.Memory("cpu")
    before = memory.peak()
    block = bytearray(b"x") * 2**26
    del block
    if before is not None:  # None: not Linux
        assert memory.peak() - before == pytest.approx(2**26, rel=0.2)


def outcome_of(program, folder, limit=60.0, **options):
    part = everything.Part("part", "does it?", ["-c", program], **options)
    return everything.run(part, limit, folder)


def test_a_table_of_before_does_not_stand_for_a_part_that_makes_none(tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "old.md").write_text("# Old")
    assert everything.tables(tmp_path, [outcome_of("pass", tmp_path)]) == ""


def test_a_part_that_fails_or_takes_too_long_says_so(tmp_path):
    assert outcome_of("print('yes')", tmp_path, check=True).result == "passed"
    assert (tmp_path / "part.log").read_text() == "yes\n"
    assert outcome_of("", tmp_path).result == "measured"
    assert outcome_of("raise SystemExit(2)", tmp_path, check=True).result == "failed"
    assert outcome_of("raise SystemExit(143)", tmp_path, good=(0, 143)).result == "measured"
    late = outcome_of("import time; time.sleep(600)", tmp_path, 0.2)
    assert (late.result, late.good) == ("cut off", False)
    log = tmp_path / "everything.json"
    text = everything.report("Title", [late], tmp_path, "cpu", "# Table")
    assert "part was cut off." in text and json.loads(log.read_text())["parts"][0]["limit"] == 0.2


@pytest.mark.parametrize(("waits", "result"), [(True, "cut off"), (False, "measured")])
def test_what_a_part_has_started_ends_with_it(tmp_path, waits, result):
    child = "import time, sys; print('begun', flush=True); time.sleep(600)"
    program = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "print(child.stdout.readline(), child.pid, flush=True)\n"
        f"{waits} and child.wait()"
    )
    assert outcome_of(program, tmp_path, 5.0 if waits else 600.0).result == result
    words = (tmp_path / "part.log").read_text().split()
    if words:  # the machine had time to begin it
        until = time.monotonic() + 60
        while Path(f"/proc/{words[-1]}/exe").exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert not Path(f"/proc/{words[-1]}/exe").exists()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_part_has_a_program_and_checks_come_first(device, tmp_path, monkeypatch):
    parts = everything.parts(device, tmp_path)
    kinds = [part.check for part in parts]
    assert kinds == sorted(kinds, reverse=True) and len({part.name for part in parts}) == len(parts)
    assert all(Path(part.arguments[0]).is_file() or part.arguments[0] == "-m" for part in parts)
    marked = [Path(name).name for name in everything.marked_files()]
    assert {"test_w_avg_leak.py", "test_graphs.py", "test_rehearsal.py"} <= set(marked)


@pytest.mark.slow
def test_everything_is_asked_of_a_cpu(tmp_path):
    options = ["--device", "cpu", "--minutes", "60", "--out", str(tmp_path)]
    done = CliRunner().invoke(everything.main, options, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    parts = json.loads((tmp_path / "everything.json").read_text())["parts"]
    assert {part["result"] for part in parts} == {"passed", "measured"} and len(parts) == 8
    text = (tmp_path / "everything.md").read_text()
    for title in ("# One training iteration", "# Generation", "# Start", "# A real run of quickst"):
        assert title in text


@pytest.mark.slow
def test_a_training_makes_its_card(tmp_path):
    data = Path(__file__).parents[1] / "datasets" / "emoji-32.zip"
    options = ["--train", "--data", str(data), "--config", "quickstart", "--kimg", "0.064"]
    arguments = [*options, "--out", str(tmp_path)]
    done = CliRunner().invoke(everything.main, arguments)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "everything.md").read_text()
    assert "(psi-0.7/grid.png)" in text and "(neighbours.png)" in text and "| eff-fd500 |" in text
    assert "64 images were shown." in text
    assert (tmp_path / "run" / "report.html").is_file()
    again = CliRunner().invoke(everything.main, arguments)
    assert again.exit_code == 2 and "choose another --out" in again.output


def test_an_unknown_revision_is_refused():
    with (
        pytest.raises(ValueError, match="no git revision 'nonsense'"),
        contest.tree_of("nonsense"),
    ):
        pass


@pytest.mark.slow
def test_the_iteration_benchmark_measures_ours_and_the_textbook(tmp_path):
    tiny = ("max_channels=8", "resolution=8", "mapping_width=8", "z_dim=8", "w_dim=8")
    options = [w for t in tiny for kind in ("-o", "--their") for w in (kind, f"network.{t}")]
    arguments = ["4", "--batch", "4", "--seconds", "0", "--min-rounds", "2", "--no-peaks"]
    command = [*arguments, *options, "--threads", "1", "--out", str(tmp_path)]
    done = CliRunner().invoke(iteration.main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "iteration.json").read_text())
    assert record["against"] == "textbook"
    assert {"date", "revision", "cpu", "cores", "threads", "allocator", "torch"} <= set(
        record["conditions"]
    )
    (row,) = record["rows"]
    assert (row["resolution"], row["batch"], row["precision"]) == (4, 4, "fp32")
    for result in (row["ours"], row["theirs"]):
        assert len(result["seconds"]) == 2
        assert min(result["seconds"]) > 0
        assert result["error"] == ""
    rounds = zip(row["theirs"]["seconds"], row["ours"]["seconds"], strict=True)
    assert row["ratio"]["median"] == pytest.approx(sum(a / b for a, b in rounds) / 2)
    assert row["flops_per_second"] == row["work"]["flops"] / row["seconds"]["median"]
    assert "| px | batch |" in (tmp_path / "iteration.md").read_text()
