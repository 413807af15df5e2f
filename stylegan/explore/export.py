"""Export the page as one file, or a folder for any web server: a browser runs the generator."""

import base64
import copy
import hashlib
import html
import importlib.resources
import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from stylegan import sampling
from stylegan.explore.controls import Controls, Moves
from stylegan.explore.page import scene_of, styles_of
from stylegan.explore.server import FOLDER
from stylegan.files.formats.program import without_traces
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.filesystem import KEEP_EXISTING, OutputWriter
from stylegan.utils.text import require_module

RUNTIME = {  # file in the page's folder: file in dist/ of the npm package onnxruntime-web
    "onnxruntime/ort.js": "ort.wasm.bundle.min.mjs",
    "onnxruntime/ort.wasm": "ort-wasm-simd-threaded.wasm",
}
# in the Python package onnxruntime
LICENSES = ("onnxruntime/LICENSE", "onnxruntime/ThirdPartyNotices.txt")
NETWORK = "network.onnx"
SCENE = "scene.json"
PAGE = ("index.html", "page.css", "page.js", "engine.js", "worker.js", "random.js")
HELD = (*RUNTIME, NETWORK, SCENE, "worker.js", "random.js")  # what engine.js reads in one file
PIECE = 2**18  # characters of base64 in an element: WebKit needs 40 seconds for 20 million in one
QUICK = 128  # pixels per side; a larger image takes a browser seconds
SEEDS = range(20)  # of the samples by which precisions are compared


class Exported(NamedTuple):
    size: int  # of all files [bytes]
    network_size: int  # of the ONNX graph [bytes]
    half_differs: int  # see `difference_of_half` [gray levels]
    is_half: bool  # whether the weights are stored in half precision


class Stored(nn.Module):
    """A network whose weights are stored in half or single precision, and computes in single."""

    def __init__(self, network: nn.Module, *, half: bool) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).cpu().to(torch.float16 if half else torch.float32)

    def forward(self, *inputs: Tensor) -> Tensor:
        tensors = [*self.network.named_parameters(), *self.network.named_buffers()]
        single = {name: tensor.float() for name, tensor in tensors}
        output: Tensor = functional_call(self.network, single, inputs)
        return output


class PageNetwork(nn.Module):
    """The network of the page: inputs from its worker -> pixels uint8 (H, W, 4)."""

    def __init__(self, loaded: Pretrained, moves: Moves) -> None:
        super().__init__()
        self.loaded = loaded
        self.generator = loaded.generator
        self.directions = [edit.direction.cpu() for edit in moves.values()]

    def noise_maps(self) -> list[Tensor]:
        size = self.loaded.settings.synthesis_resolution
        maps = self.generator.synthesis.noise_maps(1, size, "const")
        return [stored for stored in maps if stored is not None]

    def examples(self) -> dict[str, Tensor]:
        """Example inputs of `forward`, by name."""
        config = self.generator.config
        layers = config.num_ws()
        return {
            "z": torch.zeros(4, config.z_dim),
            "labels": torch.zeros(1, config.label_dim),
            "plane": torch.zeros(2),
            "mixed": torch.zeros(layers),
            "psi": torch.zeros(()),
            "strengths": torch.zeros(layers, len(self.directions)),
            "stored": torch.zeros(()),
            "noise": torch.zeros(sum(stored.numel() for stored in self.noise_maps())),
        }

    def forward(
        self,
        z: Tensor,
        labels: Tensor,
        plane: Tensor,
        mixed: Tensor,
        psi: Tensor,
        strengths: Tensor,
        stored: Tensor,
        noise: Tensor,
    ) -> Tensor:
        """Generate an image; z, labels, plane, mixed and psi as in `page.styles_of`.

        strengths: (num_ws, number of moves).
        stored: (), factor of the stored noise, which is added to `noise`.
        noise: all maps, flattened and concatenated.
        """
        settings = self.loaded.settings
        config = self.generator.config
        ws = styles_of(self.loaded, z, labels if config.label_dim else None, plane, mixed, psi)
        if self.directions:
            ws = ws + strengths @ torch.stack(self.directions)
        maps = self.noise_maps()
        parts = noise.split([m.numel() for m in maps]) if maps else []
        given = [m * stored + part.view_as(m) for m, part in zip(maps, parts, strict=True)]
        images = settings.synthesize(self.generator, ws, given or "none")
        levels = sampling.quantize(images, premultiplied=config.premultiplied)
        if settings.active_rectangle:
            rows, columns = sampling.active_part(settings.active_rectangle, *levels.shape[2:])
            levels = levels[:, :, rows, columns]
        alpha = levels[:, 3:] if levels.shape[1] == 4 else torch.full_like(levels[:, :1], 255)
        colors = levels[:, :3].expand(-1, 3, -1, -1)  # of a gray image, three equal ones
        return torch.cat([colors, alpha], dim=1)[0].permute(1, 2, 0)


def is_one_file(path: Path) -> bool:
    """Whether a page is one file for a double click, or else a folder for a web server."""
    return path.suffix.lower() == ".html"


