"""Measurements of the average generator during training."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stylegan.schedule import Stage
from stylegan.training.state import TrainState


@dataclass(frozen=True)
class Evaluation:
    """A measurement of the average generator, repeated during training and at the end.

    `measure` is called on all ranks and must return the same numbers there.
    """

    measure: Callable[[TrainState, Stage], dict[str, float]]  # must contain `best_by`
    best_by: str  # name of the number that decides which generator is best
    lower_is_better: bool = True
    every_kimg: float | None = None  # None: with every generator file
    # lines for metrics.jsonl, which `measure` replaces by those of its last results
    records: list[str] = field(default_factory=list)

    def scores(self, state: TrainState, stage: Stage) -> dict[str, float]:
        """Call `measure`. Raises ValueError if `best_by` is not among the results."""
        measured = self.measure(state, stage)
        if not isinstance(measured, Mapping):
            raise ValueError(
                'the evaluation must return numbers by name, as in {"contrast": 0.5}, '
                f"got a {type(measured).__name__}"
            )
        scores = {name: x if type(x) is int else float(x) for name, x in measured.items()}
        if self.best_by not in scores:
            raise ValueError(
                "best_by of the evaluation must be one of its results "
                f"({', '.join(scores) or 'there are none'}), got {self.best_by!r}"
            )
        return scores

    def is_best(self, scores: list[dict[str, float]]) -> bool:
        """Whether the last score is the best so far, at its `resolution` if it names one."""
        resolution = scores[-1].get("resolution")
        *earlier, last = (self.cost(s) for s in scores if s.get("resolution") == resolution)
        return last < min(earlier, default=math.inf)

    def cost(self, score: Mapping[str, float]) -> float:
        """The number that decides, negated if higher is better; infinite if not measured."""
        value = score.get(self.best_by, math.nan)
        if not math.isfinite(value):
            return math.inf
        return value if self.lower_is_better else -value
