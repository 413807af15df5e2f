"""Kinds of attempts: each does something to a place, and tells what and which faults it found."""

import contextlib
import ctypes
import json
import os
import resource
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import click
import damage
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from PIL import Image
from place import QUICK, ROOT, TRAIN, Child, Ended, Place
from servers import BEHAVIOURS, answering

from stylegan.cli import main
from stylegan.config import option_names
from stylegan.run_folder import RunFolder

Attempt = Callable[[Place, Random], tuple[str, list[str]]]
SECONDS = 4  # after which a command that serves gets Ctrl-C
BASES = {  # a good command line of each command, which the others are made of
    "cache": "", "check": "photos", "configs": "quickstart", "convert": "g.npz out.pt",
    "directions": "g.pt --samples 20 --count 2 --out out.npz", "explore": "g.pt --no-browser",
    "export": "g.pt out.safetensors", "figure": "g.pt --out out.png",
    "generate": "g.pt --seeds 0-1 --out out", "info": "g.pt",
    "metrics": "g.pt --data store --metrics swd8 --out out.jsonl",
    "prepare": "photos out", "project": "g.pt photo.png --steps 2 --out out",
    "report": "run --out out.html", "schedule": "small.toml", "train": " ".join([*TRAIN[1:], "--out=out"]),
    "video": "g.pt --out out.mp4 --frames 3",
}  # fmt: skip
NUMBERS = (
    "1e306", "-1e306", "nan", "-inf", "-1", "0", "1e-320", "1" + "0" * 400, "9" * 5_000, "0x10", "1_0", "\u0663",
    "3.5", "1,,2", "5-1", "0-99999999999", "-5--1", "4=8", "1e400", "--", "2147483648", "1,2,nan",
)  # fmt: skip
TEXTS = (
    "", " ", "\t", "a\nb", "\x1b[31mred\x1b[2J", "\u202eabc", "\U0001f600", "\udcff", "\udcc3(", "%s%n{}", "../x", "~/x",
    "a" * 300, "/".join("a" * 2_000), "{a=1", "[" * 3_000, "cuda", "meta", "xpu", "cpu:7", "cuda:99", "mps", "CON", "-",
    "--help=1", "$(touch x)", "https://host.invalid/x", "http://127.0.0.1:1/a.pt", "https://a b/x.pt#sha256=00000000",
    "https://[::1/x-01234567.pt", "https://127.0.0.1:x/x-01234567.pt", "ftp://x/y", "file:///etc/passwd",
)  # fmt: skip
PATHS = (
    "fifo", "/dev/zero", "/dev/full", "/dev/stdin", "folder", "loop", "missing/x", "photos", "photos/a", "run", "store", "g.pt",
    "photo.png", "small.toml", "/", "/proc/self/mem", "socket", "empty", "odd\x1b[31m\n.png", "bytes\udcff.pt", ".", "..", "secret",
)  # fmt: skip


@cache
def parameters() -> list[tuple[tuple[str, ...], click.Parameter]]:
    """Every parameter of every command."""
    found, groups = [], [((), main)]
    for words, group in groups:
        for name in group.list_commands(click.Context(group)):
            command = group.get_command(click.Context(group), name)
            assert command is not None
            if isinstance(command, click.Group):
                groups.append(((*words, name), command))
            found += [((*words, name), parameter) for parameter in command.params]
    return [(words, p) for words, p in found if not getattr(p, "is_flag", False)]


def oddities(folder: Path) -> None:
    """What PATHS names."""
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    (folder / "folder").mkdir()
    for name in ("empty", "odd\x1b[31m\n.png", "bytes\udcff.pt"):
        (folder / name).touch()
    (folder / "secret").write_bytes((folder / "g.pt").read_bytes())
    (folder / "secret").chmod(0)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(folder / "socket"))


def nobody() -> None:
    """Permissions hold for root, too: it gives up its capabilities (Linux)."""
    if os.geteuid() == 0:
        version, none = struct.pack("II", 0x20080522, 0), struct.pack("6I", *[0] * 6)
        ctypes.CDLL(None).capset(version, none)


