"""Tiny networks of random weights, and what tests of their files share."""

import dataclasses
import hashlib

import torch
from torch.testing import assert_close

from stylegan.networks import Generator, NetworkConfig
from stylegan.sampling import SamplingSettings
from stylegan.sampling.pretrained import Pretrained

TINY = NetworkConfig(
    resolution=16, z_dim=8, w_dim=8, mapping_layers=2, mapping_width=8, max_channels=8
)
LABELED = dataclasses.replace(TINY, label_dim=3)
# Where z, w, layers and images have widths of their own, so that none can stand for another.
ODD_OPTIONS = {
    "resolution": 16,
    "max_channels": 6,
    "z_dim": 5,
    "w_dim": 7,
    "mapping_layers": 2,
    "mapping_width": 6,
}
ODD = NetworkConfig(**ODD_OPTIONS)


def random_generator(config=TINY, seed=0, noise=1.0, biases=False):
    """One none of whose parts is without effect, in eval mode; `biases`, and the constant, are 0
    and 1 as in a new one unless asked for."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        generator = Generator(config).eval()
        generator.w_avg.normal_()
        for name, parameter in generator.named_parameters():
            if name.endswith("noise.strength"):
                parameter.data.normal_(std=noise)
            elif biases and name.endswith(("bias", "input.const")):
                parameter.data.normal_()
    return generator


def with_fine_noise_only(noise=1.0):
    """One whose layers have noise at its full resolution alone."""
    generator = random_generator(noise=noise, biases=True)
    for layer in generator.synthesis.epilogues(generator.config.resolution // 2):
        layer.noise = None
    return generator


def loaded_of(
    generator,
    *,
    images_seen=None,
    label_names=(),
    label_rows=None,
    trained_on=None,
    lineage=(),
    active_rectangle=None,
    **settings,
):
    """One as if from a file with this description; its settings have the network's resolution
    unless another is given."""
    settings = {
        "resolution": generator.config.resolution,
        "active_rectangle": active_rectangle,
    } | settings
    settings = SamplingSettings(**settings)
    return Pretrained(
        generator,
        settings,
        images_seen=images_seen,
        label_names=label_names,
        label_rows=label_rows,
        trained_on=trained_on,
        lineage=lineage,
    )


def tiny_loaded(resolution=16):
    """One as if from a file, which had grown to this resolution."""
    return loaded_of(random_generator(), resolution=resolution)


def assert_same_weights(a, b, *, but=(), atol=0.0):
    """Of two networks, or of two dictionaries of tensors, `but` for some of these names."""
    weights = [x.state_dict() if isinstance(x, torch.nn.Module) else x for x in (a, b)]
    compared = [{name: part[name] for name in part if name not in but} for part in weights]
    assert_close(*compared, rtol=0, atol=atol)


def named_by_hash(path, name):
    """Rename a file to `name-<8 digits of its SHA-256>`, with its ending."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return path.rename(path.with_name(f"{name}-{digest[:8]}{path.suffix}"))
