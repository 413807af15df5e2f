"""Events that happen to runs, one after the other, until there are no more."""

import contextlib
import signal
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from subprocess import Popen

from runs import Run, Tally, Workshop

TRIES = 5  # for what the run's end came before


@dataclass
class Event:
    """Something that happens to a run. `act` starts the command; whether it happened in time."""

    kind: str
    act: Callable[[Run, Tally], bool]
    at_the_start: bool = False  # only in a folder without config.toml
    tries: int = TRIES


def play(workshop: Workshop, tally: Tally, events: Sequence[Event], jobs: int) -> None:
    """Let each event happen to a run that the one before has ended, and continue it so until it is
    finished; then to the next run. `jobs` runs side by side."""
    waiting = {
        first: deque(e for e in events if e.at_the_start == first) for first in (True, False)
    }
    happened: Counter[str] = Counter()

    def next_event(run: Run) -> Event | None:
        begun = (run.out / "config.toml").exists()
        for queue in [waiting[False]] if begun else waiting.values():
            with contextlib.suppress(IndexError):
                return queue.popleft()
        return None

    def one_run() -> None:
        run, in_time = workshop.run(tally.scenario), True
        while in_time and (event := next_event(run)) is not None:
            begun, saved = run.count("start", "resume"), run.saved()
            in_time = event.act(run, tally)
            check_begin(run, tally, begun, saved)
            run.check_files(tally)
            event.tries -= 1
            if in_time:
                happened[event.kind] += 1
                tally.events += 1
            elif event.tries:
                waiting[event.at_the_start].append(event)
            else:
                tally.expect(False, f"{event.kind}: {TRIES} runs ended before it")
        run.check_end(tally, run.finish())
        tally.say(f"{run.out.name} finished; {tally.events} events so far")

    def work() -> None:
        while any(waiting.values()):
            one_run()

    side_by_side(workshop, jobs, [work] * jobs)
    for kind, number in sorted(happened.items()):
        tally.say(f"{number:3} x {kind}")


def side_by_side(workshop: Workshop, jobs: int, tasks: Sequence[Callable[[], None]]) -> None:
    """Do all tasks, `jobs` at a time, in threads that wait for processes."""
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(task) for task in tasks]
        try:
            for future in futures:
                future.result()
        except (KeyboardInterrupt, SystemExit):
            workshop.close()  # else the pool would wait for them
            raise


def check_begin(run: Run, tally: Tally, begun: int, saved: int) -> None:
    """If training has begun again since the first `begun` times, it was at the newest state."""
    images = [record["images_seen"] for record in run.events("start", "resume")][begun:]
    where = f"{run.out.name} continued at {images}, with {saved} images saved"
    tally.expect(images in ([], [saved]), where)


def is_killed(process: Popen[bytes], run: Run, tally: Tally) -> bool:
    """Wait for the end; whether it was SIGKILL."""
    code = process.wait()
    tally.expect(code in (0, -signal.SIGKILL), f"exit code {code}, not SIGKILL: {run.tail()}")
    return code == -signal.SIGKILL
