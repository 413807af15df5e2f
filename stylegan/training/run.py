"""A whole training from Python: opened or continued, tried, and run to its end."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from stylegan import distributed
from stylegan.config import TrainConfig
from stylegan.data import Findings, Store, cached_store
from stylegan.distributed import from_rank0
from stylegan.messages import count
from stylegan.run_folder import RunFolder
from stylegan.training.cost import threads_are_free
from stylegan.training.interrupts import nothing_to_save
from stylegan.training.kernels import backend_flags
from stylegan.training.loop import Evaluation, train
from stylegan.training.preflight import try_out
from stylegan.training.recorder import Recorder, TrainingProgress
from stylegan.training.resume import check_same_options, newest_state, open_run
from stylegan.training.state import TrainState

if TYPE_CHECKING:
    from stylegan.training.transfer import Start

WEEK_MINUTES = 7 * 24 * 60


def start(
    config: TrainConfig,
    data: str | Path | Store,
    out: str | Path,
    *,
    device: str | torch.device = "auto",
    init_from: "str | Path | Start | None" = None,
    evaluation: Evaluation | None = None,
    tell: Callable[[str], None] = lambda text: None,
    report: Callable[[TrainingProgress], None] = lambda progress: None,
    strict: bool = False,
    preflight: bool = True,
    workers: int = 1,
    tensorboard: bool = True,
    hang_minutes: float = 30.0,
) -> TrainState:
    """Train in the folder `out`, or continue the run there; the state at the end of its schedule.

    `data` is a folder of images, a zip, or a store; `strict` refuses one with images that cannot
    be used. A new run starts from the weights of `init_from` that fit. Without `preflight` no
    steps are tried before the first. The first process calls `tell` with what a user should know;
    each calls `report` with the progress at every line of the log. `workers` threads read images
    ahead. `tensorboard` shows curves and samples there, beside the run's own files. A process of
    several that makes no progress for `hang_minutes` ends; 0: never.

    SIGINT and SIGTERM stop training after the step in progress: the state is saved, and `Stopped`,
    a KeyboardInterrupt, is raised. SIGUSR1 saves the state. ValueError and OSError are mistakes
    that a user can correct; `Diverged` and `LostContact` are among them. The process's switches for
    tf32 and deterministic kernels are afterwards as they were.
    """
    device = distributed.pick_device(str(device))
    folder = RunFolder(out)
    group = processes(device, hang_minutes)
    with nothing_to_save(), group, backend_flags(config), folder.alone():
        say = tell if distributed.rank() == 0 else lambda text: None
        store = (
            data
            if isinstance(data, Store)
            else open_store(data, config, strict=strict, begun=folder.saved() > 0, tell=say)
        )
        config = fit_to_data(config, store)
        check_same_options(folder, config)
        newest, payload = saved = newest_state(folder, say)
        tried = keep_threads(payload, device)
        tried += try_out(config, device, folder) if preflight else []
        state = open_run(folder, config, store, device, saved, init_from=init_from, tell=say)
        for line in [*announcement(state, store, folder, newest), *tried]:
            say(line)
        del payload, saved  # as large as the networks and their moments
        from_rank0(lambda: folder.create(config, store.origin, store.skipped, state.lineage))
        recorder = Recorder(state, store, folder, tell=say, report=report, tensorboard=tensorboard)
        train(state, store, recorder, evaluation, workers=workers, hang_minutes=hang_minutes)
    return state


def keep_threads(payload: Mapping[str, Any], device: torch.device) -> list[str]:
    """A run goes on with the threads of the state in `payload`, on which the last bits depend, if
    one process saved it; older files do not know their number. What was chosen, if it changed."""
    most, threads = torch.get_num_threads(), payload.get("threads")
    if payload.get("processes") != 1 or threads is None or threads >= most:
        return []
    if not threads_are_free(device):
        return []
    torch.set_num_threads(threads)
    return [f"{count(threads, 'thread')}, as before; OMP_NUM_THREADS={most} changes it"]


def processes(device: torch.device, hang_minutes: float) -> AbstractContextManager[None]:
    """Joins the processes that torchrun started, unless they have met already."""
    return distributed.process_group(device, hang_minutes + 30 if hang_minutes else WEEK_MINUTES)


def open_store(
    data: str | Path,
    config: TrainConfig,
    *,
    strict: bool = False,
    begun: bool = False,
    progress: Callable[[int, int], None] | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Store:
    """The images, prepared as `config` wants them; `begun`: for a run that has begun."""
    return cached_store(
        data,
        resolution=config.network.resolution,
        crop=config.data.crop,
        channels=config.network.image_channels,
        premultiply=config.network.premultiplied,
        include=config.data.include,
        strict=strict,
        begun=begun,
        labels=config.data.labels,
        progress=progress,
        tell=tell,
    )


def fit_to_data(config: TrainConfig, data: Store | Findings) -> TrainConfig:
    """`config` with as many labels as the data has kinds, if the run is conditional."""
    classes = len(data.label_names) if config.data.labels else 0
    if config.data.labels and not classes:
        raise ValueError(f"labels were asked for, but {data.why_no_labels}")
    if config.network.label_dim not in (0, classes):
        raise ValueError(
            f"network.label_dim is {config.network.label_dim}, but the run uses {classes} labels"
            + ("" if config.data.labels else "; pass --cond to train with labels")
        )
    network = dataclasses.replace(config.network, label_dim=classes)
    return dataclasses.replace(config, network=network)


def announcement(
    state: TrainState, store: Store, folder: RunFolder, resumed: Path | None
) -> list[str]:
    """What is about to be trained on what, where."""
    labels, skipped = len(store.label_names), len(store.skipped)
    conditional = state.config.data.labels
    images = f"{store.num_images} images of {store.meta.source}"
    images += f", {labels} labels" if conditional else ""
    lines = [f"{images}; run {folder.path} on {state.device}"]
    if labels > 1 and not conditional:
        lines.append(f"{labels} labels found, ignored; pass --cond to train on them")
    if resumed is not None:
        return [*lines, f"continuing from {resumed}"]
    return [*lines, *([f"{skipped} left out; see {folder.skipped_file}"] if skipped else [])]
