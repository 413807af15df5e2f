"""How fast images come: batches from a store against ImageFolder, and how a store is prepared."""

import functools
import io
import os
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from contest import (
    ROOT,
    Contender,
    Result,
    Spread,
    Trial,
    conditions,
    contest,
    environment_for,
    markdown,
    number,
    options,
    ratio,
    save,
    spread,
    tree_of,
)
from PIL import Image

from stylegan.cli.common import Command
from stylegan.schedule import resolutions

if TYPE_CHECKING:
    from stylegan.data import Batch

COUNTS = {256: 300, 1024: 60}  # images of a source, by their size
PREPARED_COUNTS = {256: 120, 1024: 20}  # fewer, because encoding takes long
STEADY_SECONDS = 0.5
FAST_GPU = 440 * 1024  # images per second times resolution: ten times a fast GPU of today
ENCODERS: dict[str, dict[str, Any]] = {"PNG": {}, "JPEG": {"quality": 95}}
SCRIPTS = (("PNG", False), ("JPEG", False), ("JPEG", True))  # True: every size, as a store has
PARTS = ("loader", "waiting", "preparing")


def make_source(folder: Path, size: int, count: int) -> Path:
    """Synthetic photographs, JPEG (quality 92) and PNG in turn, each with an emoji; made once."""
    out = folder / f"{size}-{count}" / "all"
    if out.exists():
        return out.parent
    unfinished = Path(tempfile.mkdtemp(dir=folder))
    with zipfile.ZipFile(ROOT / "datasets" / "emoji-32.zip") as emoji:
        names = sorted(name for name in emoji.namelist() if name.endswith(".png"))
        for i in range(count):
            picture = photograph(np.random.default_rng(i), size)
            sprite = Image.open(io.BytesIO(emoji.read(names[i * 37 % len(names)]))).convert("RGBA")
            sprite = sprite.resize((size // 2, size // 2), Image.Resampling.BICUBIC)
            picture.paste(sprite, (i * 7 % (size // 2 + 1), size // 4), sprite)
            if i % 2:
                picture.save(unfinished / f"{i:06}.jpg", quality=92)
            else:
                picture.save(unfinished / f"{i:06}.png")
    out.parent.mkdir(exist_ok=True)
    unfinished.rename(out)
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


# Contenders: each makes a Trial of its settings, in a process of its own.


def steady(fetch: Callable[[], object], settings: dict[str, Any]) -> Trial:
    """Images per second of fetching batches, without those read ahead while others had their turn.

    The turn ends when as many have been read ahead again, so that this does not slow the others.
    """
    ahead, batch = 2 * settings["workers"] + 1, settings["batch"]
    rates: list[float] = []

    def once() -> None:
        for _ in range(ahead):
            fetch()
        started, fetched, elapsed = time.perf_counter(), 0, 0.0
        while elapsed < STEADY_SECONDS:
            fetch()
            fetched, elapsed = fetched + 1, time.perf_counter() - started
        rates.append(fetched * batch / elapsed)
        time.sleep(ahead * elapsed / fetched)

    return Trial(once, facts={"images_per_second": rates})


def stream_of(settings: dict[str, Any]) -> Iterator["Batch"]:
    """The batches of a store."""
    from stylegan.data import Store, batches

    return batches(
        Store(settings["store"]),
        settings["resolution"],
        batch_size=settings["batch"],
        start=0,
        seed=0,
        workers=settings["workers"],
    )


def from_store(settings: dict[str, Any]) -> Trial:
    """Batches of a store; with `process`, as floats in [-1, 1], half of them mirrored."""
    import torch

    from stylegan.data import process_reals

    stream = stream_of(settings)
    mirror = torch.arange(settings["batch"]) % 2 == 0

    def once() -> None:
        images = next(stream).images
        if settings["process"]:
            process_reals(images, mirror=mirror)

    return steady(once, settings)


def from_image_folder(settings: dict[str, Any]) -> Trial:
    """What a training script usually has."""
    import torch
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import (
        CenterCrop,
        Compose,
        Normalize,
        RandomHorizontalFlip,
        Resize,
        ToTensor,
    )

    torch.manual_seed(0)
    resolution, workers = settings["resolution"], settings["workers"]
    steps = [Resize(resolution), CenterCrop(resolution), RandomHorizontalFlip(), ToTensor()]
    images = ImageFolder(settings["source"], Compose([*steps, Normalize((0.5,) * 3, (0.5,) * 3)]))
    endless = RandomSampler(images, replacement=True, num_samples=10**9)  # no pause for an epoch
    loader = DataLoader(images, settings["batch"], sampler=endless, num_workers=workers)
    stream = iter(loader)
    return steady(lambda: next(stream), settings)


def waiting(settings: dict[str, Any]) -> Trial:
    """Steps of a GPU, in which the CPU has nothing to do, and how long each waits for its batch."""
    stream = stream_of(settings)
    waits: list[float] = []
    trial = Trial(lambda: None)

    def once() -> None:
        started = time.perf_counter()
        next(stream)
        waits.append(time.perf_counter() - started)
        time.sleep(settings["step_seconds"])
        trial.facts["waited"] = float(np.median(waits[len(waits) // 2 :]))

    trial.once = once
    return trial


def on_cores(number_of_cores: int) -> None:
    """Keep this process and its children to the first cores (on Linux)."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:number_of_cores])


def preparing(settings: dict[str, Any]) -> Trial:
    """`stylegan.data.prepare`, each time into a new folder."""
    from stylegan.data import prepare

    on_cores(settings["workers"])
    source, options = settings["source"], {k: settings[k] for k in ("resolution", "workers")}

    def once() -> None:
        with tempfile.TemporaryDirectory(dir=settings["folder"]) as folder:
            prepare(source, Path(folder) / "store", **options)

    return Trial(once)


def decode_file(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def reencode_file(path: Path, out: str, kind: str, sizes: Sequence[int]) -> None:
    """What scripts before training do: resize by Lanczos, write a file again, per size."""
    image = decode_file(path)
    for size in sizes:
        resized = image.resize((size, size), Image.Resampling.LANCZOS)
        resized.save(f"{out}/{path.stem}-{size}.{kind.lower()}", **ENCODERS[kind])


def each_file(
    settings: dict[str, Any], pool: Executor, handle: Callable[[Path], object]
) -> Callable[[], object]:
    """A call that handles every file of the source."""
    paths = sorted(Path(settings["source"]).rglob("*.*"))
    return lambda: list(pool.map(handle, paths))


def forget(path: Path) -> None:
    decode_file(path)


def decoding(settings: dict[str, Any]) -> Trial:
    """Decoding alone, on threads: what nobody can leave out."""
    on_cores(settings["workers"])
    return Trial(each_file(settings, ThreadPoolExecutor(settings["workers"]), forget))


def script(settings: dict[str, Any]) -> Trial:
    """Decode, resize, encode again; a process for each core."""
    on_cores(settings["workers"])
    folder = tempfile.TemporaryDirectory(dir=settings["folder"])
    sizes = resolutions(settings["resolution"]) if settings["all"] else [settings["resolution"]]
    handle = functools.partial(reencode_file, out=folder.name, kind=settings["kind"], sizes=sizes)
    once = each_file(settings, ProcessPoolExecutor(settings["workers"]), handle)
    return Trial(once, close=folder.cleanup)


# Questions: each is a table of rows, and of records for the JSON.

Answer = tuple[dict[str, str], dict[str, Any]]  # a row, a record
Run = Callable[[Sequence[Contender]], list[Result]]


def usual_batch(resolution: int) -> int:
    return min(128, max(4, 4096 // resolution))


def stored(source: Path, size: int) -> Path:
    """The store of a source, made once."""
    from stylegan.data import is_store, prepare

    out = source.with_name(f"{source.name}.store")
    if not is_store(out):
        prepare(source, out, resolution=size)
    return out


def rate(result: Result, images: int) -> Spread:
    return Spread.of(result.seconds).per(images)


def steady_rates(result: Result) -> list[float]:
    """Rates of the rounds, without those of the warm-up."""
    return list(result.facts["images_per_second"][-len(result.seconds) :])


def times_as_many(ours: Result, theirs: Result) -> str:
    pairs = zip(steady_rates(ours), steady_rates(theirs), strict=True)
    return number(Spread.of([a / b for a, b in pairs]).median)


def loader_rows(
    run: Run, folder: Path, sizes: Sequence[int], workers: Sequence[int]
) -> Iterator[Answer]:
    for resolution in sizes:
        size = min(size for size in COUNTS if size >= resolution)
        source = make_source(folder, size, COUNTS[size])
        for threads in workers:
            batch = usual_batch(resolution)
            common = {
                "source": str(source),
                "store": str(stored(source, size)),
                "resolution": resolution,
                "batch": batch,
                "workers": threads,
                "repeat_seconds": 0.0,
            }
            results = run(
                [
                    Contender("ImageFolder", "loading:from_image_folder", common),
                    Contender("store", "loading:from_store", common | {"process": False}),
                    Contender("processed", "loading:from_store", common | {"process": True}),
                ]
            )
            theirs, raw, processed = results
            row = {
                "resolution": str(resolution),
                "source": f"{size} px",
                "batch": str(batch),
                "workers": str(threads),
                "ImageFolder img/s": spread(Spread.of(steady_rates(theirs))),
                "store img/s": spread(Spread.of(steady_rates(raw))),
                "ratio": times_as_many(raw, theirs),
                "and process_reals img/s": spread(Spread.of(steady_rates(processed))),
                "its ratio": times_as_many(processed, theirs),
            }
            yield row, {"settings": common, "results": results}


def waiting_rows(run: Run, folder: Path, sizes: Sequence[int]) -> Iterator[Answer]:
    for resolution in sizes:
        size = min(size for size in COUNTS if size >= resolution)
        store = stored(make_source(folder, size, COUNTS[size]), size)
        for batch in (4, 32, 256):
            if batch * resolution > 2**15:
                continue
            step = batch * resolution / FAST_GPU
            settings = {"store": str(store), "resolution": resolution, "batch": batch}
            settings |= {"workers": 1, "step_seconds": step}
            (result,) = run([Contender("ours", "loading:waiting", settings)])
            waited = result.facts["waited"]
            row = {
                "resolution": str(resolution),
                "batch": str(batch),
                "step ms": number(step * 1e3),
                "waits ms": number(waited * 1e3),
                "share": f"{waited / (waited + step):.1%}",
            }
            yield row, {"settings": settings, "results": [result]}


def preparing_rows(
    run: Run, folder: Path, tree: Path, workers: Sequence[int], sizes: Sequence[tuple[int, int]]
) -> Iterator[Answer]:
    """One row for each way of handling a source; before, with `--against`, as that revision did."""
    for size, resolution in sizes:
        source = make_source(folder, size, PREPARED_COUNTS[size])
        entries, names = [], []
        for cores in [n for n in workers if n]:
            common = {"source": str(source), "folder": str(folder), "repeat_seconds": 0.0}
            common |= {"resolution": resolution, "workers": cores}
            own = [Contender("decoding alone", "loading:decoding", common)]
            own += [Contender("prepare", "loading:preparing", common)]
            if tree != ROOT:
                own += [Contender("prepare before", "loading:preparing", common, tree)]
            for kind, every in SCRIPTS:
                name = f"script, {kind}, {'all sizes' if every else 'one size'}"
                settings = common | {"kind": kind, "all": every}
                own.append(Contender(name, "loading:script", settings))
            entries += own
            names = [contender.name for contender in own]
        results = run(entries)  # one contest, so that ratios of cores are of the same rounds
        count, size_of_group = PREPARED_COUNTS[size], len(names)
        for i, (contender, result) in enumerate(zip(entries, results, strict=True)):
            decoded = results[i - i % size_of_group]
            beside = np.array(result.seconds) - np.array(decoded.seconds)
            row = {
                "source": f"{size} px",
                "resolution": str(resolution),
                "cores": str(contender.settings["workers"]),
                "what": result.name,
                "img/s": spread(rate(result, count)),
                "to one core": number(ratio(results[i % size_of_group], result).median),
                "beside decoding, ms/img": number(float(np.median(beside)) / count * 1e3),
            }
            yield row, {"settings": dict(contender.settings), "results": [result]}


@click.command(cls=Command)
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option(
    "--resolution",
    "sizes",
    type=int,
    multiple=True,
    help="Resolution of the loader's images.  [default: 4 to 1024]",
)
@click.option("--workers", type=int, multiple=True, default=[0, 1, 2], show_default=True)
@click.option(
    "--source-size",
    type=click.Choice([*map(str, COUNTS)]),
    multiple=True,
    default=[*map(str, COUNTS)],
    show_default=True,
    help="Size of the images to prepare.",
)
@click.option("--against", metavar="REVISION", help="Prepare as this revision did, too.")
@click.option("--min-rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--sources",
    type=click.Path(path_type=Path),
    default="out/benchmarks/sources",
    show_default=True,
    help="Folder of the images, made once; on a real disk.",
)
@options("threads", "malloc", "seconds", "out")
def main(
    parts: Sequence[str],
    sizes: Sequence[int],
    workers: Sequence[int],
    source_size: Sequence[str],
    against: str | None,
    min_rounds: int,
    sources: Path,
    threads: int,
    malloc: str,
    seconds: float,
    out: Path,
) -> None:  # fmt: skip
    """Measure the PARTS of loading (all of them): from files that are in memory already.

    loader: images per second at each resolution, the store's against ImageFolder + DataLoader.
    waiting: how long a step waits for its batch if it is ten times as fast as a fast GPU's.
    preparing: images per second of making a store, of decoding, of scripts that encode again.

    \b
    python benchmarks/loading.py loader --resolution 64 --workers 2
    python benchmarks/loading.py preparing --against HEAD~1
    """
    environment = environment_for(threads, malloc)
    sources = sources.absolute()
    sources.mkdir(parents=True, exist_ok=True)
    run = functools.partial(
        contest, environment=environment, seconds=seconds, min_rounds=min_rounds
    )
    chosen = sizes or resolutions(max(COUNTS))
    pairs = [(int(size), int(size)) for size in source_size]
    with tree_of(against) as tree:
        questions: dict[str, Callable[[], Iterator[Answer]]] = {
            "loader": lambda: loader_rows(run, sources, chosen, workers),
            "waiting": lambda: waiting_rows(run, sources, chosen),
            "preparing": lambda: preparing_rows(run, sources, tree, workers, pairs),
        }
        for part in parts or PARTS:
            rows, records = [], []
            for row, record in questions[part]():
                click.echo(markdown([row]) + "\n", err=True)
                rows.append(row)
                records.append(record)
            where = {"conditions": conditions(environment), "rows": records}
            click.echo(save(out, f"loading-{part}", f"Loading: {part}", where, rows))


if __name__ == "__main__":
    main()
