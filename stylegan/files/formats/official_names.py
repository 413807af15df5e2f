"""Official names and layouts of settings and variables."""

import math
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from torch import Tensor

from stylegan.files.formats.matching import FUSED_FROM, Match, numbers_in
from stylegan.networks import NetworkConfig
from stylegan.utils.text import suggestion

T = TypeVar("T", bound=bool | int | float | str)

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
    *GENERATOR_SETTINGS, *DISCRIMINATOR_SETTINGS, "blur_filter", "fused_scale",
    # ignored: they act at run time or in training, or both values compute the same
    "components", "dlatent_avg_beta", "dlatent_broadcast", "dtype", "force_clean_graph",
    "func_name", "is_template_graph", "is_training", "is_validation", "randomize_noise",
    "structure", "style_mixing_prob", "truncation_cutoff", "truncation_cutoff_val",
    "truncation_psi", "truncation_psi_val",
}  # fmt: skip


def config_from_official(settings: Mapping[str, object], names: Mapping[str, str]) -> NetworkConfig:
    """Configuration from official `settings`; `names` maps those of this network to our fields."""
    for name in settings:
        if name not in KNOWN:
            hint = suggestion(str(name), sorted(KNOWN))
            raise ValueError(f"unknown official setting {name}{hint}")
    fields = {
        field: converted(name, settings[name], getattr(NetworkConfig, field))
        for name, field in names.items()
        if name in settings
    }
    blur = settings.get("blur_filter", [1, 2, 1])
    if blur not in (None, [], (), [1, 2, 1], (1, 2, 1)):
        raise ValueError(f"blur_filter must be [1, 2, 1] or None, got {blur}")
    return NetworkConfig(**fields, blur=bool(blur))


def converted(name: str, value: Any, default: T) -> T:
    """Convert `value` to the type of `default` if it stays equal (1 to True, 8192.0 to 8192)."""
    kind = type(default)
    try:
        result = kind(value)
        if result == value and (isinstance(result, str) or math.isfinite(result)):
            return result
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} must be of type {kind.__name__}, got {value!r}")


def truncation_from_official(settings: Mapping[str, object]) -> tuple[float, int | None]:
    """psi and cutoff; officially None for either, or a cutoff <= 0, means no truncation."""
    psi = settings.get("truncation_psi", 0.7)
    cutoff = settings.get("truncation_cutoff", 8)
    if psi is None or cutoff is None:
        return 1.0, None
    layers = math.ceil(converted("truncation_cutoff", cutoff, 0.0))
    return (converted("truncation_psi", psi, 0.0), layers) if layers > 0 else (1.0, None)


def fusion_from_official(settings: Mapping[str, object]) -> Callable[[int], bool]:
    """Predicate: does the program upsample to this resolution by a transposed convolution?"""
    fused = settings.get("fused_scale", "auto")
    if fused not in (True, False, "auto"):
        raise ValueError(f"fused_scale must be True, False or 'auto', got {fused!r}")
    return lambda resolution: resolution >= FUSED_FROM if fused == "auto" else bool(fused)


DENSE = (1, 0)  # [in, out] -> (out, in)
CONV = (3, 2, 0, 1)  # [kh, kw, in, out] -> (out, in, kh, kw)
CONV_TRANSPOSE = (2, 3, 0, 1)  # [kh, kw, in, out] -> (in, out, kh, kw)

# Patterns of our names -> templates of official ones (`official_matches`); the first match counts.
NETWORKS = {"mapping": "G_mapping/", "synthesis": "G_synthesis/"}
GENERATOR_NAMES = {
    "w_avg": "dlatent_avg",
    "*label_embedding": "LabelConcat/weight",
    "*layers.*": "Dense{i}/{end}",
    "*input.const": "4x4/Const/const",
    "*input.dense.*": "4x4/Dense/{end}",
    "*to_rgb.*": "ToRGB_lod{lod}/{end}",
    "*.noise.const": "noise{2b+j}",
    "*.noise.strength": "{layer}/Noise/weight",
    "*.affine.*": "{layer}/StyleMod/{end}",
    "*conv*.weight": "{layer}/weight",
    "*epilogue*.bias": "{layer}/bias",
}
DISCRIMINATOR_NAMES = {
    "from_rgb.*": "FromRGB_lod{lod}/{end}",
    "blocks.*.conv0.*": "{r}x{r}/Conv0/{end}",
    "blocks.*.conv1.*": "{r}x{r}/Conv1_down/{end}",
    "head.conv.*": "4x4/Conv/{end}",
    "head.dense.*": "4x4/Dense0/{end}",
    "head.out.*": "4x4/Dense1/{end}",
}


def official_matches(state: Mapping[str, Tensor], fused: Callable[[int], bool]) -> Iterator[Match]:
    """Match our weights to official variables; for `fused` see `fusion_from_official`."""
    full = max((numbers_in(name)["r"] for name in state if "_rgb." in name), default=4)
    start = "4x4/Const" if any(name.endswith("input.const") for name in state) else "4x4/Dense"
    names = DISCRIMINATOR_NAMES if "head.out.weight" in state else GENERATOR_NAMES
    for name, tensor in state.items():
        numbers = numbers_in(name)
        r = numbers["r"]
        of_4x4 = "4x4/Conv" if numbers["j"] else start
        of_others = f"{r}x{r}/Conv1" if numbers["j"] else f"{r}x{r}/Conv0_up"
        terms = {
            **numbers,
            "layer": of_others if numbers["b"] else of_4x4,
            "lod": (full // r).bit_length() - 1,
            "end": name.rpartition(".")[2],
        }
        path = next(theirs for ours, theirs in names.items() if fnmatchcase(name, ours))
        path = NETWORKS.get(name.partition(".")[0], "") + path.format_map(terms)
        enlarging = path.endswith("Conv0_up/weight")
        axes: tuple[int, ...] = ()
        if name.endswith(".weight"):
            axes = DENSE if tensor.ndim == 2 else CONV_TRANSPOSE if enlarging else CONV
        # TF's conv2d_transpose does not flip the kernel, while upscale + conv2d does
        yield Match(name, path, axes, rotated=enlarging and fused(r))
