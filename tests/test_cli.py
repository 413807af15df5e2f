"""The group `stylegan` and its commands other than train and generate."""

import errno
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from helpers.commands import run_fails, run_ok, stylegan
from helpers.pictures import colors, save_picture
from helpers.processes import printed, run_python
from helpers.tiny_generators import LABELED, TINY, random_generator

from stylegan.cli import COMMANDS, main
from stylegan.cli.common import Command, Terminal, command, echo, note
from stylegan.data import Store
from stylegan.files.formats.native import save_generator
from stylegan.networks import Generator
from stylegan.utils.console import PrintingConsole
from stylegan.utils.text import command_line


@pytest.fixture
def photos(tmp_path):
    """Six pictures of 16 and more pixels in two folders, one broken, one that is no image."""
    folder = tmp_path / "photos"
    for i, name in enumerate(("cats/a.png", "cats/b.png", "dogs/c.jpg", "dogs/d.png")):
        save_picture(folder / name, colors(20, 16 + i, seed=i))
    (folder / "cats" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "notes.txt").write_text("not an image")
    return folder


# The group


def test_help_imports_no_command(tmp_path):
    program = (
        "import sys; from click.testing import CliRunner; from stylegan.cli import main; "
        "print(CliRunner().invoke(main, ['--help']).output); "
        "print(sorted(m for m in sys.modules if m.startswith('stylegan.cli.'))); "
        "print('torch' in sys.modules)"
    )
    text = printed(tmp_path, "-c", program)
    assert all(f"  {name} " in text for name in COMMANDS)
    assert text.splitlines()[-2:] == ["['stylegan.cli.common']", "False"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name):
    command = main.get_command(click.Context(main), name)
    inner = [(name, kind) for kind in getattr(command, "commands", ())]  # of `figure`, `video`
    for words in [(name,), *inner]:
        text, called = run_ok(*words, "--help"), " ".join(words)
        assert called in text.split("Options:")[0].replace(f"Usage: main {called}", "", 1)
        assert "--debug" in text or (inner and words == (name,))


# Errors and progress


def bar_lines(capsys):
    with click.Context(Command("working")):
        console = Terminal()
        for done in range(60):
            time.sleep(0.01)
            console.progress("", done, 60)
    return capsys.readouterr().err.replace("\n", "\r").count("\r")


def test_terminal_progress_is_brief_in_files_and_off_without_stderr(capsys, monkeypatch):
    monkeypatch.setattr("stylegan.cli.common.BAR_SECONDS", 0)
    assert 1 <= bar_lines(capsys) <= 3  # the beginning, and clearing it
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert bar_lines(capsys) > 4
    monkeypatch.setattr(sys, "stderr", None)
    assert bar_lines(capsys) == 0


def test_command_prints_names_that_a_pipe_cannot_hold():
    @click.command(cls=Command)
    def command():
        echo("写真.png is fine")

    result = CliRunner(charset="cp1252").invoke(command, [])
    assert (result.exit_code, result.stdout) == (0, "\\u5199\\u771f.png is fine\n")


@pytest.mark.parametrize(("system", "line"), [("posix", "a 'b c'"), ("nt", 'a "b c"')])
def test_command_line_is_quoted_for_the_shell_of_the_system(system, line, monkeypatch):
    monkeypatch.setattr("stylegan.utils.text.os", SimpleNamespace(name=system))
    assert command_line("a", Path("b c")) == line


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
def test_command_shows_tracebacks_of_bugs_but_not_of_user_errors(error, line):
    result = CliRunner().invoke(failing(error), [])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith(line)
    assert CliRunner().invoke(failing(error), ["--debug"]).exception is error
    for ours in (AssertionError("impossible"), RuntimeError("shapes differ")):
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
def test_ending_at_signals_prints_one_line_and_leaves_no_partial_file(
    before, name, code, line, tmp_path
):
    program = f"""
import signal, click
from pathlib import Path
from stylegan.cli.common import Command, ending_at_signals
from stylegan.utils.filesystem import ALLOW_OVERWRITE
@click.command(cls=Command)
def stopped():
    try:
        with ALLOW_OVERWRITE.file(Path("film.mp4")):
            signal.raise_signal(signal.{name})
    except BaseException:
        raise AttributeError("of a library that was half imported")
{before}
with ending_at_signals():
    stopped([])
"""
    done = run_python(tmp_path, "-c", program)
    left = ["film.mp4"] if code == 0 else []
    there = [path.name for path in tmp_path.iterdir()]
    assert (done.returncode, done.stderr, there) == (code, line, left)


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory")],
)
@pytest.mark.parametrize("options", [[], [click.Option(["--batch"]), click.Option(["--device"])]])
def test_command_explains_out_of_memory_in_one_line(error, options):
    def fail(**given):
        raise error

    result = CliRunner().invoke(Command("draw", callback=fail, params=options), [])
    assert result.exit_code == 1
    helps = "choose a smaller --batch or --device cpu" if options else "end other programs"
    assert f"out of memory; {helps} (" in result.output


