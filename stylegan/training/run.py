"""A whole training from Python: opened or continued, tried, and run to its end."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from stylegan import distributed
from stylegan.config import TrainConfig, check_batches, differences, from_dict
from stylegan.data import Findings, Preparation, Store, cached_store
from stylegan.data.cache import changes_since
from stylegan.distributed import from_rank0, on_all_ranks
from stylegan.files import checkpoint
from stylegan.messages import count, readable
from stylegan.ops import Precision, float32_products, has_tf32, resolved_precision
from stylegan.run_folder import RunFolder
from stylegan.training.interrupts import nothing_to_save
from stylegan.training.loop import Evaluation, Loop
from stylegan.training.preflight import threads_are_free, try_out
from stylegan.training.recorder import Recorder, TrainingProgress
from stylegan.training.state import TrainState

if TYPE_CHECKING:
    from stylegan.files.weights import Weights

Tell = Callable[[str], None]  # what a user should know


def start(
    config: TrainConfig,
    data: str | Path | Store,
    out: str | Path,
    *,
    device: str | torch.device = "auto",
    init_from: "str | Path | Weights | None" = None,
    evaluation: Evaluation | None = None,
    tell: Tell = lambda text: None,
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
    ahead. A process of several that makes no progress for `hang_minutes` ends; 0: never.

    SIGINT and SIGTERM stop training after the step in progress: the state is saved, and `Stopped`,
    a KeyboardInterrupt, is raised. SIGUSR1 saves the state. ValueError and OSError are mistakes
    that a user can correct; `Diverged` and `LostContact` are among them.
    """
    device = distributed.pick_device(str(device))
    folder = RunFolder(out)
    group = distributed.process_group(device, hang_minutes)
    with nothing_to_save(), group:
        config = with_precision(config, device, folder)
        with backend_flags(config), folder.alone():
            say: Tell = tell if distributed.rank() == 0 else lambda text: None
            store = (
                data
                if isinstance(data, Store)
                else cached_store(
                    data,
                    preparation_for(config),
                    labels=config.data.labels,
                    strict=strict,
                    tell=say,
                )
            )
            config = fit_to_data(config, store)
            check_batches(config, distributed.world_size())
            check_unchanged(folder, config)
            newest, payload = newest_state(folder, say)
            tried = keep_threads(payload, device)
            tried += try_out(config, device, folder) if preflight else []
            state = TrainState.create(config, device=device)
            if newest is None:
                lines = begin(state, folder, init_from)
            else:
                lines = resume(state, payload, newest, store, folder)
                if init_from is not None:
                    lines += [
                        f"the run has begun already, so the weights of {init_from} are not used"
                    ]
            identity = store.training_identity(config.network.resolution, labels=config.data.labels)
            state.data = payload.get("data", identity)  # `resume` also takes an older name of them
            del payload  # as large as the networks and their moments
            for line in [*lines, *announcement(state, store, folder, newest), *tried]:
                say(line)
            from_rank0(lambda: folder.create(config, store.origin, store.skipped, state.lineage))
            recorder = Recorder(state, store, folder, say, report, tensorboard)
            Loop(state, store, recorder, evaluation, workers, hang_minutes).train()
            say(f"{folder.path} is finished, with {state.images_seen} images seen")
    return state


@contextmanager
def backend_flags(config: TrainConfig) -> Iterator[None]:
    """Kernels of the precision and determinism that `config` asks for, inside; afterwards switches
    and the number of threads are as before. What half precision leaves in float32, such as fp16's
    gradient penalties, may use TF32: that has as many digits as fp16, and more than bf16."""
    benchmark = torch.backends.cudnn.benchmark
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    threads = torch.get_num_threads()
    workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    exact = config.precision in ("auto", "fp32")
    torch.backends.cudnn.benchmark = not config.deterministic
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        with float32_products("ieee" if exact else "tf32"):
            yield
    finally:
        torch.backends.cudnn.benchmark = benchmark
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.set_num_threads(threads)
        if workspace is None:
            os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


def preparation_for(config: TrainConfig) -> Preparation:
    """How the pictures of a run are prepared."""
    return Preparation(
        resolution=config.network.resolution,
        crop=config.data.crop,
        channels=config.network.image_channels,
        premultiplied=config.network.premultiplied,
        include=config.data.include,
    )


def fit_to_data(config: TrainConfig, data: Store | Findings) -> TrainConfig:
    """`config` with as many labels as the data has kinds, if the run is conditional."""
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


def with_precision(config: TrainConfig, device: torch.device, folder: RunFolder) -> TrainConfig:
    """`config` in the precision in which it trains on this device, the same in all processes: auto
    is that of a run that has begun. ValueError if the device cannot."""

    def resolved() -> Precision:
        stored = folder.stored_config()
        asked = stored.precision if stored and config.precision == "auto" else config.precision
        return resolved_precision(asked, device, weakest)

    weakest = min(distributed.gather(capability(device)))
    return dataclasses.replace(config, precision=from_rank0(resolved))


