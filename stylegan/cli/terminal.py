"""What commands print: results on stdout, everything else on stderr."""

import os
import sys

import click

from stylegan.messages import printable


def say(*lines: str, err: bool = False) -> None:
    """Print lines: results on stdout, what is said along the way on stderr. Bars stay below, other
    processes than the first are silent, and codes that a terminal would obey, or line breaks in
    names, are escaped."""
    stream = sys.stderr if err else sys.stdout
    if not first_process() or stream is None:  # closed, as a daemon's may be
        return
    text = "\n".join(map(printable, lines))
    if "tqdm" in sys.modules:
        sys.modules["tqdm"].tqdm.write(text, file=stream)
        stream.flush()
    else:
        click.echo(text, err=err)


def note(*lines: str) -> None:
    """Say what is not a result."""
    say(*lines, err=True)


def first_process() -> bool:
    """False in all but one of the processes that torchrun started."""
    return int(os.environ.get("WORLD_SIZE", "1")) == 1 or os.environ.get("RANK", "0") == "0"
