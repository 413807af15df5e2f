"""Opening a run: a new one, or the newest state of one that has begun here."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from stylegan import distributed
from stylegan.config import TrainConfig, check_batches, differences, from_dict
from stylegan.data import Store
from stylegan.data.cache import changes_since
from stylegan.distributed import from_rank0, on_all_ranks
from stylegan.files import checkpoint
from stylegan.messages import readable
from stylegan.run_folder import RunFolder
from stylegan.training.state import TrainState

if TYPE_CHECKING:
    from stylegan.training.transfer import Start


def open_run(
    folder: RunFolder,
    config: TrainConfig,
    store: Store,
    device: torch.device,
    saved: tuple[Path | None, dict[str, Any]],
    *,
    init_from: "str | Path | Start | None" = None,
    tell: Callable[[str], None] = lambda text: None,
) -> TrainState:
    """The state to train from: `saved`, the `newest_state` of the folder, or a new one.

    A new run starts from the weights of `init_from` that fit; `tell` is called with which do.
    """
    state = TrainState.create(config, device=device)
    newest, payload = saved
    if newest is not None:
        check_same_data(payload, config, store, folder)
        restore(state, payload, newest)
        state.data = payload["data"]
        for line in changes(folder.config(), config, payload):
            tell(line)
        if init_from is not None:
            tell(f"the run has begun already, so the weights of {init_from} are not used")
        return state
    lost = on_all_ranks(folder.lineage)
    if lost and init_from is None:
        raise ValueError(
            f"{folder.path} was to start from {readable(lost[-1].source)} and has saved no "
            "state yet: give --init-from again, or choose another --out"
        )
    if init_from is not None:
        from stylegan.training.transfer import initialize_from

        for line in initialize_from(state, init_from):
            tell(line)
    return state


def check_same_options(folder: RunFolder, config: TrainConfig) -> None:
    """ValueError unless `config` works here, and is that of the run that has begun in `folder`."""
    check_batches(config, distributed.world_size())
    stored = folder.stored_config()
    different = differences(stored, config) if stored is not None else []
    if different:
        raise ValueError(
            f"{folder.path} is a run of another configuration ({'; '.join(different)}); "
            "choose another --out, or the options of that run"
        )


def check_same_data(
    payload: dict[str, Any], config: TrainConfig, store: Store, folder: RunFolder
) -> None:
    """ValueError unless the store holds what the state of `payload` was trained on. The states of
    older versions know the images at the highest resolution and the names of the classes only."""
    resolution, labels = config.network.resolution, config.data.labels
    older = not labels or payload.get("label_names") == store.label_names
    known = {store.training_identity(resolution, labels=labels)}
    trained = payload.get("data")
    if trained not in known | ({store.identity(resolution)} if older else set()):
        changed = changes_since(store, str(trained), resolution, labels=labels)
        now = f"{readable(store.meta.source)} holds now" + (f" ({changed})" if changed else "")
        raise ValueError(
            f"{readable(folder.path)} was trained on other images or classes than {now}; continue "
            "with the same data, or begin another run from its weights: --init-from "
            f"{readable(folder.path)} --out OTHER"
        )


def newest_state(
    folder: RunFolder, tell: Callable[[str], None] = lambda text: None
) -> tuple[Path | None, dict[str, Any]]:
    """The newest state file that every process can read, and its payload; None before the first.

    `tell` is called with the damaged ones. ValueError if none of the files, which all processes
    must see, can be read: starting anew would overwrite the run.
    """
    files = from_rank0(folder.states)
    damaged: list[str] = []
    for path in reversed(files):
        try:
            payload = on_all_ranks(partial(checkpoint.load_kind, path, "state"))
        except (ValueError, OSError) as error:
            damaged.append(str(error))
            continue
        if damaged:
            tell(f"{'; '.join(damaged)}; continuing from {path.name} instead")
        return path, payload
    if folder.has_lost_its_states():
        raise ValueError(
            f"{folder.path} holds results of a run, but no state-*.pt to continue from; put one "
            "back, or choose another --out to begin anew"
        )
    if damaged:
        raise ValueError(
            f"no state of {folder.path} can be read ({'; '.join(damaged)}); put a sound copy back, "
            "or choose another --out to begin anew"
        )
    return None, {}


def restore(state: TrainState, payload: dict[str, Any], path: Path) -> None:
    """Put the payload of `path` into the state; ValueError if it does not fit."""
    try:
        different = differences(from_dict(payload["config"]), state.config)
        if different:
            raise ValueError(f"it is of a run of another configuration ({'; '.join(different)})")
        state.restore(payload)
        if not payload["processes"] > 0:
            raise ValueError(f"it was saved by {payload['processes']} processes")
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} cannot be continued: {reason}") from error


def changes(stored: TrainConfig, config: TrainConfig, payload: dict[str, Any]) -> list[str]:
    """What may change within a run, but is reported, as it changes results."""
    pairs = {
        "processes": (payload["processes"], distributed.world_size()),
        "threads": (payload.get("threads"), torch.get_num_threads()),  # older files lack it
        "batch_gpu": (stored.batch_gpu, config.batch_gpu),
    }
    changed = [f"{name} {a} -> {b}" for name, (a, b) in pairs.items() if a not in (None, b)]
    if not changed:
        return []
    return [f"the run goes on with {', '.join(changed)}: its last bits are no longer the same"]
