"""A whole training from Python: opened or continued, tried, and run to its end."""

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from stylegan import distributed
from stylegan.config import TrainConfig, check_batches, differences
from stylegan.data import Store, cached_store
from stylegan.files import checkpoint
from stylegan.run_folder import RunFolder
from stylegan.training.evaluation import Evaluation
from stylegan.training.interrupts import nothing_to_save
from stylegan.training.kernels import kernels
from stylegan.training.loop import train
from stylegan.training.preflight import try_out
from stylegan.training.recorder import TrainingProgress
from stylegan.training.state import TrainState
from stylegan.training.transfer import initialize_from

WEEK_MINUTES = 7 * 24 * 60


def start(
    config: TrainConfig,
    data: str | Path | Store,
    out: str | Path,
    *,
    device: str | torch.device = "auto",
    init_from: str | Path | None = None,
    evaluation: Evaluation | None = None,
    tell: Callable[[str], None] = lambda text: None,
    report: Callable[[TrainingProgress], None] = lambda progress: None,
    strict: bool = False,
    preflight: bool = True,
    workers: int = 1,
    tensorboard: bool = True,
    histograms: bool = False,
    graph: bool = False,
    hang_minutes: float = 30.0,
) -> TrainState:
    """Train in the folder `out`, or continue the run there; the state at the end of its schedule.

    `data` is a folder of images, a zip, or a store; `strict` refuses one with images that cannot
    be used. A new run starts from the weights of `init_from` that fit. Without `preflight` no
    steps are tried before the first. `tell` is called with what a user should know, `report` with
    the progress at every line of the log, in the first process. `workers` threads read images
    ahead. `histograms` of weights and gradients and the `graph` go to TensorBoard. A process of
    several that makes no progress for `hang_minutes` ends; 0: never.

    SIGINT and SIGTERM stop training after the step in progress: the state is saved, and `Stopped`,
    a KeyboardInterrupt, is raised. SIGUSR1 saves the state. ValueError and OSError are mistakes
    that a user can correct; `Diverged` and `LostContact` are among them. The process's switches for
    tf32 and deterministic kernels are afterwards as they were.
    """
    device = distributed.pick_device(str(device))
    folder = RunFolder(out)
    with nothing_to_save(), processes(device, hang_minutes), kernels(config):
        first = distributed.rank() == 0
        say = tell if first else lambda text: None
        shown = report if first else lambda progress: None
        store = data if isinstance(data, Store) else open_store(data, config, strict=strict)
        config = fit_to_data(config, store)
        check_same_options(folder, config)
        tried = try_out(config, device, folder) if preflight else []
        state, resumed = open_run(folder, config, store, device, init_from=init_from, tell=say)
        for line in [*announcement(state, store, folder, resumed), *tried]:
            say(line)
        if first:
            folder.remember_data(store.origin)
        train(
            state,
            store,
            folder.path,
            evaluation=evaluation,
            tell=say,
            report=shown,
            workers=workers,
            tensorboard=tensorboard,
            histograms=histograms,
            graph=graph,
            hang_minutes=hang_minutes,
        )
    return state


def processes(device: torch.device, hang_minutes: float) -> AbstractContextManager[None]:
    """Joins the processes that torchrun started, unless they have met already."""
    return distributed.process_group(device, hang_minutes + 30 if hang_minutes else WEEK_MINUTES)


