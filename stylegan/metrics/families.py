"""FID and the others: metrics of the features of one network, in one pass over the images.

The formulas of KID and the Inception score are torch-fidelity's. Precision and recall
were defined with features of VGG16, so theirs are not comparable with published numbers; nor is
anything in EfficientNet's features, which have a scale of their own.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stylegan.machine.distributed import from_rank0
from stylegan.metrics import statistics
from stylegan.metrics.cache import cached, gathered_rows
from stylegan.metrics.efficientnet import efficientnet, load_efficientnet
from stylegan.metrics.features import FEATURES, FeatureNetwork, Refused, Scores, Tools, inception
from stylegan.metrics.sources import Comparison, StoreImages
from stylegan.metrics.statistics import GROUPS, LEAST_FOR_NEIGHBORHOODS, NEIGHBORHOOD, share_within

KID_SUBSETS = 100
KID_SUBSET_SIZE = 1000
SPLITS = 10  # of the Inception score
SEED = 2020  # torch-fidelity's, of KID's subsets and the order within the Inception score
# a metric, features of fakes and of reals (n, dim) -> its values, and what defines it alone
Compare = Callable[[str, np.ndarray, np.ndarray, Comparison], Scores]


# Measures several kinds of metrics in one pass over that many images.
Measure = Callable[[Comparison, Collection[str], int, Tools], Mapping[str, Scores | Refused]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The properties of a metric."""

    measure: Measure  # kinds with the same one are measured together
    images: int  # number of samples, if the name has none
    best_by: str  # the name of its main result
    help: str
    # loads what it computes with, so that what is missing is told before it is needed
    needs: Callable[[Tools, torch.device], object] = lambda tools, device: None
    # why one of so many samples cannot be measured beside these reals, if they are known; or ""
    unavailable_reason: Callable[[str, int, StoreImages | None], str] = lambda *_: ""
    reals: bool = True  # whether it compares with real images
    lower_is_better: bool = True


class Member(NamedTuple):
    """A metric of a family."""

    best_by: str
    help: str
    least: int  # images of each sort that it needs
    lower_is_better: bool = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Family:
    """The metrics that look at the features of one network."""

    name: str
    images: int  # number of samples, if the name of a metric has none
    load: Callable[[Tools, torch.device, int], FeatureNetwork]  # for images of that resolution
    needs: Callable[[Tools, torch.device], object]
    compare: Compare
    members: Mapping[str, Member]
    reference_free: str = ""  # the metric that does not compare with reals
    evenly: bool = False  # take reals from the whole data, both ways round if they are mirrored
    dim_of_reals: int | None = None  # features of reals that are compared; None: all

    def kinds(self) -> dict[str, Kind]:
        return {
            name: Kind(
                measure=self.measure,
                unavailable_reason=self.unavailable_reason,
                needs=self.needs,
                images=self.images,
                best_by=member.best_by,
                help=member.help,
                reals=name != self.reference_free,
                lower_is_better=member.lower_is_better,
            )
            for name, member in self.members.items()
        }

    def number_of_reals(self, images: int, reals: StoreImages | None) -> int:
        """Return the number of reals for so many samples; None: unknown."""
        if reals is None:
            return images
        return min(images, len(reals.images()) * (reals.ways if self.evenly else 1))

    def unavailable_reason(self, kind: str, images: int, reals: StoreImages | None) -> str:
        """Why a metric of so many samples cannot be measured; empty if it can."""
        num_reals = self.number_of_reals(images, None if kind == self.reference_free else reals)
        least = self.members[kind].least
        if num_reals >= least:
            return ""
        return (
            f"found {images:,} samples and {num_reals:,} real images, at least "
            f"{least:,} of each are needed"
        )

    def measure(
        self, comparison: Comparison, kinds: Collection[str], images: int, tools: Tools
    ) -> dict[str, Scores | Refused]:
        """Where the data has fewer reals than `images`, all of it is used."""
        real_images = None if set(kinds) == {self.reference_free} else comparison.require_reals()
        num_reals = self.number_of_reals(images, real_images)
        measured: dict[str, Scores | Refused] = {
            kind: Refused(reason)
            for kind in kinds
            if (reason := self.unavailable_reason(kind, images, real_images))
        }
        enough = [kind for kind in kinds if kind not in measured]
        if not enough:
            return measured
        network = self.load(tools, comparison.device, comparison.resolution)
        protocol = {**network.about(), "images": images}

        def features(batches: Iterable[Tensor], num: int, dim: int) -> np.ndarray | None:
            """The first `dim` features, (num, dim) in rank 0."""
            rows = ([network(batch)[:, :dim]] for batch in batches)
            return gathered_rows(rows, [dim], num, tools.cache)[0]

        fakes = features(comparison.fake_batches(images), images, network.dim)
        reals = fakes
        of_reals = {}
        if set(enough) != {self.reference_free}:
            of_reals = {**comparison.require_reals().protocol_of_reals(), "number": num_reals}
            dim = self.dim_of_reals or network.dim
            batches = comparison.real_batches(num_reals, evenly=self.evenly)
            key = {**of_reals, **network.about(), "evenly": self.evenly, "torch": torch.__version__}
            make = partial(features, batches, num_reals, dim)
            reals = cached(tools, f"{self.name}-features", key, make)
            of_reals |= {"chosen": "evenly"} if self.evenly else {}

        def compare() -> dict[str, Scores]:
            assert fakes is not None and reals is not None
            return {kind: self.compare(kind, fakes, reals, comparison) for kind in enough}

        for kind, (values, defined_by) in from_rank0(compare).items():
            compared = {} if kind == self.reference_free else {"reals": of_reals}
            measured[kind] = Scores(values, {**protocol, **compared, **defined_by})
        return measured


