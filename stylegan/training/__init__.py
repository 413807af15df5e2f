"""Training: the state that survives, the step that moves it, the loop around it."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

HOME = {  # name -> module; no module is named as one of them
    "Diverged": "health",
    "Draws": "draws",
    "Evaluation": "loop",
    "LostContact": "health",
    "PassDraws": "draws",
    "Share": "draws",
    "Stopped": "interrupts",
    "TrainState": "state",
    "TrainingProgress": "recorder",
    "draw": "draws",
    "start": "run",
    "train_step": "step",
}


def __getattr__(name: str) -> Any:
    """Imported at the first use, so that the step can be imported without the loop around it."""
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{HOME[name]}"), name)
