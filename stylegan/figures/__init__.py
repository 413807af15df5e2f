"""Pictures arranged for people to look at: grids, and the figures of the paper."""

from stylegan.figures.layout import GAP, chart, default_columns, grid
from stylegan.figures.noise import noise_components, noise_detail
from stylegan.figures.points import (
    Points,
    classes,
    labelled_grid,
    of_latents,
    of_seeds,
    pictures,
    truncation,
)
from stylegan.figures.saving import check_picture, save_picture
from stylegan.figures.style_mixing import StyleRange, check_ranges, mixed, mixing, style_ranges
from stylegan.figures.training import evenly, moment, nearest, timelapse
