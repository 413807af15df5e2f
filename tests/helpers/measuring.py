"""What the tests of metrics measure, alone and in each of two processes."""

import dataclasses

import pytest
import torch

from helpers.consoles import RecordingConsole
from helpers.tiny_generators import tiny_loaded
from stylegan.data import Store
from stylegan.metrics import (
    METRICS,
    Comparison,
    Conditions,
    GeneratorSamples,
    Measurement,
    Tools,
    evaluate,
    feature_metrics,
    parse,
)
from stylegan.metrics.features import FeatureNetwork

SIZE = 16  # the faces, averaged down


def of_data(faces, size=SIZE, **options):
    return Comparison.from_generator(tiny_loaded(size), faces, Conditions(**options))


def coarse_pixels(device=None, resolution=SIZE):
    """A network that takes no time: averages over sixteenths of an image."""

    def averages(images):
        return torch.nn.functional.adaptive_avg_pool2d(images.float() / 255, 4).flatten(1)

    return FeatureNetwork("coarse pixels", "0", 48, "none", averages)


def scores(folder, cache):
    """Metrics that need no download."""
    images, kinds = 25, ["eff-fd", "eff-kid", "swd"]  # does not divide by 2
    source = of_data(Store(folder / "faces"), mirror=True, batch=4)
    tools = Tools(folder / cache)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feature_metrics, "efficientnet", coarse_pixels)
        m = Measurement(**vars(source), num=images, tools=tools, evenly=True)
        return {kind: METRICS[kind].measure(m).values for kind in kinds}


@dataclasses.dataclass(frozen=True, eq=False)
class FullDisk(GeneratorSamples):
    """Its last process has room for one batch only."""

    def sample_batch(self, indices, num):
        if indices.stop == num:  # the last of several batches
            raise OSError("the last disk is full")
        return super().sample_batch(indices, num)


def measured_with_a_full_disk(folder):
    told = []
    loaded = tiny_loaded(8)
    source = Comparison.from_generator(loaded, Store(folder / "faces"), Conditions(batch=1))
    source = dataclasses.replace(source, samples=FullDisk(loaded, store=source.reals.store))
    results = evaluate(
        source, parse("swd9"), Tools(folder / "cache", console=RecordingConsole(told))
    )
    return [result.metric for result in results], told
