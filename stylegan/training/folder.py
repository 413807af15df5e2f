"""A run's folder: made once, found again, never mixed up with another run's."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stylegan import distributed
from stylegan.agreement import in_all
from stylegan.config import TrainConfig, check_batches, differences
from stylegan.data import Store
from stylegan.files import checkpoint, loading
from stylegan.files.formats import SHARED, read
from stylegan.run_folder import RunFolder
from stylegan.training.state import TrainState

NAMED_AT_MOST = 5  # tensors that were not copied


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


def open_run(
    folder: Path,
    config: TrainConfig,
    store: Store,
    device: torch.device,
    *,
    init_from: str | Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[TrainState, Path | None]:
    """The state to train from, and the file it was read from: None for a new run.

    A new run starts from the weights of `init_from` that fit; `tell` hears which do. Its folder is
    made last, once nothing can be wrong any more.
    """
    stored = RunFolder(folder).stored_config()
    check_same_settings(folder, stored, config)
    state = TrainState.create(config, device=device)
    newest, payload = newest_state(folder, tell)
    if newest is not None:
        check_same_data(payload, store, config, folder)
        restore(state, payload, newest)
        for told in changes(stored, config, payload["processes"]):
            tell(told)
    if init_from is not None and newest is not None:
        tell(f"the run has begun already, so the weights of {init_from} are not used")
    elif init_from is not None:
        for line in initialize_from(state, init_from):
            tell(line)
    distributed.barrier()
    if distributed.rank() == 0:
        RunFolder(folder).create(config, store.skipped)
    distributed.barrier()
    return state, newest


def check_same_settings(folder: Path, stored: TrainConfig | None, config: TrainConfig) -> None:
    """ValueError unless `config` works here, and is that of the run that has begun in `folder`."""
    check_batches(config, distributed.world_size())
    found = differences(stored, config) if stored is not None else []
    if found:
        raise ValueError(
            f"{folder} is a run of another configuration ({'; '.join(found)}); "
            "choose another --out, or the options of that run"
        )


def newest_state(
    folder: Path, tell: Callable[[str], None] = lambda text: None
) -> tuple[Path | None, dict[str, Any]]:
    """The newest state file that every process can read, and its payload; None before the first.

    `tell` hears of damaged ones. ValueError if there are files but none can be read: starting anew
    would overwrite the run.
    """
    names = [path.name for path in RunFolder(folder).states()]
    seen = distributed.gather(names)
    if any(others != names for others in seen):
        raise ValueError(
            f"the processes do not see the same files in {folder} ({seen}); all machines need one "
            "shared run folder"
        )
    damaged: list[str] = []
    for name in reversed(names):
        payload: dict[str, Any] = {}
        problem = ""
        try:
            payload = checkpoint.load_kind(folder / name, "state")
        except (ValueError, OSError) as error:
            problem = str(error)
        problems = [text for text in distributed.gather(problem) if text]
        if not problems:
            if damaged:
                tell(f"{'; '.join(damaged)}; continuing from {name} instead")
            return folder / name, payload
        damaged.append(problems[0])
    if damaged:
        raise ValueError(
            f"no state of {folder} can be read ({'; '.join(damaged)}); put a sound copy back, or "
            "choose another --out to begin anew"
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


def changes(stored: TrainConfig | None, config: TrainConfig, processes: int) -> list[str]:
    """What is allowed to change within a run, but not without a word: it changes last bits, and the
    groups of the minibatch deviation."""
    told = []
    now = distributed.world_size()
    if now != processes:
        told.append(
            f"the run was on {processes} process{'es' * (processes > 1)} and goes on with {now}: "
            "batches, schedule and the order of the data stay, but noise inputs are drawn and sums "
            "are rounded otherwise, so results are no longer the same to the last bit"
        )
    grouped = config.network.deviation_group > 1
    if stored is not None and stored.batch_gpu != config.batch_gpu and grouped:
        told.append(
            f"batch_gpu was {stored.batch_gpu} and is {config.batch_gpu} now: the minibatch "
            "deviation sees other groups, so results are no longer the same"
        )
    return told


def check_same_data(
    payload: dict[str, Any], store: Store, config: TrainConfig, folder: Path
) -> None:
    """Refuses to continue a run on other images than it has seen."""
    if payload.get("data") != store.identity(config.network.resolution):
        raise ValueError(
            f"{folder} was trained on other images than {store.meta.source} holds now; "
            "continue with the same data, or choose another --out"
        )


def initialize_from(state: TrainState, source: str | Path) -> list[str]:
    """Copy the weights of another run that fit (transfer); returns what was copied and what not.

    A state file (or a run folder with one) gives all three networks; a generator file the
    generator and its average; an official snapshot all three; a file of another program what it
    has of them. `source` may be all that `loading.load_source` takes.
    """
    networks = in_all(lambda: weights_of(source, state.device))
    told = []
    kernels = 0  # copied ones: noise maps and single biases fit every network
    for name, weights in networks.items():
        network = getattr(state, name)
        problems = checkpoint.load_weights(network, weights, strict=False)
        refused = {problem.split(":")[0] for problem in problems}
        wanted = network.state_dict()
        kernels += sum(p.ndim > 1 for part, p in network.named_parameters() if part not in refused)
        fitting = len(wanted.keys() - refused)
        told.append(f"{name}: {fitting} of {len(wanted)} tensors copied from {source}")
        told += [f"  not copied: {problem}" for problem in problems[:NAMED_AT_MOST]]
        if len(problems) > NAMED_AT_MOST:
            told.append(f"  not copied: {len(problems) - NAMED_AT_MOST} more")
    if not kernels:
        raise ValueError(f"nothing in {source} fits the networks of this run")
    return told


def weights_of(source: str | Path, device: torch.device) -> dict[str, Mapping[str, Tensor]]:
    """The networks that `source` holds, by their name in a TrainState."""
    names = checkpoint.NETWORKS["state"]
    path = loading.located(source)
    if path.is_dir():
        shared = [file for file in [path / SHARED] if file.is_file()]
        files = RunFolder(path).states() or RunFolder(path).generators()
        if not (files or shared):
            raise FileNotFoundError(
                f"the folder {source} holds no state-*.pt, generator-*.pt or {SHARED}"
            )
        path = (files or shared)[-1]
    snapshot = read(path)
    networks = {name: getattr(snapshot, name) for name in names}
    if snapshot.generator is None:
        raise ValueError(f"{path} holds a discriminator; a state or generator is needed here")
    return {name: network.state_dict() for name, network in networks.items() if network is not None}