def open_store(
    data: str | Path,
    config: TrainConfig,
    *,
    strict: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Store:
    """The images, prepared as `config` wants them."""
    return cached_store(
        data,
        resolution=config.network.resolution,
        crop=config.data.crop,
        channels=config.network.image_channels,
        include=config.data.include,
        strict=strict,
        progress=progress,
    )


def fit_to_data(config: TrainConfig, store: Store) -> TrainConfig:
    """`config` with as many labels as the data has kinds, if the run is conditional."""
    classes = len(store.label_names) if config.data.labels else 0
    if config.data.labels and not classes:
        raise ValueError(
            f"labels were asked for, but the images of {store.meta.source} do not all lie in "
            "sub-folders; put each kind into its own, or train without labels"
        )
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
    classes = f", {labels} labels" if conditional else ""
    images = f"{store.num_images} images of {store.meta.source}{classes}"
    lines = [f"{images}; run {folder.path} on {state.device}"]
    if labels > 1 and not conditional:
        lines.append(f"{labels} labels found, ignored; pass --cond to train on them")
    if skipped:
        left_out = f"{skipped:,} image{'s' * (skipped != 1)} left out as unusable"
        lines.append(f"{left_out}; see {folder.skipped_file}")
    return lines + ([f"continuing from {resumed}"] if resumed else [])


def open_run(
    folder: RunFolder,
    config: TrainConfig,
    store: Store,
    device: torch.device,
    *,
    init_from: str | Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[TrainState, Path | None]:
    """The state to train from, and the file it was read from: None for a new run.

    A new run starts from the weights of `init_from` that fit; `tell` is called with which do. Its
    folder is made last, once nothing can be wrong any more.
    """
    check_same_options(folder, config)
    state = TrainState.create(config, device=device)
    newest, payload = newest_state(folder, tell)
    if newest is not None:
        check_same_data(payload, store, config, folder)
        restore(state, payload, newest)
        for line in changes(folder.config(), config, payload["processes"]):
            tell(line)
    if init_from is not None and newest is not None:
        tell(f"the run has begun already, so the weights of {init_from} are not used")
    elif init_from is not None:
        for line in initialize_from(state, init_from):
            tell(line)
    distributed.barrier()
    if distributed.rank() == 0:
        folder.create(config, store.skipped)
    distributed.barrier()
    return state, newest


def check_same_options(folder: RunFolder, config: TrainConfig) -> None:
    """ValueError unless `config` works here, and is that of the run that has begun in `folder`."""
    check_batches(config, distributed.world_size())
    stored = folder.stored_config()
    found = differences(stored, config) if stored is not None else []
    if found:
        raise ValueError(
            f"{folder.path} is a run of another configuration ({'; '.join(found)}); "
            "choose another --out, or the options of that run"
        )


def newest_state(
    folder: RunFolder, tell: Callable[[str], None] = lambda text: None
) -> tuple[Path | None, dict[str, Any]]:
    """The newest state file that every process can read, and its payload; None before the first.

    `tell` is called with the damaged ones. ValueError if there are files but none can be read:
    starting anew would overwrite the run.
    """
    names = [path.name for path in folder.states()]
    seen = distributed.gather(names)
    if any(others != names for others in seen):
        raise ValueError(
            f"the processes do not see the same files in {folder.path} ({seen}); all machines need "
            "one shared run folder"
        )
    damaged: list[str] = []
    for name in reversed(names):
        payload: dict[str, Any] = {}
        problem = ""
        try:
            payload = checkpoint.load_kind(folder.path / name, "state")
        except (ValueError, OSError) as error:
            problem = str(error)
        problems = [text for text in distributed.gather(problem) if text]
        if not problems:
            if damaged:
                tell(f"{'; '.join(damaged)}; continuing from {name} instead")
            return folder.path / name, payload
        damaged.append(problems[0])
    if damaged:
        raise ValueError(
            f"no state of {folder.path} can be read ({'; '.join(damaged)}); put a sound copy back, "
            "or choose another --out to begin anew"
        )
    return None, {}


def restore(state: TrainState, payload: dict[str, Any], path: Path) -> None:
    """Put the payload of `path` into the state; ValueError if it does not fit."""
    try:
        state.restore(payload)
        if not payload["processes"] > 0:
            raise ValueError(f"it was saved by {payload['processes']} processes")
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} cannot be continued: {reason}") from error


def changes(stored: TrainConfig, config: TrainConfig, processes: int) -> list[str]:
    """What may change within a run, but is reported: it changes last bits, and the groups of the
    minibatch deviation."""
    found = []
    now = distributed.world_size()
    if now != processes:
        found.append(
            f"the run was on {processes} process{'es' * (processes > 1)} and goes on with {now}: "
            "batches, schedule and the order of the data stay, but noise inputs are drawn and sums "
            "are rounded otherwise, so results are no longer the same to the last bit"
        )
    grouped = config.network.deviation_group > 1
    if stored.batch_gpu != config.batch_gpu and grouped:
        found.append(
            f"batch_gpu was {stored.batch_gpu} and is {config.batch_gpu} now: the minibatch "
            "deviation sees other groups, so results are no longer the same"
        )
    return found


def check_same_data(
    payload: dict[str, Any], store: Store, config: TrainConfig, folder: RunFolder
) -> None:
    """Refuses to continue a run on other images than it has seen."""
    if payload.get("data") != store.identity(config.network.resolution):
        raise ValueError(
            f"{folder.path} was trained on other images than {store.meta.source} holds now; "
            "continue with the same data, or choose another --out"
        )
