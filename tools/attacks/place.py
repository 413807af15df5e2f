"""A folder with what a user has, commands that run in it, and what must hold afterwards."""

import contextlib
import gc
import hashlib
import importlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from stylegan.cli import main
from stylegan.directions import default_path, find_directions, save_directions
from stylegan.files.formats.npz import save_npz
from stylegan.files.formats.safetensors import save_safetensors
from stylegan.files.latents import write_latents
from stylegan.files.loading import load_source

for room in ("training", "figures", "metrics", "projection", "report", "explore.server", "video"):
    importlib.import_module(f"stylegan.{room}")  # once for all commands
ROOT = Path(__file__).parents[2]
LIMIT = 300.0  # seconds of one command; the machine may be busy
MOST_MEMORY = 3 * 2**30  # bytes
MOST_FILE = 2**28  # bytes, so that a fault does not fill the disk
SMALL = """\
log_kimg = 0.02
snapshot_ticks = 2
[network]
resolution = 16
max_channels = 6
z_dim = 5
w_dim = 7
mapping_layers = 2
mapping_width = 6
[schedule]
initial_resolution = 8
stable_kimg = 0.02
fade_kimg = 0.02
total_kimg = 0.08
batch_size = { 4 = 4 }
tick_kimg = { 4 = 0.02 }
"""
QUICK = ["--track=none", "--no-preflight", "--device=cpu", "--workers=0"]
TRAIN = ["train", "--data=photos", "--config=small.toml", *QUICK]
WORDS = re.compile("Error: |^ended|left out|stopped after", re.MULTILINE)
FAULT = re.compile(r"^\w*(?:Error|Exception|Interrupt|Warning)\b.*", re.MULTILINE)
RAW = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x9b]")
UNFINISHED = re.compile(r"\.partial|\.unfinished|\.tmp$|^tmp|stylegan-")


@dataclass
class Ended:
    """What became of a command."""

    code: int | None  # negative: the signal; None: it did not end
    printed: str
    seconds: float
    memory: int = 0  # bytes


@dataclass
class Child:
    """A command that runs in a process of its own, from where it has a group of its own."""

    pid: int
    output: Path
    started: float = field(default_factory=time.monotonic)

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def wait(self, limit: float = LIMIT) -> Ended:
        code, memory, end = None, 0, self.started + limit
        while code is None and time.monotonic() < end:
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid:
                code, memory = os.waitstatus_to_exitcode(status), used.ru_maxrss * 1024
            else:
                time.sleep(0.01)
        self.signal(signal.SIGKILL)  # and what it has left
        if code is None:
            os.waitpid(self.pid, 0)
        printed = self.output.read_bytes().decode(errors="replace")
        return Ended(code, printed, time.monotonic() - self.started, memory)


