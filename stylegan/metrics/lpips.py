"""LPIPS with VGG16 (Zhang et al. 2018), the distance of perceptual path length.

The weights of the linear layers (version 0.1) come with torchmetrics; the trunk is torchvision's
VGG16. The StyleGAN paper used a TensorFlow network of the same authors, so its numbers are close to
these, but not exactly comparable.
"""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from stylegan.files.download import hash_prefix
from stylegan.metrics.features import public_weights, repeat_gray, weights_errors
from stylegan.utils.lineage import sha256_of

WEIGHTS = "https://download.pytorch.org/models/vgg16-397923af.pth"  # IMAGENET1K_V1
MIN_SIDE = 16  # pixels a side: VGG16 halves the image four times


@dataclass(frozen=True, eq=False)
class Lpips:
    """A distance of images, with its description for results."""

    network: nn.Module = field(repr=False)
    trunk_sha256: str
    heads_sha256: str  # of the linear layers

    def distance(self, images: Tensor, others: Tensor) -> Tensor:
        """Distances (n,) of images (n, 1 or 3, r, r) from others, nominally in [-1, 1]."""
        channels, height, width = images.shape[1:]
        if channels == 4:
            raise ValueError("LPIPS compares colors; put images with alpha on a background first")
        if min(height, width) < MIN_SIDE:
            raise ValueError(
                f"LPIPS needs images of at least {MIN_SIDE}x{MIN_SIDE} pixels, got {height}x{width}"
            )
        return self.network(*(repeat_gray(x).float() for x in (images, others))).flatten()

    def about(self) -> dict[str, object]:
        published = self.trunk_sha256.startswith(str(hash_prefix(WEIGHTS)))
        return {
            "network": "LPIPS 0.1 on VGG16" if published else "LPIPS on a VGG16 of one's own",
            "sha256": self.trunk_sha256,
            "heads_sha256": self.heads_sha256,
        }


def load_lpips(weights: Path | None, device: torch.device) -> Lpips:
    """Load LPIPS. `weights`: a file or folder with those of the trunk; None: download them."""
    from torchmetrics.functional.image import lpips as library

    tensors, sha256 = public_weights(WEIGHTS, weights)
    with torch.random.fork_rng(devices=[]):  # initial weights are random, then overwritten
        network = library._NoTrainLpips(net="vgg", pnet_rand=True)
    with weights_errors("torchvision's VGG16", WEIGHTS, weights):
        # layers are numbered as in torchvision: slice2.5 is features.5
        names = {name: f"features.{name.partition('.')[2]}" for name in network.net.state_dict()}
        network.net.load_state_dict({name_here: tensors[name] for name_here, name in names.items()})
    heads = Path(library.__file__).parent / "lpips_models" / "vgg.pth"
    return Lpips(network.to(device), sha256, sha256_of(heads))
