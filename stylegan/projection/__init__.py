"""From a picture back to the latent that a generator makes it of (arXiv 1912.04958, appendix D)."""

from .distance import Distance, PerceptualDistance, PixelDistance, choose_distance, psnr
from .results import (
    Projection,
    check_free,
    default_batch,
    film_name,
    followed,
    project_files,
    write_projection,
)
from .search import SearchOptions, SearchState, Space, check_noise, project
from .target import read_target

__all__ = [
    "Distance",
    "PerceptualDistance",
    "PixelDistance",
    "Projection",
    "SearchOptions",
    "SearchState",
    "Space",
    "check_free",
    "check_noise",
    "choose_distance",
    "default_batch",
    "film_name",
    "followed",
    "project",
    "project_files",
    "psnr",
    "read_target",
    "write_projection",
]
