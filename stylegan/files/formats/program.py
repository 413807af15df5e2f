"""The generator as a program of torch.export: it runs with torch alone, without this package."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from stylegan import sampling
from stylegan.atomic import replacing
from stylegan.files.formats.metadata import OURS, about, to_json
from stylegan.files.loaded import LoadedGenerator


class Images(nn.Module):
    """Images of latents, with truncation as an input."""

    def __init__(self, loaded: LoadedGenerator, noise: str) -> None:
        super().__init__()
        self.generator = loaded.generator
        self.cutoff = loaded.cutoff
        self.stage = {"resolution": loaded.resolution, "alpha": loaded.alpha}
        self.noise = noise
        self.rectangle = loaded.active_rectangle

    def forward(
        self,
        z: Tensor,
        psi: Tensor,
        labels: Tensor | None = None,
        noise: list[Tensor] | None = None,
    ) -> Tensor:
        """z (N, z_dim), psi (), labels (N, label_dim), noise (N, 1, r, r) for each layer."""
        generator = self.generator
        ws = generator.broadcast(generator.mapping(z, labels))
        near = torch.lerp(generator.w_avg, ws[:, : self.cutoff], psi)  # whatever psi is
        ws = near if self.cutoff is None else torch.cat([near, ws[:, self.cutoff :]], dim=1)
        images: Tensor = generator.synthesis(
            ws, noise=self.noise if noise is None else noise, **self.stage
        )
        images = sampling.straight(images) if generator.config.premultiplied else images
        return unpadded(images, self.rectangle)


def unpadded(images: Tensor, rectangle: Sequence[int] | None) -> Tensor:
    """The active part of images (N, C, r, r)."""
    if rectangle is None:
        return images
    rows, columns = sampling.active_part(rectangle, *images.shape[2:])
    return images[:, :, rows, columns]


@torch.no_grad()
def exported_program(loaded: LoadedGenerator, noise: str = "const") -> ExportedProgram:
    """A program (z, psi, and by name labels where there are any and noise if that is "input") ->
    images without padding, any number of them, in the precision and on the device of the
    generator."""
    config, average = loaded.generator.config, loaded.generator.w_avg
    images = Dim("images")
    z, psi = average.new_zeros(2, config.z_dim), average.new_tensor(loaded.psi)
    named: dict[str, Any] = {}
    shapes: dict[str, Any] = {"z": {0: images}, "psi": None}
    if config.label_dim:
        named["labels"], shapes["labels"] = average.new_zeros(2, config.label_dim), {0: images}
    if noise == "input":
        layers = loaded.generator.synthesis.noise_layers(loaded.resolution)
        stored = [layer.noise.const for layer in layers if layer.noise is not None]
        named["noise"] = [m.repeat(2, 1, 1, 1) for m in stored]
        shapes["noise"] = [{0: images}] * len(stored)
    program = Images(loaded, noise).eval()
    return torch.export.export(program, (z, psi), named, dynamic_shapes=shapes, strict=False)


def save_program(path: Path, loaded: LoadedGenerator, noise: str = "const") -> None:
    """Write it for `torch.export.load`; the entry `stylegan.json` says what it is."""
    content = io.BytesIO()
    torch.export.save(
        exported_program(loaded, noise),
        content,
        extra_files={f"{OURS}.json": to_json(about(loaded))},
    )
    with replacing(path) as file:
        file.write(content.getbuffer())
