"""FID, KID, precision and recall, Inception score: of features of the public Inception network.

The network and all formulas but Frechet's are torch-fidelity's, which reproduces the official
TensorFlow network, its resizing included. Precision and recall, too, look with this network, not
with VGG16 as where they were defined, so they are not comparable with numbers from there.
"""

import io
from collections.abc import Collection, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stylegan import distributed
from stylegan.distributed import from_rank0, on_all_ranks
from stylegan.files.download import hash_prefix
from stylegan.metrics.cache import Arrays, Rows, cached, entry
from stylegan.metrics.features import (
    FeatureNetwork,
    Measured,
    Tools,
    as_rgb,
    public_weights,
    too_few,
)
from stylegan.metrics.statistics import LEAST_FOR_NEIGHBORHOODS, Moments, frechet_distance
from stylegan.metrics.subject import Samples

WEIGHTS = (
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/"
    "weights-inception-2015-12-05-6726825d.pth"
)
FEATURES, LOGITS = 2048, 1008  # of an image; the logits are without their bias, as officially
NEEDS = {"fid": "moments", "kid": "features", "pr": "features", "is": "logits"}
SIZES = {"features": FEATURES, "logits": LOGITS}  # of rows that wait in files
LEAST = {"fid": 2, "kid": 2, "pr": LEAST_FOR_NEIGHBORHOODS, "is": 10}  # images
KID_SUBSETS, KID_SUBSET_SIZE = 100, 1000
NEIGHBORHOOD = 3  # the k of precision and recall
SPLITS = 10  # of the Inception score
VERSION = 1  # of what decides the statistics of reals: a new number makes them anew
SEED = 2020  # torch-fidelity's, of KID's subsets and the order within the Inception score
DISTANCES_AT_ONCE = 2**26  # of precision and recall, in memory


def measure_inception(
    subject: Samples, kinds: Collection[str], images: int, tools: Tools
) -> Measured:
    """`kinds` of fid, kid, pr, is. One pass over the generated images serves all.

    Features that are compared in pairs wait in a file; in memory are a batch and, for the Inception
    score, the logits of a tenth of the images. On a GPU precision and recall put them there.
    """
    compared = any(kind != "is" for kind in kinds)
    num_reals = min(images, len(subject.real_images())) if compared else images
    refused = too_few(kinds, LEAST, images, num_reals)
    kinds = [kind for kind in kinds if kind not in refused]
    if not kinds:
        return Measured({}, {}, refused=refused)
    network = inception(tools, subject.device)
    needs = {NEEDS[kind] for kind in kinds}
    reals = features_of_reals(subject, network, needs - {"logits"}, num_reals, tools)
    fakes = look(network, subject.fakes(images), images, needs, tools.cache)
    values = from_rank0(
        lambda: {kind: measure(kind, fakes, reals, subject.device) for kind in kinds}
    )
    about = {**network.about(), "images": images}
    reals_about = {"reals": {**subject.about_reals(), "number": num_reals}} if compared else {}
    size = subset_size(images, num_reals)
    of_kinds: dict[str, dict[str, Any]] = {
        "fid": reals_about,
        "kid": {**reals_about, "subsets": KID_SUBSETS, "subset_size": size, "subset_seed": SEED},
        "pr": {**reals_about, "neighborhood": NEIGHBORHOOD},
        "is": {"splits": SPLITS, "order_seed": SEED},
    }
    return Measured(values, about, of_kinds, refused)


def inception(tools: Tools, device: torch.device) -> FeatureNetwork:
    """Images to (n, FEATURES + LOGITS)."""
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


def look(
    network: FeatureNetwork,
    batches: Iterable[Tensor],
    num: int,
    needs: Collection[str],
    folder: Path,
) -> Arrays:
    """What is needed of `num` images, whose parts the processes hold, for the first process.

    moments: float64 (1 + FEATURES, FEATURES), the mean and the covariance; features and logits:
    float32 (num, FEATURES or LOGITS), in files.
    """
    moments = Moments(FEATURES)
    rows = {need: Rows(num, dim, folder) for need, dim in SIZES.items() if need in needs}

    def collect() -> None:
        for images in batches:
            found = dict(zip(SIZES, network(images).split([*SIZES.values()], dim=1), strict=True))
            if "moments" in needs:
                moments.add(found["features"])
            for need in rows:
                rows[need].add(found[need])

    on_all_ranks(collect, at_once=True)
    arrays: Arrays = {need: collected.gathered() for need, collected in rows.items()}
    if "moments" in needs:
        merged = moments.merged()
        both = [merged.mean()[None], merged.covariance()] if distributed.rank() == 0 else None
        arrays["moments"] = None if both is None else np.vstack(both)
    return arrays


def features_of_reals(
    subject: Samples, network: FeatureNetwork, needs: Collection[str], num: int, tools: Tools
) -> Arrays:
    """The same of the first `num` reals, from the cache of the first process if they are there."""
    about = {**subject.about_reals(), "number": num, **network.about()} if needs else {}
    about |= {name: version(name) for name in ("torch", "torch-fidelity")}
    about["version"] = VERSION
    shapes = {"moments": ("<f8", (1 + FEATURES, FEATURES)), "features": ("<f4", (num, FEATURES))}
    places = {need: entry(tools.cache, f"inception-{need}", about, *shapes[need]) for need in needs}
    return cached(
        places,
        lambda missing: look(network, subject.reals(num), num, missing, tools.cache),
        tools.tell,
    )


def measure(kind: str, fakes: Arrays, reals: Arrays, device: torch.device) -> dict[str, float]:
    """The values of one metric, of what the first process holds."""
    need = NEEDS[kind]
    ours, theirs = fakes[need], reals.get(need)
    assert ours is not None
    if kind == "is":
        return inception_score(ours)
    assert theirs is not None
    if kind == "fid":
        return {"fid": frechet_distance(ours[0], ours[1:], theirs[0], theirs[1:])}
    if kind == "kid":
        return kernel_distance(ours, theirs)
    return precision_recall(ours, theirs, device)


def subset_size(images: int, reals: int) -> int:
    return min(KID_SUBSET_SIZE, images, reals)


def kernel_distance(fakes: np.ndarray, reals: np.ndarray) -> dict[str, float]:
    """Mean and deviation over subsets, as wide as there are images for up to the usual 1000."""
    from torch_fidelity.metric_kid import kid_features_to_metric

    found = kid_features_to_metric(
        torch.from_numpy(fakes),
        torch.from_numpy(reals),
        kid_subsets=KID_SUBSETS,
        kid_subset_size=subset_size(len(fakes), len(reals)),
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
    """Mean and deviation over splits, each of which is in memory alone."""
    from torch_fidelity.metric_isc import isc_features_to_metric

    num = len(logits)
    order = np.random.RandomState(SEED).permutation(num)
    scores = []
    for i in range(splits):
        rows = logits[order[i * num // splits : (i + 1) * num // splits]]
        found = isc_features_to_metric(torch.from_numpy(rows), splits=1, shuffle=False)
        scores.append(found["inception_score_mean"])
    return {"is": float(np.mean(scores)), "is_std": float(np.std(scores))}
