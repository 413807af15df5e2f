"""A whole training from Python: opened or continued, tried, and run to its end."""

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from stylegan.config import TrainConfig, check_batches, differences
from stylegan.data import Findings, Preparation, Source, Store, cached_store
from stylegan.files.run_folder import RunFolder
from stylegan.files.weights import Weights
from stylegan.machine import distributed
from stylegan.machine.console import SILENT, Console
from stylegan.machine.distributed import from_rank0
from stylegan.machine.messages import count
from stylegan.ops import (
    HALF,
    float32_products,
    has_fast_matmul,
    has_tf32,
    resolved_precision,
)
from stylegan.training import loop
from stylegan.training.costs import Costs, try_out
from stylegan.training.evaluation import Evaluation
from stylegan.training.health import runtime_errors_explained
from stylegan.training.interrupts import nothing_to_save, requests
from stylegan.training.recorder import Recorder
from stylegan.training.resuming import begin, newest_state, resume, settle_threads
from stylegan.training.state import TrainState
from stylegan.training.transfer import check_warmup


@dataclass(frozen=True)
class Run:
    """A run in its folder, where no other call trains meanwhile, with its images prepared."""

    config: TrainConfig  # as the images and the device make it
    store: Store
    folder: RunFolder
    device: torch.device
    init_from: str | Path | Weights | None
    console: Console

    @classmethod
    @contextmanager
    def open(
        cls,
        config: TrainConfig,
        data: str | Path | Source | Store,
        out: str | Path,
        *,
        device: str | torch.device = "auto",
        init_from: str | Path | Weights | None = None,
        console: Console = SILENT,
        strict: bool = False,
    ) -> Iterator["Run"]:
        """Open the run of `config` in the folder `out`, begun or not. For options see `start`."""
        device = distributed.pick_device(str(device))
        folder = RunFolder(out)
        with nothing_to_save(), distributed.process_group(device, console):
            config = settled(config, folder, device)  # before images are prepared
            with backend_flags(config), folder.alone():
                store = cached_store(
                    data,
                    preparation_for(config),
                    labels=config.data.labels,
                    strict=strict,
                    console=console,
                )
                config = settled(config, folder, device, store)  # now with the number of labels
                yield cls(config, store, folder, device, init_from, console)

    @property
    def first(self) -> Console:
        """Return the console of the first process, which hears news that are the same in all."""
        return self.console if distributed.rank() == 0 else SILENT

    def train(
        self,
        evaluation: Evaluation | None = None,
        *,
        preflight: bool = True,
        costs: Costs | None = None,
        threads: int | None = None,
        workers: int = 1,
        tensorboard: bool = True,
    ) -> TrainState:
        """Begin or continue, and train to the end of the schedule. Return the state there. `costs`
        are of steps that were tried before; for other options see `start`."""
        newest, payload = newest_state(self.folder, self.first)
        lines = settle_threads(threads, payload)
        if preflight:
            lines += try_out(self.config, self.device, self.folder, self.first, costs)
        state = TrainState.create(self.config, device=self.device)
        if newest is None:
            changes = begin(state, self.folder, self.store, self.init_from)
        else:
            changes = resume(state, payload, newest, self.store, self.folder)
            if self.init_from is not None:
                changes.append(
                    f"the run has begun already, so the weights of {self.init_from} are not used"
                )
        del payload  # as large as the networks and their moments
        for line in [*changes, *self.announcement(newest), *lines]:
            self.first.tell(line)
        store = self.store
        folder = self.folder
        from_rank0(lambda: folder.create(self.config, store.origin, store.skipped, state.lineage))
        last = folder.generator_file(state.images_seen)
        # A finished run with its last file may be called again; without it, that is written now.
        if state.finished and from_rank0(last.exists):
            if evaluation is not None:
                self.first.tell("nothing is left to train, so nothing is measured")
        else:
            recorder = Recorder(state, store, folder, self.first, tensorboard)
            with requests() as signals, recorder.telling_failure(), runtime_errors_explained(state):
                loop.train(
                    state,
                    store,
                    recorder,
                    evaluation,
                    signals,
                    console=self.console,
                    workers=workers,
                )
        self.first.tell(f"{folder.path} is finished, with {state.images_seen} images seen")
        return state

    def announcement(self, newest: Path | None) -> list[str]:
        """Announce the data, the device and the state file `newest`, where training goes on."""
        store = self.store
        num_labels = len(store.label_names)
        conditional = self.config.data.labels
        images = f"{store.num_images} images of {store.meta.source}"
        images += f", {count(num_labels, 'label')}" if conditional else ""
        precision = self.config.precision
        lines = [f"{images}; run {self.folder.path} on {self.device}, precision {precision}"]
        if precision == "tf32" and not has_tf32(self.device, capability(self.device)):
            lines.append(f"{self.device} has no tf32 and computes in float32")
        if self.device.type == "cpu" and precision in HALF and not has_fast_matmul(HALF[precision]):
            lines.append(
                f"this processor does not multiply {precision} faster than float32: products are "
                "rounded ones of float32, which take no less time"
            )
        if num_labels > 1 and not conditional:
            lines.append(f"{num_labels} labels found, ignored; pass --labels to train on them")
        if newest is not None:
            lines.append(f"continuing from {newest}")
        elif store.skipped:
            skipped = len(store.skipped)
            images = count(skipped + store.num_images, "image")
            lines.append(f"{skipped} of {images} left out; see {self.folder.skipped_file}")
        return lines