def capability(device: torch.device) -> tuple[int, int]:
    """NVIDIA's "compute capability" of a GPU; (0, 0) of other devices."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)


def check_unchanged(folder: RunFolder, config: TrainConfig) -> None:
    """ValueError if the run computes something else. `config` may not know its labels and its
    precision yet."""
    stored = folder.stored_config()
    if stored is not None and "auto" in (config.precision, stored.precision):  # not decided yet
        config = dataclasses.replace(config, precision=stored.precision)
    if stored is not None and config.data.labels and not config.network.label_dim:
        network = dataclasses.replace(config.network, label_dim=stored.network.label_dim)
        config = dataclasses.replace(config, network=network)
    if stored is not None and (different := differences(stored, config)):
        what = f"{folder.path} is a run of another configuration ({'; '.join(different)})"
        raise ValueError(f"{what}; choose another --out, or the options of that run")


def newest_state(
    folder: RunFolder, tell: Tell = lambda text: None
) -> tuple[Path | None, dict[str, Any]]:
    """The newest state file that every process can read, and its payload; None before the first.
    `tell` is called with damaged ones. ValueError if none of the files can be read: starting anew
    would overwrite the run."""
    damaged: list[str] = []
    for path in reversed(from_rank0(folder.states)):
        try:
            payload = on_all_ranks(partial(checkpoint.load, path, "state"))
        except (ValueError, OSError) as error:
            damaged.append(str(error))
            continue
        if damaged:
            tell(f"{'; '.join(damaged)}; continuing from {path.name} instead")
        return path, payload
    if damaged:
        what = f"no state of {folder.path} can be read ({'; '.join(damaged)})"
        raise ValueError(f"{what}; put a sound copy back, or choose another --out to begin anew")
    if folder.has_lost_its_states():
        what = f"{folder.path} holds results of a run, but no state-*.pt to continue from"
        raise ValueError(f"{what}; put one back, or choose another --out to begin anew")
    return None, {}


def keep_threads(payload: Mapping[str, Any], device: torch.device) -> list[str]:
    """A run goes on with the threads of the state in `payload`, on which the last bits depend, if
    one process saved it; older files do not know their number. What was chosen, if it changed."""
    most = torch.get_num_threads()
    threads: int = payload.get("threads") or most
    if payload.get("processes") != 1 or threads >= most or not threads_are_free(device):
        return []
    torch.set_num_threads(threads)
    return [f"{count(threads, 'thread')}, as before; OMP_NUM_THREADS={most} changes it"]


def begin(state: TrainState, run: RunFolder, init_from: "str | Path | Weights | None") -> list[str]:
    """Give a new state the weights of `init_from` that fit; which do."""
    if init_from is not None:
        from stylegan.training.transfer import initialize_from

        return initialize_from(state, init_from)
    if lost := on_all_ranks(run.lineage):
        what = (
            f"{run.path} was to start from {readable(lost[-1].source)} and has saved no state yet"
        )
        raise ValueError(f"{what}: give --init-from again, or choose another --out")
    return []


def resume(
    state: TrainState, payload: dict[str, Any], path: Path, store: Store, folder: RunFolder
) -> list[str]:
    """Go on from the `payload` of the file `path`; what changes results. ValueError if it does not
    fit, or was trained on other images than the store holds."""
    config, stored = state.config, folder.config()
    resolution, labels = config.network.resolution, config.data.labels
    known = [store.training_identity(resolution, labels=labels)]
    # states of older versions know the images at full resolution and the names of classes only
    if not labels or payload.get("label_names") == store.label_names:
        known.append(store.identity(resolution))
    if payload.get("data") not in known:
        changed = changes_since(store, str(payload.get("data")), resolution, labels=labels)
        now = f"{readable(store.meta.source)} holds now" + (f" ({changed})" if changed else "")
        raise ValueError(
            f"{readable(folder.path)} was trained on other images or classes than {now}; continue "
            "with the same data, or begin another run from its weights: --init-from "
            f"{readable(folder.path)} --out OTHER"
        )
    try:
        if different := differences(from_dict(payload["config"]), config):
            raise ValueError(f"it is of a run of another configuration ({'; '.join(different)})")
        state.restore(payload)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} cannot be continued: {reason}") from error
    pairs = {  # older files lack some
        "processes": (payload.get("processes"), distributed.world_size()),
        "threads": (payload.get("threads"), torch.get_num_threads()),
        "batch_gpu": (stored.batch_gpu, config.batch_gpu),
    }
    changes = [f"{name} {a} -> {b}" for name, (a, b) in pairs.items() if a not in (None, b)]
    if not changes:
        return []
    return [f"the run continues with {', '.join(changes)}: results differ in round-off"]


def announcement(state: TrainState, store: Store, run: RunFolder, newest: Path | None) -> list[str]:
    labels, conditional = len(store.label_names), state.config.data.labels
    images = f"{store.num_images} images of {store.meta.source}"
    images += f", {count(labels, 'label')}" if conditional else ""
    device, precision = state.device, state.config.precision
    lines = [f"{images}; run {run.path} on {device}, precision {precision}"]
    if precision == "tf32" and not has_tf32(device, capability(device)):
        lines.append(f"{device} has no tf32 and computes in float32")
    if labels > 1 and not conditional:
        lines.append(f"{labels} labels found, ignored; pass --labels to train on them")
    if newest is not None:
        lines.append(f"continuing from {newest}")
    elif store.skipped:
        left, seen = len(store.skipped), len(store.skipped) + store.num_images
        lines.append(f"{left} of {count(seen, 'image')} left out; see {run.skipped_file}")
    return lines
