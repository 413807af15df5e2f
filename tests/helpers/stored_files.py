"""Good files of every kind that a user opens, and how each is opened.

`KINDS` is the table: `test_damaged.py` damages each in the ways that happen, `test_fuzz.py` at
random.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from helpers import foreign_layouts
from helpers.pictures import archive, png, store_of
from helpers.reference import SNAPSHOT
from helpers.shards import tar, write_parquet
from helpers.tfrecords import record, write_records
from helpers.tiny_generators import TINY, loaded_of, random_generator
from helpers.tiny_training import tiny_config
from stylegan import load_generator
from stylegan.data import Store, cached_store, read_image
from stylegan.directions import find_directions, load_directions, read_edits, save_directions
from stylegan.files import checkpoint
from stylegan.files.formats.native import save_generator, save_safetensors
from stylegan.files.latents import read_latents, write_latents
from stylegan.training import TrainState

ABSENT = object()


class Kind(NamedTuple):
    file: str  # its name, or that of the part of it that is damaged
    make: Callable[[Path], object]  # writes a good one
    read: Callable[[Path], object]  # opens it as a user does


def generator(path):
    save_generator(path, random_generator(), images_seen=100)


def state(path, images_seen=4, seed=0):
    """The discriminator knows the number of images."""
    state = TrainState.create(tiny_config(seed=seed))
    state.discriminator.head.out.bias.data.fill_(images_seen)
    payload = {**state.to_payload(), "images_seen": images_seen, "label_rows": None}
    checkpoint.save(path, "state", payload)


def draw(path):
    """Load a generator and make one picture with its settings."""
    loaded = load_generator(path)
    label_dim = loaded.config.label_dim
    next(iter(loaded.generate([0], labels=torch.eye(label_dim)[:1] if label_dim else None)))


def foreign(path):
    torch.save(foreign_layouts.weights(foreign_layouts.load("genforce")[0]["generator"]), path)


def latents(path):
    """Styles with maps of noise."""
    maps = [torch.randn(1, 1, r, r) for r in (4, 4, 8, 8, 16, 16)]
    write_latents(path, torch.randn(2, TINY.num_ws(), TINY.w_dim), maps)


def directions(path):
    found = find_directions(random_generator(), samples=99, count=2)
    save_directions(path, found, random_generator())


def edit(path):
    read_edits([f"{path}=1"], loaded_of(random_generator()), "mine.pt")


def pictures(path):
    files = {f"{name}.png": png(12, 10, seed) for seed, name in enumerate(("a/0", "a/1", "b/2"))}
    archive(path, files | {"notes.txt": b"words"})


def tarred(path):
    """Of more than 100 KiB: `tarfile` adds up to 10 KiB of zeros, which may be cut."""
    names = "a/0", "a/1", "b/2", "b/3"
    tar(path, {f"{name}.png": png(100, 100, seed) for seed, name in enumerate(names)})


def parquet(path):
    write_parquet(path, [png(12, 10, seed) for seed in range(3)], label=[0, 0, 1])


def strictly_prepared(path):
    """Images that cannot be read are left out otherwise."""
    prepared(path, strict=True)


def prepared(path, strict=False):
    """Read pictures as training does: prepared into a cache, and from there."""
    cache = path.parent / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    store = cached_store(path, strict=strict, cache_dir=cache, workers=1)
    store.images(8)[:].sum()


def records(path):
    images = np.random.default_rng(1).integers(0, 256, (5, 3, 16, 16), np.uint8)
    write_records(path, map(record, images))


def store(path):
    store_of(path.parents[1], {"a/0.png": png(), "b/1.png": png(seed=1)})


def picture(path, mode, kind):
    """Colored noise with an orientation."""
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 4), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).convert(mode).save(path, kind, exif=exif)


def image(path):
    for channels in (1, 3, 4):
        read_image(path.read_bytes(), channels=channels, name=str(path))


def changed(payload, path, value):
    """The payload with another value at a path of keys, or without that key: `ABSENT`."""
    key, *rest = path.split("/", 1)
    key = int(key) if key.isdecimal() else key
    copy = dict(payload)
    if rest:
        copy[key] = changed(payload[key], *rest, value)
    elif value is ABSENT:
        del copy[key]
    else:
        copy[key] = value
    return copy


KINDS = {
    "generator": Kind("mine.pt", generator, draw),
    "state": Kind("state-000000004.pt", state, draw),
    "safetensors": Kind(
        "mine.safetensors", lambda path: save_safetensors(path, loaded_of(random_generator())), draw
    ),
    "official pickle": Kind("mine.pkl", lambda path: shutil.copy(SNAPSHOT, path), draw),
    "foreign checkpoint": Kind("mine.pth", foreign, draw),
    "latents": Kind("mine.npz", latents, lambda path: read_latents(path, random_generator())),
    "plain latents": Kind(
        "mine.npy",
        lambda path: np.save(path, np.zeros((2, TINY.num_ws(), TINY.w_dim), np.float32)),
        lambda path: read_latents(path, random_generator()),
    ),
    "directions": Kind(
        "mine.npz", directions, lambda path: load_directions(path, random_generator())
    ),
    "plain direction": Kind("mine.npy", lambda path: np.save(path, np.zeros((1, 8))), edit),
    "zip": Kind("mine.zip", pictures, prepared),
    "tar": Kind("mine.tar", tarred, strictly_prepared),
    "Parquet": Kind("mine.parquet", parquet, strictly_prepared),
    "TFRecords": Kind("mine.tfrecords", records, prepared),
    "images of a store": Kind("store/0016.npy", store, lambda path: Store(path.parent)),
    "description of a store": Kind("store/meta.json", store, lambda path: Store(path.parent)),
    "labels of a store": Kind("store/labels.npy", store, lambda path: Store(path.parent)),
} | {
    f"{kind} of {mode}": Kind("mine.png", partial(picture, mode=mode, kind=kind), image)
    for mode, kind in (("RGBA", "PNG"), ("P", "PNG"), ("RGB", "JPEG"), ("CMYK", "JPEG"))
}
