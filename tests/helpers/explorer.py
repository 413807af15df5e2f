"""A tiny generator to explore: three classes, loud noise, an average w of its own."""

import json

from helpers.tiny_generators import TINY, loaded_of, random_generator
from stylegan.directions import find_directions
from stylegan.explore.controls import moves_along
from stylegan.explore.page import Page

NAMES = ("<b>a/b</b>", "笑", "z")  # of its classes; what a page may get from a folder


def explored(config=TINY, methods=("pca", "sefa"), **about):
    """A page for it, with two directions of each method, found on few latents."""
    generator = random_generator(config, noise=0.5)
    names = NAMES if config.label_dim else ()
    loaded = loaded_of(generator, **{"label_names": names, **about})
    directions = find_directions(generator, methods, count=2, samples=200)
    return Page(loaded, moves_along(directions), "tiny")


def values(page, **changes):
    """The values of the page's controls at first, with some moved."""
    controls = [one for section in page.controls.sections.values() for one in section]
    first = {one.name: one.value for one in controls}
    return json.loads(json.dumps(first)) | changes  # as a browser sends them
