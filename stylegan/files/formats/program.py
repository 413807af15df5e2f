"""Export of the generator as a program: torch.export, which needs torch alone, and ONNX."""

import copy
import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from stylegan import sampling
from stylegan.files.checkpoint import FORMAT
from stylegan.files.formats.native import description_as_json
from stylegan.networks import Noise
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.filesystem import OutputWriter
from stylegan.utils.text import require_module

if TYPE_CHECKING:
    from onnx import ModelProto

# Oldest opset that torch exports, and the oldest format with it (ONNX 1.13, ONNX Runtime 1.14).
ONNX_OPSET = 18
ONNX_IR = 8
Inputs = dict[str, Tensor | list[Tensor]]  # of the program, except psi, by name


class Program(nn.Module):
    """Module to export: a generator, shown as in its file."""

    def __init__(self, loaded: Pretrained, noise: str) -> None:
        super().__init__()
        self.generator = loaded.generator
        self.settings = loaded.settings
        self.stored: Noise = "none" if noise == "none" else "const"  # if no maps are passed

    def forward(
        self,
        z: Tensor,
        psi: Tensor,
        labels: Tensor | None = None,
        noise: list[Tensor] | None = None,
    ) -> Tensor:
        """Generate images (N, C, H, W) without padding; psi () overrides that of the file."""
        ws = self.generator.broadcast(self.generator.mapping(z, labels))
        styles = self.settings.truncate_and_edit(ws, self.generator.w_avg, psi)
        images = self.settings.synthesize(self.generator, styles, noise or self.stored)
        images = sampling.unpremultiply(images) if self.generator.config.premultiplied else images
        if self.settings.active_rectangle is None:
            return images
        rows, columns = sampling.active_part(self.settings.active_rectangle, *images.shape[2:])
        return images[:, :, rows, columns]


def example_inputs(loaded: Pretrained, noise: str) -> Inputs:
    """`z` of two seeds and, if the program takes them, `labels` and the stored `noise` maps."""
    config = loaded.generator.config
    average = loaded.generator.w_avg
    seeds = range(2)
    inputs: Inputs = {"z": sampling.latents(seeds, config.z_dim).to(average)}
    if (labels := loaded.labels_of(seeds)) is not None:
        inputs["labels"] = labels.to(average)
    if noise == "input" and config.noise:
        maps = loaded.generator.synthesis.noise_maps(
            1, loaded.settings.synthesis_resolution, "const"
        )
        inputs["noise"] = [m.repeat(len(seeds), 1, 1, 1) for m in maps if m is not None]
    return inputs


@torch.no_grad()
def exported_program(loaded: Pretrained, kind: str) -> ExportedProgram:
    """Export (z, psi, labels=, noise=) -> images without padding, for any batch size."""
    inputs = example_inputs(loaded, kind)
    positional = (inputs["z"], loaded.generator.w_avg.new_tensor(loaded.settings.psi))
    by_name = {name: value for name, value in inputs.items() if name != "z"}
    any_number = {0: Dim("images")}
    shapes: dict[str, object] = {"z": any_number, "psi": None}
    if "labels" in inputs:
        shapes["labels"] = any_number
    if "noise" in inputs:
        shapes["noise"] = [any_number] * len(inputs["noise"])
    program = torch.export.export(
        Program(loaded, kind).eval(), positional, by_name, dynamic_shapes=shapes, strict=False
    )
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of files on this machine
    return program


def save_program(path: Path, loaded: Pretrained, noise: str, outputs: OutputWriter) -> None:
    """Write a file for `torch.export.load`, with the description as `stylegan.json`."""
    content = io.BytesIO()
    extra = {f"{FORMAT}.json": description_as_json(loaded)}
    torch.export.save(exported_program(loaded, noise), content, extra_files=extra)
    with outputs.file(path) as file:
        file.write(content.getbuffer())


def without_traces(model: "ModelProto") -> "ModelProto":
    """Remove the stack traces of nodes from an ONNX model: they contain paths of this machine."""
    graph = model.graph
    values = [*graph.input, *graph.output, *graph.initializer]
    for part in (graph, *model.functions):
        for one in (part, *part.node, *part.value_info, *values):
            del one.metadata_props[:]
    return model


def save_onnx(path: Path, loaded: Pretrained, noise: str, outputs: OutputWriter) -> None:
    """Write an ONNX graph in float32 with a default psi."""
    require_module("onnxscript", packages="onnx onnxscript", purpose="writing .onnx files")
    from onnx import helper, numpy_helper

    single = copy.deepcopy(loaded.generator).float().cpu()
    loaded = loaded.replace(generator=single)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about its own code
        program = torch.onnx.export(
            exported_program(loaded, noise),
            dynamo=True,
            verbose=False,
            output_names=["images"],
            opset_version=ONNX_OPSET,
        )
    assert program is not None
    model = without_traces(program.model_proto)
    model.ir_version = ONNX_IR
    model.graph.initializer.append(
        numpy_helper.from_array(np.array(loaded.settings.psi, "f4"), "psi")
    )
    helper.set_model_props(model, {FORMAT: description_as_json(loaded)})
    with outputs.file(path) as file:
        file.write(model.SerializeToString())
