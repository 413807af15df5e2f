"""Metrics of generators and image folders. Each result contains its whole protocol."""

from .comparison import Comparison, Conditions, GeneratorSamples, StoreImages
from .engine import METRICS, MetricRequest, Result, check_lines, default_names, evaluate, parse
from .features import Scores, Tools
from .image_folders import holds_images, open_images
from .measured_sources import MeasuredSource, check_sources, compare, compare_with_reals
from .measurement import Measurement, Metric
