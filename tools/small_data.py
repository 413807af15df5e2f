"""How few pictures a metric can be believed on: blobs against half of the reals, by their number.

    stylegan train --config ablation-32 --out runs/blobs -o schedule.total_kimg=12
    python tools/small_data.py runs/blobs

Prints the table of docs/metrics.md: each metric without a download, of as many samples as there are
real images in either half, 100, 300, 1,000 and all.
"""

import tempfile
from pathlib import Path

import click
import numpy as np
import torch

from stylegan.files.loading import load_source
from stylegan.metrics import Subject
from stylegan.metrics.eff import DISTANCES
from stylegan.metrics.efficientnet import efficientnet
from stylegan.metrics.reals import store_of
from stylegan.metrics.statistics import LEAST_FOR_NEIGHBORHOODS, precision_recall
from stylegan.metrics.wasserstein import sliced_wasserstein
from stylegan.run_folder import RunFolder

NUMBERS = (50, 100, 300, 1000)  # and all of a half


@click.command()
@click.argument("run")
def main(run: str) -> None:
    """Compare the samples of RUN, an early one, and half of its data with the other half."""
    loaded = load_source(run)
    store = store_of(loaded, RunFolder.at(run))
    assert store is not None
    images = torch.from_numpy(store.images(loaded.resolution)[:])
    order = torch.from_numpy(np.random.RandomState(0).permutation(len(images)))
    half = len(images) // 2
    reals, other = images[order[:half]], images[order[half : 2 * half]]
    blobs = torch.cat(list(Subject.of(loaded, store).fakes(half)))
    network = efficientnet(torch.device("cpu"), loaded.resolution)
    sets = {"half of the reals": other, "blobs": blobs, "reals": reals}
    features = {
        name: torch.cat([network(some) for some in x.split(64)]) for name, x in sets.items()
    }
    print("| images of each | | eff-fd | eff-kid | swd | eff-precision | eff-recall |")
    print("|---|---|---|---|---|---|---|")
    for n in sorted({*(n for n in NUMBERS if n < half), half}):
        theirs = features["reals"][:n].numpy()
        for name in ("half of the reals", "blobs"):
            ours = features[name][:n].numpy()
            found = [distance(ours, theirs) for distance in DISTANCES.values()]
            shape = (n, images.shape[1], loaded.resolution, loaded.resolution)
            with tempfile.TemporaryDirectory() as folder:
                pair = [reals[:n]], [sets[name][:n]]
                found.append(sliced_wasserstein(*pair, shape, folder=Path(folder))["swd"])
            cells = [f"{value:.3g} ({low:.3g} to {high:.3g})" for value, (low, high) in found]
            both = [f"{share:.2f}" for share in precision_recall(ours, theirs)]
            refused = ["refused" if n < LEAST_FOR_NEIGHBORHOODS else "" for _ in both]
            cells += [f"{text} {why}".strip() for text, why in zip(both, refused, strict=True)]
            print(f"| {n:,} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
