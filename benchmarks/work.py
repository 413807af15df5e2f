"""Counted work of one iteration: floating-point operations, bytes, and the time they must take.

    D step   fakes without a graph; D on fakes, forward and back; D on reals forward, back to the
             images for R1, that backward pass differentiated (the way up through it, and its
             share of the weights' gradients), back to the weights
    G step   G forward; D forward and back to the images; back through G to the weights

A multiplication and an addition count as two operations. Only convolutions and dense layers
count; filters, noise and everything else by pixel are less than a hundredth of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from stylegan.networks import NetworkConfig
from stylegan.schedule import resolutions

# of up- and downscaling with a convolution; "winograd": as `stylegan.ops` does it on CPUs
Fusing = Literal["nowhere", "official", "everywhere", "winograd"]
OFFICIAL_FUSING = 128  # the lowest resolution at which the official program fuses
PLAIN_FACTOR, RESAMPLED_FACTOR = 16 / 36, 9 / 16  # multiplications of minimal filtering
MANY_CHANNELS = 256  # from which on it is used; written again for older revisions, that lack it


@dataclass(frozen=True)
class Layer:
    """A convolution or dense layer; everything per image."""

    flops: float  # of its forward pass
    outputs: float  # numbers that it gives
    parameters: int  # bias and noise strength included
    channels: int = 0  # the fewer of both sides, of a convolution
    first: bool = False  # nothing before it needs a gradient, but for images


@dataclass(frozen=True)
class Pass:
    """A walk through a network and, where something is differentiated, back."""

    network: Literal["generator", "discriminator"]
    forward: int  # products of inputs and weights
    backward: int  # products of gradients and weights
    gradients: int  # products of gradients and inputs: gradients of weights
    to_images: int  # backward products of the first layer: gradients of images


PASSES = (
    Pass("generator", 1, 0, 0, 0),
    Pass("discriminator", 1, 1, 1, 0),  # fakes
    Pass("discriminator", 2, 2, 2, 1),  # reals: forward, R1's way back, up again, back
    Pass("generator", 1, 1, 1, 0),
    Pass("discriminator", 1, 1, 0, 1),
)


@dataclass(frozen=True)
class Work:
    """The work of one iteration."""

    flops: float
    moved: float  # bytes

    def bound(self, flops_per_second: float, bytes_per_second: float) -> float:
        """Seconds, if computing and moving do not overlap."""
        return self.flops / flops_per_second + self.moved / bytes_per_second


def convolution(inputs: int, outputs: int, size: int, pixels: int, extra: int = 1) -> Layer:
    """`pixels` are those of the output; `extra` parameters for each of its channels."""
    weights = inputs * outputs * size**2
    parameters = weights + extra * outputs
    return Layer(2.0 * weights * pixels, outputs * pixels, parameters, min(inputs, outputs))


def dense(inputs: int, outputs: int, times: float = 1.0, first: bool = False) -> Layer:
    flops, weights = 2.0 * inputs * outputs, inputs * outputs + outputs
    return Layer(flops * times, outputs * times, weights, first=first)


def resampled(layer: Layer, resolution: int, fusing: Fusing) -> Layer:
    """Fused with its resampling, a 3x3 kernel becomes one of 4x4 with stride 2: 4 taps for each
    pixel of the larger side in place of 9."""
    fused = fusing in ("everywhere", "winograd")
    fused |= fusing == "official" and resolution >= OFFICIAL_FUSING
    factor = 4 / 9 if fused else 1.0
    if fusing == "winograd" and layer.channels >= MANY_CHANNELS:
        factor *= RESAMPLED_FACTOR
    return replace(layer, flops=layer.flops * factor)


def plain(layer: Layer, resolution: int, fusing: Fusing) -> Layer:
    """At 4x4 a single matrix product takes the place of the convolution."""
    few = fusing == "winograd" and layer.channels >= MANY_CHANNELS and resolution > 4
    return replace(layer, flops=layer.flops * PLAIN_FACTOR) if few else layer


def generator_layers(
    config: NetworkConfig, resolution: int, fading: bool, fusing: Fusing, mixing: float
) -> Iterator[Layer]:
    """`mixing` is the probability of a second latent, for which the mapping runs twice."""
    widths = [config.z_dim, *[config.mapping_width] * (config.mapping_layers - 1), config.w_dim]
    for i in range(config.mapping_layers):
        yield dense(widths[i], widths[i + 1], 1 + mixing, first=i == 0)
    yield Layer(0.0, 0.0, config.channels(4) * 16)  # the constant
    for r in resolutions(resolution):
        before, channels, pixels = config.channels(r // 2), config.channels(r), r * r
        if r == 4:  # the first epilogue has no convolution; bias and noise strength always
            yield Layer(0.0, channels * pixels, 2 * channels)
        else:
            yield resampled(convolution(before, channels, 3, pixels, extra=2), r, fusing)
        yield plain(convolution(channels, channels, 3, pixels, extra=2), r, fusing)
        yield from [dense(config.w_dim, 2 * channels)] * 2
    for r in [resolution, resolution // 2][: 1 + (fading and resolution > 4)]:
        yield convolution(config.channels(r), config.image_channels, 1, r * r)


def discriminator_layers(
    config: NetworkConfig, resolution: int, fading: bool, fusing: Fusing
) -> Iterator[Layer]:
    for r in [resolution, resolution // 2][: 1 + (fading and resolution > 4)]:
        layer = convolution(config.image_channels, config.channels(r), 1, r * r)
        yield replace(layer, first=True)
    for r in reversed(resolutions(resolution)[1:]):
        channels, after = config.channels(r), config.channels(r // 2)
        yield plain(convolution(channels, channels, 3, r * r), r, fusing)
        yield resampled(convolution(channels, after, 3, r * r), r, fusing)
    channels, hidden = config.channels(4), config.channels(2)
    yield convolution(channels + (config.deviation_group > 1), channels, 3, 16)
    yield dense(channels * 16, hidden)
    yield dense(hidden, 1)


def iteration(
    config: NetworkConfig,
    resolution: int,
    *,
    batch: int = 1,
    fading: bool = False,
    fusing: Fusing = "everywhere",
    mixing: float = 0.9,
    number_bytes: int = 4,
) -> Work:
    """The work of one iteration. Bytes are a lower bound, at least for networks beyond the cache:
    a pass reads the weights; writes and reads each output once, on the way back the gradients
    and, where weights have gradients, the kept outputs once more. `number_bytes` is the size of
    these; weights, gradients of weights and optimizers have 4. Of Adam's moments only the second
    counts (beta1 is 0); the average of the generator is read and written with every weight.
    """
    networks = {
        "generator": list(generator_layers(config, resolution, fading, fusing, mixing)),
        "discriminator": list(discriminator_layers(config, resolution, fading, fusing)),
    }
    flops = moved = 0.0
    for one in PASSES:
        layers = networks[one.network]
        for layer in layers:
            backward = one.backward
            if layer.first:
                backward = one.to_images
            flops += batch * layer.flops * (one.forward + backward + one.gradients)
        outputs = number_bytes * batch * sum(layer.outputs for layer in layers)
        weights = 4 * sum(layer.parameters for layer in layers)
        moved += weights * (one.forward + one.backward)
        moved += outputs * (2 * one.forward + 2 * one.backward + one.gradients)
    for name, layers in networks.items():
        weights = 4 * sum(layer.parameters for layer in layers)
        updates = 2 + 2 + 2  # gradient written and read, weight and second moment moved
        average = 3 if name == "generator" else 0  # read, written, and the weight read
        moved += weights * (updates + average)
    return Work(flops, moved)
