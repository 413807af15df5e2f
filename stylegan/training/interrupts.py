"""Signals as requests that training answers between two steps."""

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from stylegan.machine import distributed
from stylegan.machine.signals import answered, ending_signals
from stylegan.training.state import TrainState

SAVE = [signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []  # save and go on; not on Windows


class Stopped(KeyboardInterrupt):
    """A signal asked training to stop. The state was saved; the same call continues."""

    def __init__(self, signal_number: int, state: TrainState) -> None:
        super().__init__(f"stopped after {state.images_seen} images; the same command continues")
        self.signal_number = signal_number
        self.state = state
        self.exit_code = 128 + signal_number


def agree(received: list[int], *, save_is_due: bool) -> tuple[int, bool]:
    """Return the signal to stop for (0: none), and True if the state is to be saved: what the
    processes ask for together, by `received` signals, which are answered by that, or by the clock.
    """
    new = [received.pop() for _ in range(len(received))]
    stop_signals = [number for number in new if number not in SAVE]
    save = save_is_due or len(stop_signals) < len(new)
    stop_signal = distributed.largest(max(stop_signals, default=0))
    return stop_signal, bool(distributed.largest(save))


@contextmanager
def requests() -> Iterator[list[int]]:
    """Collects signals instead of dying of them; a second one of those that stop kills as usual."""
    received: list[int] = []
    stop = ending_signals()
    usual = {int(number): signal.getsignal(number) for number in stop}

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if number in usual:
            signal.signal(number, usual[number])

    with answered([*stop, *SAVE], remember):
        yield received


def nothing_to_save() -> AbstractContextManager[None]:
    """Ignore the signal that asks for a save: there is nothing to save yet."""
    return answered(SAVE, signal.SIG_IGN)
