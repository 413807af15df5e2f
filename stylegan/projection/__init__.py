"""Projection: find latents from which a generator synthesizes a given image."""

from .batch import ProjectionRequest, default_batch, outputs_of, project_files, read_target
from .distance import Distance, PerceptualDistance, PixelDistance, choose_distance, psnr
from .search import SearchOptions, SearchState, Space, check_noise, project
from .tuning import TuningOptions, TuningState, tune
