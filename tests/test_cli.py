"""The group `stylegan` and its commands other than train and generate."""

import errno
import os
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

from stylegan.cli import COMMANDS, common, main
from stylegan.cli.common import Command
from stylegan.cli.info import differences_from_paper
from stylegan.config import TrainConfig, to_toml
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
    assert done.stdout.splitlines()[-3:] == ["[]", "{0}", "False"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name):
    command = main.get_command(click.Context(main), name)
    inner = [(name, kind) for kind in getattr(command, "commands", ())]  # of `figure`, `video`
    for words in [(name,), *inner]:
        text, called = told(*words, "--help"), " ".join(words)
        assert called in text.split("Options:")[0].replace(f"Usage: main {called}", "", 1)
        assert "--debug" in text or (inner and words == (name,))


def test_an_unknown_command_is_a_usage_error():
    for name, near in {"trian": "train", "explor": "explore"}.items():
        message = refused(name, exit_code=2)
        assert message == f"Error: No such command '{name}'. Did you mean {near}?"


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


def test_sigterm_ends_a_command_without_leaving_a_part_of_a_file(tmp_path):
    program = (
        "import signal, sys, click; from pathlib import Path; from stylegan import cli\n"
        "from stylegan.atomic import replacing\n"
        "@click.command()\n"
        "def stopped():\n"
        "    with replacing(Path('film.mp4')):\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "cli.LazyGroup.get_command = lambda *_: stopped\n"
        "cli.main(['video'])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True)
    assert (done.returncode, list(tmp_path.iterdir())) == (143, []), done.stderr


def test_numbers_agree_with_their_nouns():
    assert [count(n, "image") for n in (0, 1, 1234)] == ["0 images", "1 image", "1,234 images"]


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


# Values of options


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "emoji32", "--seeds", "a"], "is neither a seed nor a range"),
        (["generate", "emoji32", "--seeds", 2**32], "a seed is a whole number from 0"),
        (["generate", "emoji32", "--batch", 0], "0 is not in the range 1<=x<="),
        (["generate", "emoji32", "--psi", "1e300"], "is not in the range"),
        (["generate", "emoji32", "--cutoff", "-1"], "is not a whole number from 0"),
        (["generate", ""], "the name is empty"),
        (["figure", "mixing", "emoji32", "--layers", "0-999999999"], "a layer is a whole number"),
        (["video", "walk", "emoji32", "--seconds", "nan"], "nan is not a finite number"),
        (["convert", "emoji32", "a.pt", "--active", "9x"], "is not a size like 512x384"),
        (["train", "--seed", "x"], "is not a valid integer"),
        (["generate", "emoji32", "--device", "xpu"], "is not a device: auto, cpu, cuda"),
    ],
)
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
