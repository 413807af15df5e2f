"""Images arranged for display: grids, and the figures of the paper."""

from stylegan.figures.layout import (
    FORMATS,
    GAP,
    chart,
    default_columns,
    grid,
    save_picture,
)
from stylegan.figures.noise import noise_components, noise_detail
from stylegan.figures.points import (
    Points,
    classes,
    evenly,
    labeled_grid,
    moment,
    nearest,
    of_latents,
    of_seeds,
    pictures,
    timelapse,
    timelapse_of_samples,
    truncation,
)
from stylegan.figures.style_mixing import StyleRange, check_ranges, mixed, mixing, style_ranges
