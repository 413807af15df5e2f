"""How good a generator is, in numbers that say how they came about."""

from stylegan.metrics.engine import (
    KINDS,
    Request,
    Result,
    check_results_file,
    default_names,
    evaluate,
    halves,
    parse,
    score_name,
)
from stylegan.metrics.features import FeatureNetwork, Measured, Tools
from stylegan.metrics.pictures import Pictures, holds_pictures
from stylegan.metrics.sources import GeneratorSamples, ImageSource, OtherHalf
from stylegan.metrics.statistics import frechet_distance

__all__ = [
    "KINDS",
    "FeatureNetwork",
    "GeneratorSamples",
    "ImageSource",
    "Measured",
    "OtherHalf",
    "Pictures",
    "Request",
    "Result",
    "Tools",
    "check_results_file",
    "default_names",
    "evaluate",
    "frechet_distance",
    "halves",
    "holds_pictures",
    "parse",
    "score_name",
]
