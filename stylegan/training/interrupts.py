"""Signals that training handles between two steps."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from stylegan.training.state import TrainState
from stylegan.utils import distributed
from stylegan.utils.signals import signal_handler, termination_signals

FORWARDED_SECONDS = 30.0  # a repeated signal counts as the first; torchrun kills after as long
SAVE = [signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []  # save the state; not on Windows


class Stopped(KeyboardInterrupt):
    """Training was stopped by a signal. The state was saved; the same call resumes."""

    def __init__(self, signal_number: int, state: TrainState) -> None:
        super().__init__(f"stopped after {state.images_seen} images; the same command continues")
        self.signal_number = signal_number
        self.state = state
        self.exit_code = 128 + signal_number


def agree(received: list[int], *, save_is_due: bool) -> tuple[int, bool]:
    """Agree over all ranks on the signal to stop for (0: none) and on whether to save the state.

    Consumes `received`. A save is due if any rank's clock or a signal asks for it.
    """
    new = [received.pop() for _ in range(len(received))]
    stop_signals = [number for number in new if number not in SAVE]
    save = save_is_due or len(stop_signals) < len(new)
    stop_signal = distributed.max_over_ranks(max(stop_signals, default=0))
    return stop_signal, bool(distributed.max_over_ranks(save))


@contextmanager
def collect_signals() -> Iterator[list[int]]:
    """Collect signals instead of dying; a second stop signal kills the process as usual.

    torchrun forwards the signals it gets, so one sent to all processes, as by pkill, arrives twice.
    """
    received: list[int] = []
    stop = termination_signals()
    usual = {int(number): signal.getsignal(number) for number in stop}
    forwarding = "TORCHELASTIC_RUN_ID" in os.environ
    first: dict[int, float] = {}  # stop signal -> when it arrived first

    def remember(number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if number not in first:
            received.append(number)
        if number in SAVE:
            return
        if not forwarding:
            signal.signal(number, usual[number])
        elif now - first.setdefault(number, now) > FORWARDED_SECONDS:
            signal.signal(number, usual[number])
            signal.raise_signal(number)

    with signal_handler([*stop, *SAVE], remember):
        yield received


def ignore_save_signal() -> AbstractContextManager[None]:
    """Ignore the save signal while there is nothing to save yet."""
    return signal_handler(SAVE, signal.SIG_IGN)
