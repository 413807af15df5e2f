"""Folders and zips: what is found, what is refused."""

import zipfile

import pytest
from pictures import MIXED, MIXED_NAMES, archive, folder, png

from stylegan.data import open_source, prepare


def test_names_are_sorted_hidden_files_unseen_and_others_ignored(mixed):
    source = open_source(mixed)
    assert source.names == MIXED_NAMES
    assert source.ignored == ["a/notes.txt"]
    assert [source.read(name) for name in source.names] == [MIXED[name] for name in MIXED_NAMES]


def test_include_keeps_some_sub_folders_and_names_those_there_are(mixed):
    assert open_source(mixed, include=["c", "a"]).names == ["a/deep/er/1.webp", "c/3.tiff"]
    with pytest.raises(ValueError, match=r"no sub-folder 'd' .*available: a, b, c"):
        open_source(mixed, include=["a", "d"])


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path):
    elsewhere = folder(tmp_path / "elsewhere", {"1.png": png()})
    source = folder(tmp_path / "images", {"a/0.png": png()})
    (source / "a" / "up").symlink_to(source)
    (source / "b").symlink_to(elsewhere)
    assert open_source(source).names == ["a/0.png", "b/1.png"]


def test_each_wrong_source_is_one_sentence_that_says_what_to_do(tmp_path):
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
        ("texts", ValueError, r"no images .*: found 2 \.txt files, 1 other file;"),
    ]:
        with pytest.raises(kind, match=words) as caught:
            open_source(tmp_path / name)
        assert name in str(caught.value)
        assert "see datasets/README.md" in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["/etc/a.png", "../a.png", "x/../../a.png", "C:/a.png", "..\\a.png", "\\\\host\\a.png"]
)
def test_zip_entries_that_point_outside_are_refused(name, tmp_path):
    path = archive(tmp_path / "trick.zip", {"good.png": png(), name: png()})
    with pytest.raises(ValueError, match="points outside"):
        open_source(path)


def test_zip_bombs_are_refused_before_they_are_unpacked(tmp_path, monkeypatch):
    path = archive(tmp_path / "bomb.zip", {"flat.bmp": bytes(2**25)})
    with pytest.raises(ValueError, match=r"flat.bmp would unpack from \d+ to 33554432 bytes"):
        open_source(path)
    many = archive(tmp_path / "many.zip", {f"{i}.bmp": bytes(2**23) for i in range(4)})
    with pytest.raises(ValueError, match="the whole would unpack"):
        open_source(many)
    monkeypatch.setattr("stylegan.data.sources.MAX_FILE_BYTES", 100)
    with pytest.raises(ValueError, match="limits: 100 bytes a file"):
        open_source(archive(tmp_path / "large.zip", {"a.png": png()}))


def test_a_zip_entry_that_lies_about_its_size_is_not_unpacked_beyond_it(tmp_path):
    path = archive(tmp_path / "lie.zip", {"a.png": bytes(10_000_000), "b.png": png()})
    content = path.read_bytes().replace(
        (10_000_000).to_bytes(4, "little"), (99).to_bytes(4, "little")
    )
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.png: Bad CRC"):
        open_source(path).read("a.png")


def test_encrypted_and_linked_zip_entries_are_refused(tmp_path):
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


def test_a_zip_of_an_unknown_version_is_an_error_that_names_it(tmp_path):
    path = archive(tmp_path / "odd.zip", {"a.png": png()})
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 6] = 128
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"odd\.zip is a damaged zip: zip file version 12\.8"):
        open_source(path)


def test_names_in_a_zip_cannot_write_to_the_terminal(tmp_path):
    path = archive(tmp_path / "odd.zip", {"a\x1b[2J\nb.png": b"", "c.\x1b[2J": b""})
    for use in (
        lambda: prepare(path, tmp_path / "store"),
        lambda: open_source(path, include=["d"]),
    ):
        with pytest.raises(ValueError, match=r"odd\.zip") as error:
            use()
        assert str(error.value).isprintable()
