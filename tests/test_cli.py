"""The group `stylegan` and its commands other than train and generate."""

import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from commands import refused, stylegan, told
from PIL import Image
from tiny_generators import TINY, random_generator

from stylegan.atomic import replacing
from stylegan.cli import COMMANDS, common, main, terminal
from stylegan.cli.common import Command
from stylegan.cli.info import differences_from_paper
from stylegan.config import TrainConfig, load_config, to_toml
from stylegan.data import Store, prepare
from stylegan.files import checkpoint
from stylegan.files.download import BUNDLED
from stylegan.files.formats.own import save_discriminator, save_generator
from stylegan.messages import count, printable, readable
from stylegan.networks import Discriminator, Generator, NetworkConfig
from stylegan.schedule import Position, ScheduleConfig
from stylegan.training import TrainState

ROOT = Path(__file__).parent.parent
SNAPSHOT = ROOT / "tests" / "reference" / "official_snapshot.pkl"


@pytest.fixture
def photos(tmp_path):
    """Six pictures of 16 and more pixels in two folders, one broken, one that is no image."""
    folder = tmp_path / "photos"
    for i, name in enumerate(("cats/a.png", "cats/b.png", "dogs/c.jpg", "dogs/d.png")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.RandomState(i).randint(0, 256, (16 + i, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)
    (folder / "cats" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "notes.txt").write_text("not an image")
    return folder


# The group


def test_help_imports_no_command_and_that_of_a_command_not_torch():
    program = (
        "import sys; from click.testing import CliRunner; from stylegan.cli import COMMANDS, main; "
        "print(CliRunner().invoke(main, ['--help']).output); "
        "print(sorted(m for m in sys.modules if m.startswith('stylegan.cli.'))); "
        "print({CliRunner().invoke(main, [name, '--help']).exit_code for name in COMMANDS}); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert all(f"  {name} " in done.stdout for name in COMMANDS)
    light = "['stylegan.cli.quiet', 'stylegan.cli.terminal']"
    assert done.stdout.splitlines()[-3:] == [light, "{0}", "False"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name):
    command = main.get_command(click.Context(main), name)
    inner = [(name, kind) for kind in getattr(command, "commands", ())]  # of `figure`, `video`
    for words in [(name,), *inner]:
        text, called = told(*words, "--help"), " ".join(words)
        assert called in text.split("Options:")[0].replace(f"Usage: main {called}", "", 1)
        assert "--debug" in text or (inner and words == (name,))


def test_an_unknown_command_is_a_usage_error():
    result = stylegan("trian")
    assert result.exit_code == 2
    assert "No such command 'trian'" in result.stderr


def test_the_version_is_that_of_the_package():
    assert told("--version").strip().endswith("0.1.0")


# Errors


def failing(error):
    @click.command(cls=Command)
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("two\n  lines"), "Error: two lines\n"),
        (FileNotFoundError("no such thing"), "Error: no such thing\n"),
        (OSError(errno.ENOSPC, "No space left on device", "a.pt"), "Error: a.pt: No space left"),
        (OSError(errno.EIO, "Input/output error"), "Error: [Errno 5] Input/output error\n"),
        (ValueError(), "Error: ValueError\n"),
        (OSError(), "Error: OSError\n"),
    ],
)
def test_mistakes_of_the_user_are_one_line(error, line):
    result = CliRunner().invoke(failing(error), [])
    assert result.exit_code == 1
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1
    assert CliRunner().invoke(failing(error), ["--debug"]).exception is error


def test_mistakes_of_ours_keep_their_traceback():
    error = AssertionError("impossible")
    assert CliRunner().invoke(failing(error), []).exception is error


def test_a_command_may_have_a_debug_option_of_its_own():
    error = ValueError("seen")

    @click.command(cls=Command)
    @click.option("--debug", is_flag=True)
    def command(debug):
        assert debug
        raise error

    assert CliRunner().invoke(command, ["--debug"]).exception is error
    assert len([p for p in command.params if p.name == "debug"]) == 1


