"""Transfer: a new run that starts from the weights of another one."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from stylegan.config import TrainConfig
from stylegan.data.labels import Labels, match_labels
from stylegan.files import checkpoint
from stylegan.files.loading import open_weights
from stylegan.files.weights import Weights
from stylegan.sampling import mean_w
from stylegan.schedule import phases, resolutions, stage_at
from stylegan.training import meaning
from stylegan.training.refitting import Errors, refit
from stylegan.training.state import TrainState
from stylegan.utils.distributed import run_on_all_ranks, run_on_rank0
from stylegan.utils.lineage import NONCOMMERCIAL, license_of
from stylegan.utils.text import join_truncated, sanitize

WARMUP_KIMG = 1.0  # an untrained D told rendered from drawn faces after 20 steps
MAX_WARMUP = 1 / 12  # of a training
MAX_NAMED = 5  # tensors that were not copied
OF_DATA = {"resolution", "label_dim"}  # fields of NetworkConfig that follow from the images
WIDTHS = {"channel_base", "max_channels"}
# Fields of NetworkConfig that must be equal for all of a discriminator to be copied.
OF_DISCRIMINATOR = {*WIDTHS, "channel_decay", "deviation_features"}
LAYER = r"(?:blocks|to_rgb|from_rgb)\.(\d+)\."  # resolution in the name of a tensor
EMBEDDING = "mapping.label_embedding"
OF_LABELS = (EMBEDDING, "head.out.weight", "head.out.bias")  # a row for each label
INITIAL_RESOLUTION = "schedule.initial_resolution"


def sizes(weights: Weights, *, max_channels: int | None = None) -> dict[str, object]:
    """Options for a network like that of `weights`, except resolution and `max_channels`."""
    config = weights.require_loaded().generator.config
    left_out = OF_DATA if max_channels in (None, config.max_channels) else OF_DATA | WIDTHS
    fields = dataclasses.asdict(config).items()
    return {f"network.{name}": value for name, value in fields if name not in left_out}


def beginning(
    weights: Weights, config: TrainConfig, *, is_asked: bool
) -> tuple[dict[str, object], str]:
    """Options that start a run of `config` at the resolution of `weights`, and a sentence on it."""
    schedule = config.schedule
    grown = weights.require_loaded().grown_resolution
    start = min(grown, config.network.resolution)
    sentence = f"{weights} has grown to {grown}x{grown}; training starts at"
    if is_asked or not schedule.stable_kimg + schedule.fade_kimg > 0:
        first = schedule.start_resolution
        return {}, f"{sentence} {first}x{first}, as configured"
    again = f" (-o {INITIAL_RESOLUTION}=8 grows again)" if start > 8 else ""
    return {INITIAL_RESOLUTION: start}, f"{sentence} {start}x{start}{again}"


def warmup(weights: Weights, config: TrainConfig, labels: Labels | None) -> dict[str, object]:
    """Options for a phase in which D trains alone: empty if the D of `weights` fits this run.

    An untrained D would be fooled by a trained generator and spoil it within a few steps. The phase
    lasts at most a twelfth of the run and ends before a resolution fades in. `labels` are the
    data's, None if unknown.
    """
    critic = weights.discriminator
    loaded = weights.require_loaded()
    trained = critic is not None and (
        bool(critic.config.label_dim) == config.data.labels
        and all(getattr(critic.config, n) == getattr(config.network, n) for n in OF_DISCRIMINATOR)
    )
    if trained and config.data.labels and labels:  # D must know one by name, or as many
        if known := loaded.label_names:
            order = match_labels(
                labels.names, known, (labels.are_vectors, loaded.has_vector_labels)
            )
            trained = set(order) != {None}
        else:
            trained = len(labels.names) == loaded.generator.config.label_dim
    if trained:
        return {}
    _, end, stage = phases(config.schedule)[0]
    stable_kimg = end / 1000 if stage.alpha == 1 else 0.0
    kimg = min(WARMUP_KIMG, MAX_WARMUP * config.schedule.total_kimg, stable_kimg)
    return {"d_only_kimg": round(kimg, 3)}  # whole images


def warmup_lines(config: TrainConfig) -> list[str]:
    alone = config.d_only_kimg
    if not alone:
        return []
    first, after = (stage_at(n, config.schedule) for n in (0, round(1000 * alone)))
    growing = "" if first.growth == after.growth else ", while the resolution grows"
    return [f"the discriminator trains alone for the first {alone:g} kimg{growing} (d_only_kimg)"]


def check_frozen(config: TrainConfig, weights: Weights | None) -> None:
    """Raises ValueError if `freeze_d_from` would freeze blocks that are not trained."""
    size = config.network.resolution
    critic = weights.discriminator if weights else None
    kept = [r for r in resolutions(size) if 2 * r >= config.freeze_d_from]  # and their outputs
    trained = (
        weights is not None
        and critic is not None
        and weights.require_loaded().grown_resolution >= size
        and all(critic.config.channels(r) == config.network.channels(r) for r in kept)
    )
    if config.freeze_d_from and not trained:
        found = f"{weights} holds none" if weights else "there is none without --init-from"
        raise ValueError(
            f"freeze_d_from needs a discriminator trained at {size}x{size} with the same widths, "
            f"but {found}; pass -o freeze_d_from=0, or another source or size"
        )


def initialize_from(
    state: TrainState,
    source: str | Path | Weights,
    label_names: Sequence[str] = (),
    vectors: bool | None = None,
    label_rows: Tensor | None = None,
) -> list[str]:
    """Copy every tensor of `source` that fits into `state`, `adapted`; returns report lines.

    Rows that belong to a label go to the label of the same name in `label_names`, unless one side
    has `vectors` (`label_rows` holds some) and the other classes. Records the lineage. A `Weights`
    argument loses its networks.
    """
    if isinstance(source, Weights):
        weights = source
    else:
        weights = run_on_all_ranks(lambda: open_weights(source, need="training"))
    if weights.require_loaded().generator.w_avg.is_meta:
        raise ValueError(f"the networks of {weights} went into another training; open them again")
    resolution = state.config.network.resolution
    check_frozen(state.config, weights)
    meaning.check_meaning(weights, state.config.network)
    lines = [f"not used: {reason}" for reason in weights.skipped_files]
    lines += replace_stale_layers(weights, state)
    loaded = weights.require_loaded()
    known = loaded.label_names
    order = None
    if label_names and known:
        order = match_labels(label_names, known, (vectors, loaded.has_vector_labels))
    lines += about_labels(weights, state, label_names, order)
    if converted := meaning.changes(weights, state.config.network, meaning.CONVERTED):
        lines.append(f"converted to compute the same: {converted}")
    counts = []  # of copied tensors, for the lineage
    fitting = 0
    for name, trained in weights.networks().items():
        network = getattr(state, name)
        tensors = meaning.adapted(trained, network)
        if order is not None:
            tensors |= rows_of_labels(tensors, network.state_dict(), order)
        refused = copy_matching(tensors, network, resolution)
        if order is not None and set(order) == {None}:  # all are new
            rows = [name for name in OF_LABELS if name in tensors and name in network.state_dict()]
            refused |= dict.fromkeys(rows, "belongs to labels that this run lacks")
        of_mapping = [part for part in refused if part.startswith("mapping.layers.")]
        refused |= dict.fromkeys(of_mapping, "belongs to another mapping, reinitialized as a whole")
        others = order not in (None, [*range(len(known))]) and name != "discriminator"
        if others or refused.keys() & {"w_avg", EMBEDDING}:
            network.w_avg.copy_(run_on_rank0(partial(mean_w, network, label_rows)))
            refused["w_avg"] = "is measured again, since the mapping differs"
        # noise maps and single biases fit every network
        fitting += sum(p.ndim > 1 for part, p in network.named_parameters() if part not in refused)
        tensors = network.state_dict().keys()
        number = f"{len(tensors - refused.keys())} of {len(tensors)}"
        counts.append(f"{name} {number}")
        lines.append(f"{name}: {number} tensors copied from {weights}")
        reasons = [f"  not copied: {part} {reason}" for part, reason in refused.items()]
        lines += reasons[:MAX_NAMED]
        if len(reasons) > MAX_NAMED:
            lines.append(f"  not copied: {len(reasons) - MAX_NAMED} more")
    for trained in weights.networks().values():
        trained.to("meta")  # frees memory, though the caller may hold them during training
    if not fitting:
        raise ValueError(
            f"nothing in {weights} fits the networks of this run; leave out --config to take "
            "the sizes of the source"
        )
    if weights.discriminator is None:
        lines.append(
            f"{weights} holds no discriminator: it starts untrained (a state-*.pt has one)"
        )
    lines += warmup_lines(state.config)
    state.lineage = weights.child_lineage(", ".join(counts))
    if (license_name := license_of(state.lineage)).startswith(NONCOMMERCIAL):
        lines.append(f"license: the run inherits {license_name} (not for commercial purposes)")
    return lines


def replace_stale_layers(weights: Weights, state: TrainState) -> list[str]:
    """Refit RGB layers that the run trains and that growth has left behind; lines on each."""
    loaded = weights.require_loaded()
    grown = loaded.grown_resolution
    schedule = state.config.schedule
    sizes = [r for r in resolutions(schedule.resolution) if schedule.start_resolution <= r < grown]
    if not sizes:
        return []
    networks = weights.networks()
    rows = loaded.label_rows

    def fitted() -> tuple[Errors, dict[str, dict[str, Tensor]]]:
        for network in networks.values():
            network.to(state.device)
        if weights.generator not in (None, loaded.generator):
            refit(weights.generator, None, sizes, grown=grown, label_rows=rows)
        errors = refit(loaded.generator, weights.discriminator, sizes, grown=grown, label_rows=rows)
        rgb = {
            name: {part: x.cpu() for part, x in network.state_dict().items() if "_rgb." in part}
            for name, network in networks.items()
        }
        return errors, rgb

    errors, rgb = run_on_rank0(fitted)
    for name, network in networks.items():
        network.load_state_dict(rgb[name], strict=False)
    return [
        f"{layer} of {r}x{r} was trained before {grown}x{grown} grew in; refitted, its RMS error "
        f"is {now:.2f} instead of {before:.2f}"
        for (layer, r), (before, now) in errors.items()
    ]


def about_labels(
    weights: Weights, state: TrainState, names: Sequence[str], order: list[int | None] | None
) -> list[str]:
    if order is not None and set(order) == {None}:
        return [f"{weights} has none of the labels: all are reinitialized"]
    if order is not None:
        new = [sanitize(name) for name, place in zip(names, order, strict=True) if place is None]
        starting = f"; reinitialized: {join_truncated(new, MAX_NAMED, ', ')}" if new else ""
        return [f"labels are copied from those of the same name in {weights}{starting}"]
    count = weights.require_loaded().generator.config.label_dim
    if not count or count != state.config.network.label_dim:
        return []
    return [f"{weights} does not name its labels: they are assigned to those of the run in order"]


def rows_of_labels(
    tensors: Mapping[str, Tensor], own: Mapping[str, Tensor], order: Sequence[int | None]
) -> dict[str, Tensor]:
    """Tensors with a row per label: `order[i]` of `tensors` for label i, or the `own` if None."""
    found = {}
    for name in OF_LABELS:
        if name in tensors and name in own and tensors[name].shape[1:] == own[name].shape[1:]:
            found[name] = own[name].clone()
            for row, place in enumerate(order):
                if place is not None:
                    found[name][row] = tensors[name][place]
    return found


def copy_matching(
    tensors: Mapping[str, Tensor], network: nn.Module, resolution: int
) -> dict[str, str]:
    """Copy the `tensors` that fit; reasons why others do not, except layers above `resolution`."""
    problems = checkpoint.mismatches(network.state_dict(), tensors)
    fits = {name: tensor for name, tensor in tensors.items() if name not in problems}
    network.load_state_dict(fits, strict=False)
    layers = {name: re.search(LAYER, name) for name in problems}
    larger = {name for name, layer in layers.items() if layer and int(layer[1]) > resolution}
    return {name: reason for name, reason in problems.items() if name not in larger}
