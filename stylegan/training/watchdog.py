"""An end to waiting: a process that makes no progress reports where it is, and ends."""

import faulthandler
import math
import os
import sys
import threading
import time

from stylegan import distributed
from stylegan.training.health import LostContact, where
from stylegan.training.state import TrainState

POLLS = 20  # looks at the clock within the limit


class Watchdog:
    """Ends the process when nothing has been reported for `minutes`.

    A collective operation waits for all processes: if one hangs, all do, silently. `at` reports
    what the process waits for or in; the thread of this object writes the last report, and where
    each thread is, to stderr. It does nothing with one process, or 0 minutes.
    """

    def __init__(self, state: TrainState, minutes: float) -> None:
        self.state = state
        self.seconds = minutes * 60 if distributed.world_size() > 1 else 0.0
        self.report: tuple[float, str] | None = None  # when, and what began
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def at(self, doing: str) -> None:
        """Something begins: the process waits `doing`."""
        self.report = (time.monotonic(), doing)

    def rest(self) -> None:
        """Something begins that may take any time."""
        self.report = None

    def watch(self) -> None:
        while not self.ended.wait(self.seconds / POLLS):
            since, doing = self.report or (math.inf, "")  # the other thread may change it
            if time.monotonic() - since > self.seconds:
                self.give_up(f"{doing}, {where(self.state, self.state.stage)}")

    def give_up(self, doing: str) -> None:
        """Leave without waiting for anything: the main thread may never return to Python."""
        faulthandler.dump_traceback(all_threads=True)
        sys.stderr.write(
            f"Error: process {distributed.rank()} of {distributed.world_size()} has waited "
            f"{self.seconds / 60:g} minutes {doing}: another process is lost or stuck. The same "
            "command continues from the newest state.\n"
        )
        sys.stderr.flush()
        os._exit(LostContact.exit_code)

    def __enter__(self) -> "Watchdog":
        if self.seconds:
            self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
