"""Damaged files of the kinds in `KINDS`: they load, or are refused cleanly."""

import contextlib
import io
import resource
import shutil
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import damage
from helpers.pictures import archive, png
from helpers.reference import SNAPSHOT
from helpers.tiny_generators import TINY, loaded_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from stylegan import load_generator
from stylegan.config import TrainConfig, load_config
from stylegan.data import cached_store, read_image
from stylegan.files import checkpoint
from stylegan.files.formats import export
from stylegan.files.formats.own import save_generator
from stylegan.files.latents import read_latents, write_latents
from stylegan.machine.messages import message
from stylegan.networks import Generator
from stylegan.training import TrainState
from stylegan.training.state import NETWORKS

MAX_SECONDS = 5  # of the processor, for one file
MAX_BYTES = 2**30  # of address space that one file may take; threads reserve some of it


@contextlib.contextmanager
def limited():
    """Limits of memory and of the processor's time."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = time.process_time()
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MAX_BYTES, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert time.process_time() - before < MAX_SECONDS


def is_read(read, path):
    """Whether `read` accepts the file. Everything but that and a clean refusal fails."""
    refusal = None
    with limited():
        try:
            read(path)
        except (ValueError, OSError) as error:
            refusal = error
    if refusal is None:
        return True
    text = message(str(refusal))
    assert path.name in text and text.isprintable() and len(text) <= 2_000, text[:300]
    cause = refusal
    while cause is not None:
        assert not isinstance(cause, MemoryError) and "allocate memory" not in str(cause), text
        cause = cause.__cause__ or cause.__context__
    return False


def make_checkpoints(folder):
    """A generator file and a state file."""
    torch.manual_seed(0)
    save_generator(folder / "a.pt", Generator(TINY), images_seen=100)
    config = load_config(None, ["network.resolution=16", "schedule.stable_kimg=1"])
    config = TrainConfig(network=TINY, schedule=config.schedule)
    checkpoint.save(folder / "b.pt", "state", TrainState.create(config).to_payload())
    return [(folder / name).read_bytes() for name in ("a.pt", "b.pt")]


def make_pickle(folder):
    return [SNAPSHOT.read_bytes()]


def make_exported(folder):
    torch.manual_seed(0)
    loaded = loaded_of(Generator(TINY).eval())
    export(loaded, folder / "f.safetensors")
    return [(folder / "f.safetensors").read_bytes()]


def use_generator(path):
    """Load a file and make one picture with its settings."""
    loaded = load_generator(path)
    label_dim = loaded.generator.config.label_dim
    next(iter(loaded.pictures([0], labels=torch.eye(label_dim)[:1] if label_dim else None)))


def use_checkpoint(path):
    """As `use_generator`; and whatever loads holds the weights that were saved."""
    use_generator(path)
    payload = checkpoint.load(path)
    good = checkpoint.load(path.with_name("a.pt" if payload["kind"] == "generator" else "b.pt"))
    for network in {"weights", *NETWORKS} & payload.keys():
        for name, tensor in good[network].items():
            assert torch.equal(payload[network][name], tensor)


def make_latents(folder):
    """Styles with maps of noise."""
    torch.manual_seed(0)
    maps = [torch.randn(1, 1, r, r) for r in (4, 4, 8, 8, 16, 16)]
    write_latents(folder / "f.npz", torch.randn(2, TINY.num_styles(), TINY.w_dim), maps)
    return [(folder / "f.npz").read_bytes()]


def make_images(folder):
    """Colored noise in several formats, one with an orientation."""
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 4), np.uint8)
    image, exif, made = Image.fromarray(pixels), Image.Exif(), []
    exif[0x0112] = 6
    for mode, kind in (("RGBA", "PNG"), ("P", "PNG"), ("RGB", "JPEG"), ("CMYK", "JPEG")):
        file = io.BytesIO()
        image.convert(mode).save(file, kind, exif=exif)
        made.append(file.getvalue())
    return made


def use_image(path):
    for channels in (1, 3, 4):
        read_image(path.read_bytes(), channels=channels, name=str(path))


def make_zip(folder):
    files = {f"{name}.png": png(12, 10, seed) for seed, name in enumerate(("a/0", "a/1", "b/2"))}
    return [archive(folder / "f.zip", files | {"notes.txt": b"words"}).read_bytes()]


def use_zip(path):
    """As training does: prepared into a cache, and read from there."""
    cache = path.parent / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    cached_store(path, cache_dir=cache, workers=1).images(8)[:].sum()


def use_latents(path):
    read_latents(path, Generator(TINY))


EDITED, ARCHIVES = damage.edited, damage.archives
KINDS = {  # file, what makes good contents in a folder, how they are damaged, how a user reads them
    "checkpoint": ("f.pt", make_checkpoints, [partial(EDITED, most=1)], use_checkpoint),
    "checkpoint with right checksums": ("f.pt", make_checkpoints, [ARCHIVES], use_generator),
    "official pickle": ("f.pkl", make_pickle, [EDITED, damage.pickles], use_generator),
    "safetensors": ("f.safetensors", make_exported, [EDITED], use_generator),
    "latents": ("f.npz", make_latents, [EDITED, ARCHIVES], use_latents),
    "zip": ("f.zip", make_zip, [EDITED, ARCHIVES], use_zip),
    "picture": ("f.png", make_images, [EDITED], use_image),
}


@pytest.mark.parametrize(
    "examples", [20, pytest.param(400, marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_damaged_files_are_read_or_refused_with_one_line_that_names_them(
    kind, examples, tmp_path, capfd
):
    file, make, damages, read = kind
    good, path, refused = make(tmp_path), tmp_path / file, 0

    def check(data):
        path.write_bytes(data)  # the last one that failed stays in the folder
        return is_read(read, path)

    for data in good:  # what is imported or compiled at first use comes first
        path.write_bytes(data)
        read(path)
        assert check(data)

    calm = {"deadline": None, "suppress_health_check": list(HealthCheck)}

    @settings(max_examples=examples, derandomize=True, **calm)
    @given(st.one_of([st.sampled_from(good).flatmap(damage) for damage in damages]))
    def run(data):
        nonlocal refused
        refused += not check(data)

    run()
    assert refused
    assert capfd.readouterr() == ("", "")
