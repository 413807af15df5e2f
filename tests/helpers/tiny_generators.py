"""Tiny generators of random weights, and what tests of their files share."""

import hashlib

import torch
from torch.testing import assert_close

from stylegan.networks import Generator, NetworkConfig

TINY = NetworkConfig(
    resolution=16, z_dim=8, w_dim=8, mapping_layers=2, mapping_width=8, max_channels=8
)


def random_generator(config=TINY, seed=0, noise=1.0):
    """One none of whose parts is without effect, in eval mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        generator = Generator(config).eval()
        generator.w_avg.normal_()
        for name, parameter in generator.named_parameters():
            if name.endswith("noise.strength"):
                parameter.data.normal_(std=noise)
    return generator


def assert_same_weights(a, b):
    assert_close(dict(a.state_dict()), dict(b.state_dict()), rtol=0, atol=0)


def named_by_hash(path, name):
    """Rename a file to `name-<8 digits of its SHA-256>`, with its ending."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return path.rename(path.with_name(f"{name}-{digest[:8]}{path.suffix}"))
