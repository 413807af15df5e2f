"""Training: the state that survives, the step that moves it, the loop around it."""

from stylegan.training.draws import Draws, PassDraws, Share, draw
from stylegan.training.log import Progress
from stylegan.training.loop import train
from stylegan.training.run import Evaluation, LoopSettings
from stylegan.training.state import TrainState
from stylegan.training.step import train_step

__all__ = [
    "Draws",
    "Evaluation",
    "LoopSettings",
    "PassDraws",
    "Progress",
    "Share",
    "TrainState",
    "draw",
    "train",
    "train_step",
]