@pytest.fixture
def dies_of_sigterm():
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_ends_a_command_without_leaving_a_part_of_a_file(
    tmp_path, dies_of_sigterm, monkeypatch
):
    monkeypatch.delenv("WORLD_SIZE", raising=False)

    @click.command(cls=Command)
    def command():
        with replacing(tmp_path / "film.mp4") as file:
            file.write(b"half")
            signal.raise_signal(signal.SIGTERM)

    result = CliRunner().invoke(command, [])
    assert (result.exit_code, result.stderr) == (143, "ended\n")
    assert not list(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_what_sigterm_makes_of_a_library_is_no_error_of_its_own(dies_of_sigterm):
    @click.command(cls=Command)
    def command():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            raise AttributeError("type object 'tqdm' has no attribute '_lock'")

    result = CliRunner().invoke(command, [])
    assert (result.exit_code, result.stderr) == (143, "ended\n")


@pytest.mark.parametrize(
    ("settings", "processes", "own"),
    [({}, "1", False), ({}, "2", True), ({"handles_signals": True}, "1", True)],
)
def test_sigterm_is_left_to_who_handles_it_and_to_torchrun(
    dies_of_sigterm, monkeypatch, settings, processes, own
):
    monkeypatch.setenv("WORLD_SIZE", processes)
    found = []

    @click.command(cls=Command, **settings)
    def command():
        found.append(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)

    assert CliRunner().invoke(command, []).exit_code == 0
    assert found == [own]


def test_numbers_agree_with_their_nouns():
    assert [count(n, "image") for n in (0, 1, 1234)] == ["0 images", "1 image", "1,234 images"]


# schedule


def cells(line):
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_the_schedule_of_the_paper_has_fifteen_phases_up_to_25_000_kimg():
    lines = told("schedule").splitlines()
    assert len(lines) == 17
    assert cells(lines[0])[:4] == ["kimg", "resolution", "alpha", "batch"]
    assert cells(lines[1]) == ["0 - 600", "8", "1", "128", "0.001", "0.001", "4,688", "4.3"]
    assert cells(lines[8])[:6] == ["4,200 - 4,800", "128", "0 - 1", "16", "0.0015", "0.0015"]
    assert cells(lines[15])[:4] == ["8,400 - 25,000", "1024", "1", "4"]
    assert lines[16] == "the paper: 25,000 kimg in total, for 1 process"


def test_batches_are_those_of_the_number_of_processes():
    lines = told("schedule", "--processes", 8).splitlines()
    assert cells(lines[1])[3] == "256"
    assert lines[-1].endswith("for 8 processes")


def test_overrides_change_the_schedule():
    options = ["-o", "network.resolution=16", "-o", "schedule.ramp_kimg=300"]
    lines = told("schedule", *options, "-o", "schedule.total_kimg=900").splitlines()
    assert [cells(line)[0] for line in lines[1:-1]] == ["0 - 600", "600 - 900"]
    assert cells(lines[1])[4] == "0 - 0.001"
    assert cells(lines[2])[2] == "0 - 0.5"


def test_bundled_configurations_have_a_schedule():
    total = load_config("quickstart").schedule.total_kimg
    assert f"quickstart: {total:,.10g} kimg in total" in told("schedule", "quickstart")


def test_a_run_has_the_schedule_it_was_begun_with(tmp_path):
    config = load_config(None, ["schedule.total_kimg=100"], 8)
    (tmp_path / "config.toml").write_text(to_toml(config))
    lines = told("schedule", tmp_path).splitlines()
    assert cells(lines[1])[:4] == ["0 - 100", "8", "1", "256"]
    assert lines[-1].endswith("for 8 processes")
    assert "its schedule is fixed" in refused("schedule", tmp_path, "--processes", 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quikstart"], "no configuration file or name 'quikstart'; did you mean quickstart?"),
        (["-o", "schedule.total_kimgs=1"], "did you mean schedule.total_kimg?"),
        (["-o", "network.resolution=100"], "resolution 100 is not a power of two from 4 to 1024"),
        (["."], ". holds no config.toml, so it is not a run folder"),
    ],
)
def test_a_schedule_that_cannot_be_says_why(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused("schedule", *arguments)


# prepare and check


def test_prepare_makes_the_store_of_the_library_and_names_what_it_skipped(photos, tmp_path):
    out = tmp_path / "store"
    text = told("prepare", photos, out, "--resolution", 16, "--crop", "center")
    store = Store(out)
    assert (store.num_images, store.resolution, store.label_names) == (4, 16, ["cats", "dogs"])
    assert text.startswith(f"{out}: 4 images of 16x16, 3 channels, 2 labels\n")
    assert "left out: 1 image: not a PNG" in text and "damaged: cats/broken.png\n" in text
    assert f"stylegan train --data {out}" in text


def test_prepare_passes_its_options_on(photos, tmp_path):
    out = tmp_path / "store"
    told(
        *["prepare", photos, out, "--resolution", 8, "--crop", "pad", "--channels", 1],
        *["--include", "dogs", "--workers", 1, "--strict"],
    )
    store = Store(out)
    assert (store.num_images, store.channels, store.label_names) == (2, 1, ["dogs"])
    assert tuple(store.active_rectangle) == (1, 7, 0, 8)


def test_prepare_shows_its_progress_on_stderr_only(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(common, "BAR_SECONDS", 0)
    result = stylegan("prepare", photos, tmp_path / "store")
    assert "1/5" in result.stderr
    assert "/5" not in result.stdout


def test_prepare_strict_refuses_and_writes_nothing(photos, tmp_path):
    out = tmp_path / "store"
    assert "cats/broken.png" in refused("prepare", photos, out, "--strict")
    assert not out.exists()


def test_check_counts_sizes_modes_and_labels_and_lists_the_bad(photos):
    text = told("check", photos)
    assert text.splitlines()[0] == f"folder {photos}: 4 usable images"
    assert "sizes: 20x16 to 20x19, 4 different" in text
    assert text.splitlines()[4:7] == [
        "labels of fewer than 50 images are learned poorly: 2 cats, 2 dogs",
        "resolution  images that reach it",
        "     16x16                     4",
    ]
    assert "modes: 4 RGB" in text
    assert "2 labels: 2 cats, 2 dogs" in text
    assert "left out: 1 image: not a PNG" in text and "damaged: cats/broken.png\n" in text
    assert "ignored: 1 .txt file" in text
    assert "\n  cats/broken.png: not a PNG" in told("check", photos, "--list")


def test_check_strict_fails_with_the_same_report(photos):
    result = stylegan("check", photos, "--strict")
    assert result.exit_code == 1
    assert result.stdout == told("check", photos)
    (photos / "cats" / "broken.png").unlink()
    told("check", photos, "--strict")


def test_check_at_a_resolution_lists_smaller_images(photos):
    text = told("check", photos, "--resolution", 16, "--crop", "pad")
    assert "cats/a.png" not in text
    text = told("check", photos, "--resolution", 32)
    assert "left out: 4 images smaller than 32x32 (largest 20x19): cats/a.png, " in text


def test_check_compares_a_store_with_its_hashes(photos, tmp_path):
    prepare(photos, tmp_path / "store")
    assert f"store {tmp_path / 'store'}: 4 usable images" in told("check", tmp_path / "store")
    path = tmp_path / "store" / "0004.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    assert "0004.npy has changed" in refused("check", tmp_path / "store")


# info


def facts(source):
    lines = told("info", source).splitlines()
    return {line[:12].strip(): line[13:] for line in lines}


def test_info_of_a_generator_file(tmp_path):
    path = tmp_path / "mine.pt"
    generator = Generator(TINY)
    save_generator(path, generator, images_seen=1234567, resolution=8, alpha=0.25, cutoff=None)
    found = facts(path)
    number = sum(p.numel() for p in generator.parameters())
    assert found["kind"] == f"generator file {path}"
    expected = "16x16, 3 channels, trained up to 8x8 (fading in, alpha 0.25)"
    assert found["images"] == expected
    assert found["parameters"] == f"{number:,} in the generator"
    assert found["trained on"] == "1,234,567 images seen"
    assert found["truncation"] == "psi 0.7, cutoff all"
    assert "resolution = 16, z_dim = 8, w_dim = 8" in found["config"]
    assert found["file size"] == "0.0 MiB"
    assert found["use"] == f"stylegan generate {path}; stylegan train --init-from {path}"


def test_info_of_labels_and_padding(tmp_path):
    path = tmp_path / "mine.pt"
    config = NetworkConfig(resolution=8, z_dim=4, label_dim=2, max_channels=4)
    rectangle = [1, 7, 0, 8]
    save_generator(path, Generator(config), label_names=["a", "b"], active_rectangle=rectangle)
    found = facts(path)
    assert found["labels"] == "2: a, b"
    assert found["active part"] == "rows 1 to 7, columns 0 to 8; rest is padding"


def test_info_of_a_state_and_of_its_run(tmp_path):
    schedule = ScheduleConfig(resolution=16, stable_kimg=1, fade_kimg=1, total_kimg=4)
    config = TrainConfig(network=TINY, schedule=schedule)
    state = TrainState.create(config)
    state.position = Position(500, 500)
    path = tmp_path / "state-000000500.pt"
    checkpoint.save(path, "state", state.to_payload())
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert facts(path)["images"] == "16x16, 3 channels, trained up to 8x8"
    found = facts(tmp_path)
    assert found["kind"] == f"state file {path}"
    assert found["run folder"] == "0 generator and 1 state files"
    assert f"stylegan train --out {tmp_path}" in found["use"]


def test_info_of_an_official_snapshot():
    found = facts(SNAPSHOT)
    assert found["kind"] == f"official snapshot {SNAPSHOT}"
    assert found["images"] == "32x32, 3 channels"
    assert found["parameters"] == "20,654 in the generator"


def test_info_of_a_discriminator_says_what_it_is(tmp_path):
    path = tmp_path / "critic.pt"
    discriminator = Discriminator(TINY)
    save_discriminator(path, discriminator)
    found = facts(path)
    assert found["kind"] == f"discriminator file {path}"
    assert found["parameters"] == f"{sum(p.numel() for p in discriminator.parameters()):,}"


def test_info_of_a_store(photos, tmp_path):
    prepare(photos, tmp_path / "store")
    found = facts(tmp_path / "store")
    assert found["images"] == "4 of 16x16, 3 channels, crop center"
    assert found["labels"] == "cats, dogs"
    assert found["made from"] == "photos, 1 image left out"


def test_info_of_the_paper_s_network_names_no_differences():
    assert differences_from_paper(NetworkConfig()) == "the paper's"


def test_info_of_what_is_nothing_of_the_kind_is_an_error(tmp_path):
    assert "accepted are a run folder" in refused("info", tmp_path / "gone")
    (tmp_path / "words.pt").write_text("words")
    message = refused("info", tmp_path / "words.pt")
    assert "words.pt is not a checkpoint of this project, or a truncated one" in message
    assert "neither generator-*.pt nor state-*.pt" in refused("info", tmp_path)


# Text that others made


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Käse 猫.png", "Käse 猫.png"),
        (Path("a\nb\x1b[31m.png"), r"'a\nb\x1b[31m.png'"),
        ("caf\udce9.png", r"'caf\udce9.png'"),
        ("a\u202eb", r"'a\u202eb'"),
        ("x" * 300, "x" * 200 + "..."),
        ("", "''"),
    ],
)
def test_names_that_others_chose_are_readable(name, shown):
    assert readable(name) == shown


