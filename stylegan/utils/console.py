"""Console interface: where the library sends messages and progress."""

from stylegan.utils.text import message

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
    """A console that prints messages to stdout."""

    def info(self, text: str) -> None:
        print(message(text), flush=True)


SILENT = Console()
