"""Shared by all commands: errors, progress, results on stdout and everything else on stderr."""

import io
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

import click
from click.core import ParameterSource
from tqdm import tqdm

from stylegan.utils import console
from stylegan.utils.console import Console
from stylegan.utils.memory import is_out_of_memory
from stylegan.utils.signals import signal_handler, termination_signals
from stylegan.utils.text import (
    command_line,
    error_reason,
    escape_control_chars,
    join_truncated,
    pluralize,
    sanitize_message,
)

BAR_SECONDS = 1.0  # work that takes less has no bar
LINE_SECONDS = 10.0  # between updates of a bar in a file, where each one is a new line
RELIEF = {  # option -> remedy if the device is out of memory
    "batch": "a smaller --batch",
    "batch_gpu": "a smaller --batch-gpu",
    "device": "--device cpu",
}


class Command(click.Command):
    """Command that reports ValueError, OSError and lack of memory in one line, not a traceback,
    unless `--debug` is given. An exception may have an `exit_code` (docs/running.md)."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.context_settings.setdefault("show_default", True)
        if not any(parameter.name == "debug" for parameter in self.params):
            text = "Show the traceback of an error."
            debug = click.Option(["--debug"], is_flag=True, expose_value=False, help=text)
            self.params.append(debug)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.message = sanitize_message(error.message)  # type: ignore[misc]
            raise

    def invoke(self, ctx: click.Context) -> object:
        debug = ctx.get_parameter_source("debug") == ParameterSource.COMMANDLINE
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="backslashreplace")  # a pipe on Windows is not UTF-8
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of the results has ended, as in `| head`
            raise
        except (ValueError, OSError, RuntimeError, MemoryError) as error:
            full = is_out_of_memory(error)
            if debug or not (full or isinstance(error, ValueError | OSError)):
                raise
            reason = error_reason(error, with_file=True)
            if full:
                ways = [RELIEF[p.name] for p in self.params if p.name in RELIEF]
                advice = (
                    f"choose {join_truncated(ways, 3, ' or ')}" if ways else "end other programs"
                )
                reason = f"the device is out of memory; {advice} ({reason})"
            failure = click.ClickException(sanitize_message(reason))
            failure.exit_code = getattr(error, "exit_code", 1)  # type: ignore[misc]
            raise failure from error


def command(*words: object) -> str:
    """Command line of this program, or of the script that calls it, quoted for a shell."""
    context = click.get_current_context(silent=True)
    is_script = context and str(context.find_root().info_name).endswith(".py")
    program = ["python", sys.argv[0]] if is_script else ["stylegan"]
    return command_line(*program, *words)


@contextmanager
def ending_at_signals() -> Iterator[None]:
    """Exit with one line and the signal's exit code on SIGINT, SIGTERM or SIGHUP, even if
    unwinding raises something else, such as an error of a half-imported library."""
    received: list[int] = []

    def leave(number: int, frame: FrameType | None) -> None:
        received.append(number)
        # Unwinding lets callers remove their unfinished files.
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    try:
        with signal_handler(termination_signals(), leave):
            yield
    except BaseException as error:
        if not received:
            raise
        with suppress(OSError):
            note(f"stopped by {signal.Signals(received[0]).name}")
        raise SystemExit(128 + received[0]) from error


def fail_if_skipped(noun: str, errors: Sequence[Exception], *, asked: int) -> None:
    """Raise ValueError with the reasons why inputs were left out, if any of `asked` were."""
    if errors and asked == 1:
        raise ValueError(error_reason(errors[0], with_file=True)) from errors[0]
    if errors:
        reasons = [error_reason(error, with_file=True) for error in errors]
        raise ValueError(f"{pluralize(len(errors), noun)} left out: {join_truncated(reasons, 20)}")


def echo(*lines: str, err: bool = False) -> None:
    """Print lines above progress bars, on rank 0, unprintable characters escaped; on stderr,
    long lines are cut."""
    stream = sys.stderr if err else sys.stdout
    if not lines or not first_process() or stream is None:  # closed, as a daemon's may be
        return
    text = "\n".join(map(sanitize_message if err else escape_control_chars, lines))
    tqdm.write(text, file=stream)
    stream.flush()


def note(*lines: str) -> None:
    """Print advice and warnings on stderr."""
    echo(*lines, err=True)


def first_process() -> bool:
    """Whether this process has rank 0, or is alone."""
    return console.joined_rank == 0


class Terminal(Console):
    """Prints messages by `say`, and shows progress bars on stderr, in `unit`, for slow work."""

    def __init__(self, unit: str = "img", say: Callable[[str], None] = note) -> None:
        self.unit = unit
        self.say = say
        self.what: object = None
        self.bar: tqdm[NoReturn] | None = None
        self.began = time.monotonic()
        if context := click.get_current_context(silent=True):
            context.call_on_close(self.close)

    def info(self, text: str) -> None:
        self.say(text)

    def progress(self, what: object, done: int, total: int) -> None:
        if what != self.what:
            self.close()
            self.what = what
            self.began = time.monotonic()
        is_slow = time.monotonic() - self.began >= BAR_SECONDS
        if self.bar is None and done < total and is_slow and first_process() and sys.stderr:
            pause = 0.1 if sys.stderr.isatty() else LINE_SECONDS
            self.bar = tqdm(
                total=total,
                unit=self.unit,
                leave=False,
                initial=done,
                desc=escape_control_chars(str(what)) or None,
                mininterval=pause,
                maxinterval=LINE_SECONDS,
            )
        if self.bar is not None:
            self.bar.update(done - self.bar.n)
        if done >= total:
            self.close()

    def close(self) -> None:
        if self.bar is not None:
            with suppress(OSError):  # the terminal may be gone
                self.bar.close()
        self.bar = None
        self.what = None
