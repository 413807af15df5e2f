"""Whether training on this machine still ends with the same bits as at another revision.

Twelve steps in eleven set-ups of tiny networks that grow, and two steps of wide ones, which alone
reach the fast convolutions of `stylegan/ops/cpu/`. Each revision trains in a process of its own.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from contest import ROOT, environment_for, options, tree_of
from PIL import Image

from stylegan.cli.common import Command
from stylegan.config import build_config
from stylegan.training import start

Options = Mapping[str, Any]  # of a configuration, nested

NETWORK = {
    "resolution": 16,
    "max_channels": 6,
    "z_dim": 5,
    "w_dim": 7,
    "mapping_layers": 2,
    "mapping_width": 6,
}
SCHEDULE = {  # twelve steps: two of 4x4, 8x8 growing in and grown, 16x16 growing in and grown
    "initial_resolution": 4,
    "stable_kimg": 0.008,
    "fade_kimg": 0.012,
    "total_kimg": 0.048,
    "batch_size": 4,
    "minibatch_repeats": 1,
}
WGAN = {"generator_loss": "wgan", "discriminator_loss": "wgan_gp", "r1_gamma": 0.0}
# Options have the names of before, `speed_kimg` and `noise`: earlier revisions know no others.
ADA = {"kind": "ada", "target": -0.9, "speed_kimg": 0.05}
PAPER_BEFORE_STYLES = {"styles": False, "constant_input": False, "noise": False, "blur": False}
TINY: dict[str, Options] = {
    "the paper's": {},
    "fixed noise, no mixing": {"noise": "const", "style_mixing": 0.0},
    "R1 and R2": {"r2_gamma": 2.0},
    "lazy R1": {"r1_interval": 3},
    "WGAN-GP": WGAN,
    "micro-batches": {"batch_gpu": 2, "network": {"deviation_group": 2}},
    "labels": {"network": {"label_dim": 2}, "data": {"labels": True}},
    "ADA": {"augment": ADA},
    "DiffAugment": {"augment": {"kind": "diffaugment"}},
    "without styles": {"network": PAPER_BEFORE_STYLES | {"pixel_norm": True}},
    "bf16": {"precision": "bf16"},
}
WIDE = {
    "network": {"max_channels": 256, "w_dim": 64, "mapping_width": 64},
    "schedule": {"initial_resolution": 16, "total_kimg": 0.008},
}
SETUPS = TINY | {"wide": WIDE, "wider": WIDE | {"network": {"max_channels": 512}}}


def merged(options: Options, changes: Options) -> dict[str, Any]:
    """`options` with the sections of `changes` laid over its own."""
    sections = {
        name: merged(options[name], value) if isinstance(options.get(name), dict) else value
        for name, value in changes.items()
    }
    return {**options, **sections}


def write_images(folder: Path) -> Path:
    """Random images in two sub-folders, which are their classes."""
    random = np.random.default_rng(0)
    for i in range(14):
        path = folder / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (16, 16, 3), np.uint8)).save(path)
    return folder


def tensors(value: Any, path: str = "") -> dict[str, torch.Tensor]:
    """The tensors of a nested payload by their paths."""
    if isinstance(value, torch.Tensor):
        return {path: value}
    parts = value.items() if isinstance(value, dict) else ()
    return {name: x for key, part in parts for name, x in tensors(part, f"{path}/{key}").items()}


def digest(options: Options, images: Path, out: Path) -> str:
    """SHA-256 of the networks and the moments of Adam after a training with those options."""
    standard = {"network": NETWORK, "schedule": SCHEDULE, "data": {"mirror": True}}
    config = build_config(merged(standard, options))
    start(config, images, out, device="cpu", preflight=False, tensorboard=False)
    payload = torch.load(max(out.glob("state-*.pt")), weights_only=True)
    hashed = hashlib.sha256()
    for name, tensor in sorted(tensors(payload).items()):
        if tensor.is_floating_point():
            hashed.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return hashed.hexdigest()


def digests() -> dict[str, str]:
    """Of all set-ups, by the package that this process imports."""
    with tempfile.TemporaryDirectory() as folder:
        images = write_images(Path(folder, "pictures"))
        os.environ["STYLEGAN_CACHE"] = str(Path(folder, "cache"))
        return {
            name: digest(changes, images, Path(folder, name)) for name, changes in SETUPS.items()
        }


def digests_of(tree: Path, threads: int) -> dict[str, str]:
    """Of all set-ups, by the package below `tree`."""
    environment = environment_for(threads, "default") | {"PYTHONPATH": str(tree)}
    command = [sys.executable, __file__, "--print-digests"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    values: dict[str, str] = json.loads(done.stdout)
    return values


@click.command(cls=Command)
@click.option("--against", default="HEAD", show_default=True, help="A git revision.")
@click.option("--print-digests", is_flag=True, help="Print those of the package at hand as JSON.")
@options("threads")
def main(against: str, print_digests: bool, threads: int) -> None:
    """Fail unless the working tree trains to the bits of another revision, on a CPU.

    \b
    python benchmarks/bits.py --against HEAD~1 --threads 1
    """
    if print_digests:
        click.echo(json.dumps(digests()))
        return
    now = digests_of(ROOT, threads)
    with tree_of(against) as tree:
        then = digests_of(tree, threads)
    for name in SETUPS:
        click.echo(f"{'equal' if now[name] == then[name] else 'DIFFERENT':10} {name}")
    if now != then:
        raise click.ClickException(f"not the bits of {against}")


if __name__ == "__main__":
    main()
