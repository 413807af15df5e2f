"""Commands, run in this process, and the pictures that they write."""

import numpy as np
from click.testing import CliRunner
from PIL import Image

from stylegan.cli import main


def stylegan(*arguments):
    """The result of a command."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def run_ok(*arguments):
    """What a command that succeeds prints."""
    result = stylegan(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def run_fails(*arguments, exit_code=1):
    """The one line that says why a command fails, below what it may show of its progress."""
    result = stylegan(*arguments)
    assert result.exit_code == exit_code, result.output
    message = result.stderr.splitlines()[-1]
    assert message.startswith("Error: ") and result.stderr.count("Error: ") == 1
    return message


def generated(source, out, *options):
    """The files that `stylegan generate` writes, with their bytes."""
    run_ok("generate", source, *options, "--out", out, "--device", "cpu")
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def open_image(path):
    with Image.open(path) as image:
        return image.copy()


def pixels(path):
    return np.asarray(open_image(path)).astype(int)
