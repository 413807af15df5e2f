"""A local page to play with a generator. All numbers are made without it, by pure functions."""

from stylegan.explore.scene import (
    Blend,
    Mixing,
    Scene,
    View,
    final_styles,
    grown,
    growth_of,
    render,
)

__all__ = ["Blend", "Mixing", "Scene", "View", "final_styles", "grown", "growth_of", "render"]