def base_line(words: Sequence[str]) -> list[str]:
    line = shlex.split(BASES.get(words[0], "g.pt"))
    if words[0] in ("figure", "video") and words[-1] in ("growth", "timelapse"):
        line[0] = "run"
    return [*words, *line]


def interrupted() -> None:
    """Ctrl-C after a while."""
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.alarm(SECONDS)


def options(place: Place, chance: Random) -> tuple[str, list[str]]:
    """One option or argument of one command has a value that is nonsense."""
    words, parameter = chance.choice(parameters())
    value = chance.choice(chance.choice((NUMBERS, TEXTS, PATHS)))
    if parameter.name == "overrides":
        toml = damage.TOML_VALUES + NUMBERS
        value = f"{chance.choice([*option_names(), 'x.y', ''])}={chance.choice([*toml, value])}"
    line = base_line(words)
    if isinstance(parameter, click.Argument):
        at = [p.name for w, p in parameters() if w == words and isinstance(p, click.Argument)]
        line[len(words) + at.index(parameter.name)] = value if value[:1] != "-" else f"./{value}"
    else:
        name = parameter.opts[-1]
        line += [f"{name}={value}"] if name[:2] == "--" else [name, value]
    line = [word.replace("\0", "")[:100_000] for word in line]
    oddities(place.mine)
    place.prepared()
    ended = place.run(line, interrupted if words[0] == "explore" else lambda: None)
    changes = [Path(value).parts[0]] if parameter.name == "out" and Path(value).parts else []
    allowed = {"out", *changes} if words[0] == "train" and ended.code == 1 else set()
    codes = (0, 1, 2, 130) if words[0] == "train" else (0, 1, 2)
    found = place.faults(ended, codes=codes, changes=[*allowed, *run_changes(words, value)])
    return f"{shlex.join(line)[:150]!r}", found


def run_changes(words: Sequence[str], value: str) -> list[str]:
    """What the command is meant to write to."""
    if words[0] == "train" and value.startswith("run"):
        return ["run"]
    return ["run"] if words[0] in ("metrics", "report") else []


