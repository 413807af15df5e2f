"""A whole training: initialize or resume a run, estimate its costs, run the loop to the end."""

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import torch

from stylegan.config import TrainConfig, build_config, check_batches, differences
from stylegan.data import Findings, Preparation, Source, Store, cached_store
from stylegan.data.cache import check_same_images
from stylegan.files import checkpoint
from stylegan.files.run_folder import RunFolder
from stylegan.files.weights import Weights
from stylegan.losses import has_signs
from stylegan.ops import HALF, has_fast_matmul, has_tf32, override_fp32_precision, resolve_precision
from stylegan.schedule import remaining_stages
from stylegan.training import loop
from stylegan.training.costs import StepCosts, cost_lines, possible_costs
from stylegan.training.evaluation import Evaluation
from stylegan.training.health import runtime_errors_explained
from stylegan.training.interrupts import collect_signals, ignore_save_signal
from stylegan.training.recorder import Recorder
from stylegan.training.state import Counters, Payload, TrainState
from stylegan.training.transfer import check_frozen, initialize_from
from stylegan.utils import distributed
from stylegan.utils.console import SILENT, Console
from stylegan.utils.distributed import run_on_all_ranks, run_on_rank0
from stylegan.utils.filesystem import as_value_error
from stylegan.utils.limits import limits, usual_threads
from stylegan.utils.text import command_line, join_truncated, pluralize, require_module


def start(
    config: TrainConfig,
    data: str | Path | Source | Store,
    out: str | Path,
    *,
    device: str | torch.device = "auto",
    init_from: str | Path | Weights | None = None,
    evaluation: Evaluation | Callable[[TrainConfig, Store], Evaluation | None] | None = None,
    console: Console = SILENT,
    strict: bool = False,
    preflight: bool = True,
    costs: StepCosts | None = None,
    threads: int | None = None,
    workers: int = 1,
    tensorboard: bool = True,
) -> TrainState:
    """Train in the folder `out`, or resume the run there -> the state at the end.

    data: folder of images, zip or store; `strict` refuses one with unusable images.
    init_from: a new run copies the weights that fit.
    evaluation: also a function of the resolved configuration and the store.
    console: rank 0 reports to it; on every rank it gets a `TrainingProgress` per line of the log.
    preflight: try steps before training, unless `costs` of such steps are given.
    threads: on a CPU; default: OMP_NUM_THREADS, else those of the run, else one per usable core.
    workers: threads that prefetch images.

    SIGINT, SIGTERM and SIGHUP stop training after the current step: the state is saved and
    `Stopped`, a KeyboardInterrupt, is raised. SIGUSR1 saves the state. ValueError (`Diverged` is
    one) and OSError (`ProcessLostError` is one) are mistakes that a user can correct.
    """
    if not isinstance(config, TrainConfig):
        raise ValueError(f"config must be a TrainConfig, see load_config, got {config!r:.80}")
    require_module("torchvision", packages="torch torchvision", purpose="a grid of samples")
    device = distributed.resolve_device(str(device))
    folder = RunFolder(out)
    with ignore_save_signal(), distributed.process_group(device, console):
        config = resolve_config(config, folder, device)  # before images are prepared
        # A notebook may have disabled gradients.
        with torch.enable_grad(), backend_flags(config), folder.locked():
            prepared = preparation_for(config)
            store = cached_store(
                data, prepared, labels=config.data.labels, strict=strict, console=console
            )
            check_same_on_all_ranks(store, config)
            config = set_label_dim(config, store)
            if callable(evaluation):
                evaluation = evaluation(config, store)
            if not isinstance(evaluation, Evaluation | None):
                raise ValueError(f"evaluation must be an Evaluation, got {evaluation!r}")
            rank0_console = console if distributed.rank() == 0 else SILENT
            newest, payload = newest_state(folder, rank0_console)
            if newest is not None:  # refuses other images before steps are tried
                check_resumable(config, payload, newest, store, folder)
            else:
                run_on_rank0(lambda: check_unstarted(folder, store.origin, init_from))
            lines = set_threads(threads, payload)
            stages = remaining_stages(config.schedule, payload.get("images_seen", 0))
            if preflight and stages:
                costs = possible_costs(config, device, stages, rank0_console, costs)
                lines += cost_lines(config, costs, device, folder, payload)
            state, changes = load_state(config, device, store, folder, init_from, newest, payload)
            del payload  # as large as the networks and their moments
            lines += run_on_rank0(
                lambda: folder.create(config, store.origin, store.skipped, state.lineage)
            )
            for line in [*changes, *announcement(state, store, folder, newest), *lines]:
                rank0_console.info(line)
            # A finished run without its last generator file only writes that.
            if state.finished and run_on_rank0(folder.generator_file(state.images_seen).exists):
                if evaluation is not None:
                    rank0_console.info("the run is finished already, so nothing is measured")
            else:
                recorder = Recorder(state, store, folder, rank0_console, tensorboard)
                with (
                    collect_signals() as signals,
                    recorder.telling_failure(),
                    runtime_errors_explained(state),
                ):
                    loop.train(state, store, recorder, evaluation, signals, console, workers)
            return state


