"""The benchmarks measure as documented; how fast anything is, is not tested."""

import bits
import click
import contest
import counting
import everything
import gpu_model
import iteration
import numpy as np
import pytest
import quality
import torch
import torch.nn.functional as F
from click.testing import CliRunner
from helpers.pictures import save_picture

NARROW = ["network.max_channels=8", "network.mapping_layers=2", "network.mapping_width=16"]


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
        part = everything.Part("part", ["-c", program])
        (row,) = everything.run([part], "cpu", limit, tmp_path)
        return row["result"]

    assert result("print('yes')") == "passed"
    assert (tmp_path / "part.log").read_text() == "yes\n"
    assert result("raise SystemExit(2)") == "failed"
    assert result("import time; time.sleep(600)", 0.2) == "cut off"


def test_a_convolution_costs_its_products_its_bytes_and_a_kernel_for_each_gradient():
    x = torch.empty(2, 3, 8, 8, device="meta", requires_grad=True)
    weight = torch.empty(5, 3, 3, 3, device="meta", requires_grad=True)

    def once():
        F.conv2d(x, weight, padding=1).square().sum().backward()
        x.grad = weight.grad = None

    count = counting.counted(once)
    products = [kernel for kernel in count.kernels if kernel.flops]
    image, result, kernel = 2 * 3 * 64, 2 * 5 * 64, 5 * 3 * 9
    assert [k.flops for k in products] == [2 * 3 * 9 * result] * 3
    assert [k.bytes for k in products] == [4 * (image + result + kernel)] * 3
    half = counting.counted(once, autocast=torch.bfloat16)
    halves = [kernel for kernel in half.kernels if kernel.flops]
    assert [k.bytes for k in halves] == [2 * (image + result + kernel)] * 3
    assert {k.precision for k in halves} == {"half"}
    gpu = counting.Gpu(bandwidth=1e3, flops={"fp32": 1e30, "tf32": 1e30, "half": 1e30})
    assert count.device_milliseconds(gpu) == pytest.approx(count.bytes)
    assert count.host_milliseconds() == pytest.approx(6e-3 * count.operations)


@pytest.mark.parametrize("program", ["ours", "textbook"])
def test_a_step_is_counted_in_each_precision(program):
    counts = {}
    for precision in gpu_model.PRECISIONS:
        settings = gpu_model.settings_of("8x4", program, precision)
        settings["overrides"] += NARROW
        counts[precision] = gpu_model.count_of(settings)
    exact, tf32, half = counts.values()
    used = [{k.precision for k in count.kernels if k.flops} for count in counts.values()]
    assert used[0] == {"fp32"}
    assert "tf32" in used[1] and "half" not in used[1]
    assert "half" in used[2]
    assert exact.flops == tf32.flops == half.flops > 0
    assert exact.bytes == tf32.bytes > 0
    assert exact.operations == tf32.operations < half.operations
    gpu = counting.Gpu(bandwidth=1e30, flops={"fp32": 1e3, "tf32": 1e6, "half": 1e9})
    times = [count.device_milliseconds(gpu) for count in counts.values()]
    assert times[0] > max(times[1:])
    assert [count.waits for count in counts.values()] == [[], [], []]
    assert program == "ours" or exact.callbacks == 0


def test_the_meta_device_counts_what_a_cpu_does():
    counts = []
    for device in ("meta", "cpu"):
        settings = gpu_model.settings_of("8x4", "textbook", "fp32") | {"device": device}
        settings["overrides"] += [*NARROW, "style_mixing=0.0"]
        trial = iteration.textbook(settings)
        for _ in range(2):
            with counting.lists_of_tensors(), counting.Counter(device) as counter:
                trial.once()
        counts.append([k for k in counter.count.kernels if k.flops])
    assert counts[0] == counts[1] != []


@pytest.mark.parametrize("function", [F.conv2d, F.conv_transpose2d, F.linear, torch.matmul])
def test_the_stand_in_for_autocast_casts_as_autocast(function):
    shapes = ((2, 3), (3, 3)) if function in (F.linear, torch.matmul) else ((1, 3, 4, 4), (3,) * 4)
    for kind in (torch.float32, torch.float64, torch.bfloat16):
        results = []
        for device, autocast in (("cpu", torch.autocast), ("meta", counting.Autocast)):
            x, weight = (torch.ones(shape, dtype=kind, device=device) for shape in shapes)
            with autocast(device, torch.bfloat16):
                results.append(function(x, weight).dtype)
                with autocast(device, enabled=False):
                    results.append(function(x, weight).dtype)
        assert results[:2] == results[2:]


def test_a_table_is_replaced_on_its_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{gpu_model.MARKS[0]}\nold\n{gpu_model.MARKS[1]}\nafter\n")
    gpu_model.write_into(page, "new")
    assert page.read_text().split("\n")[2] == "new"
    page.write_text("nothing")
    with pytest.raises(Exception, match="has no table between"):
        gpu_model.write_into(page, "new")


def test_results_of_other_settings_are_left_alone_and_pictures_are_averaged_down(tmp_path):
    file = tmp_path / "out" / "settings.json"
    for _ in range(2):
        quality.keep_settings(file, {"kimg": 60.0})
    with pytest.raises(click.UsageError, match="holds results of other settings"):
        quality.keep_settings(file, {"kimg": 61.0})
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[::2, ::2] = 200  # one of four
    folder = save_picture(tmp_path / "pictures" / "0.png", pixels)
    assert np.array_equal(quality.small_pictures(folder, 2), np.full((1, 3, 2, 2), 50))


@pytest.mark.slow
def test_a_machine_is_checked_and_measured(tmp_path):
    options = ["--device", "cpu", "--minutes", "60", "--out", str(tmp_path)]
    done = CliRunner().invoke(everything.main, options, catch_exceptions=False)
    text = (tmp_path / "everything.md").read_text()
    assert done.exit_code == 0, text
    assert text.count("| passed |") == 11
    for title in ("# One training iteration", "# Generation", "# A real run of quickstart"):
        assert title in text


def test_bits_are_the_same_again_and_follow_the_options(tmp_path):
    pictures = bits.write_pictures(tmp_path / "pictures")
    first, again = (bits.digest({}, pictures, tmp_path / name) for name in ("first", "again"))
    assert first == again
    assert first != bits.digest(bits.TINY["ADA"], pictures, tmp_path / "ada")
