"""Two marks to read results by: what real images themselves reach, and what one picture does."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from stylegan.metrics.images import Subject, share_of


@dataclass(frozen=True, eq=False)
class Yardstick(Subject):
    """Images in the place of generated ones."""

    name: ClassVar[str]

    @classmethod
    def beside(cls, subject: Subject) -> Self:
        """Of the subject's data, looked at as it is."""
        settings = {f.name: getattr(subject, f.name) for f in dataclasses.fields(Subject)}
        return cls(**settings)

    def about_generator(self) -> dict[str, Any]:
        return {"origin": self.name, "sha256": None, "images_seen": None}

    def about_fakes(self) -> dict[str, Any]:
        return {"resolution": self.size, "seed": self.seed}


@dataclass(frozen=True, eq=False)
class OtherHalf(Yardstick):
    """Every second real image takes the place of the generated ones; it is compared with the rest.

    No generator should be expected to do better on as many images.
    """

    name = "another half of the reals"

    def real_images(self) -> np.ndarray:
        return super().real_images()[::2]

    def fakes(self, num: int) -> Iterator[Tensor]:
        return self.shown(super().real_images()[1::2], num, "real", evenly=True)

    def about_reals(self) -> dict[str, Any]:
        return {**super().about_reals(), "part": "every second one"}


@dataclass(frozen=True, eq=False)
class AverageImage(Yardstick):
    """The average of all real images, again and again: the best that a constant can do."""

    name = "the average of the reals"

    def fakes(self, num: int) -> Iterator[Tensor]:
        images = self.real_images()
        total = np.zeros(images.shape[1:])
        for start in range(0, len(images), self.batch):
            total += images[start : start + self.batch].sum(axis=0, dtype=np.float64)
        average = total / len(images)
        if self.mirror:
            average = (average + average[:, :, ::-1]) / 2
        picture = torch.from_numpy(average.round().astype(np.uint8))
        own = share_of(num)
        for start in range(own.start, own.stop, self.batch):
            yield picture.expand(min(self.batch, own.stop - start), *picture.shape)
