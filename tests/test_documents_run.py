"""Every command and Python block of the documents, as it stands there, in the order of reading.

They run in one folder that is what a reader has: a copy of the clone, with a folder `photos` of
pictures and a picture `smile.png`. Comments above a block mark what is not run, or not to its end,
with the reason (`documents.Mark`).
"""

import collections
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from documents import PAGES, ROOT, Block, blocks
from PIL import Image

READING = ("README.md", "docs/training.md", "docs/library.md")  # first, for later pages use a run
CODE = [page for page in PAGES if page.suffix == ".md" and blocks(page)]
NAMES = sorted(str(page.relative_to(ROOT)) for page in CODE)
NAMES = [*READING, *(name for name in NAMES if name not in READING)]
PROGRAMS = ("apt-get", "git", "pip", "pytest", "python", "sphinx-build", "stylegan", "torchrun")
PROGRAMS += ("unzip",)
REASONS = {  # why something is not run
    "installs",
    "needs a cluster",
    "needs a file of others",
    "needs eight GPUs",
    "needs the network",
    "serves a page",
    "takes hours",
    "takes minutes",
    "the tests themselves",
}
BRIEF, LIMIT = 20, 900  # seconds
NOT_COPIED = (".*", "*.egg-info", "__pycache__", "build", "out", "runs", "site", "tests")
RUN_PYTHON = """
import doctest, sys
from pathlib import Path
for name in sys.argv[1:]:
    text = Path(name).read_text(encoding="utf-8")
    if ">>>" in text:
        found = doctest.DocTestParser().get_doctest(text, {"__name__": "__main__"}, name, name, 0)
        if doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found).failed:
            sys.exit(1)
    else:
        exec(compile(text, name, "exec"), {"__name__": "__main__"})
"""


def is_shell(block: Block) -> bool:
    """A block of commands, not a diagram."""
    lines = block.text.splitlines()
    return block.language in ("", "sh", "bash") and any(
        line.startswith(tuple(f"{program} " for program in PROGRAMS)) for line in lines
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_run_has_a_reason(name):
    for block in blocks(ROOT / name):
        for mark in block.marks:
            assert mark.reason in REASONS, mark
            assert mark.lines in block.text, mark


def test_most_is_run():
    found = [block for page in CODE for block in blocks(page)]
    lines = [
        block.mark_of(line)
        for block in found
        if is_shell(block)
        for line in block.text.splitlines()
    ]
    lines += [block.mark_of("") for block in found if block.language == "python"]
    counts = collections.Counter(mark.how if mark else "run" for mark in lines)
    assert counts["run"] + counts["a minute"] > counts["not run"], counts


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The folder of a reader."""
    folder = tmp_path_factory.mktemp("reader") / "stylegan"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
    emoji = folder / "datasets" / "emoji-32.zip"
    shutil.unpack_archive(emoji, folder.parent / "emoji")
    pictures = sorted((folder.parent / "emoji").rglob("portraits/*.png"))
    (folder / "photos").mkdir()
    for picture in pictures[:240]:  # eff-pr requires 100 pictures, of a half too
        image = Image.open(picture).convert("RGB").resize((256, 256))
        image.save(folder / "photos" / f"{picture.stem}.jpg")
    shutil.copy(min((folder.parent / "emoji").rglob("smileys/*.png")), folder / "smile.png")
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Nothing of this machine's user; programs of this environment, modules of the clone."""
    places = {
        name: str(folder.parent / name.lower()) for name in ("HOME", "STYLEGAN_CACHE", "TORCH_HOME")
    }
    Path(places["HOME"]).mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | places | {"PATH": path, "PYTHONPATH": str(folder), "PYTHONUTF8": "1"}


def run(command: list[str], folder: Path, *, stopped: bool = False) -> None:
    """The command succeeds; if it is to be `stopped`, it may also go on until a Ctrl-C."""
    started = time.time()

    def enough() -> bool:
        seconds = time.time() - started
        if not stopped or seconds < BRIEF:
            return seconds > LIMIT
        logs = (folder / "runs").glob("*/log.jsonl")
        return seconds > 9 * BRIEF or any(log.stat().st_mtime > started for log in logs)

    with open(folder.parent / "output.txt", "w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        while process.poll() is None and not enough():
            time.sleep(0.2)
        for number, patience in ((signal.SIGINT, LIMIT), (signal.SIGKILL, 60)):
            if process.poll() is None:
                os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(patience)
        output.seek(0)
        text = output.read()
    print(f"$ {command[-1]}\n{text}\n({time.time() - started:.0f} s)")
    by_interrupt = (128 + signal.SIGINT, -signal.SIGINT)  # the latter while Python begins or ends
    assert process.returncode in ((0, *by_interrupt) if stopped else (0,)), text
    assert "Traceback" not in text, text


def run_shell(block: Block, folder: Path) -> None:
    """The lines of a block, in their order; one that is stopped runs alone."""
    shell = ["bash", "-euo", "pipefail", "-c"]
    whole = block.mark_of("")
    if whole is not None:
        if whole.how == "a minute":
            run([*shell, block.text], folder, stopped=True)
        return
    lines: list[str] = []
    for line in [*block.text.splitlines(), None]:
        mark = None if line is None else block.mark_of(line)
        if line is not None and mark is None:
            lines.append(line)
        elif mark is None or mark.how == "a minute":
            if lines:
                run([*shell, "\n".join(lines)], folder)
            lines = []
            if line is not None:
                run([*shell, line], folder, stopped=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_blocks_of_a_page_run_as_they_stand(name, clone):
    waiting: list[str] = []  # Python blocks, each in a namespace of its own, in one process
    for number, block in enumerate([*blocks(ROOT / name), None]):
        if block is not None and block.language == "python":
            if block.mark_of("") is None:
                file = clone.parent / f"{Path(name).stem}-{number}.py"
                file.write_text(block.text, encoding="utf-8")
                waiting.append(str(file))
            continue
        if waiting and (block is None or is_shell(block)):
            run([sys.executable, "-c", RUN_PYTHON, *waiting], clone)
            waiting = []
        if block is not None and is_shell(block):
            run_shell(block, clone)
