"""github.com/genforce/genforce: `.pth`, of its training or converted from official snapshots.

Compared with the publisher's program, which computed the numbers in `tests/foreign/genforce.npz`.
The networks are the official ones. What a file does not specify is as in all of the
publisher's configurations: `fused_scale` auto, `use_wscale`, mapping multiplier 0.01, no tanh.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from stylegan.files.formats.foreign import (
    TRANSPOSED,
    Weights,
    built,
    has_names,
    layer,
    mapping_fields,
    names,
    plain_weights,
    shape,
    width_fields,
)
from stylegan.files.formats.matching import FUSED_FROM, Match
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.snapshot import Snapshot
from stylegan.messages import readable
from stylegan.networks import NetworkConfig
from stylegan.schedule import resolutions

LAYOUT = "checkpoint of genforce/genforce"
GENERATORS = "generator_smooth", "generator"
BLUR = "synthesis.layer{}.blur.kernel"
NEEDED = {"mapping.dense0.weight", "synthesis.layer0.style.weight"}  # identify the layout
ASSUMED = (
    "not specified by the file, taken as published: fused_scale auto, use_wscale, "
    "mapping_lr_mul 0.01, final_tanh off"
)


def generator_in(content: Mapping[str, Any]) -> Any:
    """The weights of the average generator, else of the generator, or the content itself."""
    models = content.get("models", content)
    found = models if isinstance(models, Mapping) else content
    return next((found[name] for name in GENERATORS if name in found), content)


def is_genforce(content: Mapping[str, Any]) -> bool:
    return has_names(generator_in(content), NEEDED)


def read_genforce(content: Mapping[str, Any]) -> Snapshot:
    """The generator, the average one if there is one."""
    weights = plain_weights(generator_in(content))
    config = config_of(weights)
    resolution, alpha = growth(weights, config)
    blurs = [BLUR.format(2 * i) for i in range(1, len(resolutions(config.resolution)))]
    network = built(config, matches(config), weights, blurs=blurs, unused=["synthesis.lod"])
    loaded = LoadedGenerator(
        network,
        LAYOUT,
        psi=0.7,
        cutoff=8,
        resolution=resolution,
        alpha=alpha,
        images_seen=seen_of(content),
    )
    return Snapshot(LAYOUT, loaded, network, notes=(ASSUMED,))


def config_of(weights: Weights) -> NetworkConfig:
    label_dim = 0
    if "mapping.label_weight" in weights:
        label_dim = shape(weights, "mapping.label_weight", 2)[0]
    outputs = [shape(weights, n, 4) for n in names(weights, "synthesis.output{}.weight")]
    return NetworkConfig(
        **width_fields([found[1] for found in outputs]),
        **mapping_fields(weights, names(weights, "mapping.dense{}.weight"), label_dim),
        image_channels=outputs[0][0],
    )


def growth(weights: Weights, config: NetworkConfig) -> tuple[int, float]:
    """Resolution and alpha of the level of detail that the file stores."""
    if "synthesis.lod" not in weights:
        raise ValueError("synthesis.lod is missing")
    lod = weights["synthesis.lod"].reshape(-1).tolist()
    if len(lod) != 1 or not 0 <= lod[0] < len(resolutions(config.resolution)):
        raise ValueError(f"synthesis.lod is {readable(str(lod))}, not a level of this network")
    return config.resolution >> math.floor(lod[0]), 1 - lod[0] % 1


def seen_of(content: Mapping[str, Any]) -> int | None:
    """Images seen, where the file says it."""
    metadata = content.get("running_metadata")
    seen = metadata.get("seen_img") if isinstance(metadata, Mapping) else None
    return seen if type(seen) is int and seen >= 0 else None


def matches(config: NetworkConfig) -> Iterator[Match]:
    yield Match("w_avg", "truncation.w_avg")
    if config.label_dim:
        yield Match("mapping.label_embedding", "mapping.label_weight")
    for i in range(config.mapping_layers):
        yield from layer(f"mapping.layers.{i}", f"mapping.dense{i}")
    for i, r in enumerate(resolutions(config.resolution)):
        ours = "synthesis." + ("input" if r == 4 else f"blocks.{r}")
        first, second = f"synthesis.layer{2 * i}", f"synthesis.layer{2 * i + 1}"
        if r == 4:
            yield Match(f"{ours}.const", f"{first}.const")
        else:  # the fused upscaling uses the kernel unturned
            weight = f"{ours}.conv0.weight", f"{first}.weight"
            yield Match(*weight, TRANSPOSED, rotated=r >= FUSED_FROM)
        yield Match(f"{ours}.conv{'' if r == 4 else 1}.weight", f"{second}.weight")
        for j, theirs in enumerate((first, second)):
            epilogue = f"{ours}.epilogue{j}"
            yield Match(f"{epilogue}.bias", f"{theirs}.bias")
            yield Match(f"{epilogue}.noise.strength", f"{theirs}.apply_noise.weight")
            yield Match(f"{epilogue}.noise.const", f"{theirs}.apply_noise.noise")
            yield from layer(f"{epilogue}.style.affine", f"{theirs}.style")
        yield from layer(f"synthesis.to_rgb.{r}", f"synthesis.output{i}")
