"""Differentiable distances between images."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan.metrics import efficientnet
from stylegan.metrics.features import as_rgb, averaged_down, hub_file
from stylegan.metrics.lpips import MIN_SIDE, WEIGHTS, Lpips, load_lpips
from stylegan.ops import downsample
from stylegan.sampling import Rectangle, active_part
from stylegan.sampling.pretrained import Pretrained

LAST_OF_SIZE = (0, 1, 2, 4, 6)  # the last stage of EfficientNet at each feature map size
COARSEST = 4  # pixels per side of the smallest level of the pyramid of pixel distances
BEST_PSNR = 100.0  # dB; more counts as equal


class Distance(Protocol):
    """Distance between images and targets (N, C, r, r), nominally in [-1, 1] -> (N,)."""

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor: ...

    def about(self) -> dict[str, object]: ...


@dataclass(frozen=True)
class PixelDistance:
    """Mean squared difference of pixels, averaged over a pyramid of 2x2 averages down to 4x4.

    The coarse levels attract content that is slightly misplaced.
    """

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        difference = images - targets
        levels = []
        while True:
            levels.append(difference.square().mean(dim=(1, 2, 3)))
            if difference.shape[2] <= COARSEST:
                return torch.stack(levels).mean(dim=0)
            difference = downsample(difference)

    def about(self) -> dict[str, object]:
        return {"name": "pixels", "what": "mean squared difference of pixels at every scale"}


@dataclass(frozen=True)
class PerceptualDistance:
    """LPIPS; images larger than its input are box-averaged first."""

    lpips: Lpips

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        return self.lpips.distance(averaged_down(images), averaged_down(targets))

    def about(self) -> dict[str, object]:
        described = self.lpips.about()
        return {"name": "lpips", "what": described.pop("network"), **described}


@dataclass(frozen=True)
class EfficientNetDistance:
    """Mean squared difference of unit-normalized EfficientNet-Lite0 features over all stages.

    It is like LPIPS without the weights fitted to human judgments.
    """

    network: efficientnet.EfficientNetLite0
    sha256: str

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        both = [self.network.stages(as_rgb(x.float() * 127.5 + 127.5)) for x in (images, targets)]
        levels = []
        for i in LAST_OF_SIZE:
            a, b = (F.normalize(stages[i], dim=1) for stages in both)
            levels.append((a - b).square().sum(dim=1).mean(dim=(1, 2)))
        return torch.stack(levels).mean(dim=0)

    def about(self) -> dict[str, object]:
        return {"name": "eff", "what": "features of EfficientNet-Lite0", "sha256": self.sha256}


def choose_distance(
    name: Literal["auto", "lpips", "eff", "pixels"], loaded: Pretrained, weights: Path | None = None
) -> tuple[Distance, str]:
    """The distance `name` for images of a generator, and the reason for the choice.

    "auto" is LPIPS if everything that it needs is on this machine, else pixels. "lpips" downloads
    the weights of VGG16 unless `weights`, a file or folder, has them.

    Raises ValueError if a distance other than "auto" cannot be used.
    """
    if weights is not None and name in ("eff", "pixels"):
        raise ValueError(f"--feature-weights are of LPIPS, which --distance {name} does not use")
    if name == "pixels":
        return PixelDistance(), "as asked"
    problem = None
    channels = loaded.generator.config.image_channels
    device = loaded.generator.w_avg.device
    if channels not in (1, 3):  # of RGBA, alpha is searched for, too
        problem = f"it needs gray or RGB images, got {channels} channels"
    elif name == "eff":
        missing = f"its weights are missing ({efficientnet.HOW_TO_GET})"
        problem = None if efficientnet.weights_path() else missing
    elif loaded.resolution < MIN_SIDE:
        problem = f"it needs images of at least {MIN_SIDE}x{MIN_SIDE} pixels"
    elif importlib.util.find_spec("torchmetrics") is None:
        problem = "the library torchmetrics is missing (pip install torchmetrics)"
    elif name == "auto" and weights is None and not hub_file(WEIGHTS).is_file():
        problem = f"the weights of VGG16 are missing, see --feature-weights ({WEIGHTS})"
    if problem and name == "auto":
        return PixelDistance(), f"no LPIPS: {problem}"
    if problem:
        network = "EfficientNet" if name == "eff" else "LPIPS"
        raise ValueError(f"{network} cannot be used: {problem}; use --distance pixels")
    if name == "eff":
        return EfficientNetDistance(*efficientnet.load_efficientnet(device)), "as asked"
    why = "as asked" if name == "lpips" else "its weights are on this machine"
    return PerceptualDistance(load_lpips(weights, device)), why


def psnr(images: Tensor, targets: Tensor, rectangle: Rectangle | None = None) -> Tensor:
    """PSNR of images (N, C, r, r), clamped to [-1, 1], in `rectangle` -> (N,) in dB, up to 100."""
    difference = images.clamp(-1, 1) - targets.clamp(-1, 1)
    if rectangle is not None:
        rows, columns = active_part(rectangle, *difference.shape[2:])
        difference = difference[:, :, rows, columns]
    return (10 * torch.log10(4 / difference.square().mean(dim=(1, 2, 3)))).clamp(max=BEST_PSNR)
