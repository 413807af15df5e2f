"""Sizes and switches of the networks, and checks of their inputs."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from stylegan.ops import Activation
from stylegan.schedule import check_resolution, resolutions
from stylegan.utils.validation import validated

# Upper bounds are beyond what anyone trains: they reject damaged and hostile files before networks
# are created.
Width = Annotated[int, Field(ge=1, le=2**15)]


@validated
@dataclass(frozen=True)
class NetworkConfig:
    """Sizes and ablations of generator and discriminator; the defaults are the paper's."""

    resolution: int = 1024  # final resolution, a power of two from 4 to 1024 [pixels]
    image_channels: Annotated[int, Field(ge=1, le=2**10)] = 3  # 1 gray, 3 color, 4 with alpha
    premultiplied: bool = False  # colors of 4 channels are multiplied by alpha (--channels RGBA)
    label_dim: Annotated[int, Field(ge=0, le=2**20)] = 0  # classes; 0 = unconditional
    z_dim: Width = 512  # length of the latent z
    w_dim: Width = 512  # length of the intermediate latent w
    mapping_layers: Annotated[int, Field(ge=0, le=100)] = 8  # layers from z to w
    mapping_width: Width = 512  # units of a hidden layer of the mapping
    # factor of the mapping's learning rate
    mapping_lr_multiplier: Annotated[float, Field(ge=1e-9, le=1e6)] = 0.01
    mapping_activation: Activation = "lrelu"  # nonlinearity of the mapping
    normalize_latents: bool = True  # scale z to unit mean square
    # channels at resolution r: 2 * channel_base / r, capped
    channel_base: Annotated[int, Field(ge=1, le=2**30)] = 8192
    # power with which channels fall as the resolution grows
    channel_decay: Annotated[float, Field(ge=0, le=64)] = 1.0
    max_channels: Width = 512  # largest number of channels of a layer
    activation: Activation = "lrelu"  # nonlinearity of synthesis and discriminator
    styles: bool = True  # w scales and shifts every layer (AdaIN)
    constant_input: bool = True  # learn the 4x4 input; else a dense layer makes it from w
    noise: bool = True  # noise is added after every convolution of the synthesis
    pixel_norm: bool = False  # normalize the features of each pixel
    instance_norm: bool = True  # normalize the features of each image, before the style
    blur: bool = True  # filter after upscaling and before downscaling
    equalized: bool = True  # equalized learning rate
    bias_before_blur: bool = False  # for networks of style-based-gan-pytorch; shows at borders
    activation_before_blur: bool = False  # one more before the blur, for networks of mmgeneration
    # images per group of the minibatch deviation; 0 or 1 = off
    deviation_group: Annotated[int, Field(ge=0, le=2**20)] = 4
    deviation_features: Width = 1  # feature maps of the minibatch deviation
    generator: str = "stylegan"  # class of the generator: stylegan, or one that a script adds
    discriminator: str = "stylegan"  # class of the discriminator: stylegan, or one of a script

    def __post_init__(self) -> None:
        check_resolution(self.resolution)
        if self.premultiplied and self.image_channels != 4:
            raise ValueError(
                f"premultiplied needs image_channels 4, for alpha, got {self.image_channels}"
            )
        if self.mapping_layers == 0 and self.w_dim != self.mapping_inputs():
            why = ", twice z_dim long because of the labels" if self.label_dim else ""
            also = f" and network.label_dim {self.label_dim}" if self.label_dim else ""
            raise ValueError(
                f"without mapping layers w is the latent itself{why}: w_dim must be "
                f"{self.mapping_inputs()}, got {self.w_dim}; set network.w_dim{also}"
            )
        if self.channels(4) % self.deviation_features:
            raise ValueError(
                f"deviation_features {self.deviation_features} must divide the "
                f"{self.channels(4)} channels at 4x4"
            )

    def channels(self, resolution: int) -> int:
        """Number of feature maps at `resolution` (2 = the discriminator's last hidden layer)."""
        stage = resolution.bit_length() - 2  # doublings from 2
        wanted = int(self.channel_base / 2 ** (stage * self.channel_decay))
        return max(1, min(wanted, self.max_channels))

    def mapping_inputs(self) -> int:
        """Input length of the mapping: latent and embedded label."""
        return 2 * self.z_dim if self.label_dim else self.z_dim

    def num_layers(self, resolution: int | None = None) -> int:
        """Number of synthesis layers up to `resolution`, two at each."""
        return 2 * len(resolutions(self.resolution if resolution is None else resolution))

    def num_ws(self, resolution: int | None = None) -> int:
        """Number of rows of `ws` that are used up to `resolution`: one per synthesis layer, or a
        single one without styles."""
        return self.num_layers(resolution) if self.styles else 1


def check_labels(labels: Tensor | None, label_dim: int, n: int) -> None:
    if label_dim == 0 and labels is not None:
        raise ValueError("labels must be None for a network without labels (label_dim is 0)")
    shape = tuple(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
    if label_dim and shape != (n, label_dim):
        found = "none" if labels is None else shape
        raise ValueError(f"labels must have shape ({n}, {label_dim}), got {found}")


def check_alpha(alpha: float) -> bool:
    """Whether a resolution fades in with the weight `alpha`; ValueError if it is invalid."""
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be from 0 to 1, got {alpha}")
    return alpha < 1


def active_rgb_resolutions(resolution: int, alpha: float) -> list[int]:
    """Resolutions whose RGB layers are active: two while `resolution` fades in."""
    return [resolution, resolution // 2] if alpha < 1 and resolution > 4 else [resolution]
