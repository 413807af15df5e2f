"""Names that users import, and those on the pages, exist."""

import json
import pkgutil
import re

import pytest
from helpers import ROOT
from helpers.documents import PAGES

import stylegan

CODE = re.compile(r"`(stylegan(?:\.\w+)+)[`(]")
IMPORT = re.compile(r"^(?:>>> | )*from (stylegan[\w.]*) import (?:\(([^)]+)\)|([\w, ]+))", re.M)
ENTRY = re.compile(r"^\.\. (?:auto\w+|data):: (\S+)((?:\n   :.*)*)", re.M)  # of Sphinx


@pytest.mark.parametrize("name", stylegan.__all__)
def test_public_names_of_the_package_import(name):
    assert getattr(stylegan, name)


def names_on(page):
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    for module, *lists in IMPORT.findall(text):
        yield from (f"{module}.{name}" for name in re.findall(r"\w+", " ".join(lists)))
    for name, options in ENTRY.findall(text):
        members = re.findall(r":members: (.+)", options)
        yield from (name, *(f"{name}.{m}" for m in re.findall(r"\w+", " ".join(members))))
    yield from CODE.findall(text)


def test_names_on_pages_resolve():
    pages = [*PAGES, ROOT / "docs" / "api.rst"]
    found = [name for page in pages if page.exists() for name in names_on(page)]  # some in an sdist
    assert len(found) > 150
    for name in found:
        pkgutil.resolve_name(name)