class Place:
    """`mine` is the current folder of the commands, `given` what was in it at first."""

    def __init__(self, folder: Path, base: Path) -> None:
        self.folder, self.mine, self.commands = folder, folder / "mine", 0
        shutil.copytree(base, self.mine, symlinks=True)
        for name in ("tmp", "cache", "home"):
            (folder / name).mkdir()
        self.given = digests(self.mine)

    def prepared(self) -> None:
        """What is there by now is the user's."""
        self.given = digests(self.mine)

    def environment(self) -> dict[str, str]:
        own = {"TMPDIR": "tmp", "STYLEGAN_CACHE": "cache", "HOME": "home", "TORCH_HOME": "home"}
        certificate = {"SSL_CERT_FILE": str(self.folder / "certificate.pem")}
        paths = {name: str(self.folder / place) for name, place in own.items()}
        return {**os.environ, **paths, **certificate, "PYTHONPATH": str(ROOT)}

    def start(self, arguments: Sequence[str], before: Callable[[], object] = lambda: None) -> Child:
        """A command, in a copy of this process, which has imported everything already."""
        self.commands += 1
        output = self.folder / f"output-{self.commands}"
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            self.become(arguments, output, before)
        return Child(pid, output)

    def become(self, arguments: Sequence[str], output: Path, before: Callable[[], object]) -> None:
        """Be the command and end."""
        code = 70
        gc.callbacks.clear()  # those of hypothesis
        try:
            os.setsid()
            os.chdir(self.mine)
            os.environ.update(self.environment())
            resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE, MOST_FILE))
            file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for number in (1, 2):
                os.dup2(file, number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            how = ("r", "surrogateescape"), ("w", "strict"), ("w", "backslashreplace")
            sys.stdin, sys.stdout, sys.stderr = (
                open(number, mode, 1, "utf-8", errors, closefd=False)  # noqa: SIM115
                for number, (mode, errors) in enumerate(how)
            )
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            before()
            code = ran(arguments)
        finally:
            os._exit(code)

    def run(
        self,
        arguments: Sequence[str],
        before: Callable[[], object] = lambda: None,
        limit: float = LIMIT,
    ) -> Ended:
        return self.start(arguments, before).wait(limit)

    def start_anew(self, arguments: Sequence[str], shell: str = '"$@"') -> Child:
        """A command as a user starts it; `shell` says what its output is connected with."""
        self.commands += 1
        output = self.folder / f"output-{self.commands}"
        with open(output, "wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", shell, "-", sys.executable, "-m", "stylegan", *arguments],
                cwd=self.mine, env=self.environment(), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            )  # fmt: skip
        process.returncode = 0  # it is waited for elsewhere
        return Child(process.pid, output)

    def faults(
        self,
        ended: Ended,
        *,
        codes: Sequence[int] = (0, 1, 2, 130),
        changes: Sequence[str] = (),
        makes: bool = False,
    ) -> list[str]:
        """What is wrong after a command. It may change what is named, and `makes` files also if
        it is refused."""
        text, found = ended.printed, []
        if ended.code is None:
            return [f"hangs ({ended.seconds:.0f} s)"]
        if "Traceback (most recent" in text or "Exception ignored" in text:
            found.append("traceback: " + (FAULT.findall(text) or text.splitlines())[-1][:160])
        elif ended.code not in codes:
            found.append(f"exit code {ended.code}: {text[-160:]!r}")
        elif ended.code in (1, 2) and not WORDS.search(text):
            found.append(f"exit code {ended.code} without a reason: {text[-160:]!r}")
        if raw := RAW.search(text):
            found.append(f"prints raw {raw[0]!r}")
        if ended.memory > MOST_MEMORY:
            found.append(f"takes {ended.memory / 2**30:.1f} GiB")
        if ended.code < 0:  # killed: the same command takes away what is left
            return found + self.spoiled(changes)
        return found + self.spoiled(changes) + self.left(ended.code != 0 and not makes, changes)

    def spoiled(self, changes: Sequence[str]) -> list[str]:
        now = digests(self.mine)
        lost = [
            name
            for name, digest in self.given.items()
            if now.get(name) != digest and name.split("/")[0] not in changes
        ]
        return [f"changed: {name!r}" for name in lost[:2]]

    def left(self, refused: bool, changes: Sequence[str]) -> list[str]:
        new = [name for name in digests(self.mine) if name not in self.given]
        odd = [name for name in new if UNFINISHED.search(Path(name).name)]
        if refused:
            odd += [name for name in new if name.split("/")[0] not in changes]
        odd += [path.name for path in (self.folder / "tmp").glob("*") if "torch" not in path.name]
        odd += [p.name for p in (self.folder / "cache").rglob("*") if UNFINISHED.search(p.name)]
        return [f"left: {name!r}" for name in odd[:2]]


def ran(arguments: Sequence[str]) -> int:
    """The exit code of the command."""
    try:
        try:
            main(list(arguments), prog_name="stylegan")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr, flush=True)
        return error.code if isinstance(error.code, int) else bool(error.code)
    except BaseException:
        traceback.print_exc()
        return 70
    return 0


def digests(folder: Path) -> dict[str, str]:
    """What every file below holds, by its path."""
    found = {}
    for place, folders, files in os.walk(os.fsencode(folder)):
        for name in [*folders, *files]:
            path = os.path.join(place, name)
            mode = os.lstat(path).st_mode
            content = b""
            if os.path.islink(path):
                content = os.readlink(path)
            elif os.path.isfile(path) and not name.endswith(b".lock"):
                with contextlib.suppress(PermissionError), open(path, "rb") as file:
                    content = hashlib.file_digest(file, "sha256").digest()
            relative = os.fsdecode(os.path.relpath(path, os.fsencode(folder)))
            found[relative] = f"{mode:o} {content.hex()}"
    return found


def make_base(folder: Path) -> None:
    """Pictures, a store, a finished run, files of weights in every format of ours, latents."""
    random = np.random.default_rng(0)
    for i in range(8):
        path = folder / "photos" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (16, 16, 3), np.uint8)).save(path)
    shutil.copy(path, folder / "photo.png")
    shutil.make_archive(str(folder / "photos"), "zip", folder / "photos")
    (folder / "small.toml").write_text(SMALL)
    place = Place(folder.parent / "making", folder)
    for words in (["prepare", "photos", "store", "--resolution=16"], [*TRAIN, "--out=run"]):
        ended = place.run(words)
        if ended.code != 0:
            raise RuntimeError(f"{' '.join(words)} failed: {ended.printed}")
    for name in ("store", "run"):
        shutil.copytree(place.mine / name, folder / name)
    (newest,) = sorted((folder / "run").glob("generator-*.pt"))[-1:]
    shutil.copy(newest, folder / "g.pt")
    loaded = load_source(folder / "g.pt")
    save_npz(folder / "g.npz", loaded)
    save_safetensors(folder / "g.safetensors", loaded)
    ws = loaded.styles(torch.randn(2, 5))
    write_latents(folder / "latents.npz", ws)
    found = find_directions(loaded.generator, count=2, samples=20)
    save_directions(default_path(folder / "g.pt"), found, loaded.generator)