def load_state(
    config: TrainConfig,
    device: torch.device,
    store: Store,
    folder: RunFolder,
    init_from: str | Path | Weights | None,
    newest: Path | None,
    payload: Payload,
) -> tuple[TrainState, list[str]]:
    """Resume from the `payload` of `newest`, or initialize from `init_from`; lines on either."""
    state = TrainState.create(config, device=device)
    if newest is not None:
        changes = resume(state, payload, newest, folder)
        if init_from is not None:
            changes.append(f"the run has begun already, so the weights of {init_from} are not used")
        return state, changes
    if init_from is not None:
        names = store.label_names if config.data.labels else []
        rows = None
        if names and store.has_vector_labels:
            rows = torch.from_numpy(store.sample_labels(1024))
        return state, initialize_from(state, init_from, names, store.has_vector_labels, rows)
    check_frozen(config, None)
    return state, []


def announcement(
    state: TrainState, store: Store, folder: RunFolder, newest: Path | None
) -> list[str]:
    """Lines on the data, the device, and `newest`, the state file that training resumes from."""
    config = state.config
    device = state.device
    precision = config.precision
    num_labels = len(store.label_names)
    conditional = config.data.labels
    images = f"{store.num_images} images of {store.meta.source}"
    images += f", {pluralize(num_labels, 'label')}" if conditional else ""
    lines = [f"{images}; run {folder.path} on {device}, precision {precision}"]
    if precision == "tf32" and not has_tf32(device, capability(device)):
        lines.append(f"{device} has no TF32; computing in float32")
    if device.type == "cpu" and precision in HALF and not has_fast_matmul(HALF[precision]):
        lines.append(
            f"this processor is not faster in {precision} than in float32, so products are "
            "computed in float32 and rounded; that saves no time"
        )
    if num_labels > 1 and not conditional:
        lines.append(f"{num_labels} labels found but ignored; pass --labels to condition on them")
    if newest is not None:
        lines.append(f"continuing from {newest}")
    elif store.skipped:
        skipped = len(store.skipped)
        images = pluralize(skipped + store.num_images, "image")
        lines.append(f"{skipped} of {images} left out; see {folder.skipped_file}")
    return lines


@contextmanager
def backend_flags(config: TrainConfig) -> Iterator[None]:
    """Set torch's global flags for the precision and determinism of `config`; restore them after.

    The number of threads is restored, too. What half precision leaves in float32, such as the
    gradient penalties of fp16, may use TF32, which has the precision of fp16.
    """
    benchmark = torch.backends.cudnn.benchmark
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    threads = torch.get_num_threads()
    workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    exact = config.precision in ("auto", "fp32")  # auto is not resolved yet
    torch.backends.cudnn.benchmark = not config.deterministic
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        with override_fp32_precision("ieee" if exact else "tf32"):
            yield
    finally:
        torch.backends.cudnn.benchmark = benchmark
        if config.deterministic:  # else nothing has changed, and the call imports much of torch
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.set_num_threads(threads)
        if workspace is None:
            os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


def preparation_for(config: TrainConfig) -> Preparation:
    return Preparation(
        resolution=config.network.resolution,
        crop=config.data.crop,
        channels=config.network.image_channels,
        premultiplied=config.network.premultiplied,
        include=config.data.include,
    )


