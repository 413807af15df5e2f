"""A new run that starts from the weights of another one (transfer)."""

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from stylegan.agreement import from_first, in_all
from stylegan.config import TrainConfig
from stylegan.files import checkpoint, loading
from stylegan.files.download import BUNDLED
from stylegan.files.formats import SHARED, read
from stylegan.files.snapshot import Snapshot
from stylegan.lineage import NVIDIA, Lineage, Source, licence_of, public_address, source_of
from stylegan.messages import readable
from stylegan.networks import Generator, NetworkConfig
from stylegan.run_folder import RunFolder
from stylegan.sampling import latents
from stylegan.schedule import resolutions
from stylegan.training.state import TrainState
from stylegan.training.widening import widened

NAMED_AT_MOST = 5  # tensors that were not copied
OF_DATA = {"resolution", "label_dim"}  # of a network: these follow from the images of a run
GROWS_AGAIN = "schedule.initial_resolution"
FITTED_IMAGES, RIDGE = 32, 1e-6  # for layers to RGB that were out of use


@dataclass(frozen=True, eq=False)
class Start:
    """Weights to start from."""

    source: str | Path  # as it was given
    path: Path
    snapshot: Snapshot
    own: Source  # that of this file

    def __str__(self) -> str:
        return str(self.source)

    @property
    def network(self) -> NetworkConfig:
        assert self.snapshot.generator is not None
        return self.snapshot.generator.config

    @property
    def grown(self) -> int:
        """The resolution that had grown in whole."""
        fading = self.snapshot.alpha < 1 and self.snapshot.resolution > 4
        return self.snapshot.resolution // (2 if fading else 1)

    def weights(self) -> dict[str, Mapping[str, Tensor]]:
        """The networks that there are, by their name in a TrainState."""
        networks = {name: getattr(self.snapshot, name) for name in checkpoint.NETWORKS["state"]}
        return {name: n.state_dict() for name, n in networks.items() if n is not None}

    def lineage(self, copied: str) -> Lineage:
        """That of a run that starts here."""
        known = self.snapshot.lineage
        own = dataclasses.replace(self.own, copied=copied)
        if known and known[-1].sha256 == own.sha256:  # a foreign or bundled file
            known, own = known[:-1], dataclasses.replace(own, licence=known[-1].licence)
        return (*known, own)


def opened(source: str | Path) -> Start:
    """The networks of `source`, which may be all that `loading.load_source` takes: of a run those
    of its newest state."""
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
    if snapshot.generator is None:
        raise ValueError(f"{path} holds a discriminator; a state or generator is needed here")
    own = source_of(path, licence_of(snapshot.lineage), name=public_name(source, path))
    return Start(source, path, snapshot, own)


def public_name(source: str | Path, path: Path) -> str:
    """What was given, without the folders that lead to it."""
    given = str(source)
    if given in BUNDLED or "://" in given:
        return given if given in BUNDLED else public_address(given)
    folder, file = path.resolve().parent, path.name
    in_run = Path(source).is_dir() or RunFolder.at(folder)
    return f"{folder.name}/{file}" if in_run else file


def sizes(start: Start, *, width: int | None = None) -> dict[str, Any]:
    """Options that give a run the network of `start`, at its own resolution, and of its own width
    if that is asked for."""
    left = OF_DATA | (set() if width is None else {"channel_base", "max_channels"})
    fields = dataclasses.asdict(start.network).items()
    return {f"network.{name}": value for name, value in fields if name not in left}


def beginning(start: Start, config: TrainConfig, *, asked: bool) -> tuple[dict[str, Any], str]:
    """Options that let a run of `config` begin at the resolution that `start` has grown to, unless
    another is `asked` for; and what a user should know of it."""
    plan, full = config.schedule, config.network.resolution
    name, at = readable(start.source), min(start.grown, full)
    grown = f"{name} has grown to {start.grown}x{start.grown}"
    above = f"; its layers above {full}x{full} are left out" if start.grown > full else ""
    if asked or not plan.stable_kimg + plan.fade_kimg > 0:
        line = f"{grown}{above}; training starts at {plan.start}x{plan.start}, as configured"
        return {}, line
    more = f" and grows on to {full}x{full}" if at < full else ""
    line = (
        f"{grown}{above}; training starts at {at}x{at}{more}, without growing again "
        f"(-o {GROWS_AGAIN}=8 does)"
    )
    return {GROWS_AGAIN: at}, line


