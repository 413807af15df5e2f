"""Training: the state that is saved, the step that updates it, the loop around it."""

from .draws import Draws, PassDraws, Share, draw
from .evaluation import Evaluation
from .health import Diverged, ProcessLostError
from .interrupts import Stopped
from .progress import TrainingProgress
from .run import start
from .state import TrainState
from .step import train_step
