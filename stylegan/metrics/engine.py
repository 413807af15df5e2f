"""From names of metrics to results that say how they came about."""

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from stylegan import distributed
from stylegan.metrics.eff import measure_eff
from stylegan.metrics.efficientnet import HOW_TO_GET, weights_path
from stylegan.metrics.features import Measured, Tools
from stylegan.metrics.inception import measure_inception
from stylegan.metrics.path_length import measure_path_length
from stylegan.metrics.separability import measure_separability
from stylegan.metrics.subject import AverageImage, OtherHalf, Samples
from stylegan.metrics.wasserstein import measure_swd
from stylegan.records import LONGEST_LINE, append_line, device_name, to_line, versions

# of kinds, that many images each; metrics of one function share its passes over images
Measure = Callable[[Samples, Collection[str], int, Tools], Measured]


class Kind(NamedTuple):
    """A metric."""

    measure: Measure | None  # None: withdrawn; results of earlier versions are still shown
    images: int  # samples, if the name has no number
    reals: bool  # whether it compares with real images
    lower_is_better: bool | None
    best_by: str  # the name of its main result
    help: str


KINDS: Mapping[str, Kind] = {
    "fid": Kind(measure_inception, 50_000, True, True, "fid", "Frechet Inception distance"),
    "kid": Kind(measure_inception, 50_000, True, True, "kid", "kernel Inception distance"),
    "pr": Kind(measure_inception, 50_000, True, False, "precision", "precision and recall"),
    "is": Kind(measure_inception, 50_000, False, False, "is", "Inception score"),
    **{
        f"ppl-{name}": Kind(measure_path_length, 100_000, False, True, f"ppl-{name}", text)
        for name, text in (
            ("z-full", "perceptual path length"),
            ("w-full", "perceptual path length in W"),
            ("z-end", "the same at t = 0"),
            ("w-end", "the same in W at t = 0"),
        )
    },
    "ls": Kind(
        measure_separability, 200_000, False, True, "ls-w", "linear separability in W and Z"
    ),
    "swd": Kind(
        measure_swd, 16_384, True, True, "swd", "sliced Wasserstein distance, per resolution"
    ),
    "eff-fd": Kind(
        measure_eff, 5_000, True, True, "eff-fd", "Frechet distance, EfficientNet features"
    ),
    "eff-kid": Kind(
        measure_eff, 5_000, True, True, "eff-kid", "kernel distance, EfficientNet features"
    ),
    "eff-pr": Kind(
        measure_eff,
        5_000,
        True,
        False,
        "eff-precision",
        "precision, recall, EfficientNet features",
    ),
    "own-fd": Kind(None, 10_000, True, True, "own-fd", "Frechet distance, withdrawn"),
    "own-pr": Kind(None, 10_000, True, False, "own-precision", "precision, recall, withdrawn"),
}
NAMES = tuple(name for name, kind in KINDS.items() if kind.measure)  # that can be asked for
DEFAULT = "eff-fd,eff-pr,swd"  # where EfficientNet's weights are installed
WITHOUT_FEATURES = "swd"


PATTERN = re.compile(r"([a-z]+(?:-[a-z]+)*?)(?:(\d+)(k?))?")  # a kind, a number of images


class Request(NamedTuple):
    """One metric that was asked for."""

    kind: str
    images: int

    @property
    def name(self) -> str:
        """Kind and number of images, thousands as k: `fid50k`, `swd16384`."""
        n = self.images
        return f"{self.kind}{n // 1000}k" if n % 1000 == 0 else f"{self.kind}{n}"


def parse(names: str, images: int | None = None) -> list[Request]:
    """`fid50k,kid,ppl-z-full10k` as requests, each once; of `images` where the name has no number,
    else of as many as usual. ValueError for what cannot be measured."""
    found: dict[Request, None] = {}
    for name in names.split(","):
        match = PATTERN.fullmatch(name.strip())
        kind = match[1] if match else ""
        if match is None or kind not in KINDS:
            raise ValueError(
                f"there is no metric {name.strip()!r}; known: {', '.join(NAMES)}, with a number "
                "of images behind if you like, as in fid50k"
            )
        if kind not in NAMES:
            raise ValueError(
                f"{kind} was withdrawn, because it called coloured blobs nearly as good as real "
                f"images; use {kind.replace('own', 'eff')} ({HOW_TO_GET})"
            )
        number = int(match[2]) * (1000 if match[3] else 1) if match[2] else images
        request = Request(kind, KINDS[kind].images if number is None else number)
        if request.images < 2:
            raise ValueError(f"{name.strip()}: at least 2 images are needed")
        found[request] = None
    return list(found)


def kind_of(metric: str) -> Kind | None:
    """What a name of a result means; None for one that this version does not know."""
    match = PATTERN.fullmatch(metric)
    return KINDS.get(match[1]) if match else None


