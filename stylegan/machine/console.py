"""How the library speaks: a `Console` hears what a user should know, and how far work is."""


class Console:
    """Says nothing. A program that wants to hear more makes a class of its own from it."""

    def tell(self, text: str) -> None:
        """What a user should know."""

    def progress(self, what: object, done: int, total: int) -> None:
        """So many of all images (or steps, or frames) are done; `what`, as text, says of what work.
        In a training it is a `training.TrainingProgress`, at every line of the log."""


class Printing(Console):
    """Prints what a user should know."""

    def tell(self, text: str) -> None:
        print(text, flush=True)


SILENT = Console()
