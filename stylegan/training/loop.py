"""The loop around the training step: what is done when, until the schedule ends."""

import faulthandler
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stylegan import distributed
from stylegan.data import Store
from stylegan.distributed import from_rank0
from stylegan.schedule import Stage
from stylegan.training.feed import Feed
from stylegan.training.health import Health, Overfitting, explained
from stylegan.training.interrupts import Requests, Stopped, requests
from stylegan.training.recorder import Recorder
from stylegan.training.snapshots import Snapshots
from stylegan.training.state import TrainState
from stylegan.training.step import train_step


@dataclass(frozen=True)
class Evaluation:
    """A measurement of the average generator that is made again and again, and at the end."""

    measure: Callable[[TrainState, Stage], dict[str, float]]  # in all processes, equal results
    best_by: str  # the name of the result that decides which generator is best
    lower_is_better: bool = True
    every_kimg: float | None = None  # None: with every generator file

    def is_best(self, scores: list[dict[str, float]]) -> bool:
        """Whether the last score is the best so far. Scores that name a `resolution` are compared
        only with those of the same."""
        *before, last = scores
        if self.best_by not in last:  # it could not be measured
            return False
        sign = 1 if self.lower_is_better else -1
        rivals = [s for s in before if s.get("resolution") == last.get("resolution")]
        values = [sign * score[self.best_by] for score in rivals if self.best_by in score]
        return all(sign * last[self.best_by] < value for value in values)


def train(
    state: TrainState,
    store: Store,
    recorder: Recorder,
    evaluation: Evaluation | None = None,
    *,
    workers: int = 1,
    hang_minutes: float = 30.0,
) -> None:
    """Train from where `state` is to the end of its schedule; files go into the run's folder, which
    must be held alone.

    Stopped if a signal asked for it. Every error (Diverged, LostContact, out of memory, no room for
    the last files) leaves the last good state.
    """
    feed, snapshots, health = Feed(state, store, workers), Snapshots(store, recorder), Health(state)
    overfitting = Overfitting(state.config, store.num_images)
    with requests() as asked, watchdog(hang_minutes) as alive:
        watches = health, overfitting, asked, alive
        loop = Loop(state, feed, recorder, snapshots, *watches, evaluation)
        try:
            with explained(state):
                loop.run()
        except Exception as error:
            recorder.tell(f"stopped at image {state.images_seen}; {recorder.last_state()}")
            recorder.end("failed", reason=str(error))
            raise


@contextmanager
def watchdog(minutes: float) -> Iterator[Callable[[], None]]:
    """Yields a function to call at every step. If `minutes` pass without a call, the process prints
    the stack of each thread and ends; torchrun ends the others. One process, or 0 minutes: off."""
    seconds = minutes * 60 if distributed.world_size() > 1 else 0.0

    def alive() -> None:
        if seconds:
            faulthandler.dump_traceback_later(seconds, exit=True)

    try:
        yield alive
    finally:
        faulthandler.cancel_dump_traceback_later()


@dataclass
class Loop:
    """Step after step, and what is done between them."""

    state: TrainState
    feed: Feed
    recorder: Recorder
    snapshots: Snapshots
    health: Health
    overfitting: Overfitting
    asked: Requests
    alive: Callable[[], None]  # no step for too long ends the process
    evaluation: Evaluation | None

    def periodic(self, tick_kimg: float) -> list[tuple[float, Callable[[Stage], object]]]:
        """What is done every so many thousand images. The state comes last, so that whatever a kill
        has left undone is done again."""
        files_kimg = self.state.config.snapshot_ticks * tick_kimg
        return [
            (self.state.config.log_kimg, self.log),
            (tick_kimg, self.recorder.write_samples),
            ((self.evaluation and self.evaluation.every_kimg) or files_kimg, self.evaluate),
            (files_kimg, self.snapshots.write_generator),
            (tick_kimg, self.save),
        ]

    def run(self) -> None:
        """Train until the schedule ends. Stopped if a signal asked for it."""
        state = self.state
        last = self.recorder.folder.generator_file(state.images_seen)
        if state.finished and from_rank0(last.exists):  # called again
            return
        self.recorder.begin()
        while not state.finished:
            before = state.images_seen
            stage = state.position.next_stage(state.config.schedule)
            self.alive()
            reals, labels = self.feed.next(before, stage)
            metrics = train_step(state, reals, labels, stage, self.feed.draws(before, stage))
            self.recorder.meter.add(metrics, stage.batch_size, self.feed.waited)
            self.health.check_updates()
            periodic = self.periodic(stage.tick_kimg)
            # After the last step only a due log is written here; `finish` writes the files.
            for kimg, action in periodic[:1] if state.finished else periodic:
                images = max(round(1000 * kimg), 1)
                if state.images_seen // images > before // images:
                    action(stage)
            # Agreeing is a collective: several processes do it when the schedule is read.
            if distributed.world_size() == 1 or state.repeats_left == 0:
                self.answer_requests()
        self.finish(state.stage)

    def log(self, stage: Stage) -> None:
        progress = self.recorder.write_progress(stage)
        self.health.check_logits(progress)
        if text := self.overfitting.message(progress):
            self.recorder.tell(text)
            self.recorder.line("overfitted", images_seen=progress.images_seen, reason=text)

    def save(self, stage: Stage) -> None:
        """The state, unless something seems wrong."""
        self.state.read()
        if self.health.in_doubt:
            self.recorder.tell(
                f"no state is saved at image {self.state.images_seen}: updates are being skipped, "
                "or logits saturated"
            )
        else:
            self.snapshots.write_state()

    def evaluate(self, stage: Stage) -> bool:
        """Measure the average generator, and write it if it is the best so far. False if a file
        could not be written."""
        if self.evaluation is None:
            return True
        started = time.perf_counter()
        faulthandler.cancel_dump_traceback_later()  # it may take any time
        scores = self.evaluation.measure(self.state, stage)
        self.state.scores.append({"images_seen": self.state.images_seen, **scores})
        self.recorder.write_scores(scores)
        written = True
        if self.evaluation.is_best(self.state.scores):
            written = self.snapshots.write_generator(stage, self.recorder.folder.best_generator)
        if not written:
            self.state.scores.pop()  # a best one must not hide that it was never written
        self.recorder.meter.since += time.perf_counter() - started  # not part of training's speed
        return written

    def answer_requests(self) -> None:
        """Save the state if the clock or a signal asks for it; Stopped after saving it."""
        due = self.snapshots.minutes_are_over() and not self.health.in_doubt
        stop, save = self.asked.agree(due)
        if save and not stop and self.snapshots.write_state():
            self.recorder.line("saved", images_seen=self.state.images_seen)
        if not stop:
            return
        saved = self.snapshots.write_state()
        self.recorder.end("stopped", signal=stop)
        if not saved:
            raise OSError(
                f"stopped, but the state of {self.recorder.folder.path} could not be written, see "
                f"above; {self.recorder.last_state()}, from which the same command continues"
            )
        raise Stopped(stop, self.state)

    def finish(self, stage: Stage) -> None:
        """The last files. OSError if they cannot be written."""
        if self.recorder.meter.images:  # since the last line of the log
            self.log(stage)
        self.recorder.write_samples(stage)
        written = (
            self.evaluate(stage),
            self.snapshots.write_generator(stage),
            self.snapshots.write_state(),
        )
        if not all(written):
            raise OSError(
                f"the end of {self.recorder.folder.path} could not be written, see above; "
                f"{self.recorder.last_state()}. Make room and give the same command again"
            )
        self.recorder.end("finished")
