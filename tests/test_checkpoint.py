"""Files that are always whole, tell when they are damaged, and are not deleted too early."""

import re
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_generators import TINY
from helpers.tiny_training import largest_file

from stylegan import load_generator
from stylegan.directions import save_directions
from stylegan.files import checkpoint
from stylegan.files.formats import native
from stylegan.files.latents import write_latents
from stylegan.networks import Discriminator
from stylegan.utils.filesystem import ALLOW_OVERWRITE
from stylegan.video import write_video

PAYLOAD = {"weights": {"x": torch.arange(3000.0)}, "config": {"resolution": 8}}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "state-000000001.pt"
    checkpoint.save(path, "generator", PAYLOAD)
    return path


def same(payload):
    return torch.equal(payload["weights"]["x"], PAYLOAD["weights"]["x"])


def test_checkpoint_save_writes_a_plain_torch_file_and_a_valid_zip(saved):
    assert same(torch.load(saved, weights_only=True))
    assert zipfile.ZipFile(saved).testzip() is None
    assert same(checkpoint.load(saved))


def test_checkpoint_load_detects_every_harmful_byte_change(saved):
    content, noticed = saved.read_bytes(), 0
    assert len(content) > 12_000
    for place in range(0, len(content), 97):
        damaged = bytearray(content)
        damaged[place] ^= 4
        saved.write_bytes(damaged)
        try:
            assert same(checkpoint.load(saved))  # between the entries nothing is kept
        except ValueError as error:
            assert saved.name in str(error)
            noticed += 1
    assert noticed > 120


def test_checkpoint_load_accepts_the_digest_of_older_versions(saved):
    comment = b"sha256:" + b"0" * 64
    content = saved.read_bytes()
    saved.write_bytes(content[:-2] + len(comment).to_bytes(2, "little") + comment)
    assert same(checkpoint.load(saved))


@pytest.mark.parametrize("size", [0, 1, 4096, 12_000])
def test_checkpoint_save_keeps_the_old_file_on_a_full_disk(saved, size):
    other = {**PAYLOAD, "weights": {"x": torch.zeros(3000)}}
    with largest_file(size), pytest.raises(OSError, match="File too large"):
        checkpoint.save(saved, "generator", other, outputs=ALLOW_OVERWRITE)
    assert same(checkpoint.load(saved))
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.parametrize("name", ["film.mp4", "film.webp", "film.gif"])
def test_write_video_names_the_file_and_cleans_up_on_a_full_disk(tmp_path, name):
    frames = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), np.uint8)
    with largest_file(1000), pytest.raises(OSError, match="File too large") as caught:
        write_video(tmp_path / name, iter(frames), count=3, fps=25)
    assert caught.value.filename == str(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_allow_overwrite_is_needed_by_every_writer_to_replace_a_file(tmp_path):
    path, film = tmp_path / "mine.npz", tmp_path / "mine.gif"
    loaded = load_generator("glyphs64")
    network, ws = loaded.generator, torch.zeros(1, 2, 3)
    frames = np.zeros((2, 8, 8, 3), np.uint8)
    writers = [
        partial(checkpoint.save, path, "generator", PAYLOAD),
        partial(native.save_generator, path, network),
        partial(native.save_loaded, path, loaded),
        partial(native.save_safetensors, path, loaded),
        partial(native.save_discriminator, path, Discriminator(TINY)),
        partial(write_latents, path, ws),
        partial(save_directions, path, [], network),
        lambda **outputs: write_video(film, iter(frames), count=2, fps=10, **outputs),
    ]
    for write in writers:
        for file in (path, film):
            file.write_bytes(b"mine")
        with pytest.raises((FileExistsError, ValueError), match=r"mine\.\w+ exists; pass --overwr"):
            write()
        assert {file.read_bytes() for file in tmp_path.iterdir()} == {b"mine"}
        write(outputs=ALLOW_OVERWRITE)
        assert {file.read_bytes() for file in (path, film)} != {b"mine"}


def test_keep_existing_is_the_default_of_every_outputs_parameter():
    package = Path(checkpoint.__file__).parents[1]
    texts = [file.read_text() for file in package.rglob("*.py")]
    defaults = [
        name for text in texts for name in re.findall(r"outputs: OutputWriter = (\w+)", text)
    ]
    assert set(defaults) == {"KEEP_EXISTING"} and len(defaults) > 10
