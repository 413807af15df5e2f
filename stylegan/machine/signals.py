"""Signals that ask a program to end, and what answers signals for a while."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

Answer = Callable[[int, FrameType | None], None] | signal.Handlers


def ending_signals() -> list[signal.Signals]:
    """Return SIGINT, SIGTERM, and SIGHUP of a terminal that is closed; under nohup, which has it
    ignored, a closed terminal ends nothing, and Windows has none."""
    hangup = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []
    return [
        signal.SIGINT,
        signal.SIGTERM,
        *(number for number in hangup if signal.getsignal(number) is not signal.SIG_IGN),
    ]


@contextmanager
def answered(numbers: Sequence[int], answer: Answer) -> Iterator[None]:
    """Let `answer` get these signals inside; without effect in all threads but the main one."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, answer) for number in (numbers if main else ())}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)
