"""The generator as an ONNX graph, written operation by operation.

Tracing would give the same arithmetic in more nodes, needs more packages, and takes half a minute
where this takes none. The tests compare it with the networks, for every option of theirs.
"""

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from stylegan import sampling
from stylegan.atomic import replacing
from stylegan.files.formats.metadata import OURS, about, to_json
from stylegan.files.formats.program import unpadded
from stylegan.files.loaded import LoadedGenerator
from stylegan.layers import Epilogue, EqualizedConvTranspose2d, EqualizedLinear
from stylegan.networks import MappingNetwork, SynthesisNetwork
from stylegan.ops import Activation, blur, doubling_kernel
from stylegan.schedule import resolutions
from stylegan.version import __version__

OPSET, IR_VERSION = 18, 10  # what runtimes of 2024 and later read
EPSILON = 1e-8
WRONG = 1e-3  # difference of images that rounding does not explain; usual is less than 1e-4


class Graph:
    """Operations, constants and inputs so far. Values are known by their names."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape: Sequence[int | str], meaning: str) -> str:
        """A float32 input; an optional one if a constant of its name holds the default."""
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape, doc_string=meaning)
        self.inputs.append(info)
        return name

    def constant(self, name: str, value: Tensor | Sequence[int]) -> str:
        if name not in self.constants:
            if isinstance(value, Tensor):
                array = value.detach().float().cpu().contiguous().numpy()
            else:
                array = np.array(value, np.int64)
            self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """The name of the result of an operation, or a list of names if it has several."""
        names = [f"{kind}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names if outputs > 1 else names[0]

    def number(self, value: float) -> str:
        return self.constant(f"number_{value!r}", torch.tensor(value))

    def dense(self, name: str, layer: EqualizedLinear, x: str) -> str:
        weight = self.constant(f"{name}.weight", layer.weight)
        bias = [] if layer.bias is None else [self.constant(f"{name}.bias", layer.bias)]
        scales: dict[str, Any] = {"alpha": layer.weight_scale, "beta": layer.lr_multiplier}
        return str(self.op("Gemm", x, weight, *bias, transB=1, **scales))

    def activation(self, kind: Activation, x: str) -> str:
        return str(self.op("Relu", x) if kind == "relu" else self.op("LeakyRelu", x, alpha=0.2))

    def pixel_norm(self, x: str) -> str:
        axes = self.constant("axis_1", [1])
        mean = self.op("ReduceMean", self.op("Mul", x, x), axes, keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.number(EPSILON)))
        return str(self.op("Div", x, root))

    def instance_norm(self, x: str) -> str:
        """By rows first: one sum of a million pixels, as runtimes make it, is inexact."""
        centred = self.op("Sub", x, self.pixel_mean(x))
        variance = self.pixel_mean(self.op("Mul", centred, centred))
        root = self.op("Sqrt", self.op("Add", variance, self.number(EPSILON)))
        return str(self.op("Div", centred, root))

    def pixel_mean(self, x: str) -> str:
        for axis in (3, 2):
            axes = self.constant(f"axis_{axis}", [axis])
            x = self.op("ReduceMean", x, axes, keepdims=1)
        return x

    def enlarged(self, x: str) -> str:
        scales = self.constant("twice", torch.tensor([1.0, 1.0, 2.0, 2.0]))
        how: dict[str, Any] = {"mode": "nearest", "nearest_mode": "floor"}
        how["coordinate_transformation_mode"] = "asymmetric"
        return str(self.op("Resize", x, "", scales, **how))


def mapping(graph: Graph, network: MappingNetwork, z: str, labels: str | None) -> str:
    """w (batch, w_dim)"""
    config, x = network.config, z
    if labels is not None and network.label_embedding is not None:
        embedding = graph.constant("mapping.label_embedding", network.label_embedding)
        x = graph.op("Concat", x, graph.op("MatMul", labels, embedding), axis=1)
    if config.normalize_latents:
        x = graph.pixel_norm(x)
    for i, layer in enumerate(network.layers):
        assert isinstance(layer, EqualizedLinear)
        x = graph.dense(f"mapping.layers.{i}", layer, x)
        x = graph.activation(config.mapping_activation, x)
    return x


def truncated(graph: Graph, w: str, w_avg: Tensor, psi: str) -> str:
    """`w` pulled toward the average; psi (1 or batch,)."""
    average = graph.constant("w_avg", w_avg)
    factor = graph.op("Reshape", psi, graph.constant("column", [-1, 1]))
    way = graph.op("Mul", graph.op("Sub", w, average), factor)
    return str(graph.op("Add", average, way))


def epilogue(
    graph: Graph, name: str, layer: Epilogue, x: str, w: str, noise: str | None, kind: Activation
) -> str:
    """What follows a convolution; a bias that is a constant already has been added before."""
    if noise is not None and layer.noise is not None:
        strength = graph.constant(f"{name}.noise.strength", layer.noise.strength[:, None, None])
        x = graph.op("Add", x, graph.op("Mul", noise, strength))
    if f"{name}.bias" not in graph.constants:
        x = graph.op("Add", x, graph.constant(f"{name}.bias", layer.bias[:, None, None]))
    x = graph.activation(kind, x)
    if layer.pixel_norm:
        x = graph.pixel_norm(x)
    if layer.instance_norm:
        x = graph.instance_norm(x)
    if layer.style is None:
        return x
    style = graph.dense(f"{name}.style.affine", layer.style.affine, w)
    axes = graph.constant("axes_2_3", [2, 3])
    halves = graph.op("Split", style, outputs=2, axis=1, num_outputs=2)
    scale, bias = (graph.op("Unsqueeze", half, axes) for half in halves)
    scale = graph.op("Add", scale, graph.number(1.0))
    return str(graph.op("Add", graph.op("Mul", x, scale), bias))


def convolution(graph: Graph, name: str, layer: Any, x: str) -> str:
    """One that keeps the size."""
    kernel = graph.constant(f"{name}.weight", layer.weight * layer.weight_scale)
    bias = [] if layer.bias is None else [graph.constant(f"{name}.bias", layer.bias)]
    side = layer.weight.shape[-1]
    return str(graph.op("Conv", x, kernel, *bias, kernel_shape=[side] * 2, pads=[side // 2] * 4))


def doubling(graph: Graph, name: str, block: Any, x: str) -> str:
    """The first convolution of a block, at twice the size, and the blur."""
    layer: EqualizedConvTranspose2d = block.conv0
    kernel = doubling_kernel(layer.weight, layer.weight_scale)
    inputs = [x, graph.constant(f"{name}.conv0.weight", kernel)]
    if block.bias_before_blur:
        inputs.append(graph.constant(f"{name}.epilogue0.bias", block.epilogue0.bias))
    x = graph.op("ConvTranspose", *inputs, kernel_shape=[4, 4], strides=[2, 2], pads=[1] * 4)
    if block.activation_before_blur:
        x = graph.activation(block.epilogue0.activation, x)
    if block.blur:
        channels = layer.weight.shape[1]
        impulse = torch.zeros(1, channels, 3, 3)
        impulse[:, :, 1, 1] = 1
        taps = graph.constant(f"blur_{channels}", blur(impulse).transpose(0, 1))
        x = graph.op("Conv", x, taps, group=channels, kernel_shape=[3, 3], pads=[1] * 4)
    return x


def synthesis(
    graph: Graph,
    network: SynthesisNetwork,
    rows: Sequence[str],
    noise: Sequence[str | None],
    resolution: int,
    alpha: float,
) -> str:
    """Images; `rows` (batch, w_dim) for each layer."""
    config = network.config
    layers = dict(zip(layer_names(resolution), network.noise_layers(resolution), strict=True))

    def finished(name: str, x: str) -> str:
        i = list(layers).index(name)
        return epilogue(graph, name, layers[name], x, rows[i], noise[i], config.activation)

    first = "synthesis.input"
    x = finished(f"{first}.epilogue0", start(graph, network, rows[0]))
    x = convolution(graph, f"{first}.conv", network.input.conv, x)
    coarse = x = finished(f"{first}.epilogue1", x)
    for r in resolutions(resolution)[1:]:
        name, block = f"synthesis.blocks.{r}", network.blocks[str(r)]
        coarse = x
        x = finished(f"{name}.epilogue0", doubling(graph, name, block, x))
        x = convolution(graph, f"{name}.conv1", block.conv1, x)
        x = finished(f"{name}.epilogue1", x)
    images = convolution(graph, f"synthesis.to_rgb.{resolution}", to_rgb(network, resolution), x)
    if alpha < 1 and resolution > 4:
        below = resolution // 2
        old = convolution(graph, f"synthesis.to_rgb.{below}", to_rgb(network, below), coarse)
        old = graph.op("Mul", graph.enlarged(old), graph.number(1 - alpha))
        images = graph.op("Add", old, graph.op("Mul", images, graph.number(alpha)))
    return images


def layer_names(resolution: int) -> list[str]:
    """Of the layers that noise enters, in order."""
    blocks = [f"synthesis.blocks.{r}" for r in resolutions(resolution)[1:]]
    return [f"{b}.epilogue{i}" for b in ["synthesis.input", *blocks] for i in range(2)]


def to_rgb(network: SynthesisNetwork, resolution: int) -> Any:
    return network.to_rgb[str(resolution)]


def start(graph: Graph, network: SynthesisNetwork, w: str) -> str:
    """The 4x4 input of every image: the learned constant, or made from w."""
    channels = network.config.channels(4)
    if not network.config.constant_input:
        numbers = graph.dense("synthesis.input.dense", network.input.dense, w)
        shape = graph.constant("start_shape", [-1, channels, 4, 4])
        return str(graph.op("Reshape", numbers, shape))
    const = graph.constant("synthesis.input.const", network.input.const)
    rest = graph.constant("start_shape", [channels, 4, 4])
    shape = graph.op("Concat", graph.op("Shape", w, start=0, end=1), rest, axis=0)
    return str(graph.op("Expand", const, shape))


def noise_values(graph: Graph, loaded: LoadedGenerator, noise: str) -> list[str | None]:
    """The map of each layer: an input with the stored one as its default, that one, or none."""
    layers = loaded.generator.synthesis.noise_layers(loaded.resolution)
    values: list[str | None] = []
    for i, layer in enumerate(layers):
        if layer.noise is None or noise == "none":
            values.append(None)
            continue
        name = graph.constant(f"noise_{i}", layer.noise.const)
        if noise == "input":
            shape = ["noise_batch", *layer.noise.const.shape[1:]]
            graph.input(name, shape, "noise map, of one image or of each; default: the stored map")
        values.append(name)
    return values


def straight(graph: Graph, images: str) -> str:
    """As `sampling.straight`."""

    def channels(start: int, stop: int) -> str:
        places = graph.constant(f"channel_{start}", [start]), graph.constant(f"end_{stop}", [stop])
        return graph.op("Slice", images, *places, graph.constant("axis_1", [1]))

    one, half, least = map(graph.number, (1.0, 0.5, 1 / 255))
    alpha = channels(3, 4)
    share = graph.op("Clip", graph.op("Mul", graph.op("Add", alpha, one), half), least, one)
    colours = graph.op("Div", graph.op("Add", channels(0, 3), one), share)
    return graph.op("Concat", graph.op("Sub", colours, one), alpha, axis=1)


@torch.no_grad()
def onnx_model(loaded: LoadedGenerator, noise: str = "input") -> onnx.ModelProto:
    """z (batch, z_dim), labels (batch, label_dim) where there are any, psi (1 or batch,) and, if
    `noise` is "input", noise_0, ... (1 or batch, 1, r, r) -> images (batch, channels, r, r), or
    the part of them that is not padding.

    psi and noise have defaults. float32.
    """
    generator, graph = loaded.generator, Graph()
    config, r = generator.config, loaded.resolution
    z = graph.input("z", ["batch", config.z_dim], "latents, standard normal")
    labels = None
    if config.label_dim:
        labels = graph.input("labels", ["batch", config.label_dim], "one-hot, or weights")
    meaning = f"truncation: 1 = none, 0 = the average image; default {loaded.psi:g}"
    psi = graph.input(graph.constant("psi", torch.tensor([loaded.psi])), ["psi_batch"], meaning)
    maps = noise_values(graph, loaded, noise)
    w = mapping(graph, generator.mapping, z, labels)
    near = truncated(graph, w, generator.w_avg, psi)
    cutoff = config.num_styles() if loaded.cutoff is None else loaded.cutoff
    rows = [near if (i if config.styles else 0) < cutoff else w for i in range(len(maps))]
    images = synthesis(graph, generator.synthesis, rows, maps, r, loaded.alpha)
    if config.premultiplied:
        images = straight(graph, images)
    height = width = r
    if loaded.active_rectangle is not None:
        part = sampling.active_part(loaded.active_rectangle, r, r)
        height, width = (edge.stop - edge.start for edge in part)
        places = [[edge.start for edge in part], [edge.stop for edge in part], [2, 3]]
        names = ("part_start", "part_stop", "axes_2_3")
        images = graph.op("Slice", images, *map(graph.constant, names, places))
    graph.nodes.append(helper.make_node("Identity", [images], ["images"]))
    shape: list[str | int] = ["batch", config.image_channels, height, width]
    alpha = "red, green, blue, not multiplied by alpha, and alpha; clip to [-1, 1]"
    meaning = alpha if config.premultiplied else ""
    output = helper.make_tensor_value_info("images", TensorProto.FLOAT, shape, meaning)
    constants = list(graph.constants.values())
    body = helper.make_graph(graph.nodes, "stylegan", graph.inputs, [output], constants)
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(body, opset_imports=[opset], ir_version=IR_VERSION)
    model.producer_name, model.producer_version = "stylegan", __version__
    helper.set_model_props(model, {OURS: to_json(about(loaded))})
    return model


def save_onnx(
    path: Path, loaded: LoadedGenerator, noise: str = "input", *, check: bool = False
) -> float | None:
    """Write it; if `check`, what `difference` has found before, and ValueError if that is more
    than rounding."""
    single = copy.deepcopy(loaded.generator).float().cpu()  # what follows is made of float32
    loaded = dataclasses.replace(loaded, generator=single)
    model = onnx_model(loaded, noise)
    onnx.checker.check_model(model)
    content = model.SerializeToString()
    found = difference(content, loaded, noise) if check else None
    if found is not None and not found <= WRONG:
        raise ValueError(
            f"{path} is not written: in ONNX Runtime its images differ by {found:.1e} from the "
            "generator's, more than rounding explains"
        )
    with replacing(path) as file:
        file.write(content)
    return found


@torch.no_grad()
def difference(content: bytes, loaded: LoadedGenerator, noise: str, num_images: int = 2) -> float:
    """Largest difference of the images that ONNX Runtime makes of a model, and a generator in
    float32 on the CPU, with stored noise (none, if `noise` is that)."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # else it warns of every input that has a default
    session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
    config = loaded.generator.config
    z = sampling.latents(range(num_images), config.z_dim).float()
    inputs, labels = {"z": z.numpy()}, None
    if config.label_dim:
        labels = torch.eye(config.label_dim)[torch.arange(num_images) % config.label_dim]
        inputs["labels"] = labels.numpy()
    (found,) = session.run(["images"], inputs)
    expected = loaded.generator(
        z,
        labels,
        psi=loaded.psi,
        cutoff=loaded.cutoff,
        resolution=loaded.resolution,
        alpha=loaded.alpha,
        noise="none" if noise == "none" else "const",
    )
    if config.premultiplied:
        expected = sampling.straight(expected)
    expected = unpadded(expected, loaded.active_rectangle)
    differences = (torch.from_numpy(found) - expected).abs()
    if config.premultiplied:  # a colour counts as far as it is seen: it was divided by alpha
        differences[:, :3] *= ((expected[:, 3:] + 1) / 2).clamp(1 / 255, 1)
    return float(differences.max())
