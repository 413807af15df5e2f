"""Networks made of two: layers of one and the rest of another, or weights between both.

Pinkney and Adler 2020. It works where one was trained on from the other, or both from a third.
"""

import copy
import dataclasses
import re
from pathlib import Path

import torch
from torch import Tensor

from stylegan import sampling
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.loading import load_with_file
from stylegan.lineage import licence_of, source_of
from stylegan.messages import listed
from stylegan.schedule import resolutions

LAYER = re.compile(r"synthesis\.(?:(input)|(?:blocks|to_rgb)\.(\d+))\..+")
SAMPLES = 10_000  # latents of a new average


def with_own_file(source: str, device: str | torch.device = "cpu") -> LoadedGenerator:
    """The generator of a source, whose own file is in its lineage too, at the end."""
    loaded, file = load_with_file(source, map_location=device)
    name = f"{file.parent.name}/{file.name}" if Path(source).is_dir() else file.name
    own = source_of(file, licence_of(loaded.lineage), name=name)
    if own.sha256 in [s.sha256 for s in loaded.lineage]:
        return loaded
    return dataclasses.replace(loaded, lineage=(*loaded.lineage, own))


def resolution_of(name: str) -> int | None:
    """The resolution whose block a weight belongs to; None for those of the mapping network."""
    found = LAYER.fullmatch(name)
    return None if found is None else 4 if found[1] else int(found[2])


@torch.no_grad()
def blend(
    a: LoadedGenerator,
    b: LoadedGenerator,
    *,
    first: int | None = None,
    last: int | None = None,
    share: float = 1.0,
) -> LoadedGenerator:
    """The network of `a`, whose layers from resolution `first` to `last` (None: the finest) are
    `share` of those of `b`. Without `first` it is the whole network, mapping included, whose new
    average w is measured. It has all that the file of `a` says, and the history of both, made by
    `with_own_file`. ValueError unless both have the same shapes and have grown as far.
    """
    described = [
        dataclasses.asdict(one.generator.config)
        | {"resolution reached": one.resolution, "alpha": one.alpha}
        for one in (a, b)
    ]
    pairs = {name: [one[name] for one in described] for name in described[0]}
    different = [f"{name} {x} and {y}" for name, (x, y) in pairs.items() if x != y]
    if different:
        raise ValueError(f"networks that differ cannot be blended: {listed(different, 4, ', ')}")
    known = resolutions(a.generator.config.resolution)
    final = known[-1] if last is None else last
    if first is not None and not (first in known and final in known and first <= final):
        raise ValueError(
            f"layers {first} to {final} were asked for, but the resolutions of the network are "
            f"{', '.join(map(str, known))}"
        )
    if not 0 <= share <= 1:
        raise ValueError(f"a share is a number from 0 to 1, not {share}")
    ours, theirs = a.generator.state_dict(), b.generator.state_dict()

    def between(name: str) -> Tensor:
        side = resolution_of(name)
        taken = first is None or (side is not None and first <= side <= final)
        if not taken or share == 0:
            return ours[name]
        other = theirs[name].to(ours[name])
        if share == 1 or not other.is_floating_point():
            return other
        return torch.lerp(ours[name], other, share)

    network = copy.deepcopy(a.generator)
    network.load_state_dict({name: between(name) for name in ours})
    if first is None and 0 < share < 1:
        w = sampling.mapped_samples(network, SAMPLES).cpu().double()
        network.w_avg.copy_(w.mean(dim=0))
    what = "all layers" if first is None else f"layers {first} to {last or 'the finest'}"
    sources = {source.sha256: source for source in [*a.lineage, *b.lineage]}
    own = sources.pop(b.lineage[-1].sha256)
    return dataclasses.replace(
        a,
        generator=network.eval(),
        origin=f"blend of {a.origin} and {b.origin}",
        images_seen=None,
        centers=None if first is None else a.centers,
        lineage=(*sources.values(), dataclasses.replace(own, copied=f"{what}, share {share:g}")),
    )
