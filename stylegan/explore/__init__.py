"""A local page to play with a generator. All numbers are made without it, by pure functions."""

from stylegan.explore.maps import activations, contact_sheet
from stylegan.explore.scene import (
    Blend,
    Mixing,
    Plane,
    Scene,
    View,
    final_styles,
    grown,
    growth_of,
    render,
)

__all__ = [
    "Blend",
    "Mixing",
    "Plane",
    "Scene",
    "View",
    "activations",
    "contact_sheet",
    "final_styles",
    "grown",
    "growth_of",
    "render",
]
