"""Transfer between networks whose tensors have the same shapes but another meaning."""

import math

import torch
from torch import Tensor

from stylegan.files.weights import Weights
from stylegan.layers import Equalized
from stylegan.networks import Discriminator, Generator, NetworkConfig
from stylegan.utils.toml import toml_value

Network = Generator | Discriminator

# Fields of NetworkConfig that change the meaning of tensors of the same shapes. The other fields
# change names or shapes, and such tensors are not copied.
CONVERTED = "image_channels", "equalized", "mapping_lr_multiplier"
OF_MAPPING = (  # if one differs, the whole mapping network is reinitialized
    "z_dim", "w_dim", "mapping_layers", "mapping_width", "mapping_activation", "normalize_latents"
)  # fmt: skip
OF_LAYERS = (  # if one differs, the transfer is refused
    "activation", "styles", "pixel_norm", "instance_norm", "blur", "bias_before_blur",
    "activation_before_blur",
)  # fmt: skip
LUMA = 0.299, 0.587, 0.114  # weights of gray, as in Pillow


def changes(weights: Weights, ours: NetworkConfig, names: tuple[str, ...]) -> str:
    """Describe the fields in `names` that differ from the weights to the run; "" if none does."""
    theirs = weights.require_loaded().config
    pairs = [(name, getattr(theirs, name), getattr(ours, name)) for name in names]
    texts = [f"network.{n} {toml_value(a)} -> {toml_value(b)}" for n, a, b in pairs if a != b]
    return ", ".join(texts)


def check_meaning(weights: Weights, ours: NetworkConfig) -> None:
    """Raises ValueError if the layers of the run would compute something else from the weights."""
    same_channels = weights.require_loaded().config.image_channels == ours.image_channels
    names = (*OF_LAYERS, "premultiplied") if same_channels else OF_LAYERS  # else it is converted
    if found := changes(weights, ours, names):
        raise ValueError(
            f"{found}: the weights of {weights} would compute something else; keep its value by -o"
        )


def recolored(before: NetworkConfig, after: NetworkConfig) -> Tensor:
    """Affine map of a pixel's channels in [-1, 1] to another number: float64 (after, before + 1).

    Gray is Pillow's, premultiplied colors are composited onto white, new alpha is opaque.
    """
    n = before.image_channels
    m = after.image_channels
    if n == m:
        return torch.eye(n, n + 1).double()
    to_color = torch.zeros(4, n + 1).double()  # rows: red, green, blue, 1
    to_color[3, n] = 1
    to_color[:3, :n] = 1.0 if n == 1 else torch.eye(3, n)
    if before.premultiplied:
        to_color[:3, 3:] = torch.tensor([-1.0, 1.0])
    from_color = torch.tensor([[*LUMA, 0.0]]) if m == 1 else torch.eye(m, 4)
    return from_color.double() @ to_color


def adapted(trained: Network, network: Network) -> dict[str, Tensor]:
    """Convert the tensors of `trained` so that `network` computes the same, despite `CONVERTED`.

    New labels have no effect at first. The tensors of another mapping network, and its average of
    w, are left out.
    """
    before = trained.config
    after = network.config
    tensors = dict(trained.state_dict())
    shown = recolored(before, after)
    seen = recolored(after, before)
    layers = dict(trained.named_modules())
    for name, layer in network.named_modules():
        source = layers.get(name)
        if not (isinstance(layer, Equalized) and isinstance(source, Equalized)):
            continue
        weight = source.weight.detach().cpu().double() * source.weight_scale
        if name == "mapping.layers.0" and after.label_dim > before.label_dim == 0:
            if after.normalize_latents:  # together with the label's half, which is 0 at first
                weight = weight / math.sqrt(2)
            of_label = layer.weight.detach()[:, after.z_dim :].cpu().double() * layer.weight_scale
            weight = torch.cat([weight, of_label], dim=1)
            tensors["mapping.label_embedding"] = torch.zeros(after.label_dim, after.z_dim)
        if source.bias is not None:
            bias = source.bias.detach().cpu().double() * source.lr_multiplier
            if "to_rgb." in name:
                weight = torch.einsum("oc,cihw->oihw", shown[:, :-1], weight)
                bias = shown[:, :-1] @ bias + shown[:, -1]
            elif "from_rgb." in name:
                bias = bias + weight.flatten(1) @ seen[:, -1]
                weight = torch.einsum("ochw,ci->oihw", weight, seen[:, :-1])
            tensors[f"{name}.bias"] = (bias / layer.lr_multiplier).to(source.bias)
        tensors[f"{name}.weight"] = (weight / layer.weight_scale).to(source.weight)
    another = any(getattr(before, name) != getattr(after, name) for name in OF_MAPPING)
    if another or before.label_dim > after.label_dim == 0:
        return {k: x for k, x in tensors.items() if not k.startswith(("mapping.", "w_avg"))}
    return tensors
