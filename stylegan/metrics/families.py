"""FID and the others: metrics of the features of one network, in one pass over the images.

The formulas of KID and the Inception score are torch-fidelity's. Precision and recall
were defined with features of VGG16, so theirs are not comparable with published numbers; nor is
anything in EfficientNet's features, which have a scale of their own.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from stylegan.machine.distributed import from_rank0
from stylegan.metrics import statistics
from stylegan.metrics.cache import cached, gathered_rows
from stylegan.metrics.efficientnet import efficientnet
from stylegan.metrics.features import FEATURES, FeatureNetwork, Scores, Tools, inception
from stylegan.metrics.sources import Comparison, StoreImages
from stylegan.metrics.statistics import NEIGHBORHOOD, share_within

KID_SUBSETS = 100
KID_SUBSET_SIZE = 1000
SPLITS = 10  # of the Inception score
SEED = 2020  # torch-fidelity's, of KID's subsets and the order within the Inception score
# Measures several kinds of metrics in one pass over that many images.
Measure = Callable[[Comparison, Collection[str], int, Tools], Mapping[str, Scores]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The properties of a metric."""

    measure: Measure  # kinds with the same one are measured together
    images: int  # number of samples, if the name has none
    best_by: str  # the name of its main result
    help: str
    # loads its libraries and weights, so that a missing one is told before any work
    needs: Callable[[Tools, torch.device], object] = lambda tools, device: None
    least: int = 0  # images of each sort that it needs
    reals: bool = True  # compares with real images
    evenly: bool = False  # takes reals from the whole data, both ways round if they are mirrored
    lower_is_better: bool = True

    def unavailable_reason(self, images: int, reals: StoreImages | None) -> str:
        """Return the reason why it cannot be measured with so many samples, beside these reals if
        they are known; empty if it can."""
        num_reals = images
        if self.reals and reals is not None:
            num_reals = number_of_reals(images, reals, evenly=self.evenly)
        if num_reals >= self.least:
            return ""
        return (
            f"found {images:,} samples and {num_reals:,} real images, at least "
            f"{self.least:,} of each are needed"
        )


def number_of_reals(images: int, reals: StoreImages, *, evenly: bool) -> int:
    """Return the number of reals beside so many samples: all, if the data has fewer."""
    return min(images, len(reals.images()) * (reals.ways if evenly else 1))


@dataclass(frozen=True, eq=False, kw_only=True)
class Family:
    """The metrics that look at the features of one network."""

    name: str
    load: Callable[[Tools, torch.device, int], FeatureNetwork]  # for images of that resolution
    # a metric, features of fakes and of reals (n, dim) -> its values, and what defines it alone
    compare: Callable[[str, np.ndarray, np.ndarray, Comparison], Scores]
    reference_free: str = ""  # the metric that does not compare with reals
    evenly: bool = False  # as in `Kind`
    dim_of_reals: int | None = None  # features of reals that are compared; None: all

    def measure(
        self, comparison: Comparison, kinds: Collection[str], images: int, tools: Tools
    ) -> dict[str, Scores]:
        """Measure these metrics of the family."""
        needs_reals = set(kinds) != {self.reference_free}
        real_images = comparison.require_reals() if needs_reals else None
        network = self.load(tools, comparison.device, comparison.resolution)
        protocol = {**network.about(), "images": images}

        def features(batches: Iterable[Tensor], num: int, dim: int) -> np.ndarray | None:
            """Return the first `dim` features, (num, dim), in rank 0."""
            rows = ([network(batch)[:, :dim]] for batch in batches)
            return gathered_rows(rows, [dim], num, tools.cache)[0]

        fakes = features(comparison.fake_batches(images), images, network.dim)
        reals = fakes
        of_reals: dict[str, object] = {}
        if real_images is not None:
            num_reals = number_of_reals(images, real_images, evenly=self.evenly)
            of_reals = {**real_images.protocol_of_reals(), "number": num_reals}
            dim = self.dim_of_reals or network.dim
            batches = comparison.real_batches(num_reals, evenly=self.evenly)
            key = {**of_reals, **network.about(), "evenly": self.evenly, "torch": torch.__version__}
            make = partial(features, batches, num_reals, dim)
            reals = cached(tools, f"{self.name}-features", key, make)
            of_reals |= {"chosen": "evenly"} if self.evenly else {}

        def compare() -> dict[str, Scores]:
            assert fakes is not None and reals is not None
            return {kind: self.compare(kind, fakes, reals, comparison) for kind in kinds}

        measured = {}
        for kind, (values, defined_by) in from_rank0(compare).items():
            compared = {} if kind == self.reference_free else {"reals": of_reals}
            measured[kind] = Scores(values, {**protocol, **compared, **defined_by})
        return measured


def compare_inception(
    kind: str, fakes: np.ndarray, reals: np.ndarray, comparison: Comparison
) -> Scores:
    """Compute one metric of `fakes` (n, FEATURES + LOGITS) and `reals` (m, FEATURES)."""
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
    device = comparison.device if comparison.device.type == "cuda" else "cpu"  # with float64
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
    load=lambda tools, device, resolution: inception(tools, device),
    compare=compare_inception,
    reference_free="is",
    dim_of_reals=FEATURES,
)
EFF = Family(
    name="eff",
    load=lambda tools, device, resolution: efficientnet(device, resolution),
    compare=compare_eff,
    evenly=True,
)