def resolve_config(config: TrainConfig, folder: RunFolder, device: torch.device) -> TrainConfig:
    """Resolve the precision of `config` for the device.

    Raises ValueError if the ranks cannot share the batches, if options of a new run do not go
    together, or if the run in `folder` was begun with other settings.
    """
    stored = run_on_rank0(folder.stored_config)
    config = with_precision(config, device, stored)
    check_batches(config, distributed.world_size())
    if stored is None:
        check_new(config)
        return config
    if stored.precision == "auto":  # not resolved yet
        stored = dataclasses.replace(stored, precision=config.precision)
    # The number of labels follows from the data, whose identity a state keeps.
    network = dataclasses.replace(config.network, label_dim=stored.network.label_dim)
    if different := differences(stored, dataclasses.replace(config, network=network)):
        raise ValueError(
            f"{folder.path} is a run of another configuration ({'; '.join(different)}); pass the "
            f"options of that run, or another --out (with its weights: --init-from "
            f"{command_line(folder.path)})"
        )
    return config


def check_new(config: TrainConfig) -> None:
    """Raise ValueError if options of a new run do not go together."""
    length, alone = config.schedule.total_kimg, config.d_only_kimg
    if alone >= length:
        raise ValueError(
            f"d_only_kimg must be less than the length of {length:g} kimg (--kimg), got {alone:g}"
        )
    if config.augment.adaptive and not has_signs(config.discriminator_loss):
        raise ValueError(
            "augment.probability adapts to the signs of logits, which say nothing with the loss "
            f"{config.discriminator_loss} (or signed=True is missing in your DiscriminatorLoss): "
            "pass a number, such as -o augment.probability=0.2"
        )
    if config.network.constant_input and not config.network.styles:
        raise ValueError(
            "without styles only the input can depend on z: pass -o network.constant_input=false"
        )


def check_unstarted(folder: RunFolder, origin: Path, init_from: object) -> None:
    """Raise ValueError if a run without a state would start differently than before.

    It needs weights (`init_from`) if it was begun from some, and the same images as long as they
    exist, since its options may follow from them.
    """
    if init_from is None and (lost := folder.lineage()):
        raise ValueError(
            f"{folder.path} was to start from {lost[-1].source} but has no state yet; pass "
            "--init-from again, or choose another --out"
        )
    begun = folder.data()
    if begun and begun.exists() and begun.resolve() != origin.resolve():
        raise ValueError(
            f"{folder.path} was begun with the images of {begun}, and has no state; choose another "
            "--out"
        )


def check_same_on_all_ranks(store: Store, config: TrainConfig) -> None:
    """Raise ValueError, on all ranks, unless each has the same images: files may have changed while
    rank 0 prepared them, or a machine may have another copy."""
    digest = store.training_hash(config.network.resolution, labels=config.data.labels)
    found = distributed.all_gather((digest, len(store)))
    if len(set(found)) > 1:
        counts = ", ".join(f"{count}" for _, count in found)
        raise ValueError(
            f"the processes have different images ({counts}, in order of ranks); prepare them once "
            "with stylegan prepare, and train on copies of that store"
        )


def set_label_dim(config: TrainConfig, data: Store | Findings) -> TrainConfig:
    """Set `network.label_dim` to the number of labels in the data, or 0 without `data.labels`."""
    classes = len(data.label_names) if config.data.labels else 0
    if config.data.labels and not classes:
        raise ValueError(f"labels were asked for, but {data.why_no_labels}")
    if config.network.label_dim not in (0, classes):
        raise ValueError(
            f"network.label_dim must be the number of labels, {classes}, "
            f"got {config.network.label_dim}"
            + ("" if config.data.labels else "; pass --labels to condition on labels")
        )
    network = dataclasses.replace(config.network, label_dim=classes)
    return dataclasses.replace(config, network=network)


def with_precision(
    config: TrainConfig, device: torch.device, stored: TrainConfig | None
) -> TrainConfig:
    """Resolve the precision, the same on all ranks; a resumed run keeps what auto became."""
    asked = stored.precision if stored and config.precision == "auto" else config.precision
    weakest = min(distributed.all_gather(capability(device)))
    return dataclasses.replace(config, precision=resolve_precision(asked, device, weakest))


