"""A measurement of the average generator while it is trained."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stylegan.schedule import Stage
from stylegan.training.state import TrainState


@dataclass(frozen=True)
class Evaluation:
    """A measurement of the average generator that is made again and again, and at the end: in all
    processes, with equal results."""

    measure: Callable[[TrainState, Stage], dict[str, float]]  # best_by is always there
    best_by: str  # the name of the result that decides which generator is best
    lower_is_better: bool = True
    every_kimg: float | None = None  # None: with every generator file
    # lines that `measure` leaves here, of its last results, for metrics.jsonl
    records: list[str] = field(default_factory=list)

    def scores(self, state: TrainState, stage: Stage) -> dict[str, float]:
        """Return the numbers of `measure`. Raise ValueError if they lack `best_by`."""
        measured = self.measure(state, stage)
        if not isinstance(measured, Mapping):
            raise ValueError(
                f"the evaluation returned a {type(measured).__name__}; it returns numbers by name, "
                'as in {"contrast": 0.5}'
            )
        scores = {name: x if isinstance(x, int) else float(x) for name, x in measured.items()}
        if self.best_by not in scores:
            raise ValueError(
                f"best_by of the evaluation is {self.best_by!r}, which is not measured; measured "
                f"are {', '.join(scores) or 'no numbers'}"
            )
        return scores

    def is_best(self, scores: list[dict[str, float]]) -> bool:
        """Return True if the last score is the best so far. Scores that name a `resolution` are
        compared only with those of the same."""
        resolution = scores[-1].get("resolution")
        *earlier, last = (self.cost(s) for s in scores if s.get("resolution") == resolution)
        return last < min(earlier, default=math.inf)

    def cost(self, score: Mapping[str, float]) -> float:
        """Return the result that decides, so that lower is better; infinite if not measured."""
        value = score.get(self.best_by, math.nan)
        if not math.isfinite(value):
            return math.inf
        return value if self.lower_is_better else -value
