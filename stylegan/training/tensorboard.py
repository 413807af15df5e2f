"""TensorBoard events of a run."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from stylegan.networks import Generator
from stylegan.training.trackers import Tracker

if TYPE_CHECKING:
    from stylegan.training.events import EventWriter


class TensorBoard(Tracker):
    """Event files, opened when first written to."""

    name, faults = "TensorBoard", OSError

    def __init__(self, folder: Path, tell: Callable[[str], None], *, start: int = 0) -> None:
        super().__init__(tell)
        self.folder, self.start = folder, start
        self.writer: EventWriter | None = None

    def write(self, add: Callable[["EventWriter"], object]) -> None:
        if self.writer is None:
            from stylegan.training.events import EventFile, EventWriter

            self.writer = EventWriter(EventFile(self.folder, self.start or None))
        add(self.writer)
        self.attempt(self.writer.file.write)

    def scalars(self, scalars: Mapping[str, float], images_seen: int) -> None:
        def add(writer: "EventWriter") -> None:
            for name, value in scalars.items():
                writer.add_scalar(name, value, images_seen)

        self.write(add)

    def picture(self, name: str, image: Tensor, images_seen: int) -> None:
        self.write(lambda writer: writer.add_image(name, image, images_seen))

    def histograms(self, name: str, network: nn.Module, images_seen: int) -> None:
        for part, weight in network.named_parameters():
            self.histogram(f"{name}/{part}", weight, images_seen)
            if weight.grad is not None:
                self.histogram(f"{name}_gradient/{part}", weight.grad, images_seen)

    def histogram(self, tag: str, values: Tensor, images_seen: int) -> None:
        """The finite ones of `values`: the gradients of a skipped update need not be."""
        values = values.detach()[values.isfinite()]
        if values.numel():
            self.write(lambda writer: writer.add_histogram(tag, values, images_seen))

    def graph(self, generator: Generator) -> None:
        """The generator's graph. TensorBoard traces it, which warns of every check of a shape."""
        config = generator.config
        z = generator.w_avg.new_zeros(1, config.z_dim)
        inputs = (z, z.new_zeros(1, config.label_dim)) if config.label_dim else (z,)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.write(lambda writer: writer.add_graph(generator, inputs, use_strict_trace=False))
