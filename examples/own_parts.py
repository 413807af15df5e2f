"""Custom block, loss and metric, with every command of the package.

    python examples/own_parts.py train -o network.generator='"attention"' --out runs/attention
    python examples/own_parts.py generate runs/attention --out pictures

Files name the parts and hold their weights, but no code: this script adds the code.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stylegan import Generator, NetworkConfig
from stylegan.cli import main
from stylegan.layers import EqualizedConv2d
from stylegan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES, DiscriminatorLoss
from stylegan.machine.distributed import gather
from stylegan.metrics import METRICS, Measurement, Metric, Scores
from stylegan.networks import GENERATORS

RESOLUTION = 16  # of the self-attention


class WithAttention(nn.Module):
    """A block of the synthesis network, followed by self-attention between its pixels."""

    def __init__(self, block: nn.Module, channels: int) -> None:
        super().__init__()
        self.block = block
        sizes = max(channels // 8, 1), max(channels // 8, 1), channels
        self.query, self.key, self.value = (EqualizedConv2d(channels, n, 1) for n in sizes)
        self.gain = nn.Parameter(torch.zeros(()))  # starts as the block alone

    def forward(self, x: Tensor, ws: Tensor, *noise: Tensor | None) -> Tensor:
        x = self.block(x, ws, *noise)  # (N, channels, H, W)
        rows = (part(x).flatten(2).mT for part in (self.query, self.key, self.value))
        seen = F.scaled_dot_product_attention(*rows).mT.unflatten(2, x.shape[2:])
        return x + self.gain * seen


class AttentionGenerator(Generator):
    def __init__(self, config: NetworkConfig) -> None:
        super().__init__(config)
        blocks, name = self.synthesis.blocks, str(RESOLUTION)
        blocks[name] = WithAttention(blocks[name], config.channels(RESOLUTION))


def contrast(m: Measurement) -> Scores:
    """Mean difference between neighboring pixels, in gray levels, over the images of all ranks."""
    sums = [
        float(batch.float().diff().abs().mean()) * len(batch) for batch in m.fake_batches(m.num)
    ]
    mean = sum(gather(sum(sums))) / m.num
    return Scores({"contrast": mean}, {"images": m.num})


GENERATORS["attention"] = AttentionGenerator
GENERATOR_LOSSES["least_squares"] = lambda fake: (fake - 1).square().mean()
DISCRIMINATOR_LOSSES["least_squares"] = DiscriminatorLoss(
    real=lambda real: (real - 1).square().mean(), fake=lambda fake: fake.square().mean()
)
METRICS["contrast"] = Metric(
    contrast,
    images=1000,
    help="difference between neighboring pixels",
    reals=False,
    lower_is_better=False,
)

if __name__ == "__main__":
    main()