def default_names() -> str:
    """The metrics that need no download and can be measured here."""
    return DEFAULT if weights_path() else WITHOUT_FEATURES


class Result(NamedTuple):
    """One metric's numbers, and everything that defines them."""

    metric: str  # with the number of images, as in fid50k
    values: dict[str, float]
    protocol: dict[str, Any]

    def line(self) -> str:
        """One line of JSON; a number that is not finite becomes null."""
        return to_line(self._asdict())

    def append_to(self, path: Path) -> None:
        """Add the line to a file, in the first process."""
        if distributed.rank() == 0:
            append_line(path, self.line())

    def scores(self) -> dict[str, float]:
        """The values under names that include the metric, as training logs them."""
        return {score_name(self.metric, name): value for name, value in self.values.items()}


def interval_text(protocol: Mapping[str, Any], value: str) -> str:
    """` (79 to 87)`, the 95 % interval of a value; empty if there is none."""
    intervals = protocol.get("interval_95")
    match intervals.get(value) if isinstance(intervals, Mapping) else None:
        case (int() | float() as low, int() | float() as high):
            return f" ({low:.3g} to {high:.3g})"
    return ""


def score_name(metric: str, value: str) -> str:
    """`fid50k`, `pr50k/precision`: the metric, and which of its values if it does not say."""
    return metric if metric.startswith(value) else f"{metric}/{value}"


def check_results_file(path: Path) -> None:
    """ValueError unless results can be added to what is there: it ends with one, or is empty."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with open(path, "rb") as file:
        file.seek(-min(path.stat().st_size, LONGEST_LINE), os.SEEK_END)
        tail = file.read()
    try:
        ours = tail.endswith(b"\n") and "metric" in json.loads(tail.splitlines()[-1])
    except (ValueError, TypeError):
        ours = False
    if not ours:
        raise ValueError(
            f"{path} does not end with a line of results, so none is added; choose another --out"
        )


def evaluate(
    subject: Samples,
    requests: Sequence[Request],
    tools: Tools,
    *,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Result]:
    """Measure what was requested, a family of metrics at a time, and yield each result.

    `tell` is called with why some could not be measured, for want of a file or a library or of
    fitting data; the others are. Call it in all processes; all get the same results.
    """
    groups: dict[tuple[Measure, int], list[Request]] = {}
    for request in requests:
        measure = KINDS[request.kind].measure
        assert measure is not None
        groups.setdefault((measure, request.images), []).append(request)
    common = {
        "generator": subject.about_generator(),
        "fakes": subject.about_fakes(),
        "versions": versions(),
        "device": device_name(subject.device),
        "processes": distributed.world_size(),
    }
    for (measure, images), group in groups.items():
        started = time.perf_counter()
        names = ", ".join(request.name for request in group)
        kinds = [request.kind for request in group]
        measured, problem = attempt(measure, subject, kinds, images, tools)
        problems = [text for text in distributed.gather(problem) if text]
        if problems or measured is None:
            tell(f"{names} could not be measured: {problems[0]}")
            continue
        seconds = round(time.perf_counter() - started, 3)
        for request in group:
            if request.kind in measured.refused:
                tell(f"{request.name} was refused: {measured.refused[request.kind]}")
                continue
            protocol = common
            if subject.store is not None and (KINDS[request.kind].reals or subject.labelled):
                reals = {"reals": subject.about_reals(), "data": subject.store.meta.source}
                protocol = protocol | reals
            protocol = protocol | measured.about | measured.of_kinds.get(request.kind, {})
            protocol |= {"measured_together": names, "seconds": seconds}
            yield Result(request.name, measured.values[request.kind], protocol)


def attempt(
    measure: Measure, subject: Samples, kinds: list[str], images: int, tools: Tools
) -> tuple[Measured | None, str | None]:
    """What was measured, or what a user can do something about."""
    try:
        return measure(subject, kinds, images, tools), None
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("stylegan"):
            raise
        return None, f"the library {error.name} is missing; pip install 'stylegan[metrics]'"
    except (ValueError, OSError) as error:
        return None, " ".join(str(error).split()) or type(error).__name__


def yardsticks(
    subject: Samples, requests: Sequence[Request]
) -> list[tuple[Samples, list[Request]]]:
    """What results are read by, with those requests that compare with reals: another half of the
    reals, the average image and the samples themselves, all compared with the same half and with as
    many images as that has, since the number of images changes a distance."""
    compared = [request for request in requests if KINDS[request.kind].reals]
    if not compared:
        return []
    most = len(subject.real_images()) // 2 * (2 if subject.mirror else 1)
    fewer = list(dict.fromkeys(r._replace(images=min(r.images, most)) for r in compared))
    against_half = replace(subject, half=True)
    others: list[Samples] = [kind.beside(subject) for kind in (OtherHalf, AverageImage)]
    return [(samples, fewer) for samples in (against_half, *others)]
