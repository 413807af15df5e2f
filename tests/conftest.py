"""Fixtures of several test files; a process for each core, each of them with one thread.

Tiny networks gain nothing from a second thread, and beside busy processes two threads that wait for
each other take ten times as long as one; so have the processes that tests start. Nor do those
inherit that Ctrl-C or the end of the terminal is ignored, as they are in the background of a script
and under nohup.
"""

import os
import signal
import zipfile
from contextlib import nullcontext
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

import psutil
import pytest
import torch
from helpers import ROOT
from helpers.perturbed_products import perturbed_products
from helpers.pictures import MIXED, archive, write_folder
from helpers.tiny_generators import random_generator
from helpers.tiny_training import tiny_config, tiny_store, train_tiny

from stylegan.data import Preparation, cached_store
from stylegan.files.formats.native import save_generator

FACES = ROOT / "datasets" / "faces-64.zip"
FEW_FILES = 3
MOST_WORKERS = 8  # beyond, the longest tests decide
WORKER_BYTES = 2**31  # that the largest test of a worker takes at most


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """The default tests of a folder or many files run in several processes, unless `-n` says how.

    A few files do not: each process takes seconds to import torch. Nor do slow tests, which start
    processes themselves, or those that somebody watches.
    """
    option = config.option
    many = len(config.args) > FEW_FILES or any(Path(name).is_dir() for name in config.args)
    watched = option.usepdb or option.collectonly or option.capture == "no"
    default = config.getini("addopts")[-1] == option.markexpr
    spread = config.pluginmanager.hasplugin("xdist") and not hasattr(config, "workerinput")
    if spread and many and default and not watched and option.numprocesses is None:
        option.numprocesses = workers()
        option.dist = "worksteal"  # neighbors stay together: they share fixtures


def workers():
    """Processes that the cores and the memory of this machine suffice for; 0: this one alone."""
    cores = len(psutil.Process().cpu_affinity()) if psutil.LINUX else psutil.cpu_count()
    most = min(cores, psutil.virtual_memory().available // WORKER_BYTES, MOST_WORKERS)
    return most if most > 1 else 0


@pytest.fixture(scope="session", autouse=True)
def another_processor():
    """With PERTURB_PRODUCTS=1, 2, ... products round as on some other processor."""
    seed = int(os.environ.get("PERTURB_PRODUCTS", "0"))
    with perturbed_products(seed) if seed else nullcontext():
        yield


@pytest.fixture(autouse=True)
def same_threads():
    """What a test makes of the number of threads, on which last bits depend, ends with it."""
    threads = torch.get_num_threads()
    yield
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


@pytest.fixture(params=["folder", "zip"])
def mixed(request, tmp_path):
    """The same files as a folder and as a zip."""
    make = archive if request.param == "zip" else write_folder
    return make(tmp_path / f"mixed.{request.param}", MIXED)


@pytest.fixture
def source(tmp_path):
    """The file of a tiny generator."""
    path = tmp_path / "mine.pt"
    save_generator(path, random_generator())
    return path


@pytest.fixture(scope="session")
def faces(tmp_path_factory):
    """91 of the bundled faces at 32x32 pixels."""
    folder = tmp_path_factory.mktemp("faces")
    with zipfile.ZipFile(FACES) as bundled:
        bundled.extractall(folder / "faces", bundled.namelist()[1:92])
    return cached_store(folder / "faces", Preparation(resolution=32), cache_dir=folder / "cache")


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """14 random images of 16x16 pixels in two classes."""
    return tiny_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def whole(store, tmp_path_factory):
    """A finished run that nothing interrupted: its folder and its state."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return out, train_tiny(tiny_config(), store, out)
