"""How good the average generator is: measured from outside, remembered here."""

from collections.abc import Callable
from dataclasses import dataclass

from stylegan.schedule import Stage
from stylegan.training.state import TrainState


@dataclass(frozen=True)
class Evaluation:
    """A measurement of the average generator that is made again and again, and at the end."""

    measure: Callable[[TrainState, Stage], dict[str, float]]  # in all processes, equal results
    best_by: str  # the name of the result that decides which generator is best
    lower_is_better: bool = True
    every_kimg: float | None = None  # None: with every generator file

    def is_best(self, scores: list[dict[str, float]]) -> bool:
        """Whether the last is better than all before; of scores with a `resolution`, than those of
        the same."""
        *before, last = scores
        if self.best_by not in last:  # it could not be measured
            return False
        sign = 1 if self.lower_is_better else -1
        rivals = [s for s in before if s.get("resolution") == last.get("resolution")]
        values = [sign * score[self.best_by] for score in rivals if self.best_by in score]
        return all(sign * last[self.best_by] < value for value in values)
