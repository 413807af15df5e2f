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
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import click
import damage  # type: ignore[import-not-found]
from hypothesis import HealthCheck, Phase, given, seed, settings
from PIL import Image
from place import QUICK, TRAIN, Ended, Place
from servers import BEHAVIOURS, answering

from stylegan.cli import main
from stylegan.config import option_names

Attempt = Callable[[Place, Random], tuple[str, list[str]]]
SECONDS = 4  # after which a command that serves gets Ctrl-C
BASES = {  # a good command line of each command, which the others are made of
    "cache": "", "check": "photos", "configs": "quickstart", "convert": "g.npz out.pt",
    "directions": "g.pt --samples 20 --count 2 --out out.npz", "explore": "g.pt --no-browser",
    "export": "g.pt out.safetensors", "figure": "g.pt --out out.png",
    "generate": "g.pt --seeds 0-1 --out out", "info": "g.pt",
    "metrics": "g.pt --data store --metrics swd8 --out out.jsonl",
    "prepare": "photos out", "project": "g.pt photo.png --steps 2 --out out",
    "report": "run --out out.html", "schedule": "small.toml",
    "train": " ".join([*TRAIN[1:], "--out=out"]),
    "video": "g.pt --out out.mp4 --frames 3",
}  # fmt: skip
NUMBERS = (
    *(
        "1e306",
        "-1e306",
        "nan",
        "-inf",
        "-1",
        "0",
        "1e-320",
        "1e400",
        "3.5",
        "2147483648",
        "\u0663",
    ),
    *("0x10", "1_0", "1,,2", "1,2,nan", "5-1", "0-99999999999", "-5--1", "4=8", "--"),
    *("1" + "0" * 400, "9" * 5_000),
)
TEXTS = (
    *("", " ", "\t", "a\nb", "\x1b[31mred\x1b[2J", "\u202eabc", "\U0001f600", "\udcff", "\udcc3("),
    *("a" * 300, "/".join("a" * 2_000), "[" * 3_000, "$(touch x)", "%s%n{}", "{a=1", "--help=1"),
    *("../x", "~/x", "cuda", "meta", "xpu", "fpga", "cpu:7", "cuda:99", "mps", "CON", "-"),
    *("https://host.invalid/x", "http://127.0.0.1:1/a.pt", "https://a b/x.pt#sha256=00000000"),
    *("https://[::1/x-01234567.pt", "https://127.0.0.1:x/x-01234567.pt", "file:///etc/passwd"),
)
PATHS = (
    *("fifo", "/dev/zero", "/dev/full", "/dev/stdin", "folder", "loop", "missing/x", "socket"),
    *("photos", "photos/a", "run", "store", "g.pt", "photo.png", "small.toml", "empty", "secret"),
    *("/dev", "/proc/self/mem", ".", "..", "odd\x1b[31m\n.png", "bytes\udcff.pt"),
)


@cache
def parameters() -> list[tuple[tuple[str, ...], click.Parameter]]:
    """Every parameter of every command."""
    found: list[tuple[tuple[str, ...], click.Parameter]] = []
    groups: list[tuple[tuple[str, ...], click.Group]] = [((), main)]
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
        place_of = len(words) + at.index(parameter.name)
        line[place_of : place_of + 1] = [f"./{value}" if value[:1] == "-" else value]
    else:
        name = parameter.opts[-1]
        line += [f"{name}={value}"] if name[:2] == "--" else [name, value]
    line = [word.replace("\0", "")[:100_000] for word in line]
    oddities(place.mine)
    place.prepared()
    ended = place.run(line, interrupted if words[0] == "explore" else nobody)
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


