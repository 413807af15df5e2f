"""Names of metrics: a kind, and after it the number of images, as in `fid50k` or `ppl-w-end10k`."""

import re
from collections.abc import Mapping
from typing import NamedTuple


class Kind(NamedTuple):
    """A metric that can be asked for."""

    images: int  # generated ones, if the name has no number
    network: str  # the feature network it needs: inception, vgg16, own, classifiers or none
    reals: bool  # whether it compares with real images
    lower_is_better: bool | None
    best_by: str  # the name of its main result
    help: str


KINDS: Mapping[str, Kind] = {
    "fid": Kind(50_000, "inception", True, True, "fid", "Frechet Inception distance"),
    "kid": Kind(50_000, "inception", True, True, "kid", "kernel Inception distance"),
    "pr": Kind(50_000, "inception", True, False, "precision", "precision and recall"),
    "is": Kind(50_000, "inception", False, False, "is", "Inception score"),
    "ppl-z-full": Kind(100_000, "vgg16", False, True, "ppl-z-full", "perceptual path length"),
    "ppl-w-full": Kind(100_000, "vgg16", False, True, "ppl-w-full", "perceptual path length in W"),
    "ppl-z-end": Kind(100_000, "vgg16", False, True, "ppl-z-end", "the same at t = 0"),
    "ppl-w-end": Kind(100_000, "vgg16", False, True, "ppl-w-end", "the same in W at t = 0"),
    "ls": Kind(200_000, "classifiers", False, True, "ls-w", "linear separability in W and Z"),
    "swd": Kind(16_384, "none", True, True, "swd", "sliced Wasserstein distance, per resolution"),
    "own-fd": Kind(10_000, "own", True, True, "own-fd", "Frechet distance, our own features"),
    "own-pr": Kind(10_000, "own", True, False, "own-precision", "precision, recall, our features"),
}


class Request(NamedTuple):
    """One metric that was asked for."""

    kind: str
    images: int

    @property
    def name(self) -> str:
        """With the number of images, thousands as k: `fid50k`, `swd16384`."""
        n = self.images
        return f"{self.kind}{n // 1000}k" if n % 1000 == 0 else f"{self.kind}{n}"


def parse(names: str) -> list[Request]:
    """`fid50k,kid,ppl-z-full10k` as requests, each once. ValueError for what there is not."""
    found: dict[Request, None] = {}
    for name in names.split(","):
        match = re.fullmatch(r"([a-z]+(?:-[a-z]+)*?)(?:(\d+)(k?))?", name.strip())
        kind = match[1] if match else ""
        if match is None or kind not in KINDS:
            known = ", ".join(KINDS)
            raise ValueError(
                f"there is no metric {name.strip()!r}; known: {known}, with a number "
                "of images behind if you like, as in fid50k"
            )
        images = int(match[2]) * (1000 if match[3] else 1) if match[2] else KINDS[kind].images
        if images < 2:
            raise ValueError(f"{name.strip()}: at least 2 images are needed")
        found[Request(kind, images)] = None
    return list(found)
