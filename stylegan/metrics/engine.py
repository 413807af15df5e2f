"""From names of metrics to results that say how they came about."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stylegan import distributed
from stylegan.metrics.features import Measured, Tools
from stylegan.metrics.images import Subject
from stylegan.metrics.inception import measure_inception
from stylegan.metrics.names import KINDS, Request
from stylegan.metrics.own import measure_own
from stylegan.metrics.path_length import measure_path_length
from stylegan.metrics.separability import measure_separability
from stylegan.metrics.wasserstein import measure_swd
from stylegan.records import device_name, to_line, versions

# of kinds, that many images each; metrics of one function share its passes over images
Family = Callable[[Subject, Collection[str], int, Tools], Measured]
FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(("fid", "kid", "pr", "is"), measure_inception),
    **dict.fromkeys(("own-fd", "own-pr"), measure_own),
    **dict.fromkeys(("ppl-z-full", "ppl-w-full", "ppl-z-end", "ppl-w-end"), measure_path_length),
    "swd": measure_swd,
    "ls": measure_separability,
}


class Result(NamedTuple):
    """One metric's numbers, and everything that defines them."""

    metric: str  # with the number of images, as in fid50k
    values: dict[str, float]
    protocol: dict[str, Any]

    def line(self) -> str:
        """One line of JSON; a number that is not finite becomes null."""
        return to_line(self._asdict())

    def scores(self) -> dict[str, float]:
        """The values under names that tell the metric, as training logs them."""
        return {score_name(self.metric, name): value for name, value in self.values.items()}


def score_name(metric: str, value: str) -> str:
    """`fid50k`, `pr50k/precision`: the metric, and which of its values if it does not say."""
    return metric if metric.startswith(value) else f"{metric}/{value}"


def evaluate(
    subject: Subject,
    requests: Sequence[Request],
    tools: Tools,
    *,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Result]:
    """Measure what was requested, a family of metrics at a time, and yield each result.

    What cannot be measured, for want of a file or a library or of fitting data, is told in one
    message, and the others are. Call it in all processes; all get the same results.
    """
    groups: dict[tuple[Family, int], list[Request]] = {}
    for request in requests:
        groups.setdefault((FAMILIES[request.kind], request.images), []).append(request)
    common = about_subject(subject)
    for (family, images), group in groups.items():
        started = time.perf_counter()
        names = ", ".join(request.name for request in group)
        measured, problem = attempt(family, subject, [r.kind for r in group], images, tools)
        problems = [text for text in distributed.gather(problem) if text]
        if problems or measured is None:
            tell(f"{names} could not be measured: {problems[0]}")
            continue
        seconds = round(time.perf_counter() - started, 3)
        for request in group:
            protocol = {**common, **about_data(subject, request), **measured.about}
            protocol |= measured.of_kinds.get(request.kind, {})
            protocol["measured_together"] = names
            protocol["seconds"] = seconds
            yield Result(request.name, measured.values[request.kind], protocol)


def attempt(
    family: Family, subject: Subject, kinds: list[str], images: int, tools: Tools
) -> tuple[Measured | None, str | None]:
    """What the family measured, or what a user can do something about."""
    try:
        return family(subject, kinds, images, tools), None
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("stylegan"):
            raise
        return None, f"the library {error.name} is missing; pip install 'stylegan[metrics]'"
    except (ValueError, OSError) as error:
        return None, " ".join(str(error).split()) or type(error).__name__


def about_subject(subject: Subject) -> dict[str, Any]:
    """The generator, its images, and what computes: the same for all metrics."""
    return {
        "generator": subject.about_generator(),
        "fakes": subject.about_fakes(),
        "versions": versions(),
        "device": device_name(subject.device),
        "processes": distributed.world_size(),
    }


def about_data(subject: Subject, request: Request) -> dict[str, Any]:
    """The real images, where they are compared with or give the labels."""
    labelled = subject.generator.config.label_dim > 0
    if subject.store is None or not (KINDS[request.kind].reals or labelled):
        return {}
    return {"reals": subject.about_reals(), "data": subject.store.meta.source}