def initialize_from(state: TrainState, source: str | Path | Start) -> list[str]:
    """Copy the weights of another run that fit (transfer); returns what was copied and what not.

    A state file (or a run folder with one) gives all three networks; a generator file the
    generator and its average; an official snapshot all three; a file of another program what it
    has of them. The state keeps where they came from. A `Start` is left without its weights.
    """
    start = source if isinstance(source, Start) else in_all(lambda: opened(source))
    retired = retired_sizes(start, state.config)
    weights = fitted_weights(start, retired, state.device)
    copies = {name: copied(state, name, start, of, retired) for name, of in weights.items()}
    if not any(copy.weights for copy in copies.values()):
        raise ValueError(
            f"nothing in {start} fits the networks of this run; without --config a run takes the "
            "sizes of its source"
        )
    state.lineage = start.lineage(", ".join(f"{n} {copy.count}" for n, copy in copies.items()))
    for name in weights:
        getattr(start.snapshot, name).to("meta")  # whoever opened it may keep it while training
    lines = [line for copy in copies.values() for line in copy.lines]
    return [*lines, *cautions(state, start, retired)]


def fitted_weights(
    start: Start, retired: Sequence[int], device: torch.device
) -> dict[str, Mapping[str, Tensor]]:
    """Those of `start`, with layers to RGB that show its pictures at `retired` resolutions."""
    found = start.weights()
    fitted: dict[str, Tensor] = {}
    fitted_of = None
    for name, weights in found.items():
        if retired and name != "discriminator":
            theirs = getattr(start.snapshot, name)
            if theirs is not fitted_of:  # a generator file holds one for both
                theirs.to(device if device.type == "cuda" else "cpu")  # for float64
                fitted = from_first(partial(refitted_rgb, theirs, start.grown, retired))
                fitted_of = theirs
            found[name] = {**weights, **fitted}
    return found


@dataclass(frozen=True)
class Copied:
    """What a network took of another."""

    count: str  # of all tensors
    weights: int  # as noise maps and single biases fit every network
    lines: list[str]


def copied(
    state: TrainState,
    name: str,
    start: Start,
    weights: Mapping[str, Tensor],
    retired: Sequence[int],
) -> Copied:
    """Copies those that fit into the network of that name."""
    network, full = getattr(state, name), state.config.network.resolution
    wider = widened(network, weights, getattr(start.snapshot, name).config)
    problems = checkpoint.load_weights(network, {**weights, **wider}, strict=False)
    above = {f"{part}: surplus" for part in weights if is_above(part, full)}
    left_out = [problem for problem in problems if problem in above]
    problems = [problem for problem in problems if problem not in above]
    refused = {problem.split(":")[0] for problem in problems}
    wanted = network.state_dict()
    taken = sum(p.ndim > 1 for part, p in network.named_parameters() if part not in refused)
    count = f"{len(wanted.keys() - refused)} of {len(wanted)}"
    count += f" ({len(wider)} widened)" if wider else ""
    lines = [f"{name}: {count} tensors copied from {start}"]
    if wider:
        lines.append(f"  widened: {len(wider)} tensors; added channels begin as copies of others")
    lines += [f"  not copied: {problem}" for problem in problems[:NAMED_AT_MOST]]
    if len(problems) > NAMED_AT_MOST:
        lines.append(f"  not copied: {len(problems) - NAMED_AT_MOST} more")
    if retired and name != "discriminator":
        shown = ", ".join(f"{r}x{r}" for r in retired)
        lines.append(f"  fitted: layers to RGB at {shown}, out of use since, to its pictures")
    if left_out:
        lines.append(f"  left out: {len(left_out)} tensors of layers above {full}x{full}")
    return Copied(count, taken, lines)


