"""FID, KID, precision and recall, Inception score: of features of the public Inception network.

The network and all formulas but Frechet's are torch-fidelity's, which reproduces the official
TensorFlow network, its resizing included. Precision and recall use this network, too, not VGG16
as where they were defined, so they are not comparable with numbers from there.
"""

import io
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stylegan.files.download import hash_prefix
from stylegan.metrics.families import Family
from stylegan.metrics.features import FeatureNetwork, Tools, as_rgb, public_weights
from stylegan.metrics.sources import ImageSource
from stylegan.metrics.statistics import LEAST_FOR_NEIGHBORHOODS, frechet_distance, moments_of

WEIGHTS = (
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/"
    "weights-inception-2015-12-05-6726825d.pth"
)
FEATURES, LOGITS = 2048, 1008  # of an image; the logits are without their bias, as officially
KID_SUBSETS, KID_SUBSET_SIZE = 100, 1000
NEIGHBORHOOD = 3  # the k of precision and recall
SPLITS = 10  # of the Inception score
SEED = 2020  # torch-fidelity's, of KID's subsets and the order within the Inception score
DISTANCES_AT_ONCE = 2**26  # of precision and recall, in memory


def inception(tools: Tools, device: torch.device) -> FeatureNetwork:
    """A network from images to features and logits (n, FEATURES + LOGITS)."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    weights = public_weights(WEIGHTS, tools.weights)
    copy = io.BytesIO()  # torch-fidelity reads with weights_only=False: only what we have written
    torch.save(weights.tensors, copy)
    copy.seek(0)
    with torch.random.fork_rng(devices=[]):  # weights are drawn, then overwritten
        try:
            network = FeatureExtractorInceptionV3(
                "inception", ["2048", "logits_unbiased"], feature_extractor_weights_path=copy
            ).to(device)
        except RuntimeError as error:
            reason = str(error).split("\n")[-1].strip()
            raise ValueError(
                f"{tools.weights} does not hold the Inception network's weights ({reason}); "
                f"the file is {WEIGHTS}"
            ) from error

    def extract(images: Tensor) -> Tensor:
        return torch.cat(network(as_rgb(images).to(device)), dim=1)

    resize = "bilinear to 299x299 as TensorFlow 1, without antialiasing"
    published = weights.sha256.startswith(str(hash_prefix(WEIGHTS)))
    name = f"Inception v3 {'of 2015-12-05' if published else 'of your own'}, torch-fidelity"
    return FeatureNetwork(name, weights.sha256, FEATURES + LOGITS, resize, extract)


def compare(
    kind: str, fakes: np.ndarray, reals: np.ndarray, source: ImageSource
) -> tuple[dict[str, float], dict[str, Any]]:
    """The values of one metric and what defines them. `fakes` are (n, FEATURES + LOGITS), `reals`
    (m, FEATURES)."""
    if kind == "is":
        return inception_score(fakes[:, FEATURES:]), {"splits": SPLITS, "order_seed": SEED}
    fakes = fakes[:, :FEATURES]
    if kind == "pr":
        return precision_recall(fakes, reals, source.device), {"neighborhood": NEIGHBORHOOD}
    if kind == "kid":
        size = min(KID_SUBSET_SIZE, len(fakes), len(reals))
        subsets = {"subsets": KID_SUBSETS, "subset_size": size, "subset_seed": SEED}
        return kernel_distance(fakes, reals, size), subsets
    # batches as large as the source's: the order of summation decides the last digits
    ours, theirs = (moments_of(rows, source.batch) for rows in (fakes, reals))
    distance = frechet_distance(ours.mean(), ours.covariance(), theirs.mean(), theirs.covariance())
    return {"fid": distance}, {}


INCEPTION = Family(
    "inception",
    lambda tools, source: inception(tools, source.device),
    compare,
    {"fid": 2, "kid": 2, "pr": LEAST_FOR_NEIGHBORHOODS, "is": SPLITS},
    alone="is",
    of_reals=lambda network: replace(  # no metric asks for the logits of reals
        network, dim=FEATURES, extract=lambda images: network.extract(images)[:, :FEATURES]
    ),
)


def kernel_distance(fakes: np.ndarray, reals: np.ndarray, size: int) -> dict[str, float]:
    """Mean and deviation over subsets of `size` images."""
    from torch_fidelity.metric_kid import kid_features_to_metric

    found = kid_features_to_metric(
        torch.from_numpy(fakes),
        torch.from_numpy(reals),
        kid_subsets=KID_SUBSETS,
        kid_subset_size=size,
        rng_seed=SEED,
        verbose=False,
    )
    mean, deviation = "kernel_inception_distance_mean", "kernel_inception_distance_std"
    return {"kid": found[mean], "kid_std": found[deviation]}


def precision_recall(
    fakes: np.ndarray, reals: np.ndarray, device: torch.device
) -> dict[str, float]:
    """Shares of fakes within the reals' neighborhoods and the reverse; Kynkaanniemi et al. 2019."""
    from torch_fidelity.metric_prc import prc_features_to_metric

    found = prc_features_to_metric(
        torch.from_numpy(fakes).to(device),
        torch.from_numpy(reals).to(device),
        prc_neighborhood=NEIGHBORHOOD,
        prc_batch_size=max(DISTANCES_AT_ONCE // max(len(fakes), len(reals)), 1),
        save_cpu_ram=True,
        verbose=False,
    )
    return {"precision": found["precision"], "recall": found["recall"]}


def inception_score(logits: np.ndarray, splits: int = SPLITS) -> dict[str, float]:
    """Mean and deviation over splits, one of which is in memory at a time."""
    from torch_fidelity.metric_isc import isc_features_to_metric

    num = len(logits)
    order = np.random.RandomState(SEED).permutation(num)
    scores = []
    for i in range(splits):
        rows = logits[order[i * num // splits : (i + 1) * num // splits]]
        found = isc_features_to_metric(torch.from_numpy(rows), splits=1, shuffle=False)
        scores.append(found["inception_score_mean"])
    return {"is": float(np.mean(scores)), "is_std": float(np.std(scores))}