def drawn(strategy: Any, chance: Random) -> Any:
    """A value of a hypothesis strategy."""
    found: list[Any] = []

    @seed(chance.getrandbits(32))
    @settings(
        max_examples=4, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return chance.choice(found)


USES = {  # files, and the commands that read them
    "g.pt": ["generate {} --seeds 0 --out out", "info {}", "export {} out.npz", "train --init-from {}"],
    "g.npz": ["info {}", "generate {} --seeds 0 --out out", "convert {} out.pt"],
    "g.safetensors": ["info {}", "generate {} --seeds 0 --out out", "convert {} out.pt"],
    "g.directions.npz": ["explore g.pt --no-browser --directions {}"],
    "latents.npz": ["generate g.pt --latents {} --out out"],
    "photos.zip": ["check {}", "prepare {} out", "train --data {}"],
    "photo.png": ["project g.pt {} --steps 2 --out out"],
    "small.toml": ["train --config {} --dry-run", "schedule {}", "train --config {}"],
    "photos/a/0.png": ["check photos", "prepare photos out", "train --data photos"],
    "store/meta.json": ["info store", "train --data store", "metrics g.pt --data store --metrics swd4 --out out.jsonl"],
    "store/0016.npy": ["info store", "train --data store"],
    "store/0008.npy": ["train --data store", "check store"],
    "run/config.toml": ["info run", "train --out run", "report run --out out.html"],
    "run/log.jsonl": ["report run --out out.html", "train --out run"],
    "run/data.txt": ["train --out run", "metrics run --metrics swd4 --out out.jsonl"],
    "run/state-000000160.pt": ["train --out run", "info {}", "train --out run -o schedule.total_kimg=0.2"],
    "run/generator-000000160.pt": ["generate run --seeds 0 --out out", "train --out run", "info run"],
}  # fmt: skip
STRATEGIES = {
    ".pt": [damage.archives, damage.archive_fields, damage.entry_of_archives("data.pkl", damage.pickles)],
    ".npz": [damage.archives, damage.archive_fields, lambda data: damage.archives(data, damage.npy_headers)],
    ".safetensors": [damage.safetensors_header],
    ".zip": [damage.archives, damage.archive_fields, lambda data: damage.archives(data, damage.png_chunks)],
    ".png": [damage.png_chunks], ".toml": [damage.toml_lines], ".json": [damage.json_values],
    ".npy": [damage.npy_headers], ".jsonl": [], ".txt": [],
}  # fmt: skip


def spoil(path: Path, chance: Random) -> str:
    """Damage a file, or put another thing in its place; what was done."""
    data, how = path.read_bytes(), chance.choice(("format", "format", "bytes", "cut", "other"))
    if how == "format" and STRATEGIES[path.suffix]:
        path.write_bytes(drawn(chance.choice(STRATEGIES[path.suffix])(data), chance))
    elif how == "cut":
        path.write_bytes(data[: chance.randrange(len(data) + 1)])
    elif how == "other":
        how = chance.choice(("fifo", "zero", "loop", "folder", "swapped", "nested", "long", "bomb"))
        path.unlink()
        if how in ("fifo", "folder"):
            {"fifo": os.mkfifo, "folder": os.mkdir}[how](path)
        elif how in ("zero", "loop"):
            path.symlink_to("/dev/zero" if how == "zero" else path.name)
        elif how == "swapped":
            path.write_bytes(chance.choice(sorted(path.parent.glob("*.*"))).read_bytes())
        elif how == "bomb":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for i in range(40):
                    archive.writestr(f"{i}.png", bytes(2**24))
        else:
            path.write_bytes(b"[" * 10**6 if how == "nested" else b"9" * 10**7)
    else:
        path.write_bytes(drawn(damage.edited(data), chance))
    return how


def files(place: Place, chance: Random) -> tuple[str, list[str]]:
    """A file that a command reads is damaged, hostile, or not a file at all."""
    name = chance.choice(list(USES))
    path = place.mine / name
    if not path.exists():  # numbers of states depend on the configuration
        path = sorted(path.parent.glob(path.name.split("0")[0] + "*"))[-1]
    how = spoil(path, chance)
    place.prepared()
    line = shlex.split(chance.choice(USES[name]).format(path.relative_to(place.mine)))
    if line[0] == "train":
        given = " ".join(line)
        line += QUICK + [] if "--config" in given else [*QUICK, "--config=small.toml"]
        line += [] if "--data" in given else ["--data=photos"]
        line += [] if "--out" in given else ["--out=out"]
    ended = place.run(line, interrupted if line[0] == "explore" else lambda: None)
    codes = (0, 1, 2, 3) if line[0] == "train" else (0, 1, 2)
    found = place.faults(ended, codes=codes, changes=["run", "out"] if line[0] == "train" else [])
    return f"{path.name} ({how}): {shlex.join(line)[:120]}", found


def odd_names(folder: Path, chance: Random) -> None:
    """Pictures of odd names, kinds and permissions, and what is no picture."""
    good = (folder / "a" / "0.png").read_bytes()
    names = ["a\nb.png", "\x1b[31m.png", "\udcff\udcfe.png", " .png", "a" * 250 + ".png", "-o.png", "\U0001f600.png", "a.png ",
             ".hidden.png", "\u202e.png", "CON.png", "a.PNG", "a.heic", "b.avif", "meta.json", "dataset.json", "x.zip"]  # fmt: skip
    for name in chance.sample(names, 5):
        content = {".json": b'{"labels": [["a/0.png", 1]]}', ".zip": b"PK\3\4"}.get(Path(name).suffix, good)
        (folder / name).write_bytes(content if chance.random() < 0.8 else content[: len(content) // 2])
    for kind in chance.sample(range(12), 5):
        path = folder / f"kind{kind}.png"
        match kind:
            case 0: os.mkfifo(path)
            case 1: path.symlink_to("/dev/zero")
            case 2: path.symlink_to(path.name)
            case 3: path.mkdir()
            case 4: path.touch()
            case 5: (path.write_bytes(good), path.chmod(0))
            case 6: (folder / "cycle").symlink_to(".")
            case 7: Image.new("L", (1, 300)).save(path)
            case 8: path.write_bytes(good[:16] + b"\0\1\0\0\0\1\0\0" + good[24:])
            case 9: shutil.copytree(folder.parent / "run", folder / "a-run")
            case 10: shutil.copytree(folder.parent / "store", folder / "a-store")
            case 11: (folder / "/".join(["deep"] * 60)).mkdir(parents=True)  # fmt: skip


def folders(place: Place, chance: Random) -> tuple[str, list[str]]:
    """A folder of pictures in which anything may be."""
    odd_names(place.mine / "photos", chance)
    place.prepared()
    line = chance.choice(
        [["check", "photos"], ["check", "photos", "--list"], ["prepare", "photos", "out"], ["info", "photos"],
         ["check", "photos", "--strict"], [*TRAIN, "--out=out", "--dry-run"], [*TRAIN, "--out=out"], [*TRAIN, "--out=out", "--cond"],
         ["project", "g.pt", "photos/kind4.png", "photo.png", "--steps=1", "--out=out"]]
    )  # fmt: skip
    ended = place.run(line, nobody)
    return shlex.join(line), place.faults(ended, changes=["out"] if line[0] == "project" else [])


SEVERAL = {  # commands whose results are compared, and what these are
    "train": ([*TRAIN, "--out=out"], "out/*-000000160.pt"),
    "prepare": (["prepare", "photos", "out"], "out/*.npy"),
    "generate": (["generate", "g.pt", "--seeds=0-63", "--batch=1", "--out=out"], "out/seed*.png"),
}


def results(place: Place, name: str) -> dict[str, bytes]:
    paths = sorted(place.mine.glob(SEVERAL[name][1]))
    return {path.name: path.read_bytes() for path in paths}


@cache
def whole(name: str, base: Path, folder: Path) -> tuple[dict[str, bytes], float]:
    """What a command makes when nothing disturbs it, and in which time."""
    place = Place(folder, base)
    ended = place.run(SEVERAL[name][0])
    assert ended.code == 0, ended.printed
    return results(place, name), ended.seconds


def undisturbed(place: Place, name: str) -> tuple[dict[str, bytes], float]:
    return whole(name, place.folder.parent / "base", place.folder.parent / f"{os.getpid()}-{name}")


def compared(place: Place, name: str, ended: Ended) -> list[str]:
    """The same command ends as if it had not been disturbed, or refuses."""
    if ended.code == 0 and results(place, name) != undisturbed(place, name)[0]:
        return ["the results are not those of an undisturbed command"]
    return [] if ended.code in (0, 1) else [f"the same command: {ended.code}"]


def kills(place: Place, chance: Random) -> tuple[str, list[str]]:
    """Signals at random moments, then the same command."""
    name, number = chance.choice(list(SEVERAL)), chance.choice((2, 2, 15, 15, 9))
    line, seconds = SEVERAL[name][0], undisturbed(place, name)[1]
    moments, found = [], []
    for _ in range(chance.randint(1, 3)):
        anew = chance.random() < 0.3
        moments.append(chance.uniform(0.15 if anew else 0.03, 4 * anew + seconds))
        child = place.start_anew(line) if anew else place.start(line)
        time.sleep(moments[-1])
        child.signal(number)
        ended = child.wait()
        codes = (0, 1, 130, 143, 137, -number) if number != 9 else (0, 1, -9, 137)
        found += place.faults(ended, codes=codes, makes=True) if number != 9 else place.spoiled(())
    ended = place.run(line)
    found += place.faults(ended, makes=True) + compared(place, name, ended)
    if number == signal.SIGKILL and name == "generate":  # refuses what is there
        found = [fault for fault in found if ".partial" not in fault]
    if name == "train" and ended.code != 0:
        found.append(f"it does not continue: {ended.printed[-200:]!r}")
    when = ", ".join(f"{moment:.2f}" for moment in moments)
    return f"{name}: signal {number} after {when} s", found


def disks(place: Place, chance: Random) -> tuple[str, list[str]]:
    """A disk that is full, or files that may not grow; later there is room."""
    name, room = chance.choice(list(SEVERAL)), chance.choice((4096, 20_000, 60_000, 150_000))
    line, tmpfs = SEVERAL[name][0], os.geteuid() == 0 and chance.random() < 0.5
    out = place.mine / "out"
    with contextlib.ExitStack() as mounted:
        if tmpfs and name == "train":
            out.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={max(room, 4096)}", "t", out], check=True)
            mounted.callback(subprocess.run, ["umount", "--lazy", out], check=True)
            child = place.start(line)
            time.sleep(chance.uniform(0, 1.5 * undisturbed(place, name)[1]))
            if chance.random() < 0.5:
                subprocess.run(["mount", "-o", "remount,size=99m", out], check=True)
            ended = child.wait()
            subprocess.run(["mount", "-o", "remount,size=99m", out], check=True)
        else:
            ended = place.run(line, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)))
        found = place.faults(ended, makes=True)
        ended = place.run(line)
        found += place.faults(ended, makes=True) + compared(place, name, ended)
    return f"{name}: {'tmpfs' if tmpfs else 'files'} of {room} bytes", found


SHELLS = (
    '"$@" >&-', '"$@" 2>&-', '"$@" >&- 2>&-', '"$@" >/dev/full', '"$@" 2>/dev/full', '"$@" >/dev/full 2>&1', '"$@" | head -c 1',
    '"$@" 2>&1 | head -c 40', '"$@" 2>&1 | true', '"$@" | sleep 0.1', '"$@" <&-', 'ulimit -n 20; "$@"', 'cd ..; rmdir x 2>&-; "$@"',
)  # fmt: skip


def streams(place: Place, chance: Random) -> tuple[str, list[str]]:
    """Output that cannot be written."""
    lines = [["--help"], ["configs"], ["check", "photos"], ["info", "g.pt"], ["schedule", "small.toml"], ["nothing"],
             SEVERAL["generate"][0], SEVERAL["train"][0], SEVERAL["train"][0], ["prepare", "photos", "out"]]  # fmt: skip
    line, shell = chance.choice(lines), chance.choice(SHELLS[:-1])
    ended = place.start_anew(line, f"{shell}; exit ${{PIPESTATUS[0]}}").wait()
    found = [
        fault
        for fault in place.faults(ended, codes=(0, 1, 2, 120, 141), makes=True)
        if "without a reason" not in fault
    ]
    if line[0] == "train" and "ulimit" not in shell and ended.code != 141:
        found += compared(place, "train", ended)
        found += [f"ended with {ended.code}"] if ended.code else []
    return f"{shell}: {shlex.join(line)[:80]}", found


def together(place: Place, chance: Random) -> tuple[str, list[str]]:
    """Two commands at once in one folder."""
    name = chance.choice(("train", "train", "train", "prepare", "generate"))
    line = SEVERAL[name][0]
    others = {
        "train": [line, [*line, "--seed=1"], ["report", "out"], ["info", "out"], ["generate", "out", "--seeds=0", "--out=pictures"],
                  [*line, "-o", "schedule.total_kimg=0.12"]],
        "prepare": [line, [*line, "--resolution=8"], ["train", "--data=out", *TRAIN[2:], "--out=run2"]],
        "generate": [line, ["generate", "g.pt", "--seeds=0-9", "--psi=0", "--out=out"]],
    }  # fmt: skip
    other = chance.choice(others[name])
    first = place.start(line)
    time.sleep(chance.choice((0, 0, chance.uniform(0, undisturbed(place, name)[1]))))
    second = place.start(other)
    ends = [first.wait(), second.wait()]
    found = [fault for ended in ends for fault in place.faults(ended, makes=True)]
    if all(ended.code for ended in ends):
        found.append(f"both are refused: {ends[0].printed[-100:]!r} and {ends[1].printed[-100:]!r}")
    if name == "train":
        again = place.run(["train", f"--config={RunFolder(Path('out')).config_file}", *TRAIN[1:2], *QUICK, "--out=out"])
        found += place.faults(again, makes=True)
        own = "seed = 1" not in (place.mine / "out" / "config.toml").read_text()
        if other in (line, [*line, "--seed=1"]) and own:
            found += compared(place, name, again)
    return f"{shlex.join(line)[:40]} and {shlex.join(other)[:90]}", found


def http(place: Place, chance: Random) -> tuple[str, list[str]]:
    """A server of files that is not as it should be."""
    behaviour = chance.choice(list(BEHAVIOURS))
    with answering(behaviour, place.folder / "certificate.pem") as port:
        url = f"https://localhost:{port}/g-01234567.pt"
        line = chance.choice((["info", url], ["generate", url, "--seeds=0", "--out=out"]))
        ended = place.run(line)
    found = place.faults(ended, codes=(1,))
    kept = [path.name for path in (place.folder / "home").rglob("*") if path.is_file()]
    return f"{behaviour}: {line[0]}", found + [f"left: {name}" for name in kept]


HEADS = (
    "GET / HTTP/1.1", "POST /picture HTTP/1.1", "POST /search HTTP/1.1", "POST /load HTTP/1.1", "PUT / HTTP/9.9", "\0\1\2", "GET",
    "GET /../../etc/passwd HTTP/1.1", "POST /latents HTTP/1.0", "A" * 70_000, "GET /%00 HTTP/1.1",
)  # fmt: skip
FIELDS = (
    "Host: localhost", "Host: example.org", "Origin: http://localhost", "Origin: null", "Content-Length: 5", "Content-Length: -1",
    "Content-Length: 99999999999", "Content-Length: 30000000", "Transfer-Encoding: chunked", "Sec-Fetch-Site: cross-site",
    "X: " + "a" * 70_000, ":", "Expect: 100-continue", "Connection: keep-alive", *[f"X{i}: 1" for i in range(3)],
)  # fmt: skip


def page(place: Place, chance: Random) -> tuple[str, list[str]]:
    """Requests of anybody to the explorer's page, which goes on, and ends at Ctrl-C."""
    child, address = place.start(["explore", "g.pt", "--no-browser"]), None
    while address is None and time.monotonic() < child.started + 60:
        words = child.output.read_text().split() if child.output.exists() else []
        address = next((word for word in words if word.startswith("http:")), None)
        time.sleep(0.05)
    if address is None:
        return "page", [f"it does not begin: {child.wait(1).printed[-200:]!r}"]
    port, connections = int(address.strip("/").rpartition(":")[2]), []
    for _ in range(chance.randint(3, 20)):
        connections.append(socket.create_connection(("127.0.0.1", port), 5))
        body = drawn(damage.JSON, chance) if chance.random() < 0.5 else {"seed": 10**400, "file": {"name": "x", "content": "eA=="}}
        text = json.dumps(body)[:10**6] if chance.random() < 0.9 else "[" * 10**5
        fields = chance.sample(FIELDS, chance.randint(0, 5))
        if chance.random() < 0.7:
            fields = ["Host: localhost", "Origin: http://localhost", f"Content-Length: {len(text)}"]
        with contextlib.suppress(OSError):
            connections[-1].sendall("\r\n".join([chance.choice(HEADS), *fields, "", text]).encode("latin1", "replace"))
            if chance.random() < 0.5:
                connections[-1].close()
    found = []
    asked = urllib.request.Request(f"{address}scene", b"{}", {"Origin": address.strip("/")})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            found += [] if json.load(answer)["layers"] else ["another scene"]
    except OSError as error:
        found.append(f"it does not answer any more: {error}")
    start = time.monotonic()
    child.signal(signal.SIGINT)
    ended = child.wait()
    found += [f"it ended after {time.monotonic() - start:.0f} s"] if time.monotonic() > start + 20 else []
    found += [f"it prints: {ended.printed[-200:]!r}"] if ended.printed.count("\n") != 2 else []
    for connection in connections:
        connection.close()
    return f"{len(connections)} requests", found + place.faults(ended, codes=(0,))


KINDS: dict[str, tuple[Attempt, int]] = {  # with their shares
    "options": (options, 36), "files": (files, 26), "folders": (folders, 9), "kills": (kills, 8), "disks": (disks, 5),
    "streams": (streams, 6), "together": (together, 4), "http": (http, 3), "page": (page, 3),
}  # fmt: skip
