"""What the commands share: errors in one line, devices, progress."""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from stylegan.cli import values
from stylegan.cli.terminal import first_process, note
from stylegan.messages import count, printable

if TYPE_CHECKING:
    import torch


BAR_SECONDS = 1.0  # what takes less has no bar
DEBUG = "stylegan.debug"
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of <malloc.h>
LARGEST = (2**30, 2**25)  # blocks that are kept; some versions of glibc refuse the first


class Command(click.Command):
    """A command that reports the user's mistakes in one line, unless `--debug` is given.

    The library raises ValueError and OSError for them; other errors keep their traceback. An error
    may have an `exit_code` of its own (docs/running.md), a command a `--debug` of its own.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.context_settings.setdefault("show_default", True)
        if not any(parameter.name == "debug" for parameter in self.params):
            self.params.append(
                click.Option(
                    ["--debug"],
                    is_flag=True,
                    expose_value=False,
                    callback=lambda ctx, _, value: ctx.meta.__setitem__(DEBUG, value),
                    help="Show where in the program an error arose.",
                )
            )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # nobody reads the results any more, as after `| head`
            raise
        except (ValueError, OSError) as error:
            if ctx.params.get("debug") or ctx.meta.get(DEBUG):
                raise
            failure = click.ClickException(one_line(error))
            failure.exit_code = getattr(error, "exit_code", 1)  # type: ignore[misc]
            raise failure from error


def one_line(error: Exception) -> str:
    """The message of an error without line breaks; an operating system's as `file: reason`."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return printable(" ".join(text.split())) or type(error).__name__


def keep_memory() -> None:
    """Keep freed memory for the next tensors, in huge pages where there are any.

    glibc gives big blocks back to the system, which clears them page by page at their next use.
    The user's own settings stay; other C libraries are left as they are.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")) for name in os.environ):
        return
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # read by torch at the first big tensor
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and any(mallopt(M_MMAP_THRESHOLD, size) for size in LARGEST):
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(M_TOP_PAD, 2**26)


def use_device(name: str) -> "torch.device":
    """The device of `--device`. ValueError if it is not there."""
    from stylegan import distributed

    device = distributed.pick_device(name)
    if device.type == "cpu":
        keep_memory()
    return device


@contextmanager
def fitting_memory(images: int, resolution: int) -> Iterator[None]:
    """Report a full device in one line, with the number of images at once."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ValueError(
            f"{count(images, 'image')} of {resolution}x{resolution} at once do not fit into the "
            "memory of the device; choose a smaller --batch, or --device cpu"
        ) from error


def data_option(default: str) -> Any:
    return click.option(
        "--data",
        type=values.INPUT,
        help=f"Folder of images, zip, TFRecords, or prepared store.  [default: {default}]",
    )


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say on stderr what a command is doing, if that takes a while."""
    timer = threading.Timer(BAR_SECONDS, note, [f"{what} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def progress_bar(unit: str, what: str | None = None) -> Iterator[Callable[[int, int], None]]:
    """A function that shows (done, total) as a bar on stderr, if it takes a while."""
    from tqdm import tqdm

    bar: tqdm[Any] | None = None
    began = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            if time.monotonic() - began < BAR_SECONDS or not first_process():
                return
            bar = tqdm(total=total, unit=unit, leave=False, initial=done, desc=what)
        bar.update(done - bar.n)

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()
