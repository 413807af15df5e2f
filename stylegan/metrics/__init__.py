"""Metrics of generators and pictures, whose results say how they were measured."""

from .comparing import Conditions, Row, beside_reals, check_sources, compare
from .engine import METRICS, Request, Result, check_lines, default_names, evaluate, parse
from .features import Scores, Tools
from .measurement import Measurement, Metric
from .pictures import holds_pictures, open_pictures
from .sources import Comparison, GeneratorSamples, StoreImages
