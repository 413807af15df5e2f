"""Training: the state that survives, the step that moves it, the loop around it."""

from stylegan.training.draws import Draws as Draws
from stylegan.training.draws import PassDraws as PassDraws
from stylegan.training.draws import Share as Share
from stylegan.training.draws import draw as draw
from stylegan.training.health import Diverged as Diverged
from stylegan.training.health import LostContact as LostContact
from stylegan.training.interrupts import Stopped as Stopped
from stylegan.training.loop import Evaluation as Evaluation
from stylegan.training.recorder import TrainingProgress as TrainingProgress
from stylegan.training.run import start as start
from stylegan.training.state import TrainState as TrainState
from stylegan.training.step import train_step as train_step
