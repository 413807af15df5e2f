"""Weights of other programs -> our networks, by the code of `stylegan.files.formats`."""

from stylegan.files.formats.correspondence import config_from_official as config_from_official
from stylegan.files.formats.foreign import import_weights as import_weights
from stylegan.files.formats.official import (
    discriminator_from_official as discriminator_from_official,
)
from stylegan.files.formats.official import generator_from_official as generator_from_official
from stylegan.files.formats.official import load_official as load_official
from stylegan.files.formats.official import mapping_from_official as mapping_from_official
from stylegan.files.formats.official import synthesis_from_official as synthesis_from_official
from stylegan.files.loaded import Snapshot as Snapshot
