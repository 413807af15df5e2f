"""Latents in files: what is written comes back, and what does not fit is refused by name."""

import io
import re
import zipfile

import numpy as np
import pytest
import torch
from helpers.commands import generated, pixels, run_fails
from helpers.tiny_generators import LABELED, TINY, random_generator
from torch.testing import assert_close

from stylegan.files.latents import read_latents, write_latents
from stylegan.sampling import latents

EXACT = {"rtol": 0, "atol": 0}
Z, W, WS = ((3, TINY.z_dim), (3, TINY.w_dim), (3, TINY.num_ws(), TINY.w_dim))


def numbers(*shape, dtype=np.float32):
    return np.random.RandomState(0).randn(*shape).astype(dtype)


def maps(n=1, layers=6):
    sides = [4, 4, 8, 8, 16, 16]
    return {f"noise_{i}": numbers(n, 1, sides[i], sides[i]) for i in range(layers)}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "latents.npz"


@pytest.mark.parametrize("n", [1, 3])
def test_write_latents_and_read_latents_keep_every_bit(file, n):
    ws = torch.from_numpy(numbers(*WS))
    noise = [torch.from_numpy(array) for array in maps(n).values()]
    write_latents(file, ws, noise)
    found = read_latents(file, random_generator())
    assert_close(found.ws, ws, **EXACT)
    assert_close(found.noise, noise, **EXACT)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_read_latents_broadcasts_w_and_maps_z(file):
    generator = random_generator()
    np.savez(file, w=numbers(*W))
    ws, _ = read_latents(file, generator)  # two, as docs/projection.md takes them
    assert_close(ws, torch.from_numpy(numbers(*W))[:, None].expand(WS), **EXACT)
    np.savez(file, z=numbers(*Z))
    found = read_latents(file, generator)
    with torch.no_grad():
        expected = generator.broadcast(generator.mapping(torch.from_numpy(numbers(*Z))))
    assert_close(found.ws, expected, **EXACT)
    assert found.noise is None and not found.ws.is_inference()


def test_read_latents_needs_a_class_for_z_but_not_for_w(file):
    generator, label = random_generator(LABELED), torch.eye(3)[1:2]
    np.savez(file, z=numbers(*Z))
    with pytest.raises(ValueError, match="the network has classes; pass --class"):
        read_latents(file, generator)
    with torch.no_grad():
        w = generator.mapping(torch.from_numpy(numbers(*Z)), label.expand(3, 3))
    assert_close(read_latents(file, generator, label).ws[:, 1], w, **EXACT)
    np.savez(file, w=numbers(*W))
    assert read_latents(file, generator).ws.shape == WS


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"ws": numbers(*WS), "z": numbers(*Z)}, "got ws, z"),
        ({"latents": numbers(*Z)}, "got latents"),
        ({"w": numbers(*WS)}, r"w must be (N, 8) for this network, got (3, 6, 8)"),
        (
            {"meta": np.array('{"format": "stylegan-directions"}'), "pca_vectors": numbers(2, 8)},
            "directions, not latents; pass it to --edit",
        ),
        ({"w": np.ones((3, 8), int)}, "w must be floating-point, got int64"),
        ({"w": numbers(*W), **maps(layers=3)}, "layers 0 to 1, 3, 5, ... or 5, got 3"),
        (
            {"w": numbers(*W), "noise_1": numbers(1, 1, 4, 4)},
            "noise maps must be those of layers 0 to 1, 3, 5, ... or 5, got 1",
        ),
        (
            {"w": numbers(1, 8), **maps(), "noise_5": numbers(1, 1, 8, 8)},
            "noise_5 must be (1, 1, 16, 16), got (1, 1, 8, 8)",
        ),
    ],
)
def test_read_latents_names_arrays_that_do_not_fit(file, arrays, message):
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read_latents(file, random_generator())
    assert str(caught.value).startswith(f"{file}: ")


def test_read_latents_executes_no_code_and_names_a_missing_file(file):
    np.savez(file, allow_pickle=True, ws=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match=r"latents\.npz is damaged or not a file of plain arrays"):
        read_latents(file, random_generator())
    with pytest.raises(FileNotFoundError, match=r"gone\.npz does not exist"):
        read_latents(file.with_name("gone.npz"), random_generator())


def test_read_latents_reads_compressed_npz_and_plain_npy(file):
    generator, ws = random_generator(), numbers(*WS)
    np.savez_compressed(file, ws=ws, **{name: 0 * noise for name, noise in maps().items()})
    assert_close(read_latents(file, generator).ws, torch.from_numpy(ws), **EXACT)
    plain = file.with_suffix(".npy")
    np.save(plain, ws)
    assert_close(read_latents(plain, generator).ws, torch.from_numpy(ws), **EXACT)
    np.save(plain, numbers(*W))
    with pytest.raises(ValueError, match=r"got \(3, 8\); write w or z by numpy"):
        read_latents(plain, generator)


def test_read_latents_refuses_oversized_compressed_files(file, monkeypatch):
    np.savez_compressed(file, ws=np.zeros((2**12, *WS[1:]), np.float32))
    monkeypatch.setattr("stylegan.files.checkpoint.MAX_UNPACKED", 2**19)
    with pytest.raises(ValueError, match="its entries are larger than the file"):
        read_latents(file, random_generator())


def test_read_latents_refuses_arrays_that_take_gigabytes(file, monkeypatch):
    generator = random_generator()
    np.savez(file, w=np.zeros((2, TINY.w_dim), np.float16))
    monkeypatch.setattr("stylegan.files.latents.MAX_BYTES", 8 * TINY.num_ws() * TINY.w_dim - 1)
    with pytest.raises(ValueError, match="its ws take"):
        read_latents(file, generator)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (10**17,)}
    )
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("w.npy", header.getvalue())
    with pytest.raises(ValueError, match="claims a larger array than it holds"):
        read_latents(file, generator)


def test_generate_from_a_latents_file_equals_generate_from_seeds(source, file, tmp_path):
    generator = random_generator()
    with torch.no_grad():
        write_latents(file, generator.broadcast(generator.mapping(latents([0, 1, 2], 8))))
    plain = generated(source, tmp_path / "plain", "--seeds", "0-2", "--no-grid", "--psi", 1)
    again = generated(source, tmp_path / "again", "--latents", file, "--no-grid")
    assert list(again) == ["latent0000.png", "latent0001.png", "latent0002.png"]
    assert list(again.values()) == list(plain.values())
    some = generated(source, tmp_path / "some", "--latents", file, "--seeds", "2,0", "--no-grid")
    assert list(some) == ["latent0000.png", "latent0002.png"]
    for name in some:  # a gray level may be another in another batch
        shown = [pixels(tmp_path / folder / name) for folder in ("some", "again")]
        assert abs(shown[0] - shown[1]).max() <= 1
    arguments = ["generate", source, "--latents", file, "--seeds", 3, "--out", tmp_path / "no"]
    assert "latents 0 to 2, got 3" in run_fails(*arguments)