def test_a_line_for_a_terminal_stays_one_and_gives_no_orders():
    assert printable("ab\né\r\x1b[2J\x07\udcff") == r"ab\né\r\x1b[2J\x07\udcff"


def test_no_name_or_label_gives_a_terminal_orders(tmp_path):
    path = tmp_path / "a\x1b[31m\nb.pt"
    save_generator(
        path, random_generator(replace(TINY, label_dim=2)), label_names=["x\x1b[2J\ny", "z"]
    )
    for words in [("info", path), ("generate", path, "--seeds", 0, "--out", tmp_path / "o\x1b")]:
        result = stylegan(*words)
        assert result.exit_code == 0
        assert all(line.isprintable() for line in result.output.splitlines())
        assert not any(line.startswith(("b.pt", "y")) for line in result.output.splitlines())


# The terminal


class Faulty:
    """A stream that takes nothing."""

    def __init__(self, number):
        self.number = number

    def write(self, text):
        raise OSError(self.number, os.strerror(self.number))

    flush = lambda self: self.write("")  # noqa: E731


def ended(body, monkeypatch, **streams):
    """The exit code of a command of that body, in the place of a process."""

    @click.command(cls=Command, handles_signals=body.__name__ == "training")
    def command():
        body()

    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    with pytest.raises(SystemExit) as ending:
        command.main([])
    return ending.value.code


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE])
def test_messages_that_cannot_be_written_do_not_end_a_training(number, monkeypatch):
    done = []

    def training():
        terminal.say("progress")
        print("a warning", file=sys.stderr)
        done.append(True)

    assert ended(training, monkeypatch, stdout=Faulty(number), stderr=Faulty(number)) == 0
    assert done


