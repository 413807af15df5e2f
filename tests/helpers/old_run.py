"""Writes `tests/assets/old_run` anew, where the format of a run's files has changed on purpose.

    cd tests && python -m helpers.old_run

A run that was stopped between two readings of its schedule, while 8x8 fades in; and where the
program that wrote it takes it.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path

import torch

from helpers.tiny_training import QUIET, tiny_config, train_tiny, write_pictures
from stylegan.data import prepare

FOLDER = Path(__file__).parents[1] / "assets" / "old_run"
STOPPED, END = 52, 60  # images
OPTIONS = {
    "batch_gpu": 2,
    "network": {
        "resolution": 8,
        "label_dim": 2,
        "z_dim": 3,
        "w_dim": 4,
        "mapping_layers": 1,
        "mapping_width": 4,
        "max_channels": 4,
    },
    "schedule": {"total_kimg": END / 1000},
    "data": {"labels": True},
}


def write() -> None:
    config = tiny_config(**OPTIONS)
    store = prepare(write_pictures(Path("pictures"), n=10, size=8), Path("store"))
    train_tiny(config, store, Path("run"), stop_at=STOPPED)
    shutil.copytree("run", "continued")
    train_tiny(config, store, Path("continued"), **QUIET)
    for path in [*FOLDER.glob("*/*"), *FOLDER.glob("*.pt")]:
        path.unlink()
    for path in Path("store").iterdir():
        shutil.copy(path, FOLDER / "store")
    for name in ("config.toml", f"state-{STOPPED:09}.pt"):
        shutil.copy(Path("run") / name, FOLDER / "run")
    for name in (f"state-{END:09}.pt", f"generator-{END:09}.pt"):
        shutil.copy(Path("continued") / name, FOLDER)


if __name__ == "__main__":
    torch.set_num_threads(1)  # last bits depend on it
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        write()
