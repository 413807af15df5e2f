"""A folder with the page for any web server: the pictures are made in the visitor's browser."""

import copy
import dataclasses
import importlib.resources
import json
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from stylegan import sampling
from stylegan.explore.controls import Controls, Moves
from stylegan.explore.page import one_hot, scene_of
from stylegan.explore.server import FOLDER
from stylegan.files.loaded import LoadedGenerator
from stylegan.machine.disk import atomic_file, check_outputs
from stylegan.machine.messages import require

RUNTIME = {  # file in the page's folder: file of the npm package onnxruntime-web, in its dist/
    "onnxruntime/ort.js": "ort.wasm.bundle.min.mjs",
    "onnxruntime/ort.wasm": "ort-wasm-simd-threaded.wasm",
}
LICENSES = ("LICENSE", "ThirdPartyNotices.txt")  # of ONNX Runtime, in its Python package
MADE = ("mapping.onnx", "synthesis.onnx", "numbers.bin", "scene.json")
PAGE = {  # file in the page's folder: file of this package
    "page.css": "page.css",
    "page.js": "page.js",
    "engine.js": "browser.js",
    "worker.js": "worker.js",
    "random.js": "random.js",
    "index.html": "page.html",
}
QUICK = 128  # pixels; a larger picture takes a browser seconds
SEEDS = range(20)  # whose pictures tell whether half precision does


class Exported(NamedTuple):
    sizes: dict[str, int]  # of the files [bytes]
    half_differs: int  # see `difference_of_half`; half precision is used up to 1


class Stored(nn.Module):
    """A network whose weights are stored in half or single precision, and used in single."""

    def __init__(self, network: nn.Module, *, half: bool) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).cpu().to(torch.float16 if half else torch.float32)

    def forward(self, *inputs: Tensor) -> Tensor:
        tensors = [*self.network.named_parameters(), *self.network.named_buffers()]
        single = {name: tensor.float() for name, tensor in tensors}
        output: Tensor = functional_call(self.network, single, inputs)
        return output


class Synthesis(nn.Module):
    """Final styles (1, num_styles, w_dim) and noise maps -> pixels uint8 (H, W, 4)."""

    def __init__(self, loaded: LoadedGenerator) -> None:
        super().__init__()
        self.generator = loaded.generator
        self.look = loaded.look

    def forward(self, ws: Tensor, *noise: Tensor) -> Tensor:
        images = self.look.images(self.generator, ws, noise)
        levels = sampling.levels(images, premultiplied=self.generator.config.premultiplied)
        if self.look.rectangle:
            rows, columns = sampling.active_part(self.look.rectangle, *levels.shape[2:])
            levels = levels[:, :, rows, columns]
        alpha = levels[:, 3:] if levels.shape[1] == 4 else torch.full_like(levels[:, :1], 255)
        colors = levels[:, :3].expand(-1, 3, -1, -1)  # of a gray image, three times the same
        return torch.cat([colors, alpha], dim=1)[0].permute(1, 2, 0)


def check_request(folder: Path, runtime: Path, *, overwrite: bool) -> None:
    """ValueError unless all that a page needs is there and no file in the folder would be lost."""
    for module in ("onnxruntime", "onnxscript"):
        require(module, packages="onnx onnxscript onnxruntime", purpose="a page to export")
    missing = [name for name in RUNTIME.values() if not (runtime / name).is_file()]
    if missing:
        raise ValueError(
            f"{runtime} has no {missing[0]}: run npm install onnxruntime-web here, or name its "
            "dist/ with --runtime"
        )
    licenses = [f"onnxruntime/{name}" for name in LICENSES]
    check_outputs(
        [folder / name for name in (*RUNTIME, *licenses, *MADE, *PAGE)], overwrite=overwrite
    )


def save_page(
    loaded: LoadedGenerator,
    moves: Moves,
    name: str,
    folder: Path,
    runtime: Path,
    *,
    overwrite: bool = False,
) -> Exported:
    """Write the page of a generator, called `name`, with a slider for each of `moves`.

    Weights are stored in half precision if that changes pictures by one gray level at most;
    `runtime` is dist/ of the npm package onnxruntime-web.
    """
    check_request(folder, runtime, overwrite=overwrite)
    half_differs = difference_of_half(loaded)
    half = half_differs <= 1
    generator = loaded.generator
    config = generator.config
    maps = generator.synthesis.noise_maps(1, loaded.look.drawn, "const")
    noise = {f"noise_{i}": m.detach().float().cpu() for i, m in enumerate(maps) if m is not None}
    label = one_hot(loaded, 0)
    z = {"z": torch.zeros(1, config.z_dim)} | ({} if label is None else {"labels": label})
    ws = {"ws": torch.zeros(1, config.num_styles(), config.w_dim)}
    centers = generator.w_avg[None] if loaded.centers is None else loaded.centers
    numbers = [*centers, *(edit.direction for edit in moves.values()), *noise.values()]
    contents = {file: (runtime / source).read_bytes() for file, source in RUNTIME.items()}
    contents["mapping.onnx"] = onnx_of(Stored(generator.mapping, half=half), z, "w")
    contents["synthesis.onnx"] = onnx_of(Stored(Synthesis(loaded), half=half), ws | noise, "pixels")
    contents["numbers.bin"] = b"".join(x.cpu().numpy().astype("<f4").tobytes() for x in numbers)
    every = range(config.num_styles())
    scene = scene_of(name, Controls(loaded, moves, can_project=False)) | {
        "quick": loaded.look.drawn <= QUICK,
        "bytes": sum(map(len, contents.values())),
        "z": config.z_dim,
        "w": config.w_dim,
        "classes": config.label_dim,
        "cutoff": len(every) if loaded.cutoff is None else loaded.cutoff,
        "centers": len(centers),
        "noise": [m.shape[-1] for m in noise.values()],
        "moves": [
            {"name": key, "layers": list(edit.layers or every)} for key, edit in moves.items()
        ],
    }
    contents["scene.json"] = json.dumps(scene).encode()
    for license_name in LICENSES:
        notice = importlib.resources.files("onnxruntime") / license_name
        contents[f"onnxruntime/{license_name}"] = notice.read_bytes()
    contents |= {file: (FOLDER / source).read_bytes() for file, source in PAGE.items()}
    for file, content in contents.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(folder / file, overwrite=overwrite) as written:
            written.write(content)
    return Exported({file: len(content) for file, content in contents.items()}, half_differs)


def difference_of_half(loaded: LoadedGenerator) -> int:
    """Largest difference of pictures, truncated or not, by weights in half precision [gray
    levels]."""
    rounded = copy.deepcopy(loaded.generator).half().float()
    both = (loaded, dataclasses.replace(loaded, generator=rounded))
    return max(
        int(np.abs(a.astype(int) - b).max())
        for psi in (1, loaded.psi)
        for a, b in zip(*(one.pictures(SEEDS, psi=psi, batch=1) for one in both), strict=True)
    )


def onnx_of(network: nn.Module, inputs: dict[str, Tensor], output: str) -> bytes:
    """A network as an ONNX graph, with the names of its inputs and output."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of its own making
        program = torch.onnx.export(
            network.eval(), tuple(inputs.values()), input_names=[*inputs], output_names=[output],
            dynamo=True, verbose=False,
        )  # fmt: skip
    assert program is not None
    return program.model_proto.SerializeToString()