def test_results_that_nobody_reads_end_a_command_quietly(monkeypatch, capsys):
    def results():
        terminal.say("result")
        raise AssertionError("not reached")

    assert ended(results, monkeypatch, stdout=Faulty(errno.EPIPE)) == 141
    assert capsys.readouterr().err == ""


def test_results_that_do_not_fit_on_the_disk_are_an_error(monkeypatch, capsys):
    def results():
        terminal.say("result")

    assert ended(results, monkeypatch, stdout=Faulty(errno.ENOSPC)) == 1
    assert capsys.readouterr().err == "Error: standard output: No space left on device\n"


def test_closed_streams_are_no_fault(monkeypatch):
    def results():
        terminal.say("result")
        terminal.note("on the way")

    assert ended(results, monkeypatch, stdout=None, stderr=None) == 0


def test_ctrl_c_is_quiet_also_if_a_module_turns_it_into_another_error(monkeypatch, capsys):
    def importing():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("half a module") from None

    assert ended(importing, monkeypatch) == 130
    assert capsys.readouterr().err == "ended\n"


def test_a_long_error_is_cut_and_its_codes_are_escaped():
    result = CliRunner().invoke(failing(ValueError("\x1b[2J" + 9999 * "x")), [])
    assert result.stderr.startswith(r"Error: \x1b[2Jxx")
    assert len(result.stderr) < 1600


