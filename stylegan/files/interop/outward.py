"""Our generator -> official names, layouts and settings: the way back of `correspondence.py`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from stylegan.files.interop.correspondence import (
    DISCRIMINATOR_SETTINGS,
    GENERATOR_SETTINGS,
    fusion_from_official,
    generator_matches,
)
from stylegan.networks import Generator, NetworkConfig

Settings = dict[str, Any]  # official keyword arguments


def official_settings(config: NetworkConfig) -> tuple[Settings, Settings]:
    """All static arguments of the official generator, and those of the discriminator alone.

    Images of 128x128 and more are upscaled in the official fused way.
    """
    if config.bias_before_blur:
        raise ValueError("official networks have no bias_before_blur: they cannot hold this one")
    ours = {name: getattr(config, field) for name, field in GENERATOR_SETTINGS.items()}
    ours |= {"blur_filter": [1, 2, 1] if config.blur else None, "fused_scale": "auto"}
    alone = {n: f for n, f in DISCRIMINATOR_SETTINGS.items() if n not in GENERATOR_SETTINGS}
    return ours, {name: getattr(config, field) for name, field in alone.items()}


def official_variables(generator: Generator, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Official path -> array of every tensor, in the layout that `settings` ask for. Exact:
    numbers only change their places, and bfloat16, which NumPy does not know, is float32 there."""
    state = generator.state_dict()
    known = {n: t.float() if t.dtype == torch.bfloat16 else t for n, t in state.items()}
    return {
        match.path: match.to_theirs(known[match.name].detach().cpu()).numpy()
        for match in generator_matches(generator.config, fusion_from_official(settings))
    }
