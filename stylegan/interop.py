"""Weights of the official program -> our networks, without TensorFlow and without running pickles.

A door: the code lives in `stylegan.files.formats`.
"""

from stylegan.files.formats import import_weights
from stylegan.files.formats.correspondence import config_from_official
from stylegan.files.formats.official import (
    discriminator_from_official,
    generator_from_official,
    load_official,
    mapping_from_official,
    official_settings,
    official_variables,
    synthesis_from_official,
)
from stylegan.files.snapshot import Snapshot

__all__ = [
    "Snapshot",
    "config_from_official",
    "discriminator_from_official",
    "generator_from_official",
    "import_weights",
    "load_official",
    "mapping_from_official",
    "official_settings",
    "official_variables",
    "synthesis_from_official",
]
