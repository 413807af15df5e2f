"""The documents and the API reference as a web page: `sphinx-build -W -c docs . site`."""

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
