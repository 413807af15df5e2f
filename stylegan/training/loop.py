"""The loop around the training step: data, schedule, files; the same call resumes."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from stylegan import distributed
from stylegan.data import Store
from stylegan.schedule import Stage
from stylegan.training.draws import draw
from stylegan.training.feed import Feed, label_pool
from stylegan.training.health import explained
from stylegan.training.run import Evaluation, LoopSettings, Report, Run, Tell, unfinished
from stylegan.training.state import TrainState
from stylegan.training.step import train_step
from stylegan.training.watchdog import Watchdog

SAVE = getattr(signal, "SIGUSR1", None)  # saves and goes on; not on Windows
STOP = (signal.SIGINT, signal.SIGTERM)


def train(
    state: TrainState,
    store: Store,
    out: Path,
    *,
    settings: LoopSettings | None = None,
    report: Report | None = None,
    tell: Tell | None = None,
    evaluation: Evaluation | None = None,
) -> int:
    """Train from where `state` is to the end of its schedule; files go into the folder `out`.

    0 when finished; else the number of the signal that asked to stop, after saving the state.
    `report` is shown the progress at every log line, `tell` hears what a user should know. Every
    error (Diverged, LostContact, out of memory, no room for the last files) leaves the last good
    state in `out`.
    """
    settings = settings or LoopSettings()
    run = Run(state, store, out, settings, report, tell, evaluation)
    if run.generator_file().exists() and not unfinished(state):
        return 0
    with run.folder.alone(), requests() as asked, Watchdog(settings.hang_minutes) as watchdog:
        run.unwatched = watchdog.rest
        try:
            with explained(state.config, stage_of(state), state.images_seen):
                run.begin()
            stopped_by = steps(run, asked, watchdog)
            stage = stage_of(state)
            watchdog.at("for the last files", stage, state.images_seen)
            with explained(state.config, stage, state.images_seen):
                if stopped_by:
                    run.stop(stopped_by)
                else:
                    run.end()
        except Exception as error:
            run.fail(error)
            raise
    return stopped_by


def steps(run: Run, asked: "Requests", watchdog: Watchdog) -> int:
    """Step after step until the end (0) or the signal whose number is returned."""
    state, config = run.state, run.state.config
    pool = label_pool(run.store) if config.data.labels else None
    feed = Feed(state, run.store, run.share, run.settings.workers)
    stopped_by = 0
    while unfinished(state) and not stopped_by:
        before = state.images_seen
        stage = state.position.next_stage(config.schedule)
        with explained(config, stage, before):
            watchdog.at("for images", stage, before)
            started = perf_counter()
            reals, labels = feed.next(before, stage)
            waited = perf_counter() - started
            watchdog.at("in a step", stage, before)
            draws = draw(config, before, stage, pool, run.share)
            metrics = train_step(state, reals, labels, stage, draws)
            run.meter.add(metrics, stage.batch_size, waited)
            watchdog.at("for files", stage, before)
            run.after_step(before, stage)
            stopped_by, save = asked.agree(run.save_is_due())
            if save and not stopped_by and run.write_state():
                run.log.line("saved", images_seen=state.images_seen)
    return stopped_by


def stage_of(state: TrainState) -> Stage:
    """The stage when the schedule was last read."""
    return state.position.stage(state.config.schedule)


@dataclass
class Requests:
    """What signals have asked of a run."""

    received: list[int] = field(default_factory=list)
    handled: int = 0

    def agree(self, save_is_due: bool) -> tuple[int, bool]:
        """After asking all processes: the signal to stop for (0: none), and whether to save."""
        new = self.received[self.handled :]
        self.handled += len(new)
        wanted = 2 * max((number for number in new if number != SAVE), default=0)
        wanted += save_is_due or SAVE in new
        stop, save = divmod(distributed.largest(wanted), 2)
        return stop, bool(save)


@contextmanager
def requests() -> Iterator[Requests]:
    """Collects signals instead of dying of them; a second one of those that stop kills as usual."""
    asked = Requests()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before: dict[int, Any] = {}

    def remember(number: int, frame: object) -> None:
        asked.received.append(number)
        if number in STOP:
            signal.signal(number, before[number])

    for number in (*STOP, *([SAVE] if SAVE else [])):
        before[number] = signal.signal(number, remember)
    try:
        yield asked
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)
