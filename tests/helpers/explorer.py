"""A tiny scene to explore: three classes, loud noise, an average w of its own; and controls."""

import torch

from stylegan.directions import METHODS, find_directions
from stylegan.explore import Scene, growth_of
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


def controls(scene, **changes):
    """The values of the page's controls at first, with some moved."""
    config = scene.generator.config
    first = {
        **{"start": "seed", "seed": 0, "tuned": 0, "label": 0, "psi": 0.7},
        **{"cutoff": config.num_styles(), "growth": growth_of(config.resolution)},
        **{"noise": "const", "noise_seed": 0, "centers": "none"},
        **{"mix": False, "mix_seed": 1, "mix_layers": [1, 2]},
        **{"plane_x": 0, "plane_y": 0, "plane_a": 1, "plane_b": 2},
        **{"from": None, "to": None, "between": 0},
        **{"edit_first": 0, "edit_last": config.num_styles() - 1, "saved": {}},
    }
    moves = {name: [0] * len(found.vectors) for name, found in scene.directions.items()}
    return first | moves | changes
