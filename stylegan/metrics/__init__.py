"""How good a generator is, in numbers that say how they came about."""

from stylegan.metrics.engine import Result, evaluate, score_name
from stylegan.metrics.features import FeatureNetwork, Measured, Tools
from stylegan.metrics.images import Subject
from stylegan.metrics.moments import Moments, frechet_distance
from stylegan.metrics.names import KINDS, Request, parse
from stylegan.metrics.yardsticks import AverageImage, OtherHalf, Yardstick

__all__ = [
    "KINDS",
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
    "evaluate",
    "frechet_distance",
    "parse",
    "score_name",
]