def cautions(state: TrainState, start: Start, retired: Sequence[int]) -> list[str]:
    """What a user should know of a run that begins with these weights."""
    lines, networks = [], start.weights()
    if "discriminator" not in networks:
        lines.append(f"{start} holds no discriminator: it starts untrained (a state-*.pt has one)")
    lines += frozen_untrained(state.config, networks)
    if retired and "discriminator" in networks and 0 < state.config.freeze_d <= retired[-1]:
        lines.append(
            f"warning: freeze_d keeps the discriminator's layers from RGB up to {retired[-1]}x"
            f"{retired[-1]} as they were when {start} grew past them; train at {start.grown}x"
            f"{start.grown}, or without it"
        )
    if licence_of(state.lineage) == NVIDIA:
        theirs = next(each.source for each in state.lineage if each.licence == NVIDIA)
        lines.append(
            f"licence: {readable(theirs)} is an official snapshot: NVIDIA's licence {NVIDIA} (not "
            "for commercial purposes) goes with all that is trained from it"
        )
    return lines


def retired_sizes(start: Start, config: TrainConfig) -> list[int]:
    """Resolutions at which a run that ends below its source shows images, and which the source has
    grown past."""
    full = config.network.resolution
    own_class = start.network.generator != NetworkConfig.generator  # of a user's
    if full >= start.grown or own_class:
        return []
    return [r for r in resolutions(full) if r >= config.schedule.start]


@torch.no_grad()
def refitted_rgb(network: Generator, grown: int, sizes: Sequence[int]) -> dict[str, Tensor]:
    """Weights with which the layers to RGB of `sizes` show what `network` shows at `grown`.

    Such a layer is as it was when growth went past it, while the blocks that it reads were trained
    on. These are its least squares to the images, averaged down; named as in the network.
    """
    config, device = network.config, network.w_avg.device
    features: dict[int, Tensor] = {}
    blocks = {
        r: network.synthesis.blocks[str(r)] if r > 4 else network.synthesis.input for r in sizes
    }
    hooks = [
        block.register_forward_hook(lambda _, __, x, r=r: features.update({r: x}))
        for r, block in blocks.items()
    ]
    zero = torch.zeros((), dtype=torch.float64, device=device)
    sums = {r: (zero, zero) for r in sizes}
    kinds = torch.eye(config.label_dim, device=device)
    for i, z in enumerate(latents(range(FITTED_IMAGES), config.z_dim).to(device).split(1)):
        labels = kinds[None, i % len(kinds)] if len(kinds) else None
        images = network(z, labels, resolution=grown, noise="const").double()
        for r, (squares, products) in sums.items():
            x = features[r].double().flatten(2)[0]  # (channels, r * r)
            x = torch.cat([x, torch.ones_like(x[:1])])
            y = F.avg_pool2d(images, grown // r).flatten(2)[0]
            sums[r] = squares + x @ x.T, products + x @ y.T
    for hook in hooks:
        hook.remove()
    found: dict[str, Tensor] = {}
    for r, (squares, products) in sums.items():
        ridge = RIDGE * squares.diagonal().mean() * torch.eye(len(squares), device=device)
        solution = torch.linalg.solve(squares + ridge, products).T.cpu()
        name, scale = f"synthesis.to_rgb.{r}", network.synthesis.to_rgb[str(r)].weight_scale
        found[f"{name}.weight"] = (solution[:, :-1, None, None] / scale).float()
        found[f"{name}.bias"] = solution[:, -1].float()
    return found


def is_above(name: str, resolution: int) -> bool:
    """Whether a tensor of that name is of a layer of a higher resolution."""
    found = re.search(r"(?:blocks|to_rgb|from_rgb)\.(\d+)\.", name)
    return found is not None and int(found[1]) > resolution


def frozen_untrained(config: TrainConfig, given: Collection[str] = ()) -> list[str]:
    """A warning if frozen parts of the discriminator would stay as they were drawn."""
    if not config.freeze_d or "discriminator" in given:
        return []
    which = "the weights given hold no discriminator" if given else "there is no --init-from"
    return [
        f"warning: freeze_d would keep random weights for ever, as {which}; training without it is "
        "better"
    ]
