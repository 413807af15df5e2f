"""Signals as requests that training answers between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from stylegan import distributed
from stylegan.training.state import TrainState

SAVE = signal.SIGUSR1  # saves and goes on
STOP = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A signal asked training to stop. The state was saved; the same call continues."""

    def __init__(self, signal_number: int, state: TrainState) -> None:
        super().__init__(f"stopped after {state.images_seen} images; the same command continues")
        self.signal_number, self.state = signal_number, state
        self.exit_code = 128 + signal_number


@dataclass
class Requests:
    """What signals have asked for."""

    received: list[int] = field(default_factory=list)
    handled: int = 0

    def agree(self, save_is_due: bool) -> tuple[int, bool]:
        """The signal to stop for (0: none), and whether to save; the same in all processes."""
        new = self.received[self.handled :]
        self.handled += len(new)
        new += [signal.SIGTERM] if distributed.is_orphan() else []  # as torchrun would have sent
        stop = max((number for number in new if number != SAVE), default=0)
        # one MAX-reduce carries the signal and the wish to save
        answer = distributed.largest(2 * stop + (save_is_due or SAVE in new))
        return answer // 2, bool(answer % 2)


@contextmanager
def requests() -> Iterator[Requests]:
    """Collects signals instead of dying of them; a second one of those that stop kills as usual."""
    asked = Requests()
    before: dict[int, Any] = {}

    def remember(number: int, frame: FrameType | None) -> None:
        asked.received.append(number)
        if number in STOP:
            signal.signal(number, before[number])

    if threading.current_thread() is threading.main_thread():
        for number in (*STOP, SAVE):
            before[number] = signal.signal(number, remember)
    try:
        yield asked
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)


@contextmanager
def nothing_to_save() -> Iterator[None]:
    """The signal that asks for a save is ignored: there is nothing to save yet."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(SAVE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(SAVE, before)
