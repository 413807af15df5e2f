"""What can happen to a run, each with the check that nothing was lost or spoiled by it."""

import contextlib
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psutil
from injection import Fault
from runs import TICK_IMAGES, Run, Runs, check, pause, wait_until

from stylegan.run_folder import images_of

CALLS = dict(zip(("open", "write", "fsync", "rename", "unlink"), "owsru", strict=True))
CALLS |= {"open-folder": "O", "fsync-folder": "S"}
SAFE = re.compile("(ow+srOS(u+(OS)?)?)+")  # the order of calls that survives a loss of power
PART = 1 / 8  # of the training: the longest wait for a random moment
TRIES = 5  # for what the run's end came before
REFUSED = re.compile(
    r"could not write (state-\d+\.pt): No space left on device; last good state: (state-\d+\.pt)"
)


def calls_of(points: Sequence[str]) -> str:
    """The calls of saves, a letter each."""
    return "".join(CALLS[call] for _, call, place in map(str.split, points) if place == "after")


@dataclass(frozen=True)
class Event:
    """Something that happens to a run."""

    name: str
    act: Callable[[Run], bool]  # starts the command; whether the event came before its end
    at_the_start: bool = False  # only in a folder without config.toml


def disturb(runs: Runs, events: Sequence[Event]) -> int:
    """Let one event after the other happen to a run, which the same command continues; the number.

    A run that ends meanwhile must be the undisturbed one, and the next begins.
    """
    run = runs.new("disturbed")
    for event in events:
        for _ in range(TRIES):
            if event.at_the_start and run.config_file.exists():
                run.check_end()
                run = runs.new("disturbed")
            begun, saved = run.begun(), run.saved()
            happened = event.act(run)
            again = run.begun()[len(begun) :]
            check(again in ([], [saved]), f"{run.path} continued at {again}, saved at {saved}")
            run.check_files()
            if happened:
                print(f"{event.name}; {run.saved()} images saved", flush=True)
                break
            run.check_end()
            run = runs.new("disturbed")
        else:
            check(False, f"{event.name}: {TRIES} runs ended before it")
    run.check_end()
    return len(events)


def is_killed(process: "subprocess.Popen[bytes]", run: Run) -> bool:
    """Wait for the end; whether it was SIGKILL."""
    code = process.wait()
    check(code in (0, -signal.SIGKILL), f"exit code {code}, not SIGKILL: {run.tail()}")
    return code == -signal.SIGKILL