def check_request(path: Path, runtime: Path, outputs: OutputWriter) -> None:
    """Raise ValueError if something that a page needs is missing, or a file exists."""
    packages = "onnx onnxscript onnxruntime"
    missing = [name for name in RUNTIME.values() if not (runtime / name).is_file()]
    npm = "run npm install onnxruntime-web in this folder, or pass its dist/ as --runtime"
    if missing:  # both at once, as each takes minutes
        packages += f' (in the clone: pip install -e ".[export]"), and {npm}'
    for module in ("onnxruntime", "onnxscript"):
        require_module(module, packages=packages, purpose="a page to export")
    if missing:
        raise ValueError(f"{runtime} must contain {missing[0]}: {npm}")
    names = (*RUNTIME, *LICENSES, NETWORK, SCENE, *PAGE)
    outputs.check(*([path] if is_one_file(path) else [path / name for name in names]))


def save_page(
    loaded: Pretrained,
    moves: Moves,
    name: str,
    path: Path,
    runtime: Path,
    *,
    outputs: OutputWriter = KEEP_EXISTING,
) -> Exported:
    """Write the page of a generator, called `name`, with a slider for each of `moves`.

    If `path` ends in .html it becomes one file, otherwise a folder for a web server.
    Weights are stored in half precision if that changes images by one gray level at most.
    `runtime` is dist/ of the npm package onnxruntime-web.
    """
    check_request(path, runtime, outputs)
    half_differs = difference_of_half(loaded)
    is_half = half_differs <= 1
    drawing = PageNetwork(loaded, moves)
    contents = {file: (runtime / source).read_bytes() for file, source in RUNTIME.items()}
    contents[NETWORK], shapes = onnx_of(Stored(drawing, half=is_half), drawing.examples())
    every = range(loaded.generator.config.num_ws())
    scene = scene_of(name, loaded, Controls(loaded, moves, can_project=False)) | {
        "quick": loaded.settings.synthesis_resolution <= QUICK,
        "bytes": sum(map(len, contents.values())),
        "shapes": shapes,
        "label_rows": None if loaded.label_rows is None else loaded.label_rows.tolist(),
        "moves": [
            {"name": key, "layers": list(edit.layers or every)} for key, edit in moves.items()
        ],
    }
    contents[SCENE] = json.dumps(scene).encode()
    runtime_package = importlib.resources.files("onnxruntime")
    contents |= {file: (runtime_package / Path(file).name).read_bytes() for file in LICENSES}
    contents |= {file: (FOLDER / file).read_bytes() for file in PAGE}
    if is_one_file(path):
        files = {path: in_one_file(contents)}
    else:
        files = {path / file: content for file, content in contents.items()}
    for file, content in files.items():
        with outputs.file(file) as written:
            written.write(content)
    return Exported(sum(map(len, files.values())), len(contents[NETWORK]), half_differs, is_half)


def in_one_file(contents: Mapping[str, bytes]) -> bytes:
    """Put the files of a page into its index.html, with the licenses of the runtime."""
    style, style_hash = inlined("style", contents["page.css"])
    scripts = [inlined("script", contents[file]) for file in ("engine.js", "page.js")]
    hashes = " ".join(script_hash for _, script_hash in scripts)
    sources = {  # of the policy, which allows no connection
        "script": f"{hashes} data: 'wasm-unsafe-eval'",
        "worker": "data:",
        "style": style_hash,
        "connect": "'none'",
    }
    held = [
        f'<script type="text/plain" data-file="{file}">{text[start : start + PIECE]}</script>\n'
        for file in HELD
        for text in [base64.b64encode(contents[file]).decode()]
        for start in range(0, len(text), PIECE)
    ]
    licenses = "\n".join(html.escape(contents[file].decode()) for file in LICENSES)
    page = contents["index.html"].decode()
    page = re.sub(r" *<(link rel=.stylesheet|script src).*\n", "", page)
    page = re.sub(r"(\w+)-src 'self'", lambda found: f"{found[1]}-src {sources[found[1]]}", page)
    page = page.replace("</head>", f"{style}</head>")
    page = page.replace(
        "</footer>",
        "<details><summary>Licenses of ONNX Runtime, which runs the network</summary>"
        f"<pre>{licenses}</pre></details>\n</footer>",
    )
    elements = [*held, *(element for element, _ in scripts)]
    return page.replace("</body>", "".join(elements) + "</body>").encode()


def inlined(tag: str, content: bytes) -> tuple[str, str]:
    """An element with the content of a file, and its source for the page's policy."""
    text = content.decode().replace("\r\n", "\n")  # as browsers hash it
    text = re.sub("<(?=/?script|!--)", r"\\x3c", text, flags=re.IGNORECASE)  # in strings
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"<{tag}>{text}</{tag}>\n", f"'sha256-{digest}'"


def difference_of_half(loaded: Pretrained) -> int:
    """Largest change of samples by half-precision weights, truncated or not [gray levels]."""
    rounded = copy.deepcopy(loaded.generator).half().float()
    both = (loaded, loaded.replace(generator=rounded))
    return max(
        int(np.abs(a.astype(int) - b).max())
        for psi in (1, loaded.settings.psi)
        for a, b in zip(*(one.generate(SEEDS, psi=psi, batch=1) for one in both), strict=True)
    )


def onnx_of(network: nn.Module, examples: dict[str, Tensor]) -> tuple[bytes, dict[str, list[int]]]:
    """Export a network as an ONNX graph -> (its bytes, shapes of the inputs that it uses)."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own code
        program = torch.onnx.export(
            network.eval(), tuple(examples.values()), input_names=[*examples],
            output_names=["pixels"], dynamo=True, verbose=False,
        )  # fmt: skip
    assert program is not None
    graph = without_traces(program.model_proto)
    used = [one.name for one in graph.graph.input]
    return graph.SerializeToString(), {name: list(examples[name].shape) for name in used}
