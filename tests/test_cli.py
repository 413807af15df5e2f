"""The group `stylegan` and its commands other than train and generate."""

import errno
import os

import click
import numpy as np
import pytest
from click.testing import CliRunner
from helpers.commands import refused, stylegan, told
from helpers.processes import ended, printed
from helpers.tiny_generators import LABELED, TINY, random_generator
from PIL import Image

from stylegan.cli import COMMANDS, main
from stylegan.cli.common import Command
from stylegan.data import Store
from stylegan.files.formats.own import save_generator
from stylegan.networks import Generator


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


def test_help_imports_no_command_and_that_of_a_command_not_torch(tmp_path):
    program = (
        "import sys; from click.testing import CliRunner; from stylegan.cli import COMMANDS, main; "
        "print(CliRunner().invoke(main, ['--help']).output); "
        "print(sorted(m for m in sys.modules if m.startswith('stylegan.cli.'))); "
        "print({CliRunner().invoke(main, [name, '--help']).exit_code for name in COMMANDS}); "
        "print('torch' in sys.modules)"
    )
    text = printed(tmp_path, "-c", program)
    assert all(f"  {name} " in text for name in COMMANDS)
    assert text.splitlines()[-3:] == ["['stylegan.cli.common']", "{0}", "False"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name):
    command = main.get_command(click.Context(main), name)
    inner = [(name, kind) for kind in getattr(command, "commands", ())]  # of `figure`, `video`
    for words in [(name,), *inner]:
        text, called = told(*words, "--help"), " ".join(words)
        assert called in text.split("Options:")[0].replace(f"Usage: main {called}", "", 1)
        assert "--debug" in text or (inner and words == (name,))


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
        (OSError(errno.ENOSPC, "No space left on device", "a.pt"), "Error: a.pt: No space left"),
    ],
)
def test_mistakes_of_the_user_are_one_line_and_ours_keep_their_traceback(error, line):
    result = CliRunner().invoke(failing(error), [])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith(line)
    assert CliRunner().invoke(failing(error), ["--debug"]).exception is error
    ours = AssertionError("impossible")
    assert CliRunner().invoke(failing(ours), []).exception is ours


@pytest.mark.parametrize(
    ("before", "name", "code", "line"),
    [
        ("", "SIGTERM", 143, "stopped by SIGTERM\n"),
        ("", "SIGINT", 130, "stopped by SIGINT\n"),
        ("", "SIGHUP", 129, "stopped by SIGHUP\n"),
        ("signal.signal(signal.SIGHUP, signal.SIG_IGN)", "SIGHUP", 0, ""),  # as under nohup
    ],
)
def test_a_signal_ends_a_command_with_one_line_and_without_leaving_a_part_of_a_file(
    before, name, code, line, tmp_path
):
    program = f"""
import signal, click
from pathlib import Path
from stylegan.cli.common import Command
from stylegan.disk import atomic_file
@click.command(cls=Command)
def stopped():
    try:
        with atomic_file(Path("film.mp4")):
            signal.raise_signal(signal.{name})
    except BaseException:
        raise AttributeError("of a library that was half imported")
{before}
stopped([])
"""
    done = ended(tmp_path, "-c", program)
    left = ["film.mp4"] if code == 0 else []
    there = [path.name for path in tmp_path.iterdir()]
    assert (done.returncode, done.stderr, there) == (code, line, left)


# prepare and check


def test_prepare_makes_a_store_as_asked_and_names_what_it_skipped(photos, tmp_path):
    out = tmp_path / "store"
    text = told("prepare", photos, out, "--resolution", 8, "--crop", "pad", "--channels", "L")
    store = Store(out)
    assert (store.num_images, store.channels, store.label_names) == (4, 1, ["cats", "dogs"])
    assert tuple(store.active_rectangle) == (1, 7, 0, 8)
    assert text.startswith(f"{out}: 4 images of 8x8, 1 channel, 2 labels\n")
    assert "left out: 1 image: not a PNG" in text and "damaged: cats/broken.png\n" in text
    asked = "--resolution 8 --crop pad --channels L"
    assert text.endswith(f"next: stylegan train --data {out} {asked}\n")
    told("prepare", photos, tmp_path / "dogs", "--include", "dogs", "--workers", 1, "--strict")
    assert Store(tmp_path / "dogs").label_names == ["dogs"]


