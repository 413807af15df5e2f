"""The door between commands and the terminal: what is printed, and how a command ends."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click

from stylegan.messages import printable

LONGEST = 1500  # characters of an error; it may quote what others wrote


def say(*lines: str, err: bool = False) -> None:
    """Print lines: results on stdout, what is said along the way on stderr. Bars stay below, other
    processes than the first are silent, and codes that a terminal would obey, or line breaks in
    names, are escaped."""
    if not first_process():
        return
    stream, text = sys.stderr if err else sys.stdout, "\n".join(map(printable, lines))
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


class ReaderGone(BaseException):
    """Nobody reads the results any more, as after `| head`: a command ends without a word."""


class Outlet:
    """A text stream that may lose its reader or its disk: what cannot be written is dropped.

    Results are not: `strict` makes a reader that has gone ReaderGone, and `check` tells the rest.
    """

    def __init__(self, stream: TextIO, *, strict: bool) -> None:
        self.stream, self.strict = stream, strict
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        self.attempt(lambda: self.stream.write(text))
        return len(text)

    def flush(self) -> None:
        self.attempt(self.stream.flush)

    def attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            self.error = error
            if self.strict and isinstance(error, BrokenPipeError):
                self.strict = False
                raise ReaderGone from error

    def check(self) -> None:
        """OSError if results were lost."""
        self.flush()
        if self.strict and self.error is not None:
            raise OSError(self.error.errno, self.error.strerror, "standard output")


@contextmanager
def outlets() -> Iterator[Outlet]:
    """Puts outlets in the place of stdout, which they give, and stderr.

    Closed ones (`2>&-`) lead nowhere; their numbers are taken, so that no file gets them.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(number)
    before: tuple[Any, Any] = sys.stdout, sys.stderr
    nowhere = open(os.devnull, "w") if None in before else None  # noqa: SIM115
    streams: list[Any] = [stream or nowhere for stream in before]
    for stream in streams:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # for names that it cannot encode
    out, err = Outlet(streams[0], strict=True), Outlet(streams[1], strict=False)
    sys.stdout, sys.stderr = out, err
    try:
        yield out
    finally:
        err.flush()
        if not (out.error or err.error):  # else Python would complain at its end
            sys.stdout, sys.stderr = before
            if nowhere is not None:
                nowhere.close()


def messages_only() -> None:
    """From here on stdout gets no results, but messages: without them a command goes on."""
    if isinstance(sys.stdout, Outlet):
        sys.stdout.strict = False


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Ctrl-C raises KeyboardInterrupt, as usual, and is noted: a module that was being imported may
    turn it into another error, or print it."""
    received: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        received.append(number)
        sys.unraisablehook = lambda unraisable: None
        raise KeyboardInterrupt

    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield received
        return
    hook = sys.unraisablehook
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = hook


def exit_code(command: Callable[[], int | None]) -> int:
    """Runs a command to its end; one that it does not know is raised."""
    with outlets() as out, interruptible() as interrupts:
        try:
            code = command() or 0
            out.check()
        except ReaderGone:
            return 128 + signal.SIGPIPE
        except click.ClickException as error:
            cut = error.message[:LONGEST]
            cut = cut if len(cut) == len(error.message) else f"{cut}..."
            error.message = printable(cut)  # type: ignore[misc]
            error.show()
            return error.exit_code
        except OSError as error:
            if out.error is None:
                raise
            click.echo(f"Error: {error.filename}: {error.strerror}", err=True)
            return 1
        except (Exception, KeyboardInterrupt):
            if not interrupts:
                raise
            click.echo("ended", err=True)
            return 128 + signal.SIGINT
        return code


class Ending(click.Command):
    """A command that ends as this module says."""

    def main(self, *words: Any, standalone_mode: bool = True, **settings: Any) -> Any:
        inner: Callable[..., Any] = super().main

        def command() -> Any:
            return inner(*words, standalone_mode=False, **settings)

        if not standalone_mode:
            return command()
        sys.exit(exit_code(command))
