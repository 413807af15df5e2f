"""Metrics as functions of a `Measurement`: the images to measure and their features."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from stylegan.metrics.cache import cached, gathered_rows
from stylegan.metrics.comparison import Comparison, StoreImages
from stylegan.metrics.features import FeatureNetwork, Scores, Tools

# of one metric; the others are still measured
FAILURES = (ModuleNotFoundError, ValueError, OSError)
Value = TypeVar("Value")


@dataclass(frozen=True, eq=False, kw_only=True)
class Measurement(Comparison):
    """A comparison of `num` samples. Metrics that are measured together share features."""

    num: int  # of samples, or of pairs
    tools: Tools
    evenly: bool = False  # as in `Metric`
    memo: dict[Hashable, Any] = field(default_factory=dict)  # of `once`

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Result of `make()`, which only the first metric calls; the others get the same result or
        error."""
        if key not in self.memo:
            try:
                self.memo[key] = make()
            except FAILURES as error:
                self.memo[key] = error
        if isinstance(self.memo[key], FAILURES):
            raise self.memo[key]
        return self.memo[key]

    def features(self, network: FeatureNetwork, of: Literal["fakes", "reals"]) -> np.ndarray | None:
        """Features of fakes (num, dim + logits) or reals (m, dim) in rank 0, None in the others.
        Those of reals are cached on disk."""

        def rows(batches: Iterable[Tensor], num: int, width: int) -> np.ndarray | None:
            parts = ([network(batch)[:, :width]] for batch in batches)
            return gathered_rows(parts, [width], num, self.tools.cache)[0]

        def make() -> np.ndarray | None:
            if of == "fakes":
                return rows(self.fake_batches(self.num), self.num, network.dim + network.logits)
            about = self.about_reals()
            num = about["number"]
            batches = self.real_batches(num, evenly=self.evenly)
            key = {**about, **network.about(), "evenly": self.evenly, "torch": torch.__version__}
            of_reals = partial(rows, batches, num, network.dim)
            return cached(self.tools, f"{network.prefix}-features", key, of_reals)

        return self.once((network, of, self.num, self.evenly), make)

    def about_reals(self) -> dict[str, Any]:
        """Protocol of the reals, for a result and as a key of the cache."""
        reals = self.require_reals()
        number = reals.number(self.num, evenly=self.evenly)
        return {**reals.protocol_of_reals(), "number": number}


@dataclass(frozen=True)
class Metric:
    """A metric: its function, and what must be known before the function is called."""

    measure: Callable[[Measurement], Scores]
    _: KW_ONLY
    images: int  # number of samples, if the name has none
    help: str
    best_by: str = ""  # the value that decides which generator is best; "": that of the same name
    # loads libraries and weights, so that a missing one is reported before any work
    needs: Callable[[Tools, torch.device], object] = lambda tools, device: None
    libraries: Mapping[str, str] = field(default_factory=dict)  # module -> package to install
    least: int = 0  # number of samples, and of real images, that it needs
    reals: bool = True  # compares with real images
    evenly: bool = False  # takes reals evenly from all, and both orientations if mirrored
    lower_is_better: bool = True

    def unavailable_reason(self, images: int, reals: StoreImages | None) -> str:
        """The reason why `images` samples, compared with `reals` if known, are too few; empty if
        they suffice."""
        number = images
        if self.reals and reals is not None:
            number = reals.number(images, evenly=self.evenly)
        if number >= self.least:
            return ""
        return (
            f"found {images:,} samples and {number:,} real images, at least {self.least:,} of each "
            "are needed"
        )
