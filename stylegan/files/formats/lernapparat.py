"""github.com/lernapparat/lernapparat, style_gan: `karras2019stylegan-ffhq-1024x1024.for_g_all.pt`.

Compared with the publisher's notebook, which computed the numbers in
`tests/foreign/lernapparat.npz`. Its layers are those of huangzh13's program, which was built on it,
under other names. The files hold the average generator of an official snapshot, with the RGB layer
of the highest resolution alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from stylegan.files.formats import huangzh13
from stylegan.files.formats.foreign import (
    Weights,
    blur_kernels,
    draw_noise_maps,
    make_w_avg,
    mapping_fields,
    numbered,
    plain_weights,
    shape,
    width_fields,
)
from stylegan.files.formats.matching import Match, filled
from stylegan.files.snapshot import Account, Snapshot
from stylegan.networks import Generator, NetworkConfig
from stylegan.schedule import resolutions

LAYOUT = "checkpoint of lernapparat/lernapparat"
DENSE, BLOCK, RGB = "g_mapping.dense{}", "g_synthesis.blocks.{0}x{0}", "g_synthesis.torgb"
NOTES = (
    "only the highest resolution has an RGB layer: lower ones, as of generate --resolution, "
    "come out gray",
    "that notebook does not truncate: pass --psi 0.7 for the pictures that are usually shown",
)


def recognised(content: Mapping[str, Any]) -> bool:
    """Whether some weights have the names of this layout."""
    names = {str(name).removeprefix("module.") for name in content}
    return f"{BLOCK.format(4)}.const" in names or f"{RGB}.weight" in names


def read(content: Mapping[str, Any]) -> Snapshot:
    """The generator that the file consists of."""
    weights = plain_weights(content, "the generator")
    config = config_of(weights)
    sizes = resolutions(config.resolution)
    blur = blur_kernels(
        weights, [f"{BLOCK.format(r)}.conv0_up.intermediate.kernel" for r in sizes[1:]]
    )
    network, accounts = filled(lambda: Generator(config), matches(config), weights, list(blur))
    accounts += [
        Account("", f"synthesis.to_rgb.{r}.{name}", "made", "zero: theirs has none")
        for r in sizes[:-1]
        for name in ("weight", "bias")
    ]
    accounts += draw_noise_maps(network.synthesis, shared=False)
    accounts.append(make_w_avg(network))
    return Snapshot(
        LAYOUT,
        network,
        None,
        network,
        tuple(accounts),
        psi=1.0,
        resolution=config.resolution,  # a finished network
        notes=NOTES,
    )


def config_of(weights: Weights) -> NetworkConfig:
    widths = [shape(weights, f"{BLOCK.format(4)}.conv.weight", 4)[0]]
    while f"{(block := BLOCK.format(4 * 2 ** len(widths)))}.conv1.weight" in weights:
        widths.append(shape(weights, f"{block}.conv1.weight", 4)[0])
    layers = [f"{DENSE.format(i)}.weight" for i in range(numbered(weights, f"{DENSE}.weight"))]
    return NetworkConfig(
        **width_fields(widths),
        **mapping_fields(weights, layers, 0),
        image_channels=shape(weights, f"{RGB}.weight", 4)[0],
    )


def matches(config: NetworkConfig) -> Iterator[Match]:
    """Those of huangzh13, of the layers that there are, under the names that they have here."""
    sizes = resolutions(config.resolution)
    names = {huangzh13.START: BLOCK.format(4), "g_mapping.map": "g_mapping"}
    names |= {huangzh13.BLOCK.format(i): BLOCK.format(r) for i, r in enumerate(sizes[1:])}
    names[f"g_synthesis.to_rgb.{len(sizes) - 1}"] = RGB
    for match in huangzh13.matches(config):
        for theirs, name in names.items():
            if match.path.startswith(f"{theirs}."):
                yield replace(match, path=name + match.path.removeprefix(theirs))
