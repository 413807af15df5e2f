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
)
from stylegan.metrics.features import Tools
from stylegan.metrics.pictures import Pictures, holds_pictures
from stylegan.metrics.sources import GeneratorSamples, ImageSource

__all__ = [
    "KINDS",
    "GeneratorSamples",
    "ImageSource",
    "Pictures",
    "Request",
    "Result",
    "Tools",
    "check_results_file",
    "default_names",
    "evaluate",
    "halves",
    "holds_pictures",
    "parse",
]
