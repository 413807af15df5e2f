"""Images arranged for display: grids, and the figures of the paper."""

from stylegan.figures.layout import FORMATS, GAP, default_columns, grid, image_table, save_image
from stylegan.figures.noise import noise_components, noise_detail
from stylegan.figures.points import (
    LatentPoints,
    classes,
    evenly,
    generate_images,
    labeled_grid,
    moment,
    nearest,
    of_latents,
    points_from_seeds,
    timelapse,
    timelapse_of_samples,
    truncation,
)
from stylegan.figures.style_mixing import StyleRange, check_ranges, mix_styles, mixing, style_ranges