# prepare and check


def test_prepare_command_follows_options_and_lists_skipped_images(photos, tmp_path):
    out = tmp_path / "store"
    text = run_ok("prepare", photos, out, "--resolution", 8, "--crop", "pad", "--channels", "L")
    store = Store(out)
    assert (store.num_images, store.channels, store.label_names) == (4, 1, ["cats", "dogs"])
    assert tuple(store.active_rectangle) == (1, 7, 0, 8)
    assert text.startswith(f"{out}: 4 images of 8x8, 1 channel, 2 labels\n")
    assert "left out: 1 image: not a PNG" in text and ": cats/broken.png\n" in text
    asked = "--resolution 8 --crop pad --channels L"
    assert text.endswith(f"next: stylegan train --data {out} {asked}\n")
    run_ok("prepare", photos, tmp_path / "dogs", "--include", "dogs", "--workers", 1, "--strict")
    assert Store(tmp_path / "dogs").label_names == ["dogs"]


def test_check_and_info_give_a_reason_for_images_below_4_pixels(tmp_path):
    for name, size in (("small", 2), ("good", 16)):
        save_picture(tmp_path / f"{name}.png", colors(size, size))
    assert "smaller than the resolution 4: small.png" in run_ok("check", tmp_path)
    assert "1 of 16x16, 1 image left out" in run_ok("info", tmp_path)
    (tmp_path / "good.png").unlink()
    assert "smaller than the resolution 4: 2x2" in run_fails("info", tmp_path)


def test_check_command_prints_findings_and_fails_with_strict(photos):
    text = run_ok("check", photos)
    assert text.splitlines()[0] == f"folder {photos}: 4 usable images"
    assert "resolution  images that reach it\n     16x16                     4\n" in text
    assert "2 labels: 2 cats, 2 dogs" in text and "ignored: 1 .txt file" in text
    assert "left out: 1 image: not a PNG" in text and ": cats/broken.png\n" in text
    assert "\n  cats/broken.png: not a PNG" in run_ok("check", photos, "--list")
    strict = stylegan("check", photos, "--strict")
    assert (strict.exit_code, strict.stdout) == (1, text)


# info


def test_info_describes_images(photos):
    lines = run_ok("info", photos).splitlines()
    assert lines[:2] == [
        f"kind         folder {photos}",
        "images       4 of 20x16 to 20x19, 1 image left out, by the headers",
    ]
    assert lines[2].endswith(f"  stylegan check {photos}")


def test_info_describes_a_generator_file(tmp_path):
    path, generator = tmp_path / "mine.pt", Generator(TINY)
    save_generator(path, generator, images_seen=1234567, resolution=8, alpha=0.25, cutoff=None)
    found = {line[:12].strip(): line[13:] for line in run_ok("info", path).splitlines()}
    assert "resolution = 16, z_dim = 8, w_dim = 8" in found.pop("config")
    assert found == {
        "kind": f"generator file {path}",
        "images": "16x16, 3 channels, trained up to 8x8 (fading in, alpha 0.25)",
        "parameters": f"{sum(p.numel() for p in generator.parameters()):,} in the generator",
        "truncation": "psi 0.7, cutoff all",
        "images seen": "1,234,567",
        "file size": "0.0 MiB",
        "generate": f"stylegan generate {path}",
        "start from": f"stylegan train --init-from {path}",
    }


# Text that others made


def test_info_and_generate_escape_control_characters_in_names(tmp_path):
    path = tmp_path / "a\x1b[31m\nb.pt"
    save_generator(path, random_generator(LABELED), label_names=["x\x1b[2J\ny", "z", "0"])
    for words in [("info", path), ("generate", path, "--seeds", 0, "--out", tmp_path / "o\x1b")]:
        result = stylegan(*words)
        assert result.exit_code == 0
        assert all(line.isprintable() for line in result.output.splitlines())
        assert not any(line.startswith(("b.pt", "y")) for line in result.output.splitlines())


