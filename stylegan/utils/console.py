"""Console interface: where the library sends messages and progress."""

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
    """A console that prints messages, and the progress of long work every ten seconds."""

    due: float | None = None  # time of the next line of progress, once something has begun
    is_long = False  # whether progress of it was printed, so that its end is, too

    def info(self, text: str) -> None:
        print(sanitize_message(text), flush=True)

    def progress(self, task: object, done: int, total: int) -> None:
        now = time.monotonic()
        is_over = done >= total
        if self.due is None:
            self.due = now + PAUSE
        elif now >= self.due or (is_over and self.is_long):
            if joined_rank == 0:
                self.info(f"{task}: {done:,} of {total:,}".removeprefix(": "))
            self.due, self.is_long = now + PAUSE, True
        if is_over:
            self.due, self.is_long = None, False


SILENT = Console()
