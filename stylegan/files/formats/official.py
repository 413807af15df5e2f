"""Official variables and settings (see `official_names`), or a `.pkl` file -> our networks."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stylegan import networks
from stylegan.files.formats import official_names
from stylegan.files.formats.matching import N, growth, network_from
from stylegan.files.formats.official_names import (
    GENERATOR_SETTINGS,
    config_from_official,
    truncation_from_official,
)
from stylegan.files.formats.official_pickle import OfficialNetwork, read_networks
from stylegan.files.weights import Weights
from stylegan.sampling import Rectangle, SamplingSettings
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.filesystem import as_value_error
from stylegan.utils.lineage import lineage_entry
from stylegan.utils.text import sanitize

Variables = Mapping[str, npt.ArrayLike]  # official path, relative to the network -> array
Arguments = Mapping[str, object]  # official keyword arguments; missing ones have the defaults

LAYOUT = "official snapshot"
LICENSE = "CC BY-NC 4.0"  # of NVIDIA's weights
LODS = ("lod", "G_synthesis/lod")  # level of detail: the first of these counts


def mapping_from_official(variables: Variables, settings: Arguments) -> networks.MappingNetwork:
    """Mapping network from `Dense0/weight`, ...; `dlatent_broadcast` is ignored."""
    config = config_from_official(settings, official_names.MAPPING_SETTINGS)
    return network_from_variables(lambda: networks.MappingNetwork(config), variables, settings)


def synthesis_from_official(variables: Variables, settings: Arguments) -> networks.SynthesisNetwork:
    """Synthesis network from `4x4/Conv/weight`, ..."""
    config = config_from_official(settings, official_names.SYNTHESIS_SETTINGS)
    return network_from_variables(lambda: networks.SynthesisNetwork(config), variables, settings)


def generator_from_official(
    variables: Variables, settings: Arguments, config: networks.NetworkConfig | None = None
) -> networks.Generator:
    """Generator from `G_synthesis/4x4/Conv/weight`, `G_mapping/Dense0/weight`, `dlatent_avg`, ...

    `config`, by default that of the settings, may contain the discriminator's fields, too.
    """
    config = config or config_from_official(settings, GENERATOR_SETTINGS)
    return network_from_variables(lambda: networks.Generator(config), variables, settings)


def discriminator_from_official(
    variables: Variables, settings: Arguments, config: networks.NetworkConfig | None = None
) -> networks.Discriminator:
    """Discriminator from `4x4/Conv/weight`, ..."""
    config = config or config_from_official(settings, official_names.DISCRIMINATOR_SETTINGS)
    return network_from_variables(lambda: networks.Discriminator(config), variables, settings)


def network_from_variables(make: Callable[[], N], variables: Variables, settings: Arguments) -> N:
    """Build a network by `make` from official arrays, at any level of detail."""
    tensors = {path: tensor(path, v) for path, v in variables.items() if path not in LODS}
    fused = official_names.fusion_from_official(settings)
    return network_from(make, lambda state: official_names.official_matches(state, fused), tensors)


def tensor(path: str, value: npt.ArrayLike) -> Tensor:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{path} must hold real numbers, got {array.dtype}")
    return torch.from_numpy(array.astype(np.float64 if array.dtype == np.float64 else np.float32))


def load_official(path: str | Path, *, name: str = "") -> Weights:
    """Read an official snapshot (G, D, Gs), `name` in lineages, without executing its content."""
    path = Path(path)
    g, d, ema = read_networks(path)
    with as_value_error(path, "cannot be used"):
        config, d_config = shared_configs(g, d, ema)
        settings = ", ".join(f"{key} {value}" for key, value in ema.settings.items())
        loaded = Pretrained(
            generator_from_official(ema.variables, ema.settings, config),
            dataclasses.replace(
                settings_from_official(ema.variables, ema.settings, config.resolution),
                active_rectangle=rectangle_in_name(path.name, config.resolution),
            ),
            f"{LAYOUT} {path}",
        )
        weights = Weights(
            path,
            LAYOUT,
            loaded,
            generator_from_official(g.variables, g.settings, config),
            discriminator_from_official(d.variables, d.settings, d_config),
            notes=(
                f"settings in the file: {sanitize(settings, 1000)}; others have official defaults",
            ),
        )
    return weights.with_lineage_of(lineage_entry(path, LICENSE, name=name))


def settings_from_official(
    variables: Variables, settings: Arguments, full: int
) -> SamplingSettings:
    """Sampling settings of the official program; fully grown if there is no lod."""
    lod = next((variables[name] for name in LODS if name in variables), 0.0)
    return SamplingSettings(*growth("lod", lod, full), *truncation_from_official(settings))


def shared_configs(
    g: OfficialNetwork, d: OfficialNetwork, ema: OfficialNetwork
) -> tuple[networks.NetworkConfig, networks.NetworkConfig]:
    """Configurations of Gs and D, the same if they agree; ValueError if G and Gs differ."""
    config, other = (config_from_official(n.settings, GENERATOR_SETTINGS) for n in (ema, g))
    for field, value in dataclasses.asdict(config).items():
        if value != (theirs := getattr(other, field)):
            raise ValueError(f"{field} must be equal in G and Gs, got {theirs} and {value}")
    d_config = config_from_official(d.settings, official_names.DISCRIMINATOR_SETTINGS)
    of_d_alone = {"deviation_group", "deviation_features"}
    common = {"blur", *official_names.DISCRIMINATOR_SETTINGS.values()} - of_d_alone
    if any(getattr(config, field) != getattr(d_config, field) for field in common):
        return config, d_config
    deviation = {field: getattr(d_config, field) for field in of_d_alone}
    shared = dataclasses.replace(config, **deviation)
    return shared, shared


def rectangle_in_name(name: str, resolution: int) -> Rectangle | None:
    """Part of the images that is not padding, by the name of a published file.

    `karras2019stylegan-cars-512x384.pkl`: 512 wide and 384 high, centered in 512x512.
    """
    size = re.search(r"-(\d{1,5})x(\d{1,5})\b", name)
    width, height = map(int, size.groups()) if size else (0, 0)
    if width == height or max(width, height) != resolution or min(width, height) < 1:
        return None
    top = (resolution - height) // 2
    left = (resolution - width) // 2
    return top, top + height, left, left + width
