"""A new run that starts from the weights of another one (transfer)."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from stylegan.config import TrainConfig
from stylegan.distributed import on_all_ranks
from stylegan.files import checkpoint, loading
from stylegan.files.download import BUNDLED
from stylegan.files.formats import read_snapshot
from stylegan.files.loaded import Snapshot
from stylegan.lineage import NVIDIA, Lineage, Source, licence_of, public_address, source_of
from stylegan.messages import readable
from stylegan.run_folder import RunFolder
from stylegan.training.state import TrainState

NAMED_AT_MOST = 5  # tensors that were not copied
OF_DATA = {"resolution", "label_dim"}  # of a network: these follow from the images of a run
LAYER = r"(?:blocks|to_rgb|from_rgb)\.(\d+)\."  # in the name of a tensor: its resolution
GROWS_AGAIN = "schedule.initial_resolution"


@dataclass(frozen=True, eq=False)
class Start:
    source: str | Path  # as it was given
    snapshot: Snapshot
    own: Source  # the lineage of this file

    def __str__(self) -> str:
        return str(self.source)

    @property
    def grown(self) -> int:
        """The resolution that had grown in whole."""
        assert self.snapshot.loaded is not None
        resolution, alpha = self.snapshot.loaded.resolution, self.snapshot.loaded.alpha
        return resolution // 2 if alpha < 1 and resolution > 4 else resolution

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
    path = loading.files_of(loading.located(source), states_first=True)[0]
    snapshot = read_snapshot(path)
    if snapshot.generator is None:
        raise ValueError(f"{path} holds a discriminator; a state or generator is needed here")
    given, name = str(source), path.name  # without the folders that lead to it
    if given in BUNDLED or "://" in given:
        name = given if given in BUNDLED else public_address(given)
    elif Path(given).is_dir() or RunFolder.at(path.resolve().parent):
        name = f"{path.resolve().parent.name}/{name}"
    return Start(source, snapshot, source_of(path, licence_of(snapshot.lineage), name=name))


def sizes(start: Start, *, width: int | None = None) -> dict[str, Any]:
    """Options for the network of `start`, but its resolution, and its widths if one is given."""
    assert start.snapshot.generator is not None
    left = OF_DATA | (set() if width is None else {"channel_base", "max_channels"})
    fields = dataclasses.asdict(start.snapshot.generator.config).items()
    return {f"network.{name}": value for name, value in fields if name not in left}


def beginning(start: Start, config: TrainConfig, *, asked: bool) -> tuple[dict[str, Any], str]:
    """Options that let a run of `config` begin at the resolution that `start` has grown to, unless
    another is `asked` for; and a sentence that says so."""
    plan, at = config.schedule, min(start.grown, config.network.resolution)
    grown = f"{readable(start.source)} has grown to {start.grown}x{start.grown}; training starts at"
    if asked or not plan.stable_kimg + plan.fade_kimg > 0:
        return {}, f"{grown} {plan.start}x{plan.start}, as configured"
    return {GROWS_AGAIN: at}, f"{grown} {at}x{at} (-o {GROWS_AGAIN}=8 grows again)"


def initialize_from(state: TrainState, source: str | Path | Start) -> list[str]:
    """Copy the weights of another run that fit (transfer), of each network that it has; what was
    copied and what not. The state keeps where they came from; a `Start` loses its weights."""
    start = source if isinstance(source, Start) else on_all_ranks(lambda: opened(source))
    full, lines, counts, fitting = state.config.network.resolution, [], [], 0
    for name, weights in start.weights().items():
        network = getattr(state, name)
        wanted = network.state_dict()
        problems = checkpoint.misfits(wanted, weights)
        fits = {part: tensor for part, tensor in weights.items() if part not in problems}
        network.load_state_dict(fits, strict=False)
        layers = {part: re.search(LAYER, part) for part in problems}
        refused = [part for part, layer in layers.items() if not (layer and int(layer[1]) > full)]
        # noise maps and single biases fit every network
        fitting += sum(p.ndim > 1 for part, p in network.named_parameters() if part not in refused)
        counts.append(f"{name} {len(wanted.keys() - set(refused))} of {len(wanted)}")
        lines.append(f"{counts[-1].replace(' ', ': ', 1)} tensors copied from {start}")
        lines += [f"  not copied: {part} {problems[part]}" for part in refused[:NAMED_AT_MOST]]
        if len(refused) > NAMED_AT_MOST:
            lines.append(f"  not copied: {len(refused) - NAMED_AT_MOST} more")
        getattr(start.snapshot, name).to("meta")  # whoever opened it may keep it while training
    if not fitting:
        what = f"nothing in {start} fits the networks of this run"
        raise ValueError(f"{what}; without --config a run takes the sizes of its source")
    if start.snapshot.discriminator is None:
        lines.append(f"{start} holds no discriminator: it starts untrained (a state-*.pt has one)")
    state.lineage = start.lineage(", ".join(counts))
    if licence_of(state.lineage) == NVIDIA:
        lines.append(f"licence: NVIDIA's {NVIDIA} (not for commercial purposes) goes with the run")
    return lines
