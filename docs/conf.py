"""The documents and the API reference as a web page: `sphinx-build -W -c docs . site`."""

import inspect
import re

from sphinx.application import Sphinx

from stylegan import __version__

project = "stylegan"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/*.rst", "datasets/README.md"]
html_theme = "furo"
html_title = f"stylegan {__version__}"
html_copy_source = False

default_role = "code"  # of `names` in docstrings
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
python_display_short_literal_types = True
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"

myst_enable_extensions = ["html_image"]
myst_heading_anchors = 4


def parameters_as_fields(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Make the lines `name: meaning` of a docstring a field list, which may go on over lines."""
    if not callable(obj):
        return
    try:
        parameters = inspect.signature(obj).parameters
    except (TypeError, ValueError):  # callable, but without a signature
        return
    for i, line in reversed(list(enumerate(lines))):
        match = re.match(r"(\w+(?:, \w+)*):( .*)", line)
        names = match[1].split(", ") if match else []
        if match and parameters.keys() >= set(names):
            # a blank line begins the list; `,` without a space, because Sphinx reads a type else
            lines[i : i + 1] = ["", f":param {','.join(names)}:{match[2]}"]


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", parameters_as_fields)