SHOW, TO_FILE, TO_RUN = "generate {} --seeds 0 --out out", "convert {} out.pt", "train --out run"
MEASURE = "metrics {} --data store --metrics swd4 --out out.jsonl"
USES = {  # files, and the commands that read them
    "g.pt": [SHOW, "info {}", "export {} out.npz", "train --init-from {}"],
    "g.npz": ["info {}", SHOW, TO_FILE],
    "g.safetensors": ["info {}", SHOW, TO_FILE],
    "g.directions.npz": ["explore g.pt --no-browser --directions {}"],
    "latents.npz": ["generate g.pt --latents {} --out out"],
    "photos.zip": ["check {}", "prepare {} out", "train --data {}"],
    "photo.png": ["project g.pt {} --steps 2 --out out"],
    "small.toml": ["train --config {} --dry-run", "schedule {}"],
    "photos/a/0.png": ["check photos", "prepare photos out", "train --data photos"],
    "store/meta.json": ["info store", "train --data store", MEASURE.format("g.pt")],
    "store/0016.npy": ["info store", "train --data store"],
    "store/0008.npy": ["train --data store", "check store"],
    "run/config.toml": ["info run", TO_RUN, "report run --out out.html"],
    "run/log.jsonl": ["report run --out out.html", TO_RUN],
    "run/data.txt": [TO_RUN, MEASURE.format("run")],
    "run/state-*": [TO_RUN, "info {}", f"{TO_RUN} -o schedule.total_kimg=0.1"],
    "run/generator-*": [SHOW.format("run"), TO_RUN, "info run"],
}


