"""Consoles that tests look at."""

from stylegan.training import TrainingProgress
from stylegan.utils.console import Console


class RecordingConsole(Console):
    """Keeps what it is told; calls `act` with each progress of a training, or `done` with the
    numbers of all other work."""

    def __init__(self, told=None, *, act=None, done=None):
        self.told = [] if told is None else told
        self.act = act
        self.done = done

    def info(self, text):
        self.told.append(text)

    def progress(self, what, done, total):
        is_training = isinstance(what, TrainingProgress)
        if is_training and self.act is not None:
            self.act(what)
        elif not is_training and self.done is not None:
            self.done(done, total)
