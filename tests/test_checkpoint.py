"""Files that are always whole, tell when they are damaged, and are not deleted too early."""

import importlib.util
import zipfile

import numpy as np
import pytest
import torch
from tiny_training import largest_file

from stylegan.atomic import replacing, write_text
from stylegan.files import checkpoint
from stylegan.video import write_video

mp4 = pytest.mark.skipif(
    importlib.util.find_spec("av") is None,
    reason="PyAV is not installed: pip install 'stylegan[video]'",
)
PAYLOAD = {"weights": {"x": torch.arange(3000.0)}, "config": {"resolution": 8}}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "state-000000001.pt"
    checkpoint.save(path, "generator", PAYLOAD)
    return path


def same(payload):
    return torch.equal(payload["weights"]["x"], PAYLOAD["weights"]["x"])


def test_a_saved_file_is_an_ordinary_file_of_torch_and_an_ordinary_zip(saved):
    assert same(torch.load(saved, weights_only=True))
    assert zipfile.ZipFile(saved).comment.startswith(b"sha256:")
    assert same(checkpoint.load(saved))


def test_a_changed_byte_anywhere_before_the_digest_is_noticed(saved):
    content = saved.read_bytes()
    assert len(content) > 12_000
    for place in [*range(0, len(content) - 73, 97), len(content) - 74]:
        damaged = bytearray(content)
        damaged[place] ^= 4
        saved.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"state-000000001\.pt"):
            checkpoint.load(saved)


def test_a_changed_digest_is_noticed(saved):
    content = bytearray(saved.read_bytes())
    content[-1] ^= 1
    saved.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged: its content does not have the SHA-256"):
        checkpoint.load(saved)


def test_a_file_cut_short_or_lengthened_is_noticed(saved):
    content = saved.read_bytes()
    for length in (0, 1, 100, len(content) // 2, len(content) - 100, len(content) - 1):
        saved.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"state-000000001\.pt"):
            checkpoint.load(saved)
    saved.write_bytes(content + bytes(1000))
    with pytest.raises(ValueError, match=r"state-000000001\.pt"):
        checkpoint.load(saved)


def test_a_file_that_another_program_wrote_again_has_no_digest_and_loads(saved):
    torch.save(torch.load(saved, weights_only=True), saved)
    assert same(checkpoint.load(saved))


def test_what_makes_much_memory_of_a_small_file_is_refused(saved):
    with zipfile.ZipFile(saved) as archive:
        entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(saved, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match=r"an entry .* that is compressed"):
        checkpoint.load(saved)
    zeros = b"\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R."
    with zipfile.ZipFile(saved, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, zeros if name.endswith("/data.pkl") else content)
    with pytest.raises(ValueError, match=r"holds objects \(__builtin__\.bytearray\)"):
        checkpoint.load(saved)


@pytest.mark.parametrize("size", [0, 1, 4096, 12_000])
def test_where_the_disk_refuses_the_old_file_stays_and_nothing_else(saved, size):
    other = {**PAYLOAD, "weights": {"x": torch.zeros(3000)}}
    with largest_file(size), pytest.raises(OSError, match="File too large"):
        checkpoint.save(saved, "generator", other)
    assert same(checkpoint.load(saved))
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.parametrize("name", [pytest.param("film.mp4", marks=mp4), "film.webp", "film.gif"])
def test_where_the_disk_refuses_a_film_the_error_names_it_and_nothing_is_left(tmp_path, name):
    frames = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), np.uint8)
    with largest_file(1000), pytest.raises(OSError, match="File too large") as caught:
        write_video(tmp_path / name, iter(frames), count=3, fps=25)
    assert caught.value.filename == str(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_an_error_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "config.toml"
    write_text(path, "old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"ne")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
