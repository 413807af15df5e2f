"""Directions in the space of w, and the edits along them."""

from stylegan.directions.files import default_path, load_directions, save_directions, updated
from stylegan.directions.finding import (
    AMOUNTS,
    COUNT,
    METHODS,
    Directions,
    Method,
    closed_form_factors,
    covariance,
    deviations_along,
    draw_directions,
    find_directions,
    spectrum,
    style_matrix,
)
from stylegan.directions.learning import Examples, examples_of, fit_hyperplane, to_directions
from stylegan.directions.named import check_name, known_directions, read_edits
from stylegan.edits import Edit as Edit
