"""Official names and layouts of settings and variables, each written once."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from stylegan.files.formats.matching import FUSED_FROM, Match
from stylegan.messages import readable, suggestion
from stylegan.networks import NetworkConfig
from stylegan.schedule import resolutions

# Official keyword argument -> field of NetworkConfig, for each network that understands it.
MAPPING_SETTINGS = {
    "label_size": "label_dim",
    "latent_size": "z_dim",
    "dlatent_size": "w_dim",
    "mapping_layers": "mapping_layers",
    "mapping_fmaps": "mapping_width",
    "mapping_lrmul": "mapping_lr_multiplier",
    "mapping_nonlinearity": "mapping_activation",
    "normalize_latents": "normalize_latents",
    "use_wscale": "equalized",
}
IMAGE_SETTINGS = {
    "resolution": "resolution",
    "num_channels": "image_channels",
    "fmap_base": "channel_base",
    "fmap_decay": "channel_decay",
    "fmap_max": "max_channels",
    "nonlinearity": "activation",
    "use_wscale": "equalized",
}
SYNTHESIS_SETTINGS = IMAGE_SETTINGS | {
    "dlatent_size": "w_dim",
    "use_styles": "styles",
    "const_input_layer": "constant_input",
    "use_noise": "noise",
    "use_pixel_norm": "pixel_norm",
    "use_instance_norm": "instance_norm",
}
DISCRIMINATOR_SETTINGS = IMAGE_SETTINGS | {
    "label_size": "label_dim",
    "mbstd_group_size": "deviation_group",
    "mbstd_num_features": "deviation_features",
}
GENERATOR_SETTINGS = MAPPING_SETTINGS | SYNTHESIS_SETTINGS

KNOWN = {
    *GENERATOR_SETTINGS,
    *DISCRIMINATOR_SETTINGS,
    "blur_filter",
    "fused_scale",
    # not a property of the weights: they act at run time or in training, or need no translation
    # because one path computes the same
    "dlatent_avg_beta",
    "dlatent_broadcast",
    "dtype",
    "force_clean_graph",
    "func_name",
    "is_template_graph",
    "is_training",
    "is_validation",
    "randomize_noise",
    "structure",
    "style_mixing_prob",
    "truncation_cutoff",
    "truncation_cutoff_val",
    "truncation_psi",
    "truncation_psi_val",
}


def config_from_official(settings: Mapping[str, Any], own: Mapping[str, str]) -> NetworkConfig:
    """The configuration that official `settings` ask of a network with the `own` names.

    Settings of its sister networks are accepted and ignored; a name no network has is an error.
    """
    for name in settings:
        if name not in KNOWN:
            hint = suggestion(str(name), sorted(KNOWN))
            raise ValueError(f"unknown official setting {readable(str(name))}{hint}")
    fields = {
        field: converted(name, settings[name], getattr(NetworkConfig, field))
        for name, field in own.items()
        if name in settings
    }
    blur = settings.get("blur_filter", [1, 2, 1])
    if blur not in (None, [], (), [1, 2, 1], (1, 2, 1)):
        raise ValueError(
            f"blur_filter {readable(str(blur))} is not supported; only [1, 2, 1] or None is"
        )
    return NetworkConfig(**fields, blur=bool(blur))


def converted(name: str, value: Any, default: Any) -> Any:
    """`value` as the type of `default`, if that changes no number (1 for True, 8192.0 for 8192)."""
    kind = type(default)
    try:
        result = kind(value)
        if result == value and (kind is str or math.isfinite(result)):
            return result
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} must be of type {kind.__name__}, not {readable(repr(value))}")


def truncation_from_official(settings: Mapping[str, Any]) -> dict[str, Any]:
    """psi and cutoff in our terms: officially None for either, or a cutoff <= 0, means none."""
    psi, cutoff = (
        value if value is None else converted(name, value, 0.0)
        for name, default in (("truncation_psi", 0.7), ("truncation_cutoff", 8))
        for value in [settings.get(name, default)]
    )
    if psi is None or cutoff is None or cutoff <= 0:
        return {"psi": 1.0, "cutoff": None}
    return {"psi": psi, "cutoff": math.ceil(cutoff)}


def fusion_from_official(settings: Mapping[str, Any]) -> Callable[[int], bool]:
    """Whether the official program upscales to a resolution by a transposed convolution."""
    fused = settings.get("fused_scale", "auto")
    if fused not in (True, False, "auto"):
        raise ValueError(f"fused_scale must be True, False or 'auto', not {readable(repr(fused))}")
    return lambda resolution: resolution >= FUSED_FROM if fused == "auto" else bool(fused)


DENSE = (1, 0)  # [in, out] -> (out, in)
CONV = (3, 2, 0, 1)  # [kh, kw, in, out] -> (out, in, kh, kw)
CONV_TRANSPOSE = (2, 3, 0, 1)  # [kh, kw, in, out] -> (in, out, kh, kw)


def nested(name: str, path: str, matches: Iterable[Match]) -> Iterator[Match]:
    """The `matches` of a part that is called `name` by us and `path` officially."""
    for m in matches:
        yield dataclasses.replace(m, name=f"{name}.{m.name}", path=f"{path}/{m.path}")


def layer(name: str, path: str, axes: tuple[int, ...]) -> list[Match]:
    return [Match(f"{name}.weight", f"{path}/weight", axes), Match(f"{name}.bias", f"{path}/bias")]


def mapping_matches(config: NetworkConfig) -> Iterator[Match]:
    if config.label_dim:
        yield Match("label_embedding", "LabelConcat/weight")
    for i in range(config.mapping_layers):
        yield from layer(f"layers.{i}", f"Dense{i}", DENSE)


def epilogue_matches(config: NetworkConfig, name: str, path: str, number: int) -> Iterator[Match]:
    yield Match(f"{name}.bias", f"{path}/bias")
    if config.noise:
        yield Match(f"{name}.noise.strength", f"{path}/Noise/weight")
        yield Match(f"{name}.noise.const", f"noise{number}")
    if config.styles:
        yield from layer(f"{name}.style.affine", f"{path}/StyleMod", DENSE)


def synthesis_matches(config: NetworkConfig, fused: Callable[[int], bool]) -> Iterator[Match]:
    """`fused`: whether a resolution is reached by the official transposed convolution, which
    uses the kernel unflipped, so that ours is the official one turned round."""
    first = "4x4/Const" if config.constant_input else "4x4/Dense"
    if config.constant_input:
        yield Match("input.const", f"{first}/const")
    else:
        yield Match("input.dense.weight", f"{first}/weight", DENSE)
    yield from epilogue_matches(config, "input.epilogue0", first, 0)
    yield Match("input.conv.weight", "4x4/Conv/weight", CONV)
    yield from epilogue_matches(config, "input.epilogue1", "4x4/Conv", 1)
    for i, r in enumerate(resolutions(config.resolution)[1:], start=1):
        ours, official = f"blocks.{r}", f"{r}x{r}"
        # TF's conv2d_transpose does not flip its kernel as upscale + conv2d does
        weight = f"{ours}.conv0.weight", f"{official}/Conv0_up/weight"
        yield Match(*weight, CONV_TRANSPOSE, rotated=fused(r))
        yield Match(f"{ours}.conv1.weight", f"{official}/Conv1/weight", CONV)
        for j, layer_name in enumerate(("Conv0_up", "Conv1")):
            path = f"{official}/{layer_name}"
            yield from epilogue_matches(config, f"{ours}.epilogue{j}", path, 2 * i + j)
    for k, r in enumerate(reversed(resolutions(config.resolution))):
        yield from layer(f"to_rgb.{r}", f"ToRGB_lod{k}", CONV)


def generator_matches(config: NetworkConfig, fused: Callable[[int], bool]) -> Iterator[Match]:
    yield from nested("mapping", "G_mapping", mapping_matches(config))
    yield from nested("synthesis", "G_synthesis", synthesis_matches(config, fused))
    yield Match("w_avg", "dlatent_avg")


def discriminator_matches(config: NetworkConfig) -> Iterator[Match]:
    for k, r in enumerate(reversed(resolutions(config.resolution))):
        yield from layer(f"from_rgb.{r}.conv", f"FromRGB_lod{k}", CONV)
    for r in resolutions(config.resolution)[1:]:
        yield from layer(f"blocks.{r}.conv0", f"{r}x{r}/Conv0", CONV)
        yield from layer(f"blocks.{r}.conv1", f"{r}x{r}/Conv1_down", CONV)
    yield from layer("head.conv", "4x4/Conv", CONV)
    yield from layer("head.dense", "4x4/Dense0", DENSE)
    yield from layer("head.out", "4x4/Dense1", DENSE)
