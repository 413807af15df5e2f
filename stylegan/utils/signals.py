"""Signals that end a program, and temporary handlers."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

Answer = Callable[[int, FrameType | None], None] | signal.Handlers


def termination_signals() -> list[signal.Signals]:
    """Signals that end a program: SIGINT, SIGTERM, and SIGHUP unless ignored (nohup) or missing."""
    hangup = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []
    return [
        signal.SIGINT,
        signal.SIGTERM,
        *(number for number in hangup if signal.getsignal(number) is not signal.SIG_IGN),
    ]


@contextmanager
def signal_handler(numbers: Sequence[int], answer: Answer) -> Iterator[None]:
    """Handle the signals `numbers` by `answer` inside; no effect outside the main thread."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, answer) for number in (numbers if main else ())}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)
