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
from stylegan.metrics.statistics import Moments, frechet_distance
from stylegan.metrics.subject import AgainstHalf, AverageImage, OtherHalf, Subject, Yardstick

__all__ = [
    "KINDS",
    "AgainstHalf",
    "AverageImage",
    "FeatureNetwork",
    "Measured",
    "Moments",
    "OtherHalf",
    "Request",
    "Result",
    "Subject",
    "Tools",
    "Yardstick",
    "check_results_file",
    "default_names",
    "evaluate",
    "frechet_distance",
    "parse",
    "score_name",
    "yardsticks",
]
