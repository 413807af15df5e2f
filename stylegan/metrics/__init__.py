"""How good a generator is, in numbers that say how they came about."""

from stylegan.metrics.engine import (
    KINDS,
    Request,
    Result,
    check_results_file,
    default_names,
    evaluate,
    parse,
    score_name,
    yardsticks,
)
from stylegan.metrics.features import FeatureNetwork, Measured, Tools
from stylegan.metrics.pictures import Pictures, holds_pictures
from stylegan.metrics.statistics import Moments, frechet_distance
from stylegan.metrics.subject import AverageImage, OtherHalf, Samples, Subject, Yardstick

__all__ = [
    "KINDS",
    "AverageImage",
    "FeatureNetwork",
    "Measured",
    "Moments",
    "OtherHalf",
    "Pictures",
    "Request",
    "Result",
    "Samples",
    "Subject",
    "Tools",
    "Yardstick",
    "check_results_file",
    "default_names",
    "evaluate",
    "frechet_distance",
    "holds_pictures",
    "parse",
    "score_name",
    "yardsticks",
]
