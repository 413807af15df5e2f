"""Directions in W, and edits along them."""

from stylegan.networks.edits import Edit

from .finding import COUNT, METHODS, Directions, Method, draw_directions, find_directions
from .learning import check_name, examples_of, fit_hyperplane, to_directions
from .storage import (
    add_directions,
    default_path,
    load_directions,
    load_or_find_directions,
    others_in,
    read_edits,
    save_directions,
)
