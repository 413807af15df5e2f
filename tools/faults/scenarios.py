"""What can happen to a run, each with the check that nothing was lost or spoiled by it."""

import contextlib
import json
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from subprocess import Popen

import psutil
from disk import Disk, small_disk
from injection import Fault, Point
from play import Event, is_killed, play, side_by_side
from runs import TICK_IMAGES, Run, Tally, Workshop, pause, wait_until

from stylegan.run_folder import images_of

CALLS = dict(zip(("open", "write", "fsync", "rename", "unlink"), "owsru", strict=True))
CALLS |= {"open folder": "O", "fsync folder": "S"}
SAFE = re.compile("(ow+srOS(u+(OS)?)?)+")  # the order of calls that survives a loss of power
PART = 1 / 8  # of the training: the longest wait for a random moment
REFUSED = re.compile(
    r"could not write (state-\d+\.pt): No space left on device; last good state: (state-\d+\.pt)"
)


def recorded(workshop: Workshop, tally: Tally) -> tuple[Run, list[Point]]:
    """A whole run and all points of its saves, in order. Checks that each save makes its calls in
    the one order that leaves a whole file even when the power fails."""
    run, record = workshop.run("recorded"), workshop.folder / "points.jsonl"
    run.check_end(tally, run.start(Fault(str(run.out), record=str(record))).wait())
    points = [Point(**json.loads(line)) for line in record.read_text().splitlines()]
    calls = "".join(CALLS[point.call] for point in points if point.place == "after")
    tally.expect(SAFE.fullmatch(calls) is not None, f"calls in another order: {calls}")
    return run, points


