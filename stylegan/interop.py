"""Convert weights of other programs to our networks; the code is in `stylegan.files.formats`."""

# ruff: noqa: F401
from stylegan.files.formats.foreign import import_weights
from stylegan.files.formats.official import (
    discriminator_from_official,
    generator_from_official,
    load_official,
    mapping_from_official,
    synthesis_from_official,
)
from stylegan.files.formats.official_names import config_from_official
from stylegan.files.weights import Weights as Snapshot
