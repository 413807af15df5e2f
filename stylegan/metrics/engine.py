"""Metrics by name, and results with the protocol of their measurement."""

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch

from stylegan.metrics import feature_metrics
from stylegan.metrics.comparison import Comparison
from stylegan.metrics.efficientnet import load_efficientnet, weights_path
from stylegan.metrics.features import Tools, inception
from stylegan.metrics.lpips import load_lpips
from stylegan.metrics.measurement import FAILURES, Measurement, Metric
from stylegan.metrics.path_length import path_length
from stylegan.metrics.separability import separability
from stylegan.metrics.statistics import GROUPS, MIN_FOR_NEIGHBORHOODS
from stylegan.metrics.swd import swd
from stylegan.utils import distributed, text
from stylegan.utils.records import (
    append_line,
    device_name,
    finite_float,
    mapping,
    to_line,
    versions,
)
from stylegan.utils.text import error_reason

MIN_IMAGES = 2  # images of any metric
of_inception = partial(
    Metric, images=50_000, needs=inception, libraries={"torch_fidelity": "torch-fidelity"}
)
of_paths = partial(
    Metric,
    images=100_000,
    needs=lambda tools, device: load_lpips(tools.weights, device),
    libraries={"torchmetrics": "torchmetrics"},
    reals=False,
)
of_eff = partial(
    Metric, images=5_000, needs=lambda tools, device: load_efficientnet(device), evenly=True
)
SHARES: dict[str, Any] = {"least": MIN_FOR_NEIGHBORHOODS, "lower_is_better": False}
METRICS: dict[str, Metric] = {  # a script may add its own
    "fid": of_inception(feature_metrics.fid, help="Frechet Inception distance", least=2),
    "kid": of_inception(feature_metrics.kid, help="kernel Inception distance", least=2),
    "pr": of_inception(
        feature_metrics.precision_recall, best_by="precision", help="precision and recall", **SHARES
    ),
    "is": of_inception(
        feature_metrics.inception_score,
        help="Inception score",
        least=feature_metrics.SPLITS,
        reals=False,
        lower_is_better=False,
    ),
    **{
        kind: of_paths(partial(path_length, kind=kind), help=text)
        for kind, text in (
            ("ppl-z-full", "perceptual path length"),
            ("ppl-w-full", "perceptual path length in W"),
            ("ppl-z-end", "perceptual path length at t = 0"),
            ("ppl-w-end", "perceptual path length in W at t = 0"),
        )
    },
    "ls": Metric(
        separability,
        images=200_000,
        help="linear separability in W, Z",
        libraries={"sklearn": "scikit-learn"},
        best_by="ls-w",
        reals=False,
    ),
    "swd": Metric(swd, images=16_384, help="sliced Wasserstein distance, per resolution"),
    "eff-fd": of_eff(
        feature_metrics.eff_fd, help="Frechet distance, EfficientNet features", least=2 * GROUPS
    ),
    "eff-kid": of_eff(
        feature_metrics.eff_kid, help="kernel distance, EfficientNet features", least=2 * GROUPS
    ),
    "eff-pr": of_eff(
        feature_metrics.eff_pr,
        best_by="eff-precision",
        help="precision, recall, EfficientNet features",
        **SHARES,
    ),
}
LINE_BEGINS = b'{"metric":'  # the start of each line in a file of results
PATTERN = re.compile(r"(.+?)(?:(\d+)(k?))?")  # metric, number of images
MAX_NAME = 200  # characters of a metric's name in a file: the pattern is slow for long ones


class MetricRequest(NamedTuple):
    kind: str
    images: int

    @property
    def name(self) -> str:
        """Such as `fid50k` or `swd16384`: whole thousands as k."""
        n = self.images
        return f"{self.kind}{n // 1000}k" if n >= 1000 and n % 1000 == 0 else f"{self.kind}{n}"


def parse(names: str, images: int | None = None) -> list[MetricRequest]:
    """Parse names such as `fid50k,kid,ppl-z-full10k` into distinct requests. A name without a
    number means `images`, or the metric's default."""
    requests: dict[MetricRequest, None] = {}
    for name in map(str.strip, names.split(",")):
        match = PATTERN.fullmatch(name)
        if match is None or match[1] not in METRICS:
            raise ValueError(
                f"there is no metric {name!r}; known: {', '.join(METRICS)}; a number of images may "
                "follow, as in fid50k"
            )
        kind, digits, thousands = match.groups()
        usual = METRICS[kind].images if images is None else images
        request = MetricRequest(kind, int(digits) * (1000 if thousands else 1) if digits else usual)
        if request.images < MIN_IMAGES:
            raise ValueError(f"{name}: at least {MIN_IMAGES} images are needed")
        requests[request] = None
    return list(requests)


def kind_of(metric: str) -> Metric | None:
    """The metric by the name in a result, or None if this version does not know it."""
    match = PATTERN.fullmatch(metric)
    return METRICS.get(match[1]) if match else None


def default_names() -> str:
    """Names of the metrics that can be measured here without a download."""
    return "eff-fd,eff-pr,swd" if weights_path() else "swd"