def kill(workshop: Workshop, tally: Tally, kills: int, jobs: int, chance: Random) -> None:
    """SIGKILL at every point of the saves, and at random moments of starting and training."""
    run, points = recorded(workshop, tally)
    starting, training = run.seconds()
    count = Counter((point.file, point.call) for point in points if point.place == "after")
    kinds = sorted(set(points))
    saves = sum(number for (_, call), number in count.items() if call == "rename")
    tally.say(f"{len(kinds)} kinds of points in the {saves} saves of a run ({len(points)} points)")
    events = []
    for point in chance.sample(kinds, min(kills, len(kinds))):
        each = -(-count[point.file, point.call] // count[point.file, "rename"])  # in one save
        events.append(
            kill_at(point, chance.randint(1, each if point.file == "config" else 2 * each))
        )
    for i in range(kills - len(events)):
        moment = chance.uniform(0, training * PART if i % 4 else starting)
        events.append(kill_after(moment, starting=not i % 4))
    chance.shuffle(events)
    play(workshop, tally, events, jobs)


def kill_at(point: Point, number: int) -> Event:
    """SIGKILL when a save reaches `point` for the n-th time."""

    def act(run: Run, tally: Tally) -> bool:
        return is_killed(run.start(Fault(str(run.out), kill_at=point, number=number)), run, tally)

    return Event(f"SIGKILL {point}", act, at_the_start=point.file == "config")


def kill_after(seconds: float, *, starting: bool) -> Event:
    """SIGKILL some time after the process, or else its training, began."""

    def act(run: Run, tally: Tally) -> bool:
        begins = run.logs_beyond(run.count("start", "resume"), "start", "resume")
        process = run.start()
        if starting or wait_until(begins, process):
            pause(seconds, process)
        process.kill()
        return is_killed(process, run, tally)

    return Event(f"SIGKILL while {'starting' if starting else 'training'}", act)


def sigterm(workshop: Workshop, tally: Tally, jobs: int, chance: Random) -> None:
    """SIGTERM saves where it stops; SIGUSR1 saves and goes on."""
    _, training = workshop.undisturbed().seconds()
    kinds = [stop] * 6 + [save_now] * 4
    events = [kind(chance.uniform(0, training * PART)) for kind in kinds]
    chance.shuffle(events)
    play(workshop, tally, events, jobs)


def trained_for(seconds: float, run: Run) -> Popen[bytes]:
    """The process of the run, some time after it has logged a step, so that it heeds signals."""
    steps = run.logs_beyond(run.count("progress"), "progress")
    process = run.start()
    if wait_until(steps, process):
        pause(seconds, process)
    return process


def stop(seconds: float) -> Event:
    """SIGTERM: saved at the very step, exit code 143."""

    def act(run: Run, tally: Tally) -> bool:
        process = trained_for(seconds, run)
        process.send_signal(signal.SIGTERM)
        code = process.wait()
        if run.count("finished"):
            return False
        stopped = [record["images_seen"] for record in run.events("stopped")][-1:]
        tally.expect(code == 128 + signal.SIGTERM, f"exit code {code} at SIGTERM: {run.tail()}")
        tally.expect(stopped == [run.saved()], f"stopped at {stopped}, saved at {run.saved()}")
        tally.say(f"SIGTERM: saved at image {run.saved()}, exit code {code}")
        return True

    return Event("SIGTERM", act)


def save_now(seconds: float) -> Event:
    """SIGUSR1: saved between two ticks, and gone on. Then SIGKILL, so that this file is used."""

    def act(run: Run, tally: Tally) -> bool:
        before = run.saved()
        process = trained_for(seconds, run)
        while process.poll() is None and not (run.saved() > before and run.saved() % TICK_IMAGES):
            before = run.saved()  # a tick was due, too
            process.send_signal(signal.SIGUSR1)
            wait_until(run.saves_beyond(before), process)
        saved = run.saved()
        process.kill()
        if process.wait() != -signal.SIGKILL or run.count("finished"):
            return False
        tally.say(f"SIGUSR1: saved at image {saved}, and went on")
        return True

    return Event("SIGUSR1, then SIGKILL", act)


def disk(workshop: Workshop, tally: Tally, chance: Random) -> None:
    """A disk that is full when the run begins, for a while, and to the end."""
    whole = workshop.undisturbed()
    used = sum(path.stat().st_size for path in whole.out.rglob("*") if path.is_file())
    with small_disk(workshop.folder / "disk", 2 * used) as space:
        kind = (
            f"a tmpfs of {2 * used / 2**20:.0f} MiB" if space.real else "no mount: ENOSPC injected"
        )
        tally.say(kind)
        for _ in range(2):
            leave = round(chance.uniform(0, 0.9) * whole.states()[-1].stat().st_size)
            full_for_a_while(workshop.run("full", parent=space.folder), space, leave, tally)
        full_to_the_end(workshop.run("full", parent=space.folder), space, tally)


def full_for_a_while(run: Run, space: Disk, leave: int, tally: Tally) -> None:
    """Filled during the run but for `leave` bytes, and later freed."""
    process = run.start(space.fault(run))
    wait_until(run.saves_beyond(2 * TICK_IMAGES), process)

    def refused() -> list[tuple[str, str]]:
        space.fill(leave)  # again: an old file may have gone meanwhile
        return REFUSED.findall(run.printed())

    told = wait_until(refused, process)
    tally.expect(told, f"{run.out.name} did not say that the disk was full: {run.tail()}")
    run.check_files(tally)
    missing, last = (refused() or [("", "")])[-1]
    names = [path.name for path in run.states()]
    tally.expect(last in names, f"the last good state was said to be {last}, there are {names}")
    saved = run.saved()
    space.free()
    goes_on = wait_until(run.saves_beyond(saved), process)
    tally.expect(goes_on, f"{run.out.name} saved nothing once there was room: {run.tail()}")
    tally.say(f"full but for {leave:,} bytes: {missing} not written, {last} kept, went on")
    tally.events += 1
    run.check_end(tally, process.wait())
    shutil.rmtree(run.out)


def full_to_the_end(run: Run, space: Disk, tally: Tally) -> None:
    """No room to begin; then, after some states, none to the end."""
    for first in (0, 3 * TICK_IMAGES):
        printed = len(run.printed())
        if not first:
            space.fill()
        process = run.start(space.fault(run))
        wait_until(run.saves_beyond(first - 1), process)
        wait_until(space.fill, process)  # until it ends
        code, text = process.wait(), run.printed()[printed:]
        message = text.strip().splitlines()[-1]
        clean = "Traceback" not in text and message.startswith("Error: ")
        tally.expect(code == 1 and clean, f"exit code {code} with a full disk: {run.tail()}")
        tally.say(f"full {'to the end' if first else 'at the start'}: exit code {code}, {message}")
        run.check_files(tally)
        tally.events += 1
        space.free()
    run.check_end(tally, run.finish())


def truncated(workshop: Workshop, tally: Tally, jobs: int, chance: Random) -> None:
    """Newest states that are not what was written."""
    workshop.undisturbed()  # before others wait for it side by side
    run = workshop.run("cut-short")
    process = run.start()
    wait_until(run.saves_beyond(13 * TICK_IMAGES), process)
    process.kill()
    process.wait()
    cases: list[tuple[str, int, Callable[[bytes], bytes]]] = [
        ("truncated", 1, lambda data: data[: chance.randrange(len(data))]),
        ("without its last byte", 1, lambda data: data[:-1]),
        ("with one flipped byte", 1, flip_a_byte(chance)),
        ("empty", 1, lambda data: b""),
        ("all zeros", 1, lambda data: bytes(len(data))),
        ("and the one before truncated", 2, lambda data: data[: chance.randrange(len(data))]),
        ("and all others truncated", len(run.states()), lambda data: data[: len(data) // 2]),
    ]
    side_by_side(workshop, jobs, [partial(damaged, workshop, tally, run, *case) for case in cases])


def flip_a_byte(chance: Random) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        i = chance.randrange(len(data) // 4, len(data) * 3 // 4)
        return data[:i] + bytes([data[i] ^ 1 << chance.randrange(8)]) + data[i + 1 :]

    return flip


def damaged(
    workshop: Workshop,
    tally: Tally,
    source: Run,
    kind: str,
    number: int,
    damage: Callable[[bytes], bytes],
) -> None:
    """Continue a copy of `source` whose `number` newest states are damaged."""
    run = workshop.run("damaged")
    shutil.copytree(source.out, run.out)
    good, bad = run.states()[:-number], run.states()[-number:]
    for path in bad:
        path.write_bytes(damage(path.read_bytes()))
    before = [path.read_bytes() for path in bad]
    code = run.finish()
    instead = f"continuing from {good[-1].name}" if good else "Error: "
    wanted = [instead, *(path.name for path in bad)]
    told = any(all(part in line for part in wanted) for line in run.printed().splitlines())
    tally.expect(told, f"newest {kind}: {', '.join(wanted)} are not in one line: {run.tail()}")
    tally.events += 1
    if not good:
        clean = code == 1 and "Traceback" not in run.printed()
        tally.expect(clean, f"exit code {code} without a readable state: {run.tail()}")
        kept = [path.read_bytes() for path in bad] == before
        tally.expect(kept, "damaged files were changed although there was no other state")
        tally.say(f"newest {kind}: exit code {code}, {run.printed().strip().splitlines()[-1]}")
        return
    resumed = [record["images_seen"] for record in run.events("resume")][-1:]
    tally.expect(resumed == [images_of(good[-1])], f"newest {kind}: continued at {resumed}")
    tally.say(f"newest {kind}: named, continued from {good[-1].name}")
    run.check_end(tally, code)


def torchrun(workshop: Workshop, tally: Tally, chance: Random) -> None:
    """Two processes, of which one is killed, three times in one run; torchrun starts both anew."""
    _, training = workshop.undisturbed(processes=2).seconds()
    run = workshop.run("torchrun", processes=2)
    process = run.start()
    for begun, rank in enumerate((1, 0, chance.randrange(2))):
        if not wait_until(run.logs_beyond(begun, "start", "resume"), process):
            break
        pause(chance.uniform(0, training / 4), process)
        victim = worker(process, rank)
        if victim is not None:
            saved = run.saved()
            victim.kill()
            tally.events += 1
            tally.say(f"SIGKILL to rank {rank} after image {saved}")
    code = process.wait()
    resumed = [record["images_seen"] for record in run.events("resume")]
    tally.expect(len(resumed) == tally.events, f"{tally.events} kills, continued at {resumed}")
    tally.say(f"continued at images {resumed}, exit code {code}")
    run.check_end(tally, code)


def worker(process: Popen[bytes], rank: int) -> psutil.Process | None:
    """The process of that rank which torchrun has started."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.environ().get("RANK") == str(rank):
                return child
    return None
