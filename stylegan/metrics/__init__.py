"""Metrics of generators and image folders. Each result contains its whole protocol."""

from .comparing import MeasuredSource, check_sources, compare, compare_with_reals
from .engine import METRICS, MetricRequest, Result, check_lines, default_names, evaluate, parse
from .features import Scores, Tools
from .measurement import Measurement, Metric
from .pictures import holds_pictures, open_pictures
from .sources import Comparison, Conditions, GeneratorSamples, StoreImages
