"""Directions in the space of w, and the edits along them."""

from stylegan.edits import Edit as Edit

from .files import (
    default_path,
    known_directions,
    load_directions,
    read_edits,
    save_directions,
    updated,
)
from .finding import (
    AMOUNTS,
    COUNT,
    METHODS,
    Directions,
    Method,
    closed_form_factors,
    covariance,
    draw_directions,
    find_directions,
    spectrum,
    style_matrix,
)
from .learning import Examples, check_name, examples_of, fit_hyperplane, to_directions
