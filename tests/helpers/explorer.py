"""A tiny scene to explore: three classes, loud noise, an average w of its own."""

import torch

from stylegan.directions import METHODS, find_directions
from stylegan.explore import Scene
from stylegan.files.loaded import LoadedGenerator
from stylegan.networks import Generator, NetworkConfig

TINY = NetworkConfig(
    resolution=16,
    label_dim=3,
    z_dim=8,
    w_dim=8,
    mapping_width=8,
    mapping_layers=2,
    max_channels=8,
)
NAMES = ("a/b", "y", "z")


def tiny_generator(config=TINY, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        generator = Generator(config).eval()
        with torch.no_grad():
            generator.w_avg.normal_(0, 0.1)
            for name, parameter in generator.named_parameters():
                if name.endswith("strength"):
                    parameter.normal_(0, 0.5)
    return generator


def explored(seed=0, config=TINY, methods=METHODS, **about):
    """Two directions of each method, found on few latents."""
    generator = tiny_generator(config, seed)
    names = NAMES if config.label_dim else ()
    about = {"resolution": config.resolution, "label_names": names} | about
    loaded = LoadedGenerator(generator, "memory", **about)
    return Scene(loaded, find_directions(generator, methods, count=2, samples=200))
