"""Weights of other programs -> our networks: the official ones, without TensorFlow, and those of
three in PyTorch."""

from stylegan.files.interop.accounts import Account, Rectangle, Snapshot
from stylegan.files.interop.checkpoints import import_weights
from stylegan.files.interop.correspondence import (
    TRANSLATED,
    config_from_official,
    truncation_defaults,
)
from stylegan.files.interop.official import (
    LODS,
    centred,
    discriminator_from_official,
    generator_from_official,
    load_official,
    mapping_from_official,
    reached,
    rectangle_in_name,
    synthesis_from_official,
)
from stylegan.files.interop.outward import official_settings, official_variables

__all__ = [
    "LODS",
    "TRANSLATED",
    "Account",
    "Rectangle",
    "Snapshot",
    "centred",
    "config_from_official",
    "discriminator_from_official",
    "generator_from_official",
    "import_weights",
    "load_official",
    "mapping_from_official",
    "official_settings",
    "official_variables",
    "reached",
    "rectangle_in_name",
    "synthesis_from_official",
    "truncation_defaults",
]
