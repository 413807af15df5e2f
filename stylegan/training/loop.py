"""The loop around the training step: data, schedule, files; the same call resumes."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stylegan import checkpoint, distributed, loading, sampling
from stylegan.data import Batch, Store, batches, process_reals
from stylegan.schedule import Stage, stage_at
from stylegan.training.draws import Share, draw, mirror_flags
from stylegan.training.log import Log, Meter, Progress
from stylegan.training.state import TrainState
from stylegan.training.step import train_step

SAMPLE_IMAGES = 32  # in the grids that a run writes
Report = Callable[[Progress], None]


@dataclass(frozen=True)
class LoopSettings:
    """What may differ from one part of a run to the next without changing its results."""

    workers: int = 0  # processes that read images
    tensorboard: bool = True
    histograms: bool = False  # of weights and gradients, in TensorBoard, every tick
    graph: bool = False  # of the generator, in TensorBoard, when a run begins


class Feed:
    """Processed batches at the position and stage asked for; an endless loader per resolution."""

    def __init__(self, state: TrainState, store: Store, share: Share, workers: int) -> None:
        self.config, self.store, self.share, self.workers = state.config, store, share, workers
        self.loader: Iterator[Batch] = iter(())
        self.loading: tuple[int, int, int] | None = None  # resolution, batch size, next position

    def next(self, images_seen: int, stage: Stage) -> tuple[Tensor, Tensor | None]:
        """Images (n, C, r, r) in [-1, 1] and labels of this process."""
        wanted = (stage.resolution, stage.batch_size, images_seen)
        if self.loading != wanted:
            self.loader = batches(
                self.store,
                stage.resolution,
                batch_size=stage.batch_size,
                start=images_seen,
                seed=self.config.seed,
                rank=self.share.rank,
                world_size=self.share.world_size,
                workers=self.workers,
                device=self.share.device,
                labels=self.config.data.labels,
            )
        images, labels = next(self.loader)
        self.loading = (stage.resolution, stage.batch_size, images_seen + stage.batch_size)
        mirror = None
        if self.config.data.mirror:
            mirror = mirror_flags(self.config.seed, images_seen, stage.batch_size, self.share)
        dtype = self.share.dtype
        return process_reals(images, alpha=stage.alpha, mirror=mirror, dtype=dtype), labels


def train(
    state: TrainState,
    store: Store,
    out: Path,
    *,
    settings: LoopSettings | None = None,
    report: Report | None = None,
) -> int:
    """Train from where `state` is to the end of its schedule; files go into the folder `out`.

    0 when finished; else the number of the signal that asked to stop, after saving the state.
    """
    settings = settings or LoopSettings()
    run = Run(state, store, out, settings, report)
    if run.generator_file().exists() and not unfinished(state):
        return 0
    schedule = state.config.schedule
    pool = label_pool(store) if state.config.data.labels else None
    feed = Feed(state, store, run.share, settings.workers)
    run.begin()
    with stop_signals() as stopping:
        while unfinished(state):
            before = state.images_seen
            if state.repeats_left == 0:
                state.schedule_images = before
                state.repeats_left = schedule.minibatch_repeats
            stage = stage_at(state.schedule_images, schedule)
            started = time.perf_counter()
            reals, labels = feed.next(before, stage)
            waited = time.perf_counter() - started
            draws = draw(state.config, before, stage, pool, run.share)
            metrics = train_step(state, reals, labels, stage, draws)
            state.repeats_left -= 1
            run.meter.add(metrics, stage.batch_size, waited)
            run.after_step(before, stage)
            signal_number = distributed.largest(stopping[0] if stopping else 0, state.device)
            if signal_number:
                run.save_state()
                run.log.line("stopped", images_seen=state.images_seen, signal=signal_number)
                run.log.close()
                return signal_number
        run.end()
    return 0


def unfinished(state: TrainState) -> bool:
    """The end, too, is decided where the schedule is read."""
    return state.repeats_left > 0 or state.images_seen < state.config.schedule.total_images


def label_pool(store: Store) -> Tensor:
    """The labels of all images (images, classes), from which generated ones are drawn."""
    assert store.labels is not None
    return torch.from_numpy(store.one_hot(store.labels))


class Run:
    """The files of one run, and what is done with them when."""

    def __init__(
        self,
        state: TrainState,
        store: Store,
        out: Path,
        settings: LoopSettings,
        report: Report | None,
    ) -> None:
        self.state, self.store, self.out, self.settings = state, store, out, settings
        self.report = report or (lambda progress: None)
        self.log = Log(out, tensorboard=settings.tensorboard, start=state.images_seen)
        self.meter = Meter()
        self.share = Share(
            distributed.rank(),
            distributed.world_size(),
            state.device,
            state.generator.w_avg.dtype,
        )

    def begin(self) -> None:
        """Says where the run starts; a new one shows its data."""
        event = "resume" if self.state.images_seen else "start"
        self.log.line(event, images_seen=self.state.images_seen, device=str(self.state.device))
        if self.state.images_seen == 0 and distributed.rank() == 0:
            self.write_grid(self.out / "reals.png", self.real_pictures(), "reals")
            if self.settings.graph:
                self.log.graph(self.state.generator_ema)

    def after_step(self, before: int, stage: Stage) -> None:
        """Whatever is due: an interval is crossed when its multiples are."""
        config = self.state.config
        tick = stage.tick_kimg
        periodic: list[tuple[float, Callable[[Stage], None]]] = [
            (config.log_kimg, self.write_log),
            (tick, self.write_samples),
            (tick, lambda _: self.save_state()),
            (tick * config.snapshot_ticks, self.save_generator),
        ]
        now = self.state.images_seen
        for kimg, action in periodic:
            every = max(round(kimg * 1000), 1)
            if now // every > before // every:
                action(stage)

    def end(self) -> None:
        """The last files."""
        stage = stage_at(self.state.schedule_images, self.state.config.schedule)
        if self.meter.steps:
            self.write_log(stage)
        self.write_samples(stage)
        self.save_state()
        self.save_generator(stage)
        self.log.line("finished", images_seen=self.state.images_seen)
        self.log.close()

    def generator_file(self) -> Path:
        return self.out / f"generator-{self.state.images_seen:09d}.pt"

    def write_log(self, stage: Stage) -> None:
        state = self.state
        total = state.config.schedule.total_images
        skipped = state.skipped_g + state.skipped_d
        progress = self.meter.progress(state.images_seen, total, stage, skipped)
        self.meter = Meter()
        self.log.progress(progress)
        self.report(progress)

    def write_samples(self, stage: Stage) -> None:
        if distributed.rank() == 0:
            pictures = self.sample_pictures(stage)
            name = f"{self.state.images_seen // 1000:06d}.png"
            self.write_grid(self.out / "samples" / name, pictures, "samples")
            if self.settings.histograms:
                self.log.histograms("generator", self.state.generator, self.state.images_seen)
                self.log.histograms(
                    "discriminator", self.state.discriminator, self.state.images_seen
                )

    def sample_pictures(self, stage: Stage) -> Tensor:
        """Pictures of fixed seeds by the average generator, uint8 (N, C, r, r)."""
        network = self.state.config.network
        seeds = range(SAMPLE_IMAGES)
        labels = None
        if network.label_dim:
            labels = torch.from_numpy(
                self.store.one_hot([i % network.label_dim for i in range(SAMPLE_IMAGES)])
            )
        z = sampling.latents(seeds, network.z_dim).to(self.share.device, self.share.dtype)
        images = []
        with torch.inference_mode():
            for start in range(0, SAMPLE_IMAGES, 8):
                part = slice(start, start + 8)
                given = None if labels is None else labels[part].to(self.share.device)
                images.append(
                    self.state.generator_ema(
                        z[part],
                        given,
                        resolution=stage.resolution,
                        alpha=stage.alpha,
                        noise="const",
                    )
                )
        return torch.from_numpy(sampling.to_uint8(torch.cat(images))).permute(0, 3, 1, 2)

    def real_pictures(self) -> Tensor:
        images = self.store.images(self.state.config.network.resolution)
        step = max(len(images) // SAMPLE_IMAGES, 1)
        return torch.stack([torch.from_numpy(x.copy()) for x in images[::step][:SAMPLE_IMAGES]])

    def write_grid(self, path: Path, pictures: Tensor, name: str) -> None:
        """A plain grid, small pictures enlarged to the full resolution, written and logged."""
        from PIL import Image
        from torchvision.utils import make_grid

        factor = self.state.config.network.resolution // pictures.shape[-1]
        pictures = pictures.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
        image = make_grid(pictures, nrow=8, padding=0)
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
        self.log.picture(name, image, self.state.images_seen)

    def save_state(self) -> None:
        """Everything that a later call needs to continue."""
        if distributed.rank() == 0:
            path = self.out / f"state-{self.state.images_seen:09d}.pt"
            payload = {**self.state.to_payload(), **self.about_data()}
            checkpoint.save(path, "state", {**payload, "data": self.identity()})
            checkpoint.retain(self.out, "state", self.state.config.keep_states)
        distributed.barrier()

    def save_generator(self, stage: Stage) -> None:
        """The average generator alone, for users."""
        if distributed.rank() == 0:
            loading.save_generator(
                self.generator_file(),
                self.state.generator_ema,
                images_seen=self.state.images_seen,
                resolution=stage.resolution,
                alpha=stage.alpha,
                **self.about_data(),
            )

    def identity(self) -> str:
        return self.store.identity(self.state.config.network.resolution)

    def about_data(self) -> dict[str, Any]:
        labels = self.state.config.data.labels
        rectangle = self.store.active_rectangle
        return {
            "label_names": list(self.store.label_names) if labels else [],
            "active_rectangle": None if rectangle is None else list(rectangle),
        }


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM instead of dying of them; a second one kills as usual."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before: dict[int, Any] = {}

    def remember(number: int, frame: object) -> None:
        received.append(number)
        signal.signal(number, before[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, remember)
    try:
        yield received
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)