def compare_inception(
    kind: str, fakes: np.ndarray, reals: np.ndarray, comparison: Comparison
) -> Scores:
    """One metric of `fakes` (n, FEATURES + LOGITS) and `reals` (m, FEATURES)."""
    from torch_fidelity import metric_isc, metric_kid

    if kind == "is":
        scores = metric_isc.isc_features_to_metric(
            torch.from_numpy(fakes[:, FEATURES:]), SPLITS, rng_seed=SEED
        )
        values = {"is": scores["inception_score_mean"], "is_std": scores["inception_score_std"]}
        return Scores(values, {"splits": SPLITS, "order_seed": SEED})
    fakes = fakes[:, :FEATURES]
    if kind == "fid":
        # batches as large as those measured: the order of summation decides the last digits
        ours, theirs = (
            statistics.moments_of(x, comparison.batch).gaussian() for x in (fakes, reals)
        )
        return Scores({"fid": statistics.frechet_distance(*ours, *theirs)}, {})
    both = [torch.from_numpy(rows) for rows in (fakes, reals)]
    if kind == "kid":
        size = min(KID_SUBSET_SIZE, len(fakes), len(reals))
        scores = metric_kid.kid_features_to_metric(
            *both, kid_subsets=KID_SUBSETS, kid_subset_size=size, rng_seed=SEED, verbose=False
        )
        name = "kernel_inception_distance"
        values = {"kid": scores[f"{name}_mean"], "kid_std": scores[f"{name}_std"]}
        return Scores(values, {"subsets": KID_SUBSETS, "subset_size": size, "subset_seed": SEED})
    device = (
        comparison.device if comparison.device.type == "cuda" else "cpu"
    )  # others may lack float64
    precision = share_within(fakes, reals, device)
    recall = share_within(reals, fakes, device)
    values = {"precision": precision, "recall": recall}
    return Scores(values, {"neighborhood": NEIGHBORHOOD})


def compare_eff(kind: str, fakes: np.ndarray, reals: np.ndarray, comparison: Comparison) -> Scores:
    if kind == "eff-pr":
        fakes = fakes[: len(reals)]
        precision = share_within(fakes, reals)
        recall = share_within(reals, fakes)
        protocol = {"neighborhood": NEIGHBORHOOD, "images_compared": len(fakes)}
        return Scores({"eff-precision": precision, "eff-recall": recall}, protocol)
    estimate = statistics.frechet_estimate if kind == "eff-fd" else statistics.kernel_estimate
    value, interval = estimate(fakes, reals)
    return Scores({kind: value}, {"interval_95": {kind: interval}})


INCEPTION = Family(
    name="inception",
    images=50_000,
    load=lambda tools, device, resolution: inception(tools, device),
    needs=inception,
    compare=compare_inception,
    members={
        "fid": Member("fid", "Frechet Inception distance", 2),
        "kid": Member("kid", "kernel Inception distance", 2),
        "pr": Member(
            "precision", "precision and recall", LEAST_FOR_NEIGHBORHOODS, lower_is_better=False
        ),
        "is": Member("is", "Inception score", SPLITS, lower_is_better=False),
    },
    reference_free="is",
    dim_of_reals=FEATURES,
)
EFF = Family(
    name="eff",
    images=5_000,
    load=lambda tools, device, resolution: efficientnet(device, resolution),
    needs=lambda tools, device: load_efficientnet(device),
    compare=compare_eff,
    members={
        "eff-fd": Member("eff-fd", "Frechet distance, EfficientNet features", 2 * GROUPS),
        "eff-kid": Member("eff-kid", "kernel distance, EfficientNet features", 2 * GROUPS),
        "eff-pr": Member(
            "eff-precision",
            "precision, recall, EfficientNet features",
            LEAST_FOR_NEIGHBORHOODS,
            lower_is_better=False,
        ),
    },
    evenly=True,
)
