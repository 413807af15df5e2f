"""The commands and Python blocks of the documents run as they stand, in the order of reading.

They run in one folder that is what a reader has: a copy of the clone, with a folder `photos` of
pictures and a picture `smile.png`. Trainings, and what else takes long, are stopped by a Ctrl-C
soon after they have begun. `is_left_out` says what is not run at all.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import ROOT
from helpers.documents import PAGES, blocks
from PIL import Image

READING = ("README.md", "docs/training.md", "docs/library.md")  # first, for later pages use a run
CODE = [page for page in PAGES if page.suffix == ".md" and blocks(page)]
NOTHING_RUNS = {  # only commands that `is_left_out` leaves out
    "CONTRIBUTING.md",
    "datasets/README.md",
    "docs/architecture.md",
    "docs/running.md",
}
NAMES = sorted({str(page.relative_to(ROOT)) for page in CODE} - NOTHING_RUNS)
NAMES = [*READING, *(name for name in NAMES if name not in READING)]
PROGRAMS = re.compile(
    r"\b(apt-get|git|npm|pip|pytest|ruff|sphinx-build|torchrun|venv|explore)\b|\.ci/|(people|faces)\.py"
)
INPUT = re.compile(r"runs/|.*(/|\.(csv|pkl|pth|ttf|zip|pt|npz))$")
WRITTEN = ("--out", "--zip", "--discriminator", "--figure")  # options whose value is an output
HOURS = re.compile(r"--config (ffhq|few|transfer)(?!.*--dry-run)|tables\.py(?!.*--no-train)")
LONG = re.compile(r"train(\.py)?\b(?!.*--dry-run)|metrics runs|project runs")  # is begun alone
NETWORK = re.compile(r"OWNER/NAME|load_dataset|lmdb")
BRIEF, LIMIT = 20, 900  # seconds
# Python prints a Ctrl-C that arrives in a weak reference's callback or a finalizer, and goes on
IN_A_CALLBACK = re.compile(
    r"^Exception ignored .*\nTraceback .*\n(?: .*\n|\n)*KeyboardInterrupt:? *$", re.MULTILINE
)
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


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The folder of a reader."""
    folder = tmp_path_factory.mktemp("reader") / "stylegan"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
    shutil.unpack_archive(folder / "datasets" / "faces-64.zip", folder.parent / "faces")
    pictures = sorted((folder.parent / "faces").glob("*.webp"))
    (folder / "photos").mkdir()
    for picture in pictures[:240]:  # eff-pr requires 100 pictures, of a half too
        image = Image.open(picture).resize((256, 256))
        image.save(folder / "photos" / f"{picture.stem}.jpg")
    Image.open(pictures[0]).save(folder / "smile.png")
    return folder


def is_left_out(command: str, folder: Path) -> bool:
    """True for programs that install, need Node.js or more machines, or serve a page; for trainings
    of an hour and more; and for what reads a file that a reader does not have."""
    words = shlex.split(command, comments=True)
    line = " ".join(words)
    if PROGRAMS.search(line) or HOURS.search(line):
        return True
    for name in ("convert", "export"):  # SOURCE and the file that is written
        if name in words:
            del words[words.index(name) + 2]
    read = [
        word for before, word in zip(["", *words], words, strict=False) if before not in WRITTEN
    ]
    inputs = [word for word in read if INPUT.match(word) and "=" not in word]
    return any(not (folder / word).exists() for word in inputs)


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
    trains = stopped and "train" in command[-1]

    def enough() -> bool:
        seconds = time.time() - started
        if not stopped or seconds < BRIEF:
            return seconds > LIMIT
        logs = (folder / "runs").glob("*/log.jsonl")
        begun = any(log.stat().st_mtime > started for log in logs)
        return not trains or begun or seconds > 9 * BRIEF

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
    ended = (0, 128 + signal.SIGINT, -signal.SIGINT)  # the last while Python begins or ends
    assert process.returncode == 0 or (stopped and process.returncode in ended), text
    assert "Traceback" not in IN_A_CALLBACK.sub("", text), text


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_documents_code_blocks_run_as_written(name, clone):
    waiting: list[str] = []  # Python blocks, each in a namespace of its own, in one process
    count = 0  # of blocks and commands that ran
    for number, block in enumerate([*blocks(ROOT / name), None]):
        if block is not None and block.language == "python" and not NETWORK.search(block.text):
            file = clone.parent / f"{Path(name).stem}-{number}.py"
            file.write_text(block.text, encoding="utf-8")
            waiting.append(str(file))
            count += 1
            continue
        commands = block.commands() if block is not None else []
        if waiting and (block is None or commands):
            run([sys.executable, "-c", RUN_PYTHON, *waiting], clone)
            waiting = []
        for command in commands:
            if not is_left_out(command, clone):
                words = ["bash", "-euo", "pipefail", "-c", command]
                run(words, clone, stopped=bool(LONG.search(command)))
                count += 1
    assert count > 0, f"nothing of {name} can run: list it in NOTHING_RUNS"
