"""How good a generator is, in numbers that say how they came about."""

from stylegan.metrics.engine import KINDS as KINDS
from stylegan.metrics.engine import Request as Request
from stylegan.metrics.engine import Result as Result
from stylegan.metrics.engine import check_results_file as check_results_file
from stylegan.metrics.engine import default_names as default_names
from stylegan.metrics.engine import evaluate as evaluate
from stylegan.metrics.engine import halves as halves
from stylegan.metrics.engine import parse as parse
from stylegan.metrics.features import Tools as Tools
from stylegan.metrics.pictures import Pictures as Pictures
from stylegan.metrics.pictures import holds_pictures as holds_pictures
from stylegan.metrics.sources import GeneratorSamples as GeneratorSamples
from stylegan.metrics.sources import ImageSource as ImageSource
