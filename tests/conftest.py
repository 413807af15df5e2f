"""Fixtures of several test files; and one thread per process, here and in those that tests start.

Tiny networks gain nothing from a second thread, and beside busy processes two threads that wait for
each other take ten times as long as one. Nor do those that tests start inherit that Ctrl-C is
ignored, as it is in the background of a script.
"""

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from pathlib import Path

import pytest
from pictures import mixed_source
from tiny_training import tiny_store

from stylegan.data import cached_store

EMOJI = Path(__file__).parent.parent / "datasets" / "emoji-32.zip"


@pytest.fixture(params=["folder", "zip"])
def mixed(request, tmp_path):
    """The same files as a folder and as a zip."""
    return mixed_source(request.param, tmp_path)


@pytest.fixture(scope="session")
def smileys(tmp_path_factory):
    """91 faces of 32x32 pixels."""
    cache = tmp_path_factory.mktemp("smileys")
    return cached_store(EMOJI, resolution=32, include=["smileys"], cache_dir=cache)


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """14 random images of 16x16 pixels in two classes."""
    return tiny_store(tmp_path_factory.mktemp("store"))
