"""Linear separability: how well a hyperplane in latent space separates an attribute.

Karras et al. 2019, section 4.2, as in the official code: exp(sum_i H(Y_i | X_i)) with entropies in
nats, where Y_i is the class that a classifier assigns to an image and X_i the side of a hyperplane
on which its latent lies. The official support vector machine draws random numbers and may stop
early; here the same problem is solved in its primal form, which does neither.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.metrics.cache import gathered_rows
from stylegan.metrics.comparison import Comparison
from stylegan.metrics.features import AVERAGED_DOWN, Scores, averaged_down
from stylegan.metrics.measurement import Measurement
from stylegan.utils.distributed import run_on_all_ranks, run_on_rank0
from stylegan.utils.lineage import sha256_of
from stylegan.utils.text import error_reason

if TYPE_CHECKING:
    from sklearn.svm import LinearSVC

# Float images (n, C, r, r), nominally in [-1, 1], r at most 256 -> logits: (n,) or (n, 1), positive
# for images with the attribute; or (n, 2), of the classes without and with it.
Classifier = Callable[[Tensor], Tensor]


def separability(m: Measurement) -> Scores:
    """Measure `ls` for the attributes of `m.tools.classifiers`. Rank 0 holds half of the latents of
    a space in memory: 1.4 GB for 200,000 images and 512 dimensions."""
    m.require_generator()
    if not m.tools.classifiers:
        raise ValueError("linear separability needs attribute classifiers; pass --classifier FILE")
    files = {path.stem: path for path in m.tools.classifiers}
    if len(files) < len(m.tools.classifiers):
        names = ", ".join(path.stem for path in m.tools.classifiers)
        raise ValueError(f"classifiers need different file names: {names}")
    classifiers = run_on_all_ranks(
        lambda: {name: load_classifier(path, m.device) for name, path in files.items()}
    )
    entropies = attribute_entropies(m, classifiers, m.num, m.tools.cache)
    values = {f"ls-{space}": score(entropies[space]) for space in "zw"}
    for space, of_space in entropies.items():
        values |= {f"entropy-{space}/{name}": entropy for name, entropy in of_space.items()}
    protocol = {
        "images": m.num,
        "kept_per_attribute": m.num // 2,
        "entropy": "nats",
        "resize": AVERAGED_DOWN,
        "classifiers": {name: sha256_of(path) for name, path in files.items()},
    }
    return Scores(values, protocol)


def load_classifier(path: Path, device: torch.device) -> Classifier:
    """Load a TorchScript file. It is not a pickle, but a program that runs: trust it first."""
    try:
        with warnings.catch_warnings():
            for category in (DeprecationWarning, FutureWarning):  # by version
                warnings.simplefilter("ignore", category)  # it recommends torch.export
            return torch.jit.load(path, map_location=device).eval()
    except RuntimeError as error:
        reason = error_reason(error, line=0)
        raise ValueError(f"{path} is not a TorchScript file, or a damaged one: {reason}") from error


def attribute_entropies(
    comparison: Comparison, classifiers: Mapping[str, Classifier], images: int, folder: Path
) -> dict[str, dict[str, float]]:
    """H(Y | X) in nats by space, z and w, and attribute; the same in all processes."""
    samples = comparison.require_generator()
    config = samples.generator.config

    def rows() -> Iterator[list[Tensor]]:
        for indices in comparison.batches(images, "classified"):
            z = sampling.latents(samples.seeds(indices), config.z_dim)
            w = sampling.map_latents(samples.generator, z, samples.labels(indices))
            shown = samples.synthesized(w, samples.noise_maps(indices))
            shown = sampling.unpremultiply(shown) if config.premultiplied else shown
            seen = averaged_down(shown).float()
            logits = [one_logit(f, name, seen) for name, f in classifiers.items()]
            yield [z, w, torch.stack(logits, dim=1)]

    widths = [config.z_dim, config.w_dim, len(classifiers)]
    with torch.inference_mode(), sampling.deterministic_fp32():
        z, w, logits = gathered_rows(rows(), widths, images, folder)

    def fit() -> dict[str, dict[str, float]]:
        assert z is not None and w is not None and logits is not None
        entropies: dict[str, dict[str, float]] = {"z": {}, "w": {}}
        for i, name in enumerate(classifiers):
            confident = most_confident(logits[:, i], images // 2)
            present = logits[confident, i] >= 0
            for space, latents in (("z", z), ("w", w)):
                sides = present  # a single class needs no plane
                if present.any() and not present.all():
                    sides = best_plane(latents[confident], present).predict(latents[confident])
                entropies[space][name] = conditional_entropy(sides, present)
                comparison.console.progress(f"fitted {name} in {space}", 1, 1)
        return entropies

    return run_on_rank0(fit)


def one_logit(classifier: Classifier, name: str, images: Tensor) -> Tensor:
    """Logits float32 (n,) of a classifier. Raises ValueError if it fails or gives no logits."""
    try:
        logits = classifier(images)
    except RuntimeError as error:
        reason = error_reason(error, line=-1)
        shape = tuple(images.shape)
        raise ValueError(f"the classifier {name} cannot classify {shape}: {reason}") from error
    if logits.shape[1:] == (2,):
        logits = (logits[:, 1] - logits[:, 0]) / 2
    logits = logits[:, 0] if logits.shape[1:] == (1,) else logits
    if logits.ndim != 1 or not logits.isfinite().all():
        fault = f"{tuple(logits.shape)}" if logits.ndim != 1 else "some that are not finite"
        raise ValueError(f"classifier {name} must give logits (n,), (n, 1) or (n, 2), not {fault}")
    return logits.float()


def most_confident(logits: np.ndarray, keep: int) -> np.ndarray:
    """Indices of the `keep` images with the most confident logits (n,). As in the official code,
    float32 probabilities decide: beyond a logit of about 9 they are 1, and the first are kept."""
    magnitude = torch.from_numpy(np.abs(logits, dtype=np.float32))
    probability = torch.softmax(torch.stack([magnitude, -magnitude], dim=1), dim=1)[:, 0]
    return np.argsort(-probability.numpy(), kind="stable")[:keep]


def best_plane(latents: np.ndarray, present: np.ndarray) -> "LinearSVC":
    """Fit a linear support vector machine with squared hinge loss and C = 1, as in the official
    code, to latents (n, dim) and the presence of the attribute, bool (n,) with both values."""
    from sklearn.svm import LinearSVC

    return LinearSVC(dual=False).fit(latents, present)


def conditional_entropy(sides: np.ndarray, classes: np.ndarray) -> float:
    """H(classes | sides) in nats, of bools (n,)."""
    entropy = 0.0
    for side in (False, True):
        of_side = classes[sides == side]
        for count in (int(of_side.sum()), int((~of_side).sum())):
            if count:
                entropy -= count / len(classes) * math.log(count / len(of_side))
    return entropy


def score(entropies: Mapping[str, float]) -> float:
    """exp(sum of H): from 1, if all n attributes are separable, to 2^n, if none is at all."""
    return math.exp(sum(entropies.values()))
