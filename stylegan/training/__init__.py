"""Training: the state that survives, the step that moves it, the loop around it."""

from .draws import Draws, PassDraws, Share, draw
from .health import Diverged, LostContact
from .interrupts import Stopped
from .loop import Evaluation
from .recorder import TrainingProgress
from .run import start
from .state import TrainState
from .step import train_step
