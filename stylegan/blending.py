"""Blends of two generators: layers of one in the other, or interpolated weights.

Pinkney and Adler 2020. It works if one was fine-tuned from the other, or both from a third.
"""

import copy
import dataclasses
import re

import torch
from torch import Tensor

from stylegan import sampling
from stylegan.data.labels import describe_labels, match_labels
from stylegan.sampling.pretrained import Pretrained
from stylegan.schedule import resolutions
from stylegan.utils.text import join_truncated

LAYER = re.compile(r"synthesis\.(?:(input)|(?:blocks|to_rgb)\.(\d+))\..+")
EMBEDDING = "mapping.label_embedding"  # a row per label


def resolution_of(name: str) -> int | None:
    """Resolution of a weight's block, or None in the mapping network."""
    layer = LAYER.fullmatch(name)
    if layer is None:
        return None
    return 4 if layer[1] else int(layer[2])


@torch.no_grad()
def blend(
    a: Pretrained,
    b: Pretrained,
    *,
    first: int | None = None,
    last: int | None = None,
    share: float = 1.0,
) -> Pretrained:
    """Interpolate layers of `a` by `share` toward `b`, from resolution `first` to `last` (None: the
    finest). Without `first`, the whole network is blended, mapping included, and truncation is
    toward a new average w. All else is as in the file of `a`, the lineage is that of both:
    open them by `Weights.as_parent`. Raises ValueError if shapes, growth or labels differ."""
    if not b.lineage:
        raise ValueError(f"the origin of {b.origin} is unknown; open it by Weights.as_parent")
    check_alike(a, b)
    sizes = resolutions(a.generator.config.resolution)
    final = sizes[-1] if last is None else last
    if first is not None and not (first in sizes and final in sizes and first <= final):
        raise ValueError(
            f"layers {first} to {final} requested, but the resolutions of the network are "
            f"{', '.join(map(str, sizes))}"
        )
    if not 0 <= share <= 1:
        raise ValueError(f"share must be from 0 to 1, got {share}")
    ours = a.generator.state_dict()
    theirs = b.generator.state_dict()
    if order := match_labels(a.label_names, b.label_names):
        theirs[EMBEDDING] = theirs[EMBEDDING][order]

    def between(name: str) -> Tensor:
        resolution = resolution_of(name)
        is_taken = first is None or (resolution is not None and first <= resolution <= final)
        if not is_taken or share == 0:
            return ours[name]
        other = theirs[name].to(ours[name])
        if share == 1 or not other.is_floating_point():
            return other
        return torch.lerp(ours[name], other, share)

    network = copy.deepcopy(a.generator)
    network.load_state_dict({name: between(name) for name in ours})
    if first is None and 0 < share < 1:
        network.w_avg.copy_(sampling.mean_w(network, a.label_rows))
    layers = "all layers" if first is None else f"layers {first} to {last or 'the finest'}"
    sources = {source.sha256: source for source in [*a.lineage, *b.lineage]}
    file_of_b = sources.pop(b.lineage[-1].sha256)
    file_of_b = dataclasses.replace(file_of_b, copied=f"{layers}, share {share:g}")
    return a.replace(
        generator=network.eval(),
        origin=f"blend of {a.origin} and {b.origin}",
        settings=a.settings.override(centers="none") if first is None and share else a.settings,
        images_seen=None,
        lineage=(*sources.values(), file_of_b),
    )


def check_alike(a: Pretrained, b: Pretrained) -> None:
    """Raise ValueError if configurations, growth, padding or labels differ."""
    ours, theirs = (
        dataclasses.asdict(side.generator.config)
        | {
            "resolution reached": side.settings.synthesis_resolution,
            "alpha": side.settings.alpha,
            "rectangle": side.settings.active_rectangle,
        }
        for side in (a, b)
    )
    different = [f"{name} {x} and {theirs[name]}" for name, x in ours.items() if x != theirs[name]]
    vectors = a.has_vector_labels, b.has_vector_labels
    if None in match_labels(a.label_names, b.label_names, vectors):
        labels = [describe_labels(side.label_names, side.has_vector_labels) for side in (a, b)]
        different.append("labels ({}) and ({})".format(*labels))
    if different:
        raise ValueError(
            f"networks that differ cannot be blended: {join_truncated(different, 4, ', ')}"
        )
