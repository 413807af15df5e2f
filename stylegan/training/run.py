"""The files of a run, and what is done with them when."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stylegan import distributed, sampling
from stylegan.atomic import replacing
from stylegan.data import Store
from stylegan.files import checkpoint, loading
from stylegan.messages import reason_of
from stylegan.records import device_name, hardware, versions
from stylegan.run_folder import RunFolder
from stylegan.schedule import Stage
from stylegan.training.draws import Share
from stylegan.training.health import Health
from stylegan.training.log import Log, Meter, Progress
from stylegan.training.state import TrainState

SAMPLE_IMAGES = 32  # in the grids that a run writes
Report = Callable[[Progress], None]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class LoopSettings:
    """What may differ from one part of a run to the next without changing its results."""

    workers: int = 1  # threads that read images ahead; 0: read when asked for
    tensorboard: bool = True
    histograms: bool = False  # of weights and gradients, in TensorBoard, every tick
    graph: bool = False  # of the generator, in TensorBoard, when a run begins
    hang_minutes: float = 30.0  # without progress end a process that is one of several; 0 = never


@dataclass(frozen=True)
class Evaluation:
    """How good the average generator is, measured again and again, and at the end."""

    measure: Callable[[TrainState, Stage], dict[str, float]]  # in all processes, equal results
    best_by: str  # the name of the result that tells which generator is best
    lower_is_better: bool = True
    every_kimg: float | None = None  # None: with every generator file

    def is_best(self, scores: list[dict[str, float]]) -> bool:
        """Whether the last is better than all before; if scores tell a `resolution`, of its own."""
        *before, last = scores
        if self.best_by not in last:  # it could not be measured
            return False
        sign = 1 if self.lower_is_better else -1
        rivals = [s for s in before if s.get("resolution") == last.get("resolution")]
        values = [sign * score[self.best_by] for score in rivals if self.best_by in score]
        return all(sign * last[self.best_by] < value for value in values)


def unfinished(state: TrainState) -> bool:
    return not state.position.finished(state.config.schedule)


class Run:
    """The files of one run, and what is done with them when."""

    def __init__(
        self,
        state: TrainState,
        store: Store,
        out: Path,
        settings: LoopSettings,
        report: Report | None = None,
        tell: Tell | None = None,
        evaluation: Evaluation | None = None,
    ) -> None:
        self.state, self.store, self.settings = state, store, settings
        self.folder = RunFolder(out)
        self.report = report or (lambda progress: None)
        self.tell = tell or (lambda text: None)
        self.evaluation = evaluation
        self.unwatched: Callable[[], None] = lambda: None  # called before what may take hours
        self.log = Log(
            self.folder, self.tell, tensorboard=settings.tensorboard, start=state.images_seen
        )
        self.meter = Meter()
        self.health = Health(state)
        self.saved_at = time.monotonic()  # when the state was last saved, or could not be
        self.share = Share(
            distributed.rank(),
            distributed.world_size(),
            state.device,
            state.generator.w_avg.dtype,
        )

    def begin(self) -> None:
        """Says where the run starts; a new one shows its data."""
        event = "resume" if self.state.images_seen else "start"
        self.log.line(
            event,
            images_seen=self.state.images_seen,
            device=str(self.state.device),
            device_name=device_name(self.state.device),
            processes=distributed.world_size(),
            hardware=hardware(),
            versions=versions(),
        )
        if self.state.images_seen == 0 and distributed.rank() == 0:
            self.write_grid(self.folder.reals_file, self.real_pictures(), "reals")
            if self.settings.graph:
                self.log.graph(self.state.generator_ema)

    def after_step(self, before: int, stage: Stage) -> None:
        """Whatever is due: an interval is crossed when its multiples are. The state comes last, so
        that whatever a kill has left undone is done again."""
        self.health.check_updates()
        config = self.state.config
        tick = stage.tick_kimg
        files_kimg = tick * config.snapshot_ticks
        evaluation = self.evaluation
        periodic: list[tuple[float, Callable[[Stage], Any]]] = [
            (config.log_kimg, self.write_log),
            (tick, self.write_samples),
            ((evaluation and evaluation.every_kimg) or files_kimg, self.measure),
            (files_kimg, self.write_generator),
            (tick, self.write_state_unless_in_doubt),
        ]
        now = self.state.images_seen
        for kimg, action in periodic if unfinished(self.state) else periodic[:1]:
            every = max(round(kimg * 1000), 1)
            if now // every > before // every:
                action(stage)

    def end(self) -> None:
        """The last files. OSError if they cannot be written."""
        stage = self.state.position.stage(self.state.config.schedule)
        if self.meter.images:
            self.write_log(stage)
        self.write_samples(stage)
        written = self.measure(stage), self.write_generator(stage), self.write_state()
        if not all(written):
            raise OSError(
                f"the end of {self.folder.path} could not be written, see above; "
                f"{self.last_state()}. Make room and give the same command again"
            )
        self.log.line("finished", images_seen=self.state.images_seen)
        self.log.close()

    def stop(self, signal_number: int) -> None:
        """The last file of this part of the run. OSError if it cannot be written."""
        saved = self.write_state()
        self.log.line("stopped", images_seen=self.state.images_seen, signal=signal_number)
        self.log.close()
        if not saved:
            raise OSError(
                f"stopped, but the state of {self.folder.path} could not be written, see above; "
                f"{self.last_state()}, from which the same command continues"
            )

    def fail(self, error: Exception) -> None:
        """Tells where the run ended, and from where it may continue."""
        self.tell(f"stopped at image {self.state.images_seen}; {self.last_state()}")
        self.log.line("failed", images_seen=self.state.images_seen, reason=str(error))
        self.log.close()

    def generator_file(self) -> Path:
        return self.folder.generator_file(self.state.images_seen)

    def last_state(self) -> str:
        """The newest file to continue from, for a message."""
        files = self.folder.states()
        return f"last good state: {files[-1].name}" if files else "no state has been saved yet"

    def save_is_due(self) -> bool:
        """Whether the last state is older than `save_minutes`, by the first process's clock, and
        nothing seems wrong."""
        minutes = self.state.config.save_minutes
        if distributed.rank() > 0 or not minutes or self.health.in_doubt:
            return False
        return time.monotonic() - self.saved_at > minutes * 60

    def attempt(self, what: str, action: Callable[[], None]) -> bool:
        """Do it; where the disk refuses, say so and go on: what was saved before is not touched."""
        try:
            action()
        except OSError as error:
            reason = reason_of(error)
            self.tell(f"could not write {what}: {reason}; {self.last_state()}; going on")
            self.log.line("not_written", what=what, reason=reason)
            return False
        return True

    def attempt_for_all(self, what: str, action: Callable[[], None]) -> bool:
        """As `attempt`, in the first process; whether it was done, in every process."""
        done = distributed.rank() > 0 or self.attempt(what, action)
        return not distributed.largest(not done)

    def write_log(self, stage: Stage) -> None:
        state = self.state
        total = state.config.schedule.total_images
        skipped = state.skipped_g + state.skipped_d
        images = self.meter.images
        progress = self.meter.progress(state.images_seen, total, stage, skipped)
        self.meter = Meter()
        self.log.progress(progress)
        self.report(progress)
        self.health.check_logits(progress, images)

    def write_samples(self, stage: Stage) -> None:
        if distributed.rank() == 0:
            pictures = self.sample_pictures(stage)
            path = self.folder.sample_file(self.state.images_seen)
            self.write_grid(path, pictures, "samples")
            if self.settings.histograms:
                for network in ("generator", "discriminator"):
                    self.log.histograms(
                        network, getattr(self.state, network), self.state.images_seen
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

        def write() -> None:
            path.parent.mkdir(exist_ok=True)
            with replacing(path) as file:
                Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, format="PNG")

        self.attempt(path.name, write)
        self.log.picture(name, image, self.state.images_seen)

    def write_state_unless_in_doubt(self, stage: Stage) -> None:
        if not self.health.in_doubt:
            self.write_state()

    def write_state(self) -> bool:
        """Everything that a later call needs to continue; then older files may go."""
        self.saved_at = time.monotonic()
        config = self.state.config
        path = self.folder.state_file(self.state.images_seen)

        def write() -> None:
            payload = {**self.state.to_payload(), **self.about_data()}
            about = {"data": self.identity(), "processes": distributed.world_size()}
            checkpoint.save(path, "state", {**payload, **about})
            milestone = round(config.milestone_kimg * 1000)
            self.folder.retain_states(self.state.images_seen, config.keep_states, milestone)

        return self.attempt_for_all(path.name, write)

    def measure(self, stage: Stage) -> bool:
        """How good the average generator is; its file if it is the best so far. Whether nothing
        that should be written was not."""
        if self.evaluation is None:
            return True
        started = time.perf_counter()
        self.unwatched()
        scores = self.evaluation.measure(self.state, stage)
        self.state.scores.append({"images_seen": self.state.images_seen, **scores})
        self.log.scores(scores, self.state.images_seen)
        best = self.evaluation.is_best(self.state.scores)
        written = not best or self.save_generator(self.folder.best_generator, stage)
        if not written:
            self.state.scores.pop()  # a best one must not hide that it was never written
        self.meter.since += time.perf_counter() - started  # it is no part of training's speed
        return written

    def write_generator(self, stage: Stage) -> bool:
        """The average generator alone, for users."""
        return self.save_generator(self.generator_file(), stage)

    def save_generator(self, path: Path, stage: Stage) -> bool:
        def write() -> None:
            loading.save_generator(
                path,
                self.state.generator_ema,
                images_seen=self.state.images_seen,
                resolution=stage.resolution,
                alpha=stage.alpha,
                **self.about_data(),
            )

        return self.attempt_for_all(path.name, write)

    def identity(self) -> str:
        return self.store.identity(self.state.config.network.resolution)

    def about_data(self) -> dict[str, Any]:
        labels = self.state.config.data.labels
        rectangle = self.store.active_rectangle
        return {
            "label_names": list(self.store.label_names) if labels else [],
            "active_rectangle": None if rectangle is None else list(rectangle),
        }
