"""The beginning of a training, or the state that it goes on from."""

import os
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import torch

from stylegan.config import build_config, differences
from stylegan.data import Store
from stylegan.data.cache import refuse_other_images
from stylegan.files import checkpoint
from stylegan.files.run_folder import RunFolder
from stylegan.files.weights import Weights
from stylegan.machine import distributed
from stylegan.machine.console import SILENT, Console
from stylegan.machine.disk import refusing
from stylegan.machine.distributed import from_rank0, on_all_ranks
from stylegan.machine.limits import limits, usual_threads
from stylegan.machine.messages import count, listed, readable
from stylegan.schedule import coming
from stylegan.training.state import Counters, Payload, TrainState
from stylegan.training.transfer import check_frozen, initialize_from


def newest_state(folder: RunFolder, console: Console = SILENT) -> tuple[Path | None, Payload]:
    """Return the newest state file that is not damaged, for any process, and its payload; None
    before the first. The console hears of damaged ones. Raise ValueError if all are, since starting
    anew would overwrite the run, and for one with wrong values."""
    damaged: list[str] = []
    for path in reversed(from_rank0(folder.states)):
        try:
            payload = on_all_ranks(partial(checkpoint.load, path, "state"))
        except (ValueError, OSError) as error:
            damaged.append(str(error))
            continue
        if damaged:
            console.tell(f"{listed(damaged, 3)}; continuing from {path.name} instead")
        with refusing_state(path, folder):
            Counters.of(payload)
        return path, payload
    if damaged:
        raise ValueError(
            f"no state of {folder.path} can be used ({listed(damaged, 3)}); put a sound copy back, "
            "or choose another --out to begin anew"
        )
    if folder.has_lost_its_states():
        raise ValueError(
            f"{folder.path} holds results of a run, but no state-*.pt to continue from; put one "
            "back, or choose another --out to begin anew"
        )
    return None, {}


def refusing_state(path: Path, folder: RunFolder) -> AbstractContextManager[None]:
    """Tell an error inside as one of the values of the state file `path`, which is not damaged."""
    before = [state.name for state in folder.states() if state < path]
    advice = f"remove it to go on from {before[-1]}" if before else "choose another --out"
    return refusing(path, "cannot be continued", advice)


def settle_threads(asked: int | None, payload: Payload) -> list[str]:
    """Set the number of threads that compute: as `asked` for or by OMP_NUM_THREADS, else that of
    the state in `payload`, since last bits depend on it, else one for each core that this process
    may use, and not more. Return lines for the user."""
    usual = usual_threads()
    wanted = asked or usual
    if asked is None and "OMP_NUM_THREADS" not in os.environ:
        as_before = payload and payload["processes"] == distributed.world_size()
        wanted = payload["threads"] if as_before else usual
    threads = min(wanted, max(limits().cores, usual))
    torch.set_num_threads(threads)
    if asked is None and threads != usual:
        return [f"{count(threads, 'thread')}, as before; --threads {usual} changes it"]
    if asked is not None and threads < asked:
        return [f"{count(threads, 'thread')}, not {asked}: for each core that may be used"]
    return []


def begin(
    state: TrainState, folder: RunFolder, store: Store, init_from: str | Path | Weights | None
) -> list[str]:
    """Give a new state the weights of `init_from` that fit; which do."""
    if init_from is not None:
        names = store.label_names if state.config.data.labels else []
        return initialize_from(state, init_from, names, store.vectors)
    if lost := on_all_ranks(folder.lineage):
        raise ValueError(
            f"{folder.path} was to start from {readable(lost[-1].source)} and has saved no state "
            "yet: give --init-from again, or choose another --out"
        )
    check_frozen(state.config, None)
    return []


def resume(
    state: TrainState, payload: Payload, path: Path, store: Store, folder: RunFolder
) -> list[str]:
    """Go on from the `payload` of the file `path`. Return notes on changed results. Raise
    ValueError if it does not fit, or was trained on other images than the store holds."""
    config = state.config
    run = readable(folder.path)
    refuse_other_images(
        payload.get("data"),
        store,
        folder.path,
        config.network.resolution,
        labels=config.data.labels,
        advice="continue with the same data, or begin another run from its weights: "
        f"--init-from {run} --out OTHER",
    )
    with refusing_state(path, folder):
        saved = build_config(payload["config"], unknown_parts=True)
    if different := differences(saved, config):
        raise ValueError(
            f"{path} cannot be continued: it is of a run of another configuration "
            f"({'; '.join(different)})"
        )
    with refusing_state(path, folder):
        state.restore(payload)
    if state.lineage != on_all_ranks(folder.lineage):
        raise ValueError(
            f"{path} cannot be continued: its run did not begin from the same weights as {run}; "
            "remove it, or choose another --out"
        )
    processes = payload["processes"], distributed.world_size()
    threads = payload["threads"], torch.get_num_threads()
    batch_gpu = saved.batch_gpu, config.batch_gpu
    regrouped = False
    for stage in coming(config.schedule, state.images_seen):
        shares = [stage.batch_size // number for number in processes]
        before, now = (min(n or share, share) for n, share in zip(batch_gpu, shares, strict=True))
        regrouped = regrouped or before != now
    compared = {"processes": processes, "threads": threads}
    if regrouped:
        compared["batch_gpu"] = batch_gpu
    changes = [f"{name} {was} -> {now}" for name, (was, now) in compared.items() if was != now]
    if not changes:
        return []
    reasons = []
    if regrouped and config.network.deviation_group > 1:
        reasons.append("the minibatch deviation is that of other groups")
    if processes[0] != processes[1] and config.noise == "random" and config.network.noise:
        reasons.append("noise is drawn anew")
    how = " and ".join(reasons) or "results differ in round-off"
    return [f"the run continues with {', '.join(changes)}: {how}"]
