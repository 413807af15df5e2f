"""A new run that starts from the weights of another one (transfer)."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from stylegan.agreement import in_all
from stylegan.files import checkpoint, loading
from stylegan.files.formats import SHARED, read
from stylegan.run_folder import RunFolder
from stylegan.training.state import TrainState

NAMED_AT_MOST = 5  # tensors that were not copied


def initialize_from(state: TrainState, source: str | Path) -> list[str]:
    """Copy the weights of another run that fit (transfer); returns what was copied and what not.

    A state file (or a run folder with one) gives all three networks; a generator file the
    generator and its average; an official snapshot all three; a file of another program what it
    has of them. `source` may be all that `loading.load_source` takes.
    """
    networks = in_all(lambda: weights_of(source, state.device))
    lines = []
    copied = 0  # weights, as noise maps and single biases fit every network
    for name, weights in networks.items():
        network = getattr(state, name)
        problems = checkpoint.load_weights(network, weights, strict=False)
        refused = {problem.split(":")[0] for problem in problems}
        wanted = network.state_dict()
        copied += sum(p.ndim > 1 for part, p in network.named_parameters() if part not in refused)
        fitting = len(wanted.keys() - refused)
        lines.append(f"{name}: {fitting} of {len(wanted)} tensors copied from {source}")
        lines += [f"  not copied: {problem}" for problem in problems[:NAMED_AT_MOST]]
        if len(problems) > NAMED_AT_MOST:
            lines.append(f"  not copied: {len(problems) - NAMED_AT_MOST} more")
    if not copied:
        raise ValueError(f"nothing in {source} fits the networks of this run")
    return lines


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
