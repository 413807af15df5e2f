"""The loop around the training step: what is done when, until the schedule ends."""

import faulthandler
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from stylegan import distributed
from stylegan.data import Batch, Store, batches, process_reals
from stylegan.disk import LostFolder
from stylegan.distributed import from_rank0
from stylegan.schedule import Stage
from stylegan.training.draws import Draws, Share, draw, mirror_flags
from stylegan.training.health import Health, explained
from stylegan.training.interrupts import Stopped, agree, requests
from stylegan.training.recorder import Recorder
from stylegan.training.state import TrainState
from stylegan.training.step import train_step


@dataclass(frozen=True)
class Evaluation:
    """A measurement of the average generator that is made again and again, and at the end: in all
    processes, with equal results."""

    measure: Callable[[TrainState, Stage], dict[str, float]]  # best_by is always there
    best_by: str  # the name of the result that decides which generator is best
    lower_is_better: bool = True
    every_kimg: float | None = None  # None: with every generator file

    def scores(self, state: TrainState, stage: Stage) -> dict[str, float]:
        """What `measure` returns, also in types of NumPy or PyTorch; ValueError says what it
        lacks."""
        measured = self.measure(state, stage)
        if not isinstance(measured, Mapping):
            what = f"the evaluation returned a {type(measured).__name__}"
            raise ValueError(f'{what}; it returns numbers by name, as in {{"contrast": 0.5}}')
        scores = {name: x if isinstance(x, int) else float(x) for name, x in measured.items()}
        if self.best_by not in scores:
            what = f"best_by of the evaluation is {self.best_by!r}, which is not measured"
            raise ValueError(f"{what}; measured are {', '.join(scores) or 'no numbers'}")
        return scores

    def is_best(self, scores: list[dict[str, float]]) -> bool:
        """Whether the last score is the best so far. Scores that name a `resolution` are compared
        only with those of the same."""
        sign, last = 1 if self.lower_is_better else -1, scores[-1]
        rivals = [s for s in scores if s.get("resolution") == last.get("resolution")]
        values = [sign * score.get(self.best_by, math.nan) for score in rivals]  # nan: not measured
        *before, own = [value if math.isfinite(value) else math.inf for value in values]
        return own < min(before, default=math.inf)


class Feed:
    """What a step takes, at the position and stage asked for: processed batches, of one endless
    loader per resolution, and the draws beside them."""

    def __init__(self, state: TrainState, store: Store, workers: int) -> None:
        self.state, self.config, self.store, self.workers = state, state.config, store, workers
        self.share = Share.of_process(state.device, state.generator.w_avg.dtype)
        self.loader: Iterator[Batch] = iter(())
        self.loading: tuple[int, int, int] | None = None  # resolution, batch size, next position
        self.waited = 0.0  # seconds, for the last batch
        self.label_pool: Tensor | None = None  # of all images, for generated ones
        if state.config.data.labels:
            self.label_pool = torch.from_numpy(store.require_labels())

    def next(self, images_seen: int, stage: Stage) -> tuple[Tensor, Tensor | None, Draws]:
        """Images (n, C, r, r) in [-1, 1] and labels of this process, and the random numbers of the
        step; labels of generated images are those of the data."""
        started, config, share, n = time.perf_counter(), self.config, self.share, stage.batch_size
        if self.loading != (stage.resolution, n, images_seen):
            self.loader = batches(
                self.store,
                stage.resolution,
                batch_size=n,
                start=images_seen,
                seed=config.seed,
                rank=share.rank,
                world_size=share.world_size,
                workers=self.workers,
                device=share.device,
                labels=config.data.labels,
            )
        images, labels = next(self.loader)
        self.loading = stage.resolution, n, images_seen + n
        mirror = mirror_flags(config.seed, images_seen, n, share) if config.data.mirror else None
        reals = process_reals(images, alpha=stage.alpha, mirror=mirror, dtype=share.dtype)
        self.waited = time.perf_counter() - started
        probability = self.state.strength.probability
        draws = draw(config, images_seen, stage, self.label_pool, share, probability)
        return reals, labels, draws