def test_check_prints_the_findings_and_lists_the_bad_and_strict_fails(photos):
    text = told("check", photos)
    assert text.splitlines()[0] == f"folder {photos}: 4 usable images"
    assert "resolution  images that reach it\n     16x16                     4\n" in text
    assert "2 labels: 2 cats, 2 dogs" in text and "ignored: 1 .txt file" in text
    assert "left out: 1 image: not a PNG" in text and "damaged: cats/broken.png\n" in text
    assert "\n  cats/broken.png: not a PNG" in told("check", photos, "--list")
    strict = stylegan("check", photos, "--strict")
    assert (strict.exit_code, strict.stdout) == (1, text)


# info


def test_info_of_a_generator_file(tmp_path):
    path, generator = tmp_path / "mine.pt", Generator(TINY)
    save_generator(path, generator, images_seen=1234567, resolution=8, alpha=0.25, cutoff=None)
    found = {line[:12].strip(): line[13:] for line in told("info", path).splitlines()}
    assert "resolution = 16, z_dim = 8, w_dim = 8" in found.pop("config")
    assert found == {
        "kind": f"generator file {path}",
        "images": "16x16, 3 channels, trained up to 8x8 (fading in, alpha 0.25)",
        "parameters": f"{sum(p.numel() for p in generator.parameters()):,} in the generator",
        "truncation": "psi 0.7, cutoff all",
        "trained on": "1,234,567 images seen",
        "file size": "0.0 MiB",
        "generate": f"stylegan generate {path}",
        "start from": f"stylegan train --init-from {path}",
    }


# Text that others made


def test_no_name_or_label_gives_a_terminal_orders(tmp_path):
    path = tmp_path / "a\x1b[31m\nb.pt"
    save_generator(path, random_generator(LABELED), label_names=["x\x1b[2J\ny", "z", "0"])
    for words in [("info", path), ("generate", path, "--seeds", 0, "--out", tmp_path / "o\x1b")]:
        result = stylegan(*words)
        assert result.exit_code == 0
        assert all(line.isprintable() for line in result.output.splitlines())
        assert not any(line.startswith(("b.pt", "y")) for line in result.output.splitlines())


# Values of options


@pytest.mark.parametrize(
    ("words", "message", "exit_code"),
    [
        (["trian"], "No such command 'trian'. Did you mean train?", 2),
        (["generate", "faces64", "--seeds", "a"], "is neither a seed nor a range", 2),
        (["generate", "faces64", "--batch", 0], "0 is not in the range 1<=x<=", 2),
        (["generate", "faces64", "--psi", "nan"], "nan is not a finite number", 2),
        (["generate", ""], "the name is empty", 2),
        (["generate", "pipe.pt"], "neither a regular file nor a folder", 2),
        (["train", "--seed", "x"], "is not a valid integer", 2),
        (["blend", "a", "b", "--out", "c.pt"], "or --share alone", 2),
        (["blend", "a", "b", "--share", "1", "--out", "c.npz"], "must end in .pt", 1),
        (["check", ".", "--aspect", "3"], "crop must be center, pad", 1),
        (["generate", "faces64", "--device", "xpu"], "is not a device; try cpu, cuda", 1),
        (["info", "gone"], "accepted are a run folder", 1),
        (["info", "."], "neither generator-*.pt nor state-*.pt", 1),
    ],
)
def test_mistakes_in_values_are_refused_in_one_line(
    words, message, exit_code, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.pt")
    line = refused(*words, exit_code=exit_code)
    assert message in line and line.isprintable()