ESC = "a\x1bc\x9b2J\u202eb"  # not what click removes by itself
HOSTILE_WORDS = {  # command -> words for which ESC is a file that no command can use
    "train": "--data {} --out run",
    "generate": "{}",
    "figure": "grid {}",
    "video": "walk {}",
    "convert": "{} new.pt",
    "export": "{} new.onnx",
    "metrics": "{} --metrics swd",
    "report": "{}",
    "configs": "{}",
    "prepare": "{} store",
    "check": "{}",
    "cache": "{}",
    "explore": "{} --no-browser",
    "directions": "find {}",
    "blend": "{} {} --share 0.5 --out new.pt",
    "project": "{} {}",
    "align": "{} faces --landmarks {}",
    "info": "{}",
}


@pytest.mark.parametrize("group", ["figure", "video", "directions"])
def test_command_group_without_arguments_prints_its_help(group):
    assert stylegan(group).output.splitlines() == stylegan(group, "--help").output.splitlines()


@pytest.mark.parametrize("name", [ESC, "missing" + ESC])
@pytest.mark.parametrize("used", COMMANDS)
def test_every_command_escapes_control_characters_in_file_names(used, name, tmp_path, monkeypatch):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ESC).write_text("neither weights nor pictures")
    words = [word.format(name) for word in HOSTILE_WORDS[used].split()]
    too_many = [*words, *([name] * 3)]  # an error of click's own
    for line in [words, *([too_many] if used not in ("metrics", "cache", "project") else [])]:
        result = stylegan(used, *line)
        assert result.exit_code in (1, 2) and "\\x1bc\\x9b2J\\u202eb" in result.stderr
        assert result.output.replace("\n", "").isprintable()


def test_echo_stderr_truncates_in_the_middle_and_echo_does_not(capsys):
    line = f"{'x' * 3000}\x1b: what to do"
    with click.Context(Command("any")):
        note(line)
        echo(line)
        PrintingConsole().info(line)
    result, printed = capsys.readouterr()
    assert result.splitlines() == [line.replace("\x1b", "\\x1b"), printed.strip()]
    assert len(printed) <= 2001 and "xx ... xx" in printed
    assert printed.endswith(f"{'x' * 500}\\x1b: what to do\n")


def test_printing_console_prints_some_progress(capsys, monkeypatch):
    times = iter([0, 9, 10, 11, 12, 13])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    printing = PrintingConsole()
    for done in (1, 2, 3, 2000):  # ten seconds, and the end of what took so long
        printing.progress("read", done, 2000)
    for done in (1, 5):
        printing.progress("short", done, 5)
    assert capsys.readouterr().out == "read: 3 of 2,000\nread: 2,000 of 2,000\n"


@pytest.mark.parametrize(
    ("name", "called"),
    [("stylegan", "stylegan"), ("my parts.py", "python 'my parts.py'")],
)
def test_command_text_starts_with_the_script_that_is_running(monkeypatch, name, called):
    monkeypatch.setattr(sys, "argv", [name])
    tell = click.Command("tell", callback=lambda: click.echo(command("info", "a b")))
    root = click.Group("main", {"tell": tell})
    assert CliRunner().invoke(root, ["tell"], prog_name=name).output == f"{called} info 'a b'\n"


def test_path_options_expand_the_home_folder(tmp_path, monkeypatch, source):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)  # where a folder called ~ would appear
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))  # on Windows
    source.rename(home / "mine.pt")
    np.save(home / "direction.npy", np.ones(8, np.float32))
    edit = "--edit=~/direction.npy=2@0-3"
    run_ok("generate", "~/mine.pt", "--seeds=0,1", edit, "--out=~/pictures")
    run_ok("figure", "grid", "~/mine.pt", "--seeds=0", "--columns=1", "--out=~/grid.png")
    run_ok("prepare", "~/pictures", "~/store", "--resolution=4")
    run_ok("export", "~/mine.pt", "~/mine.safetensors")
    (home / "mine.toml").write_text("seed = 1\n")
    assert "seed = 1" in run_ok("configs", "~/mine.toml")
    dry = ("--device=cpu", "--out=~/run", "--dry-run")
    run_ok("train", "--data=~/store", "--config=~/mine.toml", "--resolution=4", *dry)
    assert not (home / "~").exists()


def test_string_options_take_no_paths():
    """Those that do have a type of cli/param_types.py, which knows the home folder."""
    outer = [main.get_command(click.Context(main), name) for name in COMMANDS]
    inner = [
        c for group in outer if isinstance(group, click.Group) for c in group.commands.values()
    ]
    parameters = [p for command in outer + inner for p in command.params]
    plain = {p.opts[0] for p in parameters if isinstance(p.type, click.types.StringParamType)}
    assert plain == {
        *("-o", "--device", "--aspect", "--metrics", "--class", "--classes", "--include"),
        *("--license", "--trained-on", "--name", "names"),  # of stores in the cache
    }
