"""How fast images come: batches of a store against ImageFolder with a DataLoader."""

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from contest import (
    Contender,
    Spread,
    Trial,
    conditions,
    contest,
    environment_for,
    options,
    ratio,
    save,
    spread,
)
from PIL import Image

from stylegan.cli.common import Command
from stylegan.schedule import resolutions

COUNTS = {256: 300, 1024: 60}  # images of a source, by their size
BATCHES = 10  # of a call


def make_source(folder: Path, size: int) -> Path:
    """Synthetic photographs in a new folder, JPEG (quality 92) and PNG in turn."""
    out = folder / f"{size}" / "all"
    out.mkdir(parents=True)
    for i in range(COUNTS[size]):
        picture = photograph(np.random.default_rng(i), size)
        if i % 2:
            picture.save(out / f"{i:06}.jpg", quality=92)
        else:
            picture.save(out / f"{i:06}.png")
    return out.parent


def photograph(rng: np.random.Generator, size: int) -> Image.Image:
    """Noise of all scales, fainter the finer, as photographs have it."""
    values = np.full((size, size, 3), 128, np.float32)
    for scale in resolutions(size):
        noise = rng.normal(0, 60 / scale**0.75, (3, scale, scale)).astype(np.float32)
        for channel, plane in enumerate(noise):
            enlarged = Image.fromarray(plane).resize((size, size), Image.Resampling.BICUBIC)
            values[..., channel] += np.asarray(enlarged)
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def from_store(settings: dict[str, Any]) -> Trial:
    """Batches of a store; with `process`, as floats in [-1, 1], half of them mirrored."""
    import torch

    from stylegan.data import Store, batches, process_reals

    stream = batches(
        Store(settings["store"]),
        settings["resolution"],
        batch_size=settings["batch"],
        start=0,
        seed=0,
        workers=settings["workers"],
    )
    mirror = torch.arange(settings["batch"]) % 2 == 0

    def once() -> None:
        for _ in range(BATCHES):
            images = next(stream).images
            if settings["process"]:
                process_reals(images, mirror=mirror)

    return Trial(once)


def from_image_folder(settings: dict[str, Any]) -> Trial:
    """What a training script usually has."""
    import torch
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    torch.manual_seed(0)
    resolution = settings["resolution"]
    workers = settings["workers"]
    steps = [
        transforms.Resize(resolution),
        transforms.CenterCrop(resolution),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.5,) * 3, (0.5,) * 3),
    ]
    images = ImageFolder(settings["source"], transforms.Compose(steps))
    endless = RandomSampler(images, replacement=True, num_samples=10**9)  # no pause for an epoch
    stream = iter(DataLoader(images, settings["batch"], sampler=endless, num_workers=workers))
    return Trial(lambda: [next(stream) for _ in range(BATCHES)])


@click.command(cls=Command)
@click.argument("sizes", type=int, nargs=-1)
@click.option("--workers", type=int, multiple=True, default=[0, 2], show_default=True)
@options("threads", "malloc", "seconds", "out")
def main(
    sizes: Sequence[int],
    workers: Sequence[int],
    threads: int,
    malloc: str,
    seconds: float,
    out: Path,
) -> None:
    """Images per second at SIZES (64, 256 and 1024 unless given), files in the page cache.

    \b
    python benchmarks/loader.py 64 --workers 2
    """
    from stylegan.data import Preparation, prepare

    environment = environment_for(threads, malloc)
    record: dict[str, Any] = {"conditions": conditions(environment), "rows": []}
    rows = []
    text = ""
    with tempfile.TemporaryDirectory() as folder:
        made: dict[int, Path] = {}
        for resolution, threads in itertools.product(sizes or (64, 256, 1024), workers):
            size = min(size for size in COUNTS if size >= resolution)
            if size not in made:
                made[size] = make_source(Path(folder), size)
                prepare(made[size], Path(folder, f"{size}.store"), Preparation(resolution=size))
            batch = min(128, max(4, 4096 // resolution))
            common: dict[str, Any] = {
                "source": str(made[size]),
                "store": str(Path(folder, f"{size}.store")),
            }
            common |= {"resolution": resolution, "batch": batch, "workers": threads}
            rivals = [
                Contender("store", "loader:from_store", common | {"process": False}),
                Contender("process_reals", "loader:from_store", common | {"process": True}),
                Contender("ImageFolder", "loader:from_image_folder", common),
            ]
            results = contest(rivals, environment, seconds)
            cells = {"px": str(resolution), "batch": str(batch), "workers": str(threads)}
            for result in results:
                if not result.seconds:
                    cells[f"{result.name} img/s"] = result.error
                    continue
                rate = Spread.of(result.seconds).per(batch * BATCHES)
                cells[f"{result.name} img/s"] = spread(rate)
                if result is not results[-1] and results[-1].seconds:
                    cells[f"{result.name} ratio"] = spread(ratio(results[-1], result), "x")
            rows.append(cells)
            record["rows"].append({**common, "results": results})
            text = save(out, "loader", "Loading", record, rows)
    click.echo(text)


if __name__ == "__main__":
    main()
