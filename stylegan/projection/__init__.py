"""From a picture back to the latent that a generator makes it of (arXiv 1912.04958, appendix D)."""

from .distance import Distance, PerceptualDistance, PixelDistance, choose_distance, psnr
from .record import Record, file_names, recorded, write_png, write_record
from .search import Projected, Settings, Space, check_noise, project
from .target import read_target

__all__ = [
    "Distance",
    "PerceptualDistance",
    "PixelDistance",
    "Projected",
    "Record",
    "Settings",
    "Space",
    "check_noise",
    "choose_distance",
    "file_names",
    "project",
    "psnr",
    "read_target",
    "recorded",
    "write_png",
    "write_record",
]
