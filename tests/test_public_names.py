"""Names that users import exist."""

import importlib

import pytest

import stylegan


@pytest.mark.parametrize("name", stylegan.__all__)
def test_public_names_of_the_package_import(name):
    assert getattr(stylegan, name)


def test_hubconf_imports_and_documents_every_entry():
    hubconf = importlib.import_module("hubconf")
    for name in ("faces64", "glyphs64", "generator", "discriminator"):
        assert "{" not in getattr(hubconf, name).__doc__.split("\n")[0]
