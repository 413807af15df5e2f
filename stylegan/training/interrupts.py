"""Signals as requests that training answers between two steps."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from stylegan import distributed
from stylegan.training.state import TrainState

SAVE = getattr(signal, "SIGUSR1", None)  # saves and goes on; not on Windows
AGREE_SECONDS = 0.5
MOST_STEPS = 128
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
    steps: int = 1  # from one agreement to the next
    passed: int = 0  # since the last
    since: float = field(default_factory=time.perf_counter)

    def agree(self, save_is_due: bool) -> tuple[int, bool]:
        """The signal to stop for (0: none), and whether to save. One whose torchrun was killed
        stops, as torchrun would have asked it to.

        Several processes ask each other about twice in a second, after a number of steps that they
        agree on as well: a signal waits for the next time.
        """
        self.passed += 1
        if self.passed < self.steps:
            return 0, False
        new = self.received[self.handled :]
        self.handled += len(new)
        new += [signal.SIGTERM] if distributed.is_orphan() else []
        wanted = 2 * max((number for number in new if number != SAVE), default=0)
        wanted += save_is_due or SAVE in new
        seconds = max(time.perf_counter() - self.since, 1e-6)
        fit = min(max(int(AGREE_SECONDS * self.passed / seconds), 1), MOST_STEPS - 1)
        alone = distributed.world_size() == 1
        answer, self.steps = divmod(
            distributed.largest(wanted * MOST_STEPS + (1 if alone else fit)), MOST_STEPS
        )
        self.passed, self.since = 0, time.perf_counter()
        stop, save = divmod(answer, 2)
        return stop, bool(save)


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
        for number in (*STOP, *([SAVE] if SAVE else [])):
            before[number] = signal.signal(number, remember)
    try:
        yield asked
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)


@contextmanager
def nothing_to_save() -> Iterator[None]:
    """The signal that asks for a save is ignored: there is nothing to save yet."""
    if SAVE is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(SAVE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(SAVE, before)