# Values of options

BIG, DIGITS = "1" + 20 * "0", 5000 * "9"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "emoji32", "--seeds", BIG], "is neither a seed nor a range"),
        (["generate", "emoji32", "--seeds", f"0-{DIGITS}"], "is neither a seed nor a range"),
        (["generate", "emoji32", "--seeds", 2**32], "a seed is a whole number from 0"),
        (["generate", "emoji32", "--batch", DIGITS], "is not a whole number from 1 to"),
        (["generate", "emoji32", "--psi", "1e300"], "1e300 is not a number from -1e+09 to 1e+09"),
        (["generate", "emoji32", "--cutoff", BIG], "is not a whole number from 0"),
        (["generate", ""], "the name is empty"),
        (["figure", "mixing", "emoji32", "--layers", f"0-{BIG}"], "is neither a layer nor"),
        (["figure", "mixing", "emoji32", "--layers", "0-999999999"], "a layer is a whole number"),
        (["video", "walk", "emoji32", "--seconds", "nan"], "nan is not a number from 0.001"),
        (["directions", "emoji32", "--samples", 10**14], "is not a whole number from 2 to"),
        (["convert", "emoji32", "a.pt", "--active", f"{DIGITS}x4"], "is not a size like 512x384"),
        (["train", "--hang-minutes", "nan"], "nan is not a number from 0 to 10080"),
        (["train", "--seed", DIGITS], "is not a whole number from 0 to 9223372036854775807"),
        *((["generate", "emoji32", "--device", name], "is not a device: auto, cpu, cuda")
          for name in ("xpu", "meta", "fpga", "hpu", "mkldnn", "cpu:7", "cuda:-1", "\x1b[2J", "")),
    ],
)  # fmt: skip
def test_every_option_refuses_nonsense_in_one_line(words, message):
    line = refused(*words, exit_code=2)
    assert message in line
    assert len(line) < 160 and line.isprintable()


def test_a_source_is_a_regular_file_or_a_folder(tmp_path):
    pipe = tmp_path / "pipe.pt"
    os.mkfifo(pipe)
    for words in [
        ("info", pipe),
        ("generate", pipe),
        ("generate", "emoji32", "--latents", pipe),
        ("project", "emoji32", pipe),
        ("train", "--data", pipe),
        ("check", "/dev/zero"),
    ]:
        assert "neither a regular file nor a folder" in refused(*words, exit_code=2)


def test_the_help_of_generate_lists_all_bundled_names():
    assert ", ".join(BUNDLED) in " ".join(told("generate", "--help").split())
