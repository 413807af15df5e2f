"""How good a generator is, in numbers that say how they came about."""

from .comparing import beside_reals, check_sources, compare
from .engine import KINDS, Request, Result, check_results, default_names, evaluate, halves, parse
from .features import Tools
from .pictures import Pictures, holds_pictures
from .sources import GeneratorSamples, ImageSource