def still(magic: bytes, inner: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """`inner` for entries that are still of that kind; others may be damaged twice."""
    return lambda data: (inner if data.startswith(magic) else damage.edited)(data)


DEEP = {
    ".pt": damage.entry_of_archives("data.pkl", damage.pickles),
    ".npz": lambda data: damage.archives(data, still(b"\x93NUMPY", damage.npy_headers)),
    ".zip": lambda data: damage.archives(data, still(b"\x89PNG", damage.png_chunks)),
    ".safetensors": damage.safetensors_header,
    ".png": damage.png_chunks,
    ".toml": damage.toml_lines,
    ".json": damage.json_values,
    ".npy": damage.npy_headers,
}


def spoil(path: Path, chance: Random) -> str:
    """Damage a file, or put another thing in its place; what was done."""
    data, how = path.read_bytes(), chance.choice(("format", "format", "bytes", "cut", "other"))
    if how == "format" and path.suffix in DEEP:
        zips = [damage.archives, damage.archive_fields] if data[:2] == b"PK" else []
        path.write_bytes(drawn(chance.choice([DEEP[path.suffix], *zips])(data), chance))
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
    path = sorted(place.mine.glob(name))[-1]
    how = spoil(path, chance)
    place.prepared()
    line = shlex.split(chance.choice(USES[name]).format(path.relative_to(place.mine)))
    if line[0] == "train":
        others = ("--config", "small.toml"), ("--data", "photos"), ("--out", "out")
        line += [*QUICK, *(word for pair in others if pair[0] not in line for word in pair)]
    ended = place.run(line, interrupted if line[0] == "explore" else lambda: None)
    codes = (0, 1, 2, 3) if line[0] == "train" else (0, 1, 2)
    found = place.faults(ended, codes=codes, changes=["run", "out"] if line[0] == "train" else [])
    return f"{path.name} ({how}): {shlex.join(line)[:120]}", found


NAMES = (
    *("a\nb.png", "\x1b[31m.png", "\udcff\udcfe.png", " .png", "a" * 250 + ".png", "a.png "),
    *("\U0001f600.png", "\u202e.png", "-o.png", ".hidden.png", "CON.png", "a.PNG", "a.heic"),
    *("b.avif", "meta.json", "dataset.json", "x.zip"),
)


def odd_names(folder: Path, chance: Random) -> None:
    """Pictures of odd names, kinds and permissions, and what is no picture."""
    good = (folder / "a" / "0.png").read_bytes()
    others = {".json": b'{"labels": [["a/0.png", 1]]}', ".zip": b"PK\3\4"}
    for name in chance.sample(NAMES, 5):
        content = others.get(Path(name).suffix, good)
        (folder / name).write_bytes(content[: chance.choice((99, 999, 9999))])
    kinds: dict[str, Callable[[Path], object]] = {
        "fifo": os.mkfifo,
        "zero": lambda path: path.symlink_to("/dev/zero"),
        "loop": lambda path: path.symlink_to(path.name),
        "folder": Path.mkdir,
        "empty": Path.touch,
        "secret": lambda path: path.touch(0),
        "cycle": lambda path: (folder / "cycle").symlink_to("."),
        "narrow": lambda path: Image.new("L", (1, 300)).save(path),
        "huge": lambda path: path.write_bytes(good[:16] + b"\0\1\0\0" * 2 + good[24:]),
        "run": lambda path: shutil.copytree(folder.parent / "run", folder / "a-run"),
        "store": lambda path: shutil.copytree(folder.parent / "store", folder / "a-store"),
        "deep": lambda path: (folder / "/".join(["deep"] * 60)).mkdir(parents=True),
    }
    for kind in chance.sample(list(kinds), 5):
        kinds[kind](folder / f"{kind}.png")


def folders(place: Place, chance: Random) -> tuple[str, list[str]]:
    """A folder of pictures in which anything may be."""
    odd_names(place.mine / "photos", chance)
    place.prepared()
    words = "check photos|check photos --list|check photos --strict|prepare photos out|info photos"
    project = ["project", "g.pt", "photos/empty.png", "photo.png", "--steps=1", "--out=out"]
    trains = [[*TRAIN, "--out=out", *more] for more in ([], ["--dry-run"], ["--cond"])]
    line = chance.choice([*map(str.split, words.split("|")), *trains, project])
    ended = place.run(line, nobody)
    return shlex.join(line), place.faults(ended, changes=["out"] if line[0] == "project" else [])


SEVERAL = {  # commands whose results are compared, and what these are
    "train": ([*TRAIN, "--out=out"], "out/*-000000080.pt"),
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


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def disks(place: Place, chance: Random) -> tuple[str, list[str]]:
    """A disk that is full, or files that may not grow; later there is room."""
    name, room = chance.choice(list(SEVERAL)), chance.choice((4096, 20_000, 60_000, 150_000))
    line, tmpfs = SEVERAL[name][0], os.geteuid() == 0 and chance.random() < 0.5
    out = place.mine / "out"
    with contextlib.ExitStack() as mounted:
        if tmpfs and name == "train":
            out.mkdir()
            mount("-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(out))
            mounted.callback(subprocess.run, ["umount", "--lazy", str(out)])
            child = place.start(line)
            time.sleep(chance.uniform(0, 1.5 * undisturbed(place, name)[1]))
            if chance.random() < 0.5:
                mount("-o", "remount,size=99m", str(out))
            ended = child.wait()
            mount("-o", "remount,size=99m", str(out))
        else:
            ended = place.run(line, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)))
        found = place.faults(ended, makes=True)
        ended = place.run(line)
        found += place.faults(ended, makes=True) + compared(place, name, ended)
    return f"{name}: {'tmpfs' if tmpfs else 'files'} of {room} bytes", found


SHELLS = (
    *([">&-", "2>&-", ">&- 2>&-", ">/dev/full", "2>/dev/full", ">/dev/full 2>&1", "<&-"]),
    *("| head -c 1", "2>&1 | head -c 40", "2>&1 | true", "| sleep 0.1"),
)


def streams(place: Place, chance: Random) -> tuple[str, list[str]]:
    """Output that cannot be written."""
    words = "--help|configs|check photos|info g.pt|schedule small.toml|nothing|prepare photos out"
    several = [SEVERAL[name][0] for name in ("generate", "train", "train")]
    line, way = chance.choice([*map(str.split, words.split("|")), *several]), chance.choice(SHELLS)
    shell = f'"$@" {way}'
    ended = place.start_anew(line, f"{shell}; exit ${{PIPESTATUS[0]}}").wait()
    found = [
        fault
        for fault in place.faults(ended, codes=(0, 1, 2, 120, 141), makes=True)
        if "without a reason" not in fault
    ]
    if line[0] == "train":
        found += compared(place, "train", ended)
        found += [f"ended with {ended.code}"] if ended.code else []
    return f"{way}: {shlex.join(line)[:80]}", found


def together(place: Place, chance: Random) -> tuple[str, list[str]]:
    """Two commands at once in one folder."""
    name = chance.choice(("train", "train", "train", "prepare", "generate"))
    line = SEVERAL[name][0]
    others = {
        "train": [
            *(line, [*line, "--seed=1"], [*line, "-o", "schedule.total_kimg=0.06"]),
            *map(str.split, ("report out", "info out", "generate out --seeds=0 --out=pictures")),
        ],
        "prepare": [line, [*line, "--resolution=8"], [*TRAIN, "--data=out", "--out=run2"]],
        "generate": [line, [*line, "--psi=0"]],
    }
    other = chance.choice(others[name])
    first = place.start(line)
    time.sleep(chance.choice((0, 0, chance.uniform(0, undisturbed(place, name)[1]))))
    second = place.start(other)
    ends = [first.wait(), second.wait()]
    found = [fault for ended in ends for fault in place.faults(ended, makes=True)]
    if all(ended.code for ended in ends):
        found.append(f"both are refused: {ends[0].printed[-100:]!r} and {ends[1].printed[-100:]!r}")
    if name == "train":
        again = place.run(["train", "--out=out", *QUICK])
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
    *(f"POST /{name} HTTP/1.1" for name in ("picture", "search", "load", "latents", "scene")),
    *("GET / HTTP/1.1", "GET /../../etc/passwd HTTP/1.1", "GET /%00 HTTP/1.1", "PUT / HTTP/9.9"),
    *("\0\1\2", "GET", "A" * 70_000),
)
FIELDS = (
    *("Host: localhost", "Host: example.org", "Origin: http://localhost", "Origin: null"),
    *(f"Content-Length: {n}" for n in (5, -1, 99999999999, 30000000)),
    *("Transfer-Encoding: chunked", "Sec-Fetch-Site: cross-site", "Expect: 100-continue"),
    *("X: " + "a" * 70_000, ":", "Connection: keep-alive"),
)
VALUES = {"seed": 10**400, "file": {"name": "x", "content": "eA=="}}


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
        body = (
            drawn(damage.JSON, chance)
            if chance.random() < 0.5
            else {"seed": 10**400, "file": {"name": "x", "content": "eA=="}}
        )
        text = json.dumps(body)[: 10**6] if chance.random() < 0.9 else "[" * 10**5
        fields = chance.sample(FIELDS, chance.randint(0, 5))
        if chance.random() < 0.7:
            fields = ["Host: localhost", "Origin: http://localhost", f"Content-Length: {len(text)}"]
        with contextlib.suppress(OSError):
            connections[-1].sendall(
                "\r\n".join([chance.choice(HEADS), *fields, "", text]).encode("latin1", "replace")
            )
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
    found += (
        [f"it ended after {time.monotonic() - start:.0f} s"]
        if time.monotonic() > start + 20
        else []
    )
    found += [f"it prints: {ended.printed[-200:]!r}"] if ended.printed.count("\n") != 2 else []
    for connection in connections:
        connection.close()
    return f"{len(connections)} requests", found + place.faults(ended, codes=(0,))


KINDS: dict[str, tuple[Attempt, int]] = {  # with their shares
    "options": (options, 36),
    "files": (files, 26),
    "folders": (folders, 9),
    "kills": (kills, 8),
    "disks": (disks, 5),
    "streams": (streams, 6),
    "together": (together, 4),
    "http": (http, 3),
    "page": (page, 3),
}
