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

from stylegan.cli import COMMANDS, main
from stylegan.cli.common import Command
from stylegan.data import Store
from stylegan.files.formats.own import save_generator
from stylegan.networks import Generator

ROOT = Path(__file__).parent.parent


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


def test_sigterm_ends_a_command_without_leaving_a_part_of_a_file(tmp_path):
    program = (
        "import signal, sys, click; from pathlib import Path; from stylegan import cli\n"
        "from stylegan.disk import atomic_file\n"
        "@click.command()\n"
        "def stopped():\n"
        "    with atomic_file(Path('film.mp4')):\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "cli.LazyGroup.get_command = lambda *_: stopped\n"
        "cli.main(['video'])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True)
    assert (done.returncode, list(tmp_path.iterdir())) == (143, []), done.stderr


# prepare and check


def test_prepare_makes_a_store_as_asked_and_names_what_it_skipped(photos, tmp_path):
    out = tmp_path / "store"
    text = told("prepare", photos, out, "--resolution", 8, "--crop", "pad", "--channels", 1)
    store = Store(out)
    assert (store.num_images, store.channels, store.label_names) == (4, 1, ["cats", "dogs"])
    assert tuple(store.active_rectangle) == (1, 7, 0, 8)
    assert text.startswith(f"{out}: 4 images of 8x8, 1 channel, 2 labels\n")
    assert "left out: 1 image: not a PNG" in text and "damaged: cats/broken.png\n" in text
    assert f"stylegan train --data {out}" in text
    told("prepare", photos, tmp_path / "dogs", "--include", "dogs", "--workers", 1, "--strict")
    assert Store(tmp_path / "dogs").label_names == ["dogs"]


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
    assert (result.exit_code, result.stdout) == (1, told("check", photos))


# info


def test_info_of_a_generator_file(tmp_path):
    path = tmp_path / "mine.pt"
    generator = Generator(TINY)
    save_generator(path, generator, images_seen=1234567, resolution=8, alpha=0.25, cutoff=None)
    lines = told("info", path).splitlines()
    found = {line[:12].strip(): line[13:] for line in lines}
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


def test_info_of_what_is_nothing_of_the_kind_is_an_error(tmp_path):
    assert "accepted are a run folder" in refused("info", tmp_path / "gone")
    assert "neither generator-*.pt nor state-*.pt" in refused("info", tmp_path)


# Text that others made


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
        (["generate", "emoji32", "--batch", 0], "0 is not in the range 1<=x<="),
        (["generate", ""], "the name is empty"),
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
        ("generate", "emoji32", "--latents", pipe),
        ("check", "/dev/zero"),
    ]:
        assert "neither a regular file nor a folder" in refused(*words, exit_code=2)
