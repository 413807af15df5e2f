"""Training: the state that survives, the step that moves it, the loop around it."""

from stylegan.training.draws import Draws, PassDraws, Share, draw
from stylegan.training.evaluation import Evaluation
from stylegan.training.health import Diverged, LostContact
from stylegan.training.interrupts import Stopped
from stylegan.training.recorder import TrainingProgress
from stylegan.training.start import start
from stylegan.training.state import TrainState
from stylegan.training.step import train_step

__all__ = [
    "Diverged",
    "Draws",
    "Evaluation",
    "LostContact",
    "PassDraws",
    "Share",
    "Stopped",
    "TrainState",
    "TrainingProgress",
    "draw",
    "start",
    "train_step",
]
