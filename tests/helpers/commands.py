"""Commands, run in this process, and a tiny generator for them."""

import numpy as np
import torch
from click.testing import CliRunner
from PIL import Image

from stylegan.cli import main
from stylegan.networks import Generator, NetworkConfig

TINY = NetworkConfig(
    resolution=16, z_dim=8, w_dim=8, mapping_layers=2, mapping_width=8, max_channels=8
)


def random_generator(config=TINY, noise=1.0):
    """Always the same one, whose noise and average matter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        generator = Generator(config).eval()
        generator.w_avg.normal_()
        for layer in generator.synthesis.noise_layers(config.resolution) if config.noise else ():
            torch.nn.init.normal_(layer.noise.strength, std=noise)
    return generator


def stylegan(*arguments):
    """The result of a command."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def told(*arguments):
    """What a command that succeeds prints."""
    result = stylegan(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments, exit_code=1):
    """The one line that says why a command fails, below what it may show of its progress."""
    result = stylegan(*arguments)
    assert result.exit_code == exit_code, result.output
    message = result.stderr.splitlines()[-1]
    assert message.startswith("Error: ") and result.stderr.count("Error: ") == 1
    return message


def look(path):
    with Image.open(path) as image:
        return image.copy()


def pixels(path):
    return np.asarray(look(path)).astype(int)
