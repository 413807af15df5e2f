"""Weights of the official program -> our networks, without TensorFlow and without running pickles.

A door: the code lives in `stylegan.files.interop`.
"""

from stylegan.files.interop import (
    Snapshot,
    config_from_official,
    discriminator_from_official,
    generator_from_official,
    import_weights,
    load_official,
    mapping_from_official,
    official_settings,
    official_variables,
    synthesis_from_official,
)

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