@dataclass
class Loop:
    state: TrainState
    store: Store
    recorder: Recorder
    evaluation: Evaluation | None
    workers: int
    hang_minutes: float  # a step that takes longer ends its process, one of several

    def __post_init__(self) -> None:
        self.feed = Feed(self.state, self.store, self.workers)
        self.health = Health(self.state, self.store.num_images)
        self.most_seconds = 60 * self.hang_minutes if distributed.world_size() > 1 else 0.0

    def train(self) -> None:
        """Train from where the state is to the end of its schedule. Stopped if a signal asked for
        it. Every error (Diverged, LostContact, out of memory, no room for the last files) leaves
        the last good state."""
        state, recorder = self.state, self.recorder
        last = recorder.folder.generator_file(state.images_seen)
        if state.finished and from_rank0(last.exists):  # called again
            return
        with requests() as signals:
            try:
                with explained(state):
                    recorder.begin()
                    while not state.finished:
                        self.step(signals)
                    self.finish(state.stage)
            except LostFolder:
                recorder.close()  # there is no log any more to say so
                raise
            except Exception as error:
                recorder.tell(f"stopped at image {state.images_seen}; {recorder.last_state()}")
                recorder.end("failed", reason=str(error))
                raise
            finally:
                faulthandler.cancel_dump_traceback_later()

    def step(self, signals: list[int]) -> None:
        """One step, what is due after it, and an answer to the signals received."""
        state, before = self.state, self.state.images_seen
        stage = state.position.next_stage(state.config.schedule)
        if self.most_seconds:  # then prints the stack of each thread; torchrun ends the others
            faulthandler.dump_traceback_later(self.most_seconds, exit=True)
        reals, labels, draws = self.feed.next(before, stage)
        metrics = train_step(state, reals, labels, stage, draws)
        state.strength.adapt()
        self.recorder.meter.add(metrics, stage.batch_size, self.feed.waited)
        # The steps for which the schedule was read may go a little beyond the end, after which
        # `finish` writes all files: measurements and log lines of a few images more would mislead.
        is_over = state.images_seen >= state.config.schedule.total_images
        if state.finished:
            self.log(stage)
        for kimg, action in [] if is_over else self.periodic(stage.tick_kimg):
            images = max(round(1000 * kimg), 1)
            if state.images_seen // images > before // images:
                action(stage)
        # Agreeing takes a collective: several processes do it only before the schedule is read.
        if distributed.world_size() == 1 or state.position.repeats_left == 0:
            self.answer(signals)

    def periodic(self, tick_kimg: float) -> list[tuple[float, Callable[[Stage], object]]]:
        """What is done every so many thousand images. The state comes last, so that whatever a kill
        has left undone is done again."""
        files_kimg = self.state.config.snapshot_ticks * tick_kimg
        return [
            (self.state.config.log_kimg, self.log),
            (tick_kimg, self.recorder.write_samples),
            ((self.evaluation and self.evaluation.every_kimg) or files_kimg, self.evaluate),
            (files_kimg, self.recorder.write_generator),
            (tick_kimg, self.save),
        ]

    def log(self, stage: Stage) -> None:
        progress = self.recorder.write_progress(stage)
        self.health.check_updates()
        self.health.check_logits(progress)
        if text := self.health.overfitting(progress):
            self.recorder.tell(text)
            self.recorder.line("overfitted", images_seen=progress.images_seen, reason=text)

    def save(self, stage: Stage) -> None:
        """The state, unless something seems wrong."""
        if self.health.in_doubt:
            self.recorder.tell(
                f"no state is saved at image {self.state.images_seen}: updates are being skipped, "
                "or logits saturated"
            )
        else:
            self.recorder.write_state()

    def evaluate(self, stage: Stage) -> bool:
        """Measure the average generator; write it if best. False if a file could not be written."""
        if self.evaluation is None:
            return True
        started = time.perf_counter()
        faulthandler.cancel_dump_traceback_later()  # it may take any time
        try:
            scores = self.evaluation.scores(self.state, stage)
        except Exception:  # in a user's own function? The run can go on, behind this measurement
            if distributed.world_size() == 1:  # others may wait elsewhere
                self.save(stage)
            raise
        self.state.scores.append({"images_seen": self.state.images_seen, **scores})
        self.recorder.line("metrics", **self.state.scores[-1])
        self.recorder.show({f"metrics/{name}": value for name, value in scores.items()})
        best, file = self.evaluation.is_best(self.state.scores), self.recorder.folder.best_generator
        written = not best or self.recorder.write_generator(stage, file)
        if not written:
            self.state.scores.pop()  # a best one must not hide that it was never written
        self.recorder.meter.since += time.perf_counter() - started  # not part of training's speed
        return written

    def answer(self, signals: list[int]) -> None:
        """Save the state if the clock or a signal asks for it; Stopped after saving it."""
        recorder = self.recorder
        stop, save = agree(signals, recorder.minutes_are_over() and not self.health.in_doubt)
        saved = (stop or save) and recorder.write_state()
        if saved and not stop:
            recorder.line("saved", images_seen=self.state.images_seen)
        if not stop:
            return
        recorder.end("stopped", signal=stop)
        if not saved:
            what = f"the state of {recorder.folder.path} could not be written, see above"
            last = f"{recorder.last_state()}, from which the same command continues"
            raise OSError(f"stopped, but {what}; {last}")
        raise Stopped(stop, self.state)

    def finish(self, stage: Stage) -> None:
        """The last files. OSError if they cannot be written."""
        recorder = self.recorder
        if recorder.meter.images:  # since the last line of the log
            self.log(stage)
        recorder.write_samples(stage)
        if not all([self.evaluate(stage), recorder.write_generator(stage), recorder.write_state()]):
            what = f"the last files of {recorder.folder.path} could not be written, see above"
            last = f"{recorder.last_state()}. Once they can be, the same command continues"
            raise OSError(f"{what}; {last}")
        recorder.end("finished")
