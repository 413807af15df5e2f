"""What the commands that measure share: a run's data, results kept, progress shown."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stylegan.cli.common import prepared_store, progress_bar

if TYPE_CHECKING:
    from PIL.Image import Image

    from stylegan.data import Crop, Store
    from stylegan.files.loading import LoadedGenerator
    from stylegan.metrics import Request, Result, Subject, Tools
    from stylegan.run_folder import RunFolder
    from stylegan.schedule import Stage
    from stylegan.training import Evaluation, TrainState

Plan = Sequence[tuple["Subject", Sequence["Request"]]]


def note(text: str) -> None:
    """What is no result; only one process speaks."""
    from stylegan import distributed

    if distributed.rank() == 0:
        click.echo(text, err=True)


def measuring_tools(
    weights: Path | None = None, classifiers: tuple[Path, ...] = (), *, crop_faces: bool = False
) -> "Tools":
    """With the cache of this user, telling what is no result on stderr."""
    from stylegan.data import default_cache_dir
    from stylegan.metrics import Tools

    cache = default_cache_dir() / "metrics"
    return Tools(cache, weights, classifiers, tell=note, crop_faces=crop_faces)


def keep(result: "Result", out: Path | None) -> None:
    from stylegan import distributed
    from stylegan.records import append_line

    if distributed.rank() == 0 and out is not None:
        append_line(out, result.line())


def open_store(
    data: Path | None, run: "RunFolder | None", loaded: "LoadedGenerator"
) -> "Store | None":
    """The real images, prepared as for training; None where nobody says which."""
    known, config = (run.data(), run.config().data) if run else (None, None)
    path = data or known
    if path is None or (data is None and not path.exists()):
        if path is not None:
            note(f"the run's images are no longer at {path}; pass --data")
        return None
    trained_on = known is not None and path.resolve() == known
    if config and config.include and not trained_on:
        note(f"all of {path} is used, not only {', '.join(config.include)} as by the run")
    network = loaded.generator.config
    crop: Crop = "center" if loaded.active_rectangle is None else "pad"
    return prepared_store(
        path,
        resolution=network.resolution,
        crop=config.crop if config else crop,
        channels=network.image_channels,
        include=config.include if config and trained_on else (),
    )


def beside_nearest(
    loaded: "LoadedGenerator", store: "Store", samples: int, nearest: int, *, mirror: bool
) -> "Image":
    """The first samples, untruncated, each beside the training images nearest to it by our own
    network; with a bar."""
    from stylegan import sampling
    from stylegan.metrics import Subject
    from stylegan.metrics.neighbours import samples_and_nearest
    from stylegan.metrics.own import network_of

    with progress_of_images() as progress:
        subject = Subject(
            loaded.generator,
            store,
            mirror=mirror,
            resolution=loaded.resolution,
            alpha=loaded.alpha,
            batch=sampling.default_batch(loaded.resolution),
            progress=progress,
        )
        network = network_of(subject, measuring_tools())
        return samples_and_nearest(subject, network, samples, nearest)


def marks(subject: "Subject", requests: "Sequence[Request]") -> Plan:
    """The yardsticks, and of what was asked that which compares with reals; of half of the reals
    no more images than there are."""
    from stylegan.metrics import KINDS, AverageImage, OtherHalf

    compared = [request for request in requests if KINDS[request.kind].reals]
    most = len(subject.real_images()) // 2 * (2 if subject.mirror else 1)
    fewer = [request._replace(images=min(request.images, most)) for request in compared]
    return [(OtherHalf.beside(subject), fewer), (AverageImage.beside(subject), compared)]


@contextmanager
def progress_of_images() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr for every pass over images, of the first process's share."""
    from stylegan import distributed

    with ExitStack() as stack:
        current: tuple[str, Callable[[int, int], None]] | None = None

        def show(what: str, done: int, total: int) -> None:
            nonlocal current
            if distributed.rank() > 0:
                return
            if current is None or current[0] != what:
                stack.close()
                current = what, stack.enter_context(progress_bar(f"img {what}"))
            current[1](done, total)
            if done >= total:
                stack.close()
                current = None

        yield show


def evaluation_of(
    names: str,
    every_kimg: float | None,
    run: "RunFolder",
    mirror: bool,
    store: "Store",
    weights: Path | None = None,
) -> "Evaluation":
    """What a training run measures, on the images that it is trained on; the first of `names`
    tells which generator is best."""
    from stylegan import sampling
    from stylegan.metrics import KINDS, Subject, evaluate, parse, score_name
    from stylegan.training import Evaluation

    requests = parse(names)
    if any(KINDS[request.kind].network == "classifiers" for request in requests):
        raise ValueError("ls needs classifiers, which a run cannot be given; use stylegan metrics")
    tools = measuring_tools(weights)

    def measure(state: "TrainState", stage: "Stage") -> dict[str, float]:
        with progress_of_images() as progress:
            subject = Subject(
                state.generator_ema,
                store,
                mirror=mirror,
                resolution=stage.resolution,
                alpha=stage.alpha,
                batch=min(sampling.default_batch(stage.resolution), stage.batch_size),
                progress=progress,
                origin=f"the run {run.path}",
                images_seen=state.images_seen,
            )
            scores: dict[str, float] = {"resolution": stage.resolution}
            for result in evaluate(subject, requests, tools, tell=note):
                keep(result, run.metrics_file)
                scores |= result.scores()
        return scores

    first = requests[0]
    best_by = score_name(first.name, KINDS[first.kind].best_by)
    return Evaluation(measure, best_by, bool(KINDS[first.kind].lower_is_better), every_kimg)
