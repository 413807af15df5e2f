"""A new run that starts from the weights of another one (transfer)."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from stylegan.config import TrainConfig
from stylegan.data.labels import Labels, places
from stylegan.files import checkpoint
from stylegan.files.formats.foreign import mean_w
from stylegan.files.loading import open_weights
from stylegan.files.weights import Weights
from stylegan.machine.distributed import from_rank0, on_all_ranks
from stylegan.machine.lineage import NONCOMMERCIAL, license_of
from stylegan.machine.messages import listed, readable
from stylegan.schedule import phases, resolutions, stage_at
from stylegan.training import meaning
from stylegan.training.refitting import Errors, refit
from stylegan.training.state import TrainState

WARMUP_KIMG = 1.0  # of a discriminator: after 20 steps it knew rendered from drawn faces
MOST_WARMUP = 1 / 12  # of a training
NAMED_AT_MOST = 5  # tensors that were not copied
OF_DATA = {"resolution", "label_dim"}  # of a network: these follow from the images of a run
WIDTHS = {"channel_base", "max_channels"}
# With another of these layers of a discriminator are not taken over.
OF_DISCRIMINATOR = {*WIDTHS, "channel_decay", "deviation_features"}
LAYER = r"(?:blocks|to_rgb|from_rgb)\.(\d+)\."  # in the name of a tensor: its resolution
EMBEDDING = "mapping.label_embedding"
OF_LABELS = (EMBEDDING, "head.out.weight", "head.out.bias")  # a row for each
GROWS_AGAIN = "schedule.initial_resolution"


def sizes(weights: Weights, *, width: int | None = None) -> dict[str, object]:
    """Return options for a network like that of `weights`, of another resolution and `width`."""
    config = weights.require_loaded().generator.config
    left_out = OF_DATA if width is None else OF_DATA | WIDTHS
    fields = dataclasses.asdict(config).items()
    return {f"network.{name}": value for name, value in fields if name not in left_out}


def beginning(
    weights: Weights, config: TrainConfig, *, is_asked: bool
) -> tuple[dict[str, object], str]:
    """Return options that let a run of `config` begin at the resolution that `weights` have grown
    to, unless another is asked for; and a sentence that says so."""
    schedule = config.schedule
    grown = weights.require_loaded().grown
    start = min(grown, config.network.resolution)
    sentence = f"{weights} has grown to {grown}x{grown}; training starts at"
    if is_asked or not schedule.stable_kimg + schedule.fade_kimg > 0:
        return {}, f"{sentence} {schedule.start}x{schedule.start}, as configured"
    again = f" (-o {GROWS_AGAIN}=8 grows again)" if start > 8 else ""
    return {GROWS_AGAIN: start}, f"{sentence} {start}x{start}{again}"


def warmup(weights: Weights, config: TrainConfig, labels: Labels | None) -> dict[str, object]:
    """Return the options that let a discriminator that is untrained, or in part, catch up with a
    trained generator, which would fool it, and be spoiled, in its first steps: for at most a
    twelfth of the run, before a resolution fades in. `labels`: of the data, None if unknown."""
    critic = weights.discriminator
    loaded = weights.require_loaded()
    trained = critic is not None and (
        bool(critic.config.label_dim) == config.data.labels
        and all(getattr(critic.config, n) == getattr(config.network, n) for n in OF_DISCRIMINATOR)
    )
    if trained and config.data.labels and labels:  # one that it knows, or as many
        if known := loaded.label_names:
            order = places(labels.names, known, (labels.vectors, loaded.vectors))
            trained = set(order) != {None}
        else:
            trained = len(labels.names) == loaded.generator.config.label_dim
    if trained:
        return {}
    _, end, stage = phases(config.schedule)[0]
    stable_kimg = end / 1000 if stage.alpha == 1 else 0.0
    kimg = min(WARMUP_KIMG, MOST_WARMUP * config.schedule.total_kimg, stable_kimg)
    return {"d_warmup_kimg": round(kimg, 3)}  # whole images


def warmup_lines(config: TrainConfig) -> list[str]:
    """Return a line on the time in which the discriminator trains alone, if there is one."""
    alone = config.d_warmup_kimg
    if not alone:
        return []
    first, after = (stage_at(n, config.schedule) for n in (0, round(1000 * alone)))
    growing = "" if first.growth == after.growth else ", while the resolution grows"
    return [f"the discriminator trains alone for the first {alone:g} kimg{growing} (d_warmup_kimg)"]


def check_warmup(config: TrainConfig) -> None:
    """Raise ValueError if the run is to end before its generator is trained."""
    alone = config.d_warmup_kimg
    length = config.schedule.total_kimg
    if alone >= length:
        raise ValueError(
            f"d_warmup_kimg {alone:g} leaves the generator nothing of {length:g} kimg; make it "
            "less, or --kimg more"
        )


def check_frozen(config: TrainConfig, weights: Weights | None) -> None:
    """Raise ValueError if `freeze_d` would keep blocks that are not trained."""
    size = config.network.resolution
    critic = weights.discriminator if weights else None
    kept = [r for r in resolutions(size) if 2 * r >= config.freeze_d]  # and what they lead to
    trained = (
        weights is not None
        and critic is not None
        and weights.require_loaded().grown >= size
        and all(critic.config.channels(r) == config.network.channels(r) for r in kept)
    )
    if config.freeze_d and not trained:
        found = f"{weights} holds none" if weights else "there is none without --init-from"
        raise ValueError(
            f"freeze_d keeps blocks of a discriminator that is trained at {size}x{size} with these "
            f"widths, but {found}; pass -o freeze_d=0, or take a source or sizes that fit"
        )


def initialize_from(
    state: TrainState,
    source: str | Path | Weights,
    label_names: Sequence[str] = (),
    vectors: bool | None = None,
    label_rows: Tensor | None = None,
) -> list[str]:
    """Copy the weights of another run that fit (transfer), `adapted`, of each network that it has;
    what was copied and what not. `label_names` are those of the run: what belongs to a label is
    taken from that of the same name, unless one side is `vectors` (some: `label_rows`) and the
    other classes. The state keeps where they came from; `Weights` lose their networks."""
    if isinstance(source, Weights):
        weights = source
    else:
        weights = on_all_ranks(lambda: open_weights(source, need="training"))
    resolution = state.config.network.resolution
    check_frozen(state.config, weights)
    meaning.check_meaning(weights, state.config.network)
    lines = [f"not used: {reason}" for reason in weights.left_out]
    lines += replace_stale_layers(weights, state)
    known = weights.require_loaded().label_names
    both = vectors, weights.require_loaded().vectors
    order = places(label_names, known, both) if label_names and known else None
    lines += about_labels(weights, state, label_names, order)
    if converted := meaning.changes(weights, state.config.network, meaning.CONVERTED):
        lines.append(f"converted, to do the same: {converted}")
    counts = []  # of tensors, for the lineage
    fitting = 0
    for name, trained in weights.networks().items():
        network = getattr(state, name)
        tensors = meaning.adapted(trained, network)
        if order is not None:
            tensors |= rows_of_labels(tensors, network.state_dict(), order)
        refused = copied_from(tensors, network, resolution)
        if order is not None and set(order) == {None}:  # all are new
            rows = [name for name in OF_LABELS if name in tensors and name in network.state_dict()]
            refused |= dict.fromkeys(rows, "belongs to labels that this run lacks")
        of_mapping = [part for part in refused if part.startswith("mapping.layers.")]
        refused |= dict.fromkeys(of_mapping, "is of another mapping, which starts anew as a whole")
        others = order not in (None, [*range(len(known))]) and name != "discriminator"
        if others or refused.keys() & {"w_avg", EMBEDDING}:
            network.w_avg.copy_(from_rank0(partial(mean_w, network, label_rows)))
            refused["w_avg"] = "is measured, since the mapping is not the same"
        # noise maps and single biases fit every network
        fitting += sum(p.ndim > 1 for part, p in network.named_parameters() if part not in refused)
        tensors = network.state_dict().keys()
        number = f"{len(tensors - refused.keys())} of {len(tensors)}"
        counts.append(f"{name} {number}")
        lines.append(f"{name}: {number} tensors copied from {weights}")
        reasons = [f"  not copied: {part} {reason}" for part, reason in refused.items()]
        lines += reasons[:NAMED_AT_MOST]
        if len(reasons) > NAMED_AT_MOST:
            lines.append(f"  not copied: {len(reasons) - NAMED_AT_MOST} more")
    for trained in weights.networks().values():
        trained.to("meta")  # whoever opened them may keep them while training
    if not fitting:
        raise ValueError(
            f"nothing in {weights} fits the networks of this run; without --config "
            "a run takes the sizes of its source"
        )
    if weights.discriminator is None:
        lines.append(
            f"{weights} holds no discriminator: it starts untrained (a state-*.pt has one)"
        )
    lines += warmup_lines(state.config)
    state.lineage = weights.child_lineage(", ".join(counts))
    if (license_name := license_of(state.lineage)).startswith(NONCOMMERCIAL):
        lines.append(f"license: {license_name} (not for commercial purposes) goes with the run")
    return lines


def replace_stale_layers(weights: Weights, state: TrainState) -> list[str]:
    """Fit the RGB layers of the weights that the run of `state` trains and that growth has left
    behind (`refitting`): in one process for all. What was fitted, and how well."""
    grown = weights.require_loaded().grown
    schedule = state.config.schedule
    sizes = [r for r in resolutions(schedule.resolution) if schedule.start <= r < grown]
    if not sizes:
        return []
    networks = weights.networks()
    rows = weights.require_loaded().label_rows

    def fitted() -> tuple[Errors, dict[str, dict[str, Tensor]]]:
        for network in networks.values():
            network.to(state.device)
        average = weights.require_loaded().generator
        if weights.generator not in (None, average):
            refit(weights.generator, None, sizes, grown=grown, label_rows=rows)
        errors = refit(average, weights.discriminator, sizes, grown=grown, label_rows=rows)
        rgb = {
            name: {part: x.cpu() for part, x in network.state_dict().items() if "_rgb." in part}
            for name, network in networks.items()
        }
        return errors, rgb

    errors, rgb = from_rank0(fitted)
    for name, network in networks.items():
        network.load_state_dict(rgb[name], strict=False)
    return [
        f"{layer} of {r}x{r} was trained before {grown}x{grown} grew in; it is fitted anew: off by "
        f"{now:.2f} (root mean square), as stored {before:.2f}"
        for (layer, r), (before, now) in errors.items()
    ]


def about_labels(
    weights: Weights, state: TrainState, names: Sequence[str], order: list[int | None] | None
) -> list[str]:
    """Return a line on how a run's labels relate to those of the weights."""
    if order is not None and set(order) == {None}:
        return [f"no label is one of {weights}: all start anew"]
    if order is not None:
        new = [readable(name) for name, place in zip(names, order, strict=True) if place is None]
        starting = f"; {listed(new, NAMED_AT_MOST, ', ')} start anew" if new else ""
        return [f"labels are those of the same name in {weights}{starting}"]
    count = weights.require_loaded().generator.config.label_dim
    if not count or count != state.config.network.label_dim:
        return []
    return [f"{weights} does not name its labels: they are taken for those of the run in order"]


def rows_of_labels(
    tensors: Mapping[str, Tensor], own: Mapping[str, Tensor], order: Sequence[int | None]
) -> dict[str, Tensor]:
    """Return the tensors with a row for each label: those of `tensors` at the places of `order`,
    and `own` rows where there is none."""
    found = {}
    for name in OF_LABELS:
        if name in tensors and name in own and tensors[name].shape[1:] == own[name].shape[1:]:
            found[name] = own[name].clone()
            for row, place in enumerate(order):
                if place is not None:
                    found[name][row] = tensors[name][place]
    return found


def copied_from(
    tensors: Mapping[str, Tensor], network: nn.Module, resolution: int
) -> dict[str, str]:
    """Give a network those of the `tensors` that fit. Names of the others with the reason, but for
    layers above `resolution`, which a smaller network has no place for."""
    problems = checkpoint.misfits(network.state_dict(), tensors)
    fits = {name: tensor for name, tensor in tensors.items() if name not in problems}
    network.load_state_dict(fits, strict=False)
    layers = {name: re.search(LAYER, name) for name in problems}
    larger = {name for name, layer in layers.items() if layer and int(layer[1]) > resolution}
    return {name: reason for name, reason in problems.items() if name not in larger}
