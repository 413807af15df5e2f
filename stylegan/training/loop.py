"""The training loop."""

import time
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from stylegan.data import Store, batches, process_reals
from stylegan.schedule import Stage
from stylegan.training.draws import Share, draw, mirror_flags
from stylegan.training.evaluation import Evaluation
from stylegan.training.health import Health
from stylegan.training.interrupts import Stopped, agree
from stylegan.training.progress import Meter
from stylegan.training.recorder import Recorder
from stylegan.training.state import TrainState
from stylegan.training.step import train_step
from stylegan.utils import distributed
from stylegan.utils.console import Console


def train(
    state: TrainState,
    store: Store,
    recorder: Recorder,
    evaluation: Evaluation | None,
    signals: list[int],
    console: Console,
    workers: int,
) -> None:
    """Train to the end of the schedule. Raises `Stopped` if a stop signal arrives in `signals`."""
    config = state.config
    share = Share.of_process(state.device, state.generator.w_avg.dtype)
    feed = real_batches(state, store, share, workers)
    label_pool = torch.from_numpy(store.require_labels()) if config.data.labels else None
    health = Health(state, store.num_images)
    meter = Meter()
    recorder.begin()
    while not state.finished:
        before = state.images_seen
        stage = state.position.next_stage(config.schedule)
        wait_began = time.perf_counter()
        reals, labels = next(feed)
        waited = time.perf_counter() - wait_began
        draws = draw(config, before, stage, label_pool, share, state.strength.probability)
        metrics = train_step(state, reals, labels, stage, draws)
        state.strength.adapt()
        meter.add(metrics, images=stage.batch_size, waited=waited)

        due = partial(is_due, before=before, images_seen=state.images_seen)
        files_kimg = config.snapshot_ticks * stage.tick_kimg
        # The steps of one reading of the schedule may go slightly beyond the end. No files are
        # written and nothing is measured there, since `finish` does so a few images later.
        is_over = state.images_seen >= config.schedule.total_images
        if state.finished or (due(config.log_kimg) and not is_over):
            progress = meter.read(state, stage)
            meter = Meter()
            recorder.write_progress(progress)
            console.progress(progress, progress.images_seen, progress.total_images)
            health.check_updates()
            health.check_logits(progress)
            for event, warning in health.warnings(progress).items():
                recorder.warn(event, warning)
        if not is_over:
            if due(stage.tick_kimg):
                recorder.write_samples(stage)
            if evaluation and due(evaluation.every_kimg or files_kimg):
                began = time.perf_counter()
                evaluate(evaluation, state, stage, recorder, health)
                meter.since += time.perf_counter() - began  # no part of the speed
            if due(files_kimg):
                recorder.write_generator(stage)
            if due(stage.tick_kimg):  # last, so that a resumed run repeats what a kill prevented
                save(recorder, health)
        # Agreeing takes a collective, so several ranks do it only before the schedule is read.
        if distributed.world_size() == 1 or state.position.repeats_left == 0:
            handle_signals(signals, recorder, health)
    finish(evaluation, recorder, health)


def is_due(every_kimg: float, before: int, images_seen: int) -> bool:
    """Whether the step from image `before` to `images_seen` passed a multiple of `every_kimg`."""
    every = max(round(1000 * every_kimg), 1)
    return images_seen // every > before // every


def real_batches(
    state: TrainState, store: Store, share: Share, workers: int
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield mirrored, cross-faded reals (n, C, r, r) in [-1, 1] and labels of this rank."""
    config = state.config
    while True:
        loaded = state.stage
        loader = batches(
            store,
            loaded.resolution,
            batch_size=loaded.batch_size,
            start=state.images_seen,
            seed=config.seed,
            rank=share.rank,
            world_size=share.world_size,
            workers=workers,
            device=share.device,
            labels=config.data.labels,
        )
        stage = loaded
        while (stage.resolution, stage.batch_size) == (loaded.resolution, loaded.batch_size):
            mirror = None
            if config.data.mirror:
                mirror = mirror_flags(config.seed, state.images_seen, stage.batch_size, share)
            images, labels = next(loader)
            yield (
                process_reals(images, alpha=stage.alpha, mirror=mirror, dtype=share.dtype),
                labels,
            )
            # This resumes when the loop requests the next batch, after its call of `next_stage`.
            stage = state.stage


def save(recorder: Recorder, health: Health) -> None:
    """Write the state, unless updates are being skipped or logits are saturated."""
    if health.in_doubt:
        recorder.console.info(
            f"no state is saved at image {recorder.state.images_seen}: updates are being skipped "
            "or logits are saturated"
        )
    else:
        recorder.write_state()


def evaluate(
    evaluation: Evaluation, state: TrainState, stage: Stage, recorder: Recorder, health: Health
) -> bool:
    """Measure the average generator, and write it if best; False if that file was not written."""
    try:
        scores = evaluation.scores(state, stage)
    except Exception:  # perhaps in a user's function; a resumed run skips this measurement
        if distributed.world_size() == 1:  # other ranks may be waiting in a collective
            save(recorder, health)
        raise
    if state.best_by not in ("", evaluation.best_by):
        recorder.set_best_aside(state.best_by)
        state.scores.clear()
    state.best_by = evaluation.best_by
    state.scores.append({"images_seen": state.images_seen, **scores})
    recorder.write_scores(state.scores[-1], evaluation.records)
    if not evaluation.is_best(state.scores):
        return True
    written = recorder.write_generator(stage, recorder.folder.best_generator)
    if not written:
        state.scores.pop()  # so that a later one counts as best, and is written
    return written


def handle_signals(signals: list[int], recorder: Recorder, health: Health) -> None:
    """Save the state if the clock or a signal requests it; raise Stopped for a stop signal."""
    save_is_due = recorder.is_save_due() and not health.in_doubt
    stop_signal, save_is_asked = agree(signals, save_is_due=save_is_due)
    saved = (stop_signal or save_is_asked) and recorder.write_state()
    if not stop_signal:
        return
    if not saved:
        raise OSError(
            f"stopped, but the state of {recorder.folder.path} could not be written (see above); "
            f"{recorder.last_state()}; fix the cause and repeat the command"
        )
    recorder.end("stopped", signal=stop_signal)
    raise Stopped(stop_signal, recorder.state)


def finish(evaluation: Evaluation | None, recorder: Recorder, health: Health) -> None:
    """Write the last files. Raises OSError if one cannot be written."""
    state = recorder.state
    stage = recorder.state.stage
    recorder.write_samples(stage)
    written = [
        evaluation is None or evaluate(evaluation, state, stage, recorder, health),
        recorder.write_generator(stage),
        recorder.write_state(),
    ]
    if not all(written):
        raise OSError(
            f"the last files of {recorder.folder.path} could not be written (see above); "
            f"{recorder.last_state()}; fix the cause and repeat the command"
        )
    recorder.end("finished")
