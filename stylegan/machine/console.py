"""The voice of the library: a `Console` hears news for the user, and the progress of work."""

from stylegan.machine.messages import message

joined_rank = 0  # of this process in the group that it has joined, if any, also after leaving it


class Console:
    """Says nothing. A program that wants to hear more makes a class of its own from it."""

    def tell(self, text: str) -> None:
        """Tell the user a line of text."""

    def progress(self, what: object, done: int, total: int) -> None:
        """Tell the user that `done` of `total` images (or steps, or frames) of the work `what` are
        done. In a training it is a `training.TrainingProgress`, at every line of the log."""


class Printing(Console):
    """Prints what a user should know."""

    def tell(self, text: str) -> None:
        print(message(text), flush=True)


SILENT = Console()