class Result(NamedTuple):
    """Values of one metric, and the protocol that defines them."""

    metric: str  # with the number of images, as in fid50k
    values: Mapping[str, float]
    protocol: Mapping[str, object]

    @classmethod
    def from_line(cls, line: Mapping[str, object]) -> Self:
        """Read an untrusted record of a `line`: values that are not numbers become NaN."""
        known = {name: finite_float(value) for name, value in mapping(line.get("values")).items()}
        values = {name: math.nan if value is None else value for name, value in known.items()}
        return cls(str(line["metric"])[:MAX_NAME], values, mapping(line.get("protocol")))

    @property
    def generator(self) -> Mapping[str, object]:
        return mapping(self.protocol.get("generator"))

    @property
    def fakes(self) -> Mapping[str, object]:
        return mapping(self.protocol.get("fakes"))

    @property
    def kimg(self) -> float | None:
        images_seen = finite_float(self.generator.get("images_seen"))
        return None if images_seen is None else images_seen / 1000

    @property
    def resolution(self) -> float | None:
        return finite_float(self.fakes.get("resolution"))

    @property
    def setting(self) -> Mapping[str, object]:
        """Further settings in which two results of a generator may differ."""
        reals = mapping(self.protocol.get("reals"))
        setting = {k: v for k, v in self.fakes.items() if k not in ("resolution", "alpha")}
        setting |= {f"reals' {k}": reals.get(k) for k in ("images", "number", "mirror")}
        return {**setting, "network": str(self.protocol.get("sha256"))[:12]}

    @property
    def images_name(self) -> str | None:
        """The images measured instead of a generator: samples of another program, or half of the
        reals. None for a generator."""
        # null marks images; old lines without the key are of generators
        if self.generator.get("sha256", "") is not None:
            return None
        return str(self.generator.get("origin"))

    def line(self) -> str:
        """One line of JSON, with null for numbers that are not finite."""
        return to_line(self._asdict())

    def append_to(self, path: Path) -> None:
        """Append the line to a file, in rank 0."""
        if distributed.rank() == 0:
            append_line(path, self.line())

    def scores(self) -> dict[str, float]:
        """Values by `score_name`, as training logs them."""
        return {score_name(self.metric, name): value for name, value in self.values.items()}


def check_lines(path: Path) -> None:
    """Raises ValueError if a file exists that does not begin as results do."""
    if path.exists():
        with open(path, "rb") as file:
            if file.read(len(LINE_BEGINS)) not in (b"", LINE_BEGINS):
                raise ValueError(f"{path} exists and is of another kind; choose another name")


def interval_text(protocol: Mapping[str, object], value: str) -> str:
    """The 95 % interval of a value, such as ` (79 to 87)`; empty if there is none."""
    intervals = protocol.get("interval_95")
    match intervals.get(value) if isinstance(intervals, Mapping) else None:
        case (int() | float() as low, int() | float() as high):
            return f" ({low:.3g} to {high:.3g})"
    return ""


def score_name(metric: str, value: str) -> str:
    """Such as `fid50k` or `pr50k/precision`: with `value` unless the metric begins with it."""
    return metric if metric.startswith(value) else f"{metric}/{value}"


def require_libraries(requests: Sequence[MetricRequest]) -> None:
    """Raises ValueError if a metric lacks a library."""
    for request in requests:
        for module, package in METRICS[request.kind].libraries.items():
            text.require_module(module, packages=package, purpose=request.name)


def require(requests: Sequence[MetricRequest], tools: Tools, device: torch.device) -> None:
    """Raises ValueError if a metric lacks a library or weights."""
    require_libraries(requests)
    for request in requests:
        try:
            METRICS[request.kind].needs(tools, device)
        except FAILURES as error:
            reason = error_reason(error)
            raise ValueError(f"{request.name} cannot be measured: {reason}") from error


def evaluate(
    comparison: Comparison, requests: Sequence[MetricRequest], tools: Tools
) -> Iterator[Result]:
    """Yield the requested results, the same in all processes. If a metric cannot be measured, the
    reason is reported to `tools.console`."""
    reals = comparison.reals
    common: dict[str, object] = {
        **comparison.samples.protocol(),
        "versions": versions(),
        "device": device_name(comparison.device),
        "processes": distributed.world_size(),
    }
    memo: dict[Any, Any] = {}
    failed: dict[str, str] = {}  # reason -> the first metric that has it
    for request in requests:
        metric = METRICS[request.kind]
        m = Measurement(
            **vars(comparison), num=request.images, tools=tools, evenly=metric.evenly, memo=memo
        )
        started = time.perf_counter()
        try:
            if reason := metric.unavailable_reason(request.images, reals):
                raise ValueError(reason)
            values, defined_by = metric.measure(m)
        except FAILURES as error:
            reason = error_reason(error)
            first = failed.setdefault(reason, request.name)
            why = reason if first == request.name else f"the reason is that of {first}"
            tools.console.info(f"{request.name} could not be measured: {why}")
            continue
        protocol = dict(common)
        if reals is not None and (metric.reals or comparison.samples.labeled):
            protocol |= {"reals": reals.protocol_of_reals(), "data": reals.store.meta.source}
        protocol |= {**defined_by, "seconds": round(time.perf_counter() - started, 3)}
        yield Result(request.name, values, protocol)