def start(
    config: TrainConfig,
    data: str | Path | Source | Store,
    out: str | Path,
    *,
    device: str | torch.device = "auto",
    init_from: str | Path | Weights | None = None,
    evaluation: Evaluation | None = None,
    console: Console = SILENT,
    strict: bool = False,
    preflight: bool = True,
    threads: int | None = None,
    workers: int = 1,
    tensorboard: bool = True,
) -> TrainState:
    """Train in the folder `out`, or continue the run there; the state at the end of its schedule.

    `data` is a folder of images, a zip, or a store; `strict` refuses one with images that cannot
    be used. A new run starts from the weights of `init_from` that fit. Without `preflight` no
    steps are tried before the first. The `console` of the first process is told what a user should
    know; that of each hears a `TrainingProgress` at every line of the log. `threads` compute on a
    CPU; by default those of OMP_NUM_THREADS, else those of a run that has begun, else one for each
    core that this process may use. `workers` threads read images ahead.

    SIGINT, SIGTERM and SIGHUP stop training after the step in progress: the state is saved, and
    `Stopped`, a KeyboardInterrupt, is raised. SIGUSR1 saves the state. ValueError and OSError are
    mistakes that a user can correct; `Diverged` and `LostContact` are among them.
    """
    with Run.open(
        config,
        data,
        out,
        device=device,
        init_from=init_from,
        console=console,
        strict=strict,
    ) as run:
        return run.train(
            evaluation,
            preflight=preflight,
            threads=threads,
            workers=workers,
            tensorboard=tensorboard,
        )


@contextmanager
def backend_flags(config: TrainConfig) -> Iterator[None]:
    """Choose kernels by the precision and determinism of `config`; at the end switches and the
    number of threads are as before. Parts that half precision leaves in float32, such as fp16's
    gradient penalties, may use TF32: it has as many digits as fp16, more than bf16."""
    benchmark = torch.backends.cudnn.benchmark
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    threads = torch.get_num_threads()
    workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    exact = config.precision in ("auto", "fp32")  # auto: not decided yet
    torch.backends.cudnn.benchmark = not config.deterministic
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        with float32_products("ieee" if exact else "tf32"):
            yield
    finally:
        torch.backends.cudnn.benchmark = benchmark
        if config.deterministic:  # else it is as it was; the call imports much of torch
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.set_num_threads(threads)
        if workspace is None:
            os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


def preparation_for(config: TrainConfig) -> Preparation:
    """Return the preparation of a run's pictures."""
    return Preparation(
        resolution=config.network.resolution,
        crop=config.data.crop,
        channels=config.network.image_channels,
        premultiplied=config.network.premultiplied,
        include=config.data.include,
    )


def settled(
    config: TrainConfig,
    folder: RunFolder,
    device: torch.device,
    data: Store | Findings | None = None,
) -> TrainConfig:
    """Return `config` with the precision of the device and, once the `data` is known, its number of
    labels. Raise ValueError if processes cannot share the batches, if a new run would not train the
    generator, or if the run in `folder` computes something else."""
    stored = from_rank0(folder.stored_config)
    if stored is None:
        check_warmup(config)
    config = with_precision(config, device, stored)
    if data is not None:
        config = fit_to_data(config, data)
        check_batches(config, distributed.world_size())
    if stored is None:
        return config
    if stored.precision == "auto":  # not decided yet
        stored = dataclasses.replace(stored, precision=config.precision)
    compared = config
    if data is None:
        network = dataclasses.replace(config.network, label_dim=stored.network.label_dim)
        compared = dataclasses.replace(config, network=network)
    if different := differences(stored, compared):
        raise ValueError(
            f"{folder.path} is a run of another configuration ({'; '.join(different)}); choose "
            "another --out, with its weights by --init-from "
            f"{folder.path}, or the options of that run"
        )
    return config


def fit_to_data(config: TrainConfig, data: Store | Findings) -> TrainConfig:
    """Give `config` as many labels as the data has kinds, if the run is conditional."""
    classes = len(data.label_names) if config.data.labels else 0
    if config.data.labels and not classes:
        raise ValueError(f"labels were asked for, but {data.why_no_labels}")
    if config.network.label_dim not in (0, classes):
        raise ValueError(
            f"network.label_dim is {config.network.label_dim}, but the run uses {classes} labels"
            + ("" if config.data.labels else "; pass --labels to train with labels")
        )
    network = dataclasses.replace(config.network, label_dim=classes)
    return dataclasses.replace(config, network=network)


def with_precision(
    config: TrainConfig, device: torch.device, stored: TrainConfig | None
) -> TrainConfig:
    """Return `config` in the precision in which it trains on this device, the same in all
    processes: auto is that of a run that has begun. Raise ValueError if the device cannot."""
    asked = stored.precision if stored and config.precision == "auto" else config.precision
    weakest = min(distributed.gather(capability(device)))
    return dataclasses.replace(config, precision=resolved_precision(asked, device, weakest))


def capability(device: torch.device) -> tuple[int, int]:
    """Return NVIDIA's "compute capability" of a GPU; (0, 0) of other devices."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)
