"""What each of two processes of `test_own_metrics.py` measures; also what one does alone."""

from pathlib import Path

import torch
from processes import one_of

from stylegan.data import Store
from stylegan.files.loading import load_generator
from stylegan.metrics import Subject, Tools
from stylegan.metrics.neighbours import nearest, samples
from stylegan.metrics.own import measure_own
from stylegan.metrics.own_network import Recipe, own_network
from stylegan.metrics.wasserstein import measure_swd

IMAGES = 25  # does not divide by 2
QUICK = Recipe(steps=3, batch=8)


def measured(folder, cache):
    """All metrics that need no download, and neighbours."""
    subject = Subject(
        load_generator("emoji32"), Store(folder / "store"), mirror=True, resolution=16, batch=4
    )
    tools = Tools(folder / cache)
    own, about, of_kinds = measure_own(subject, ["own-fd", "own-pr"], IMAGES, tools, QUICK)
    network = own_network(subject, tools, QUICK)
    found = nearest(samples(subject, 5), subject, network)
    return {
        "values": own | measure_swd(subject, ["swd"], IMAGES, tools).values,
        "halves": of_kinds["own-fd"]["between_halves_of_reals"],
        "sha256": about["sha256"],
        "neighbours": (found.indices.tolist(), found.mirrored.tolist(), found.distances.tolist()),
        "typical": found.typical,
    }


def work(rank, port, folder):
    """The whole life of one of two processes; its results go into `folder`."""
    with one_of(2, rank, port):
        results = measured(Path(folder), "cache of two")
    torch.save(results, Path(folder) / f"{rank}.pt")
