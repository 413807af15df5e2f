"""Console interface: where the library sends messages and progress."""

import math
import time

from stylegan.utils.text import sanitize_message

PAUSE = 10  # between lines of progress [seconds]
joined_rank = 0  # of this process in its process group, also after the group has ended


class Console:
    """A console that ignores messages and progress. Subclass it to show them."""

    def info(self, text: str) -> None:
        """Show a line of text."""

    def progress(self, task: object, done: int, total: int) -> None:
        """Report that `done` of `total` items of `task` are finished.

        `task` is a short description, or in training a `TrainingProgress`, at every log line.
        """


class PrintingConsole(Console):
    """A console that prints messages, and at most every ten seconds progress, to stdout."""

    due = -math.inf  # time of the next line of progress

    def info(self, text: str) -> None:
        print(sanitize_message(text), flush=True)

    def progress(self, task: object, done: int, total: int) -> None:
        if joined_rank == 0 and time.monotonic() >= self.due:
            self.due = time.monotonic() + PAUSE
            self.info(f"{task}: {done:,} of {total:,}".removeprefix(": "))


SILENT = Console()