def capability(device: torch.device) -> tuple[int, int]:
    """NVIDIA's compute capability of a GPU; (0, 0) of other devices."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)


def newest_state(folder: RunFolder, console: Console = SILENT) -> tuple[Path | None, Payload]:
    """The newest state file that all ranks can read, and its payload; (None, {}) for a new run.

    Damaged files are reported. Raises ValueError if all are, since a new start would overwrite the
    run, and for a file with invalid values.
    """
    damaged: list[str] = []
    for path in reversed(run_on_rank0(folder.states)):
        try:
            payload = run_on_all_ranks(partial(checkpoint.load, path, "state"))
        except (ValueError, OSError) as error:
            damaged.append(str(error))
            continue
        if damaged:
            console.info(f"{join_truncated(damaged, 3)}; continuing from {path.name} instead")
        with refusing_state(path, folder):
            Counters.of(payload)
        return path, payload
    if damaged:
        raise ValueError(
            f"no state of {folder.path} is usable ({join_truncated(damaged, 3)}); restore one from "
            "a backup, or choose another --out"
        )
    if folder.has_lost_its_states():
        raise ValueError(
            f"{folder.path} holds results of a run, but no state-*.pt to resume from; restore one "
            "from a backup, or choose another --out"
        )
    return None, {}


def refusing_state(path: Path, folder: RunFolder) -> AbstractContextManager[None]:
    """Re-raise errors as a ValueError about the state file `path`, naming the one before it."""
    before = [state.name for state in folder.states() if state < path]
    advice = f"remove it to resume from {before[-1]}" if before else "choose another --out"
    return as_value_error(path, "cannot be resumed", advice)


def set_threads(asked: int | None, payload: Payload) -> list[str]:
    """Set the number of CPU threads; returns lines to report.

    `asked` comes first, then OMP_NUM_THREADS, then the number in the state `payload`, on which the
    last bits depend, then one thread per core that this process may use, which is also the limit.
    """
    usual = usual_threads()
    wanted = asked or usual
    if asked is None and "OMP_NUM_THREADS" not in os.environ:
        as_before = payload and payload["processes"] == distributed.world_size()
        wanted = payload["threads"] if as_before else usual
    threads = min(wanted, max(limits().cores, usual))
    torch.set_num_threads(threads)
    if asked is None and threads != usual:
        return [f"{pluralize(threads, 'thread')}, as before; --threads {usual} changes it"]
    if asked is not None and threads < asked:
        return [f"{pluralize(threads, 'thread')} instead of {asked}: one per usable core"]
    return []


def check_resumable(
    config: TrainConfig, payload: Payload, path: Path, data: Store | Findings, folder: RunFolder
) -> None:
    """Raise ValueError if a run of `config` cannot resume from the `payload` of the file `path`.

    It cannot either if it was trained on other images than `data` holds.
    """
    copies = (Path(f"{folder.path}-{n}") for n in itertools.count(2))
    other = next(path for path in copies if not path.exists())
    words = ["--data", data.origin if isinstance(data, Store) else data.path]
    words += ["--init-from", folder.path, "--out", other]
    words += ["--labels"] if config.data.labels else []
    check_same_images(
        payload,
        data,
        folder.path,
        config.network.resolution,
        labels=config.data.labels,
        advice="use the same data, or start another run from its weights: stylegan train "
        + command_line(*words),
    )
    with refusing_state(path, folder):
        saved = build_config(payload["config"], allow_unregistered=True)
    if different := differences(saved, config):
        raise ValueError(
            f"{path} cannot be resumed: it belongs to a run of another configuration "
            f"({'; '.join(different)})"
        )


def resume(state: TrainState, payload: Payload, path: Path, folder: RunFolder) -> list[str]:
    """Restore the `payload` of the file `path`; notes on what may change results."""
    with refusing_state(path, folder):
        state.restore(payload)
    if state.lineage != run_on_all_ranks(folder.lineage):
        raise ValueError(
            f"{path} cannot be resumed: its run started from other weights than {folder.path}; "
            "remove it, or choose another --out"
        )
    processes = payload["processes"], distributed.world_size()
    threads = payload["threads"], torch.get_num_threads()
    compared = {"processes": processes, "threads": threads}
    changes = [f"{name} {was} -> {now}" for name, (was, now) in compared.items() if was != now]
    if not changes:
        return []
    how = "results differ in round-off"
    if processes[0] != processes[1]:
        how += ", and may in noise and groups of the minibatch deviation"
    return [f"the run continues with {', '.join(changes)}: {how}"]
