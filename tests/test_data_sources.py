"""Folders and zips: what is found, what is refused."""

import io
import random
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stylegan.data import open_source, prepare


def png(width: int = 16, height: int = 16, seed: int = 0) -> bytes:
    file = io.BytesIO()
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(values).save(file, "PNG")
    return file.getvalue()


def folder(path: Path, files: Mapping[str, bytes]) -> Path:
    names = list(files)
    random.Random(0).shuffle(names)  # the order of the file system shall not matter
    path.mkdir(parents=True, exist_ok=True)
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(files[name])
    return path


def archive(path: Path, files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as out:
        for name, content in files.items():
            out.writestr(name, content)
    return path


MIXED = {
    "b/2.PNG": png(seed=1),
    "b/10.jpg": png(seed=2),
    "a/deep/er/1.webp": png(seed=3),
    "c/3.tiff": png(seed=4),
    "a/notes.txt": b"text",
    "a/.hidden.png": png(),
    "__MACOSX/b/._2.png": b"resource fork",
    ".git/x.png": png(),
}


MIXED_NAMES = ["a/deep/er/1.webp", "b/10.jpg", "b/2.PNG", "c/3.tiff"]


BAD = {
    "0.png": png(),
    "1.png": b"text",
    "2.png": b"",
    "3.jpg": png()[:300],
    "4.png": png(12, 30),
    "5.png": png(seed=5),
}


def mixed_source(kind: str, root: Path) -> Path:
    """The same files as a folder or as a zip."""
    if kind == "zip":
        return archive(root / "mixed.zip", MIXED)
    return folder(root / "mixed", MIXED)


@pytest.fixture(params=["folder", "zip"])
def mixed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return mixed_source(request.param, tmp_path)


def test_names_are_sorted_hidden_files_unseen_and_others_ignored(mixed: Path) -> None:
    source = open_source(mixed)
    assert source.names == MIXED_NAMES
    assert source.ignored == ["a/notes.txt"]
    assert [source.read(name) for name in source.names] == [MIXED[name] for name in MIXED_NAMES]


def test_include_keeps_some_sub_folders_and_names_those_there_are(mixed: Path) -> None:
    assert open_source(mixed, include=["c", "a"]).names == ["a/deep/er/1.webp", "c/3.tiff"]
    with pytest.raises(ValueError, match=r"no sub-folder 'd' .*available: a, b, c"):
        open_source(mixed, include=["a", "d"])


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    elsewhere = folder(tmp_path / "elsewhere", {"1.png": png()})
    source = folder(tmp_path / "images", {"a/0.png": png()})
    (source / "a" / "up").symlink_to(source)
    (source / "b").symlink_to(elsewhere)
    assert open_source(source).names == ["a/0.png", "b/1.png"]


def test_each_wrong_source_is_one_sentence_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("text")
    folder(tmp_path / "texts", {"a.txt": b"", "b.txt": b"", "c": b""})
    archive(tmp_path / "empty.zip", {})
    (tmp_path / "cut.zip").write_bytes(archive(tmp_path / "x.zip", MIXED).read_bytes()[:-40])
    for name, kind, words in [
        ("missing", FileNotFoundError, "there is no folder, zip or store"),
        ("empty", ValueError, "is empty"),
        ("empty.zip", ValueError, "is empty"),
        ("file.txt", ValueError, "neither a folder nor a zip"),
        ("cut.zip", ValueError, "neither a folder nor a zip"),
        ("texts", ValueError, r"no images .* 3 other files \(2 x .txt, 1 x no extension\)"),
    ]:
        with pytest.raises(kind, match=words) as caught:
            open_source(tmp_path / name)
        assert name in str(caught.value)
        assert "see datasets/README.md" in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["/etc/a.png", "../a.png", "x/../../a.png", "C:/a.png", "..\\a.png", "\\\\host\\a.png"]
)
def test_zip_entries_that_point_outside_are_refused(name: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "trick.zip", {"good.png": png(), name: png()})
    with pytest.raises(ValueError, match="points outside"):
        open_source(path)


def test_zip_bombs_are_refused_before_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path / "bomb.zip", {"flat.bmp": bytes(2**25)})
    with pytest.raises(ValueError, match=r"flat.bmp would unpack from \d+ to 33554432 bytes"):
        open_source(path)
    many = archive(tmp_path / "many.zip", {f"{i}.bmp": bytes(2**23) for i in range(4)})
    with pytest.raises(ValueError, match="the whole would unpack"):
        open_source(many)
    monkeypatch.setattr("stylegan.data.sources.MAX_FILE_BYTES", 100)
    with pytest.raises(ValueError, match="limits: 100 bytes a file"):
        open_source(archive(tmp_path / "large.zip", {"a.png": png()}))


def test_a_zip_entry_that_lies_about_its_size_is_not_unpacked_beyond_it(tmp_path: Path) -> None:
    path = archive(tmp_path / "lie.zip", {"a.png": bytes(10_000_000), "b.png": png()})
    content = path.read_bytes().replace(
        (10_000_000).to_bytes(4, "little"), (99).to_bytes(4, "little")
    )
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.png: Bad CRC"):
        open_source(path).read("a.png")


def test_encrypted_and_linked_zip_entries_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link.png")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as out:
        out.writestr(link, "/etc/passwd")
    with pytest.raises(ValueError, match="is a link"):
        open_source(tmp_path / "link.zip")
    content = bytearray(archive(tmp_path / "locked.zip", {"a.png": png()}).read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "locked.zip").write_bytes(content)
    with pytest.raises(ValueError, match="encrypted"):
        open_source(tmp_path / "locked.zip")


def test_a_zip_of_an_unknown_version_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = archive(tmp_path / "odd.zip", {"a.png": png()})
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 6] = 128
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"odd\.zip is a damaged zip: zip file version 12\.8"):
        open_source(path)


def test_names_in_a_zip_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    path = archive(tmp_path / "odd.zip", {"a\x1b[2J\nb.png": b"", "c.\x1b[2J": b""})
    for use in (
        lambda: prepare(path, tmp_path / "store"),
        lambda: open_source(path, include=["d"]),
    ):
        with pytest.raises(ValueError, match=r"odd\.zip") as error:
            use()
        assert str(error.value).isprintable()
