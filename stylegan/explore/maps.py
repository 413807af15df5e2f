"""What a layer of the synthesis network computes for a picture: a map for each channel."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

from stylegan import sampling
from stylegan.explore.scene import Scene, View, growth_in, picture_of
from stylegan.figures import default_columns
from stylegan.files.loaded import SeededGenerator

SHEET = 1024  # pixels, that a contact sheet may be wide
SHOWN = 0.995  # share of the values that lie between black and white


@torch.inference_mode()
def activations(scene: Scene, view: View, layer: int) -> Tensor:
    """Maps (C, r, r) that leave a layer, counted from 0, with its noise and style.

    ValueError for a layer that the picture's resolution does not reach.
    """
    resolution, _ = growth_in(scene, view)
    loaded = scene.made_of(view)
    network = SeededGenerator.of(loaded)  # the same weights, but hooks of its own
    layers = network.synthesis.noise_layers(resolution)
    if not 0 <= layer < len(layers):
        raise ValueError(
            f"a picture of {resolution}x{resolution} has layers 0 to {len(layers) - 1}, not {layer}"
        )
    kept: list[Tensor] = []
    layers[layer].register_forward_hook(
        lambda module, given, maps: kept.append(maps[0].float().cpu().clone())
    )
    picture_of(scene, view, network.loaded)
    return kept[0]


def contact_sheet(maps: Tensor) -> tuple[np.ndarray, float]:
    """All maps (C, r, r) in rows from the top left, as grey pixels uint8 (H, W, 1) on one scale.

    Grey is 0; the number is that of white, the opposite of black's. Large maps are averaged down.
    """
    columns = default_columns(len(maps))
    while maps.shape[-1] * columns > SHEET:
        maps = avg_pool2d(maps, 2)
    white = float(np.quantile(maps.abs().numpy(), SHOWN)) or 1.0
    factor = max(1, SHEET // (columns * maps.shape[-1]))
    tiles = (maps / white).repeat_interleave(factor, 1).repeat_interleave(factor, 2)
    tiles = pad(tiles, (0, 1, 0, 1), value=1.0)  # white lines between them
    missing = -len(tiles) % columns
    tiles = torch.cat([tiles, tiles.new_ones(missing, *tiles.shape[1:])])
    sheet = tiles.unflatten(0, (-1, columns)).transpose(1, 2).flatten(2, 3).flatten(0, 1)
    return sampling.to_uint8(sheet[None, None])[0], white
