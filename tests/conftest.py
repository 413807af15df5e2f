"""Fixtures of several test files."""

import pytest
from pictures import mixed_source


@pytest.fixture(params=["folder", "zip"])
def mixed(request, tmp_path):
    """The same files as a folder and as a zip."""
    return mixed_source(request.param, tmp_path)
