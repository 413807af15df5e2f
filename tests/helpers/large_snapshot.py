"""Writes an official snapshot of 1024x1024 with random weights: `python large_snapshot.py FILE`."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from official import dumps, network_class, never_fused, official_network

from stylegan.files.formats.correspondence import (
    GENERATOR_SETTINGS,
    config_from_official,
    discriminator_matches,
    generator_matches,
)
from stylegan.networks import Discriminator, Generator

SETTINGS = {"num_channels": 3, "resolution": 1024, "label_size": 0}
LOD = {"lod": np.float32(0)}


def variables(network, matches):
    """Normal numbers, of 100 times the size for weights with a learning rate multiplier of 0.01."""
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    random = np.random.default_rng(0)
    return {
        m.path: random.standard_normal(m.shape_in_file(shapes[m.name]), dtype=np.float32)
        * np.float32(100 if "G_mapping/Dense" in m.path else 1)
        for m in matches
    }


def generator(cls, config):
    with torch.device("meta"):
        network = Generator(config)
    values, parts = variables(network, generator_matches(config, never_fused)), {}
    for part, own in (("synthesis", LOD), ("mapping", {})):
        prefix = f"G_{part}/"
        inner = {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}
        parts[part] = official_network(cls, f"G_{part}", SETTINGS, own | inner)
    own = LOD | {"dlatent_avg": values["dlatent_avg"]}
    return official_network(cls, "G_style", SETTINGS, own, parts)


def main(path):
    config = config_from_official(SETTINGS, GENERATOR_SETTINGS)
    with torch.device("meta"):
        critic = Discriminator(config)
    with pytest.MonkeyPatch.context() as patch:
        cls = network_class(patch)
        judge = LOD | variables(critic, discriminator_matches(config))
        d = official_network(cls, "D_basic", SETTINGS, judge)
        path.write_bytes(dumps((generator(cls, config), d, generator(cls, config))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