def kill(runs: Runs, kills: int, chance: Random) -> int:
    """SIGKILL at every point of the saves, and at random moments of starting and training."""
    run, record = runs.new("recorded"), runs.folder / "points.txt"
    run.start(Fault(str(run.path), record=str(record))).wait()
    run.check_end()
    points = record.read_text().splitlines()
    check(SAFE.fullmatch(calls_of(points)), f"calls in another order: {calls_of(points)}")
    starting, training = runs.undisturbed().seconds()
    count, kinds = Counter(points), sorted(set(points))
    print(f"{len(kinds)} kinds of points, {len(points)} in a run", flush=True)
    events = []
    for point in chance.sample(kinds, min(kills, len(kinds))):
        kind = point.partition(" ")[0]
        each = -(-count[point] // count[f"{kind} rename after"])  # in one save
        number = chance.randint(1, each if kind == "config" else 2 * each)
        events.append(kill_at(point, number))
    for i in range(kills - len(events)):
        moment = chance.uniform(0, training * PART if i % 4 else starting)
        events.append(kill_after(moment, starting=not i % 4))
    chance.shuffle(events)
    return disturb(runs, sorted(events, key=lambda event: not event.at_the_start))


def kill_at(point: str, number: int) -> Event:
    """SIGKILL when a save reaches `point` for the n-th time."""

    def act(run: Run) -> bool:
        fault = Fault(str(run.path), kill_at=point, number=number)
        return is_killed(run.start(fault), run)

    return Event(f"SIGKILL at {point}", act, at_the_start=point.startswith("config"))


def kill_after(seconds: float, *, starting: bool) -> Event:
    """SIGKILL some time after the process, or else its training, began."""

    def act(run: Run) -> bool:
        begins, process = run.begun_beyond(len(run.begun())), run.start()
        if starting or wait_until(begins, process):
            pause(seconds, process)
        process.kill()
        return is_killed(process, run)

    return Event(f"SIGKILL while {'starting' if starting else 'training'}", act)


def signals(runs: Runs, kills: int, chance: Random) -> int:
    """SIGTERM saves where it stops; SIGUSR1 saves and goes on."""
    _, training = runs.undisturbed().seconds()
    events = [kind(chance.uniform(0, training * PART)) for kind in [stop] * 6 + [save_now] * 4]
    chance.shuffle(events)
    return disturb(runs, events)


def trained_for(seconds: float, run: Run) -> "subprocess.Popen[bytes]":
    """The process of the run, some time after it has logged a step, so that it heeds signals."""
    steps = len(run.events("progress"))
    process = run.start()
    if wait_until(lambda: len(run.events("progress")) > steps, process):
        pause(seconds, process)
    return process


def stop(seconds: float) -> Event:
    """SIGTERM: saved at the very step, exit code 143."""

    def act(run: Run) -> bool:
        process = trained_for(seconds, run)
        process.send_signal(signal.SIGTERM)
        code = process.wait()
        if run.events("finished"):
            return False
        stopped = [record["images_seen"] for record in run.events("stopped")][-1:]
        check(code == 128 + signal.SIGTERM, f"exit code {code} at SIGTERM: {run.tail()}")
        check(stopped == [run.saved()], f"stopped at {stopped}, saved at {run.saved()}")
        return True

    return Event("SIGTERM", act)


def save_now(seconds: float) -> Event:
    """SIGUSR1: saved between two ticks, and gone on. Then SIGKILL, so that this file is used."""

    def act(run: Run) -> bool:
        before = run.saved()
        process = trained_for(seconds, run)
        while process.poll() is None and not (run.saved() > before and run.saved() % TICK_IMAGES):
            before = run.saved()  # a tick was due, too
            process.send_signal(signal.SIGUSR1)
            wait_until(run.saves_beyond(before), process)
        process.kill()
        return process.wait() == -signal.SIGKILL and not run.events("finished")

    return Event("SIGUSR1, then SIGKILL", act)


def disk(runs: Runs, kills: int, chance: Random) -> int:
    """A disk that is full when the run begins, for a while, and to the end."""
    whole = runs.undisturbed()
    used = sum(path.stat().st_size for path in whole.path.rglob("*") if path.is_file())
    with small_disk(runs.folder / "disk", 2 * used) as folder:
        for _ in range(2):
            leave = round(chance.uniform(0, 0.9) * whole.states()[-1].stat().st_size)
            full_for_a_while(runs.new("full", parent=folder), leave)
        full_to_the_end(runs.new("full", parent=folder))
    return 4


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A tmpfs of `size` bytes at `folder`, which needs root on Linux."""
    folder.mkdir()
    options = ["-o", f"size={size}"]
    subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, leave: int = 0) -> None:
    """Take all the room that there is now, but `leave` bytes."""
    with open(folder / "ballast", "ab", buffering=0) as file:
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(2**16))
        file.truncate(max(file.tell() - leave, 0))


def full_for_a_while(run: Run, leave: int) -> None:
    """Filled during the run but for `leave` bytes, and later freed."""
    folder, process = run.path.parent, run.start()
    wait_until(run.saves_beyond(2 * TICK_IMAGES), process)

    def refused() -> list[tuple[str, str]]:
        fill(folder, leave)  # again: an old file may have gone meanwhile
        return REFUSED.findall(run.printed())

    check(wait_until(refused, process), f"no message that the disk was full: {run.tail()}")
    run.check_files()
    _, last = refused()[-1]
    names = [path.name for path in run.states()]
    check(last in names, f"the message names {last} as the last good state, there are {names}")
    saved = run.saved()
    (folder / "ballast").unlink()
    wait_until(run.saves_beyond(saved), process)
    check(run.saved() > saved, f"it saved nothing once there was room: {run.tail()}")
    check(process.wait() == 0, f"it did not finish: {run.tail()}")
    run.check_end()
    shutil.rmtree(run.path)
    print(f"full but for {leave:,} bytes: {last} kept, went on", flush=True)


def full_to_the_end(run: Run) -> None:
    """No room to begin; then, after some states, none to the end."""
    folder = run.path.parent
    for first in (0, 3 * TICK_IMAGES):
        printed = len(run.printed())
        if not first:
            fill(folder)
        process = run.start()
        wait_until(run.saves_beyond(first - 1), process)
        wait_until(lambda: fill(folder), process)  # until it ends
        code, text = process.wait(), run.printed()[printed:]
        message = text.strip().splitlines()[-1]
        clean = "Traceback" not in text and message.startswith("Error: ")
        check(code == 1 and clean, f"exit code {code} with a full disk: {run.tail()}")
        run.check_files()
        (folder / "ballast").unlink()
        print(f"full from image {first} to the end: {message}", flush=True)
    run.check_end()


def damage(runs: Runs, kills: int, chance: Random) -> int:
    """Newest states that are not what was written."""
    run = runs.new("cut-short")
    process = run.start()
    wait_until(run.saves_beyond(13 * TICK_IMAGES), process)
    process.kill()
    process.wait()

    def flip(data: bytes) -> bytes:
        at = chance.randrange(len(data) // 4, len(data) * 3 // 4)
        return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]

    cases: list[tuple[int, Callable[[bytes], bytes]]] = [
        (1, lambda data: data[: chance.randrange(len(data))]),
        (1, lambda data: data[:-1]),
        (1, flip),
        (1, lambda data: b""),
        (1, lambda data: bytes(len(data))),
        (2, lambda data: data[: chance.randrange(len(data))]),
        (len(run.states()), lambda data: data[: len(data) // 2]),
    ]
    for number, spoil in cases:
        continue_damaged(runs, run, number, spoil)
    return len(cases)


def continue_damaged(runs: Runs, source: Run, number: int, spoil: Callable[[bytes], bytes]) -> None:
    """Continue a copy of `source` whose `number` newest states are damaged."""
    run = runs.new("damaged")
    shutil.copytree(source.path, run.path)
    good, bad = run.states()[:-number], run.states()[-number:]
    for path in bad:
        path.write_bytes(spoil(path.read_bytes()))
    before = [path.read_bytes() for path in bad]
    code = run.finish()
    wanted = [f"continuing from {good[-1].name}" if good else "Error: ", *(p.name for p in bad)]
    lines = [line for line in run.printed().splitlines() if all(part in line for part in wanted)]
    check(lines, f"{', '.join(wanted)} are not in one line: {run.tail()}")
    print(lines[-1], flush=True)
    if good:
        check(run.begun()[-1] == images_of(good[-1]), f"continued at {run.begun()}")
        run.check_end()
    else:
        clean = code == 1 and "Traceback" not in run.printed()
        check(clean, f"exit code {code} without a readable state: {run.tail()}")
        check([path.read_bytes() for path in bad] == before, "damaged files were changed")


def torchrun(runs: Runs, kills: int, chance: Random) -> int:
    """Two processes, of which one is killed, three times in one run; torchrun starts both anew."""
    _, training = runs.undisturbed(processes=2).seconds()
    run, events = runs.new("torchrun", processes=2), 0
    process = run.start()
    for rank in (1, 0, chance.randrange(2)):
        if not wait_until(run.begun_beyond(events), process):
            break
        pause(chance.uniform(0, training / 4), process)
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if child.environ().get("RANK") == str(rank):
                    print(f"SIGKILL to rank {rank} after image {run.saved()}", flush=True)
                    child.kill()
                    events += 1
                    break
    code = process.wait()
    check(code == 0, f"exit code {code}: {run.tail()}")
    check(len(run.begun()) == events + 1, f"{events} kills, begun at {run.begun()}")
    run.check_end()
    return events
