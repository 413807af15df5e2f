"""Metrics that compare features of one network: FID and others.

KID and the Inception score are computed by torch-fidelity. Published precision and recall use
features of VGG16, so those here are not comparable with them. Nor is any metric in EfficientNet
features, whose scale is their own.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from stylegan.metrics import statistics
from stylegan.metrics.efficientnet import efficientnet
from stylegan.metrics.features import FeatureNetwork, Scores, inception
from stylegan.metrics.measurement import Measurement
from stylegan.metrics.statistics import NEIGHBORHOOD, fraction_in_manifold
from stylegan.utils.distributed import run_on_rank0

KID_SUBSETS = 100
KID_SUBSET_SIZE = 1000
SPLITS = 10  # of the Inception score
SEED = 2020  # as in torch-fidelity: of KID's subsets and the order within the Inception score
Compare = Callable[[np.ndarray, np.ndarray, Measurement], Scores]  # of features: fakes, reals


def inception_of(m: Measurement) -> FeatureNetwork:
    return m.once("inception", lambda: inception(m.tools, m.device))


def efficientnet_of(m: Measurement) -> FeatureNetwork:
    return m.once("efficientnet", lambda: efficientnet(m.device, m.resolution))


def compared(
    m: Measurement, network_of: Callable[[Measurement], FeatureNetwork], compare: Compare
) -> Scores:
    """Apply `compare` in rank 0 to features (n, dim) of fakes and (m, dim) of reals."""
    about_reals = m.about_reals() | ({"chosen": "evenly"} if m.evenly else {})
    network = network_of(m)
    fakes = m.features(network, "fakes")
    reals = m.features(network, "reals")

    def scores() -> Scores:
        assert fakes is not None and reals is not None
        return compare(fakes[:, : network.dim], reals, m)

    values, defined_by = run_on_rank0(scores)
    about = {**network.about(), "images": m.num, "reals": about_reals}
    return Scores(values, {**about, **defined_by})


def of_inception(compare: Compare) -> Callable[[Measurement], Scores]:
    """Decorator: turn a function that compares Inception features into a metric."""
    return partial(compared, network_of=inception_of, compare=compare)


def of_efficientnet(compare: Compare) -> Callable[[Measurement], Scores]:
    return partial(compared, network_of=efficientnet_of, compare=compare)


@of_inception
def fid(fakes: np.ndarray, reals: np.ndarray, m: Measurement) -> Scores:
    # batches as large as those measured: the order of summation decides the last digits
    ours, theirs = (statistics.moments_of(x, m.batch).gaussian() for x in (fakes, reals))
    return Scores({"fid": statistics.frechet_distance(*ours, *theirs)}, {})


@of_inception
def kid(fakes: np.ndarray, reals: np.ndarray, m: Measurement) -> Scores:
    from torch_fidelity import metric_kid

    both = [torch.from_numpy(rows) for rows in (fakes, reals)]
    size = min(KID_SUBSET_SIZE, len(fakes), len(reals))
    scores = metric_kid.kid_features_to_metric(
        *both, kid_subsets=KID_SUBSETS, kid_subset_size=size, rng_seed=SEED, verbose=False
    )
    name = "kernel_inception_distance"
    values = {"kid": scores[f"{name}_mean"], "kid_std": scores[f"{name}_std"]}
    return Scores(values, {"subsets": KID_SUBSETS, "subset_size": size, "subset_seed": SEED})


@of_inception
def precision_recall(fakes: np.ndarray, reals: np.ndarray, m: Measurement) -> Scores:
    device = m.device if m.device.type == "cuda" else "cpu"  # with float64
    precision = fraction_in_manifold(fakes, reals, device)
    recall = fraction_in_manifold(reals, fakes, device)
    return Scores({"precision": precision, "recall": recall}, {"neighborhood": NEIGHBORHOOD})


def inception_score(m: Measurement) -> Scores:
    network = inception_of(m)
    fakes = m.features(network, "fakes")

    def values() -> dict[str, float]:
        from torch_fidelity import metric_isc

        assert fakes is not None
        logits = torch.from_numpy(fakes[:, network.dim :])
        scores = metric_isc.isc_features_to_metric(logits, SPLITS, rng_seed=SEED)
        return {"is": scores["inception_score_mean"], "is_std": scores["inception_score_std"]}

    about = {**network.about(), "images": m.num, "splits": SPLITS, "order_seed": SEED}
    return Scores(run_on_rank0(values), about)


@of_efficientnet
def eff_fd(fakes: np.ndarray, reals: np.ndarray, m: Measurement) -> Scores:
    return with_interval("eff-fd", statistics.frechet_estimates(fakes, reals))


@of_efficientnet
def eff_kid(fakes: np.ndarray, reals: np.ndarray, m: Measurement) -> Scores:
    return with_interval("eff-kid", statistics.kernel_estimates(fakes, reals))


def with_interval(name: str, values: Sequence[float]) -> Scores:
    return Scores({name: values[0]}, {"interval_95": {name: statistics.interval_95(values)}})


@of_efficientnet
def eff_pr(fakes: np.ndarray, reals: np.ndarray, m: Measurement) -> Scores:
    fakes = fakes[: len(reals)]
    precision = fraction_in_manifold(fakes, reals)
    recall = fraction_in_manifold(reals, fakes)
    protocol = {"neighborhood": NEIGHBORHOOD, "images_compared": len(fakes)}
    return Scores({"eff-precision": precision, "eff-recall": recall}, protocol)
