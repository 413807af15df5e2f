"""Pictures arranged for people to look at: grids, and the figures of the paper."""

from stylegan.figures.layout import GAP, chart, default_columns, grid
from stylegan.figures.noise import noise_components, noise_detail
from stylegan.figures.points import (
    Points,
    labelled_grid,
    of_latents,
    of_seeds,
    pictures,
    shown,
    swept,
    truncation,
)
from stylegan.figures.style_mixing import StyleRange, check_ranges, mixed, mixing, style_ranges
from stylegan.figures.training import evenly, growth, moment, nearest, timelapse

__all__ = [
    "GAP",
    "Points",
    "StyleRange",
    "chart",
    "check_ranges",
    "default_columns",
    "evenly",
    "grid",
    "growth",
    "labelled_grid",
    "mixed",
    "mixing",
    "moment",
    "nearest",
    "noise_components",
    "noise_detail",
    "of_latents",
    "of_seeds",
    "pictures",
    "shown",
    "style_ranges",
    "swept",
    "timelapse",
    "truncation",
]
