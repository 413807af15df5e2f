"""Folders and zips: what is found, what is refused."""

import errno
import io
import os
import shutil
import warnings
import zipfile

import numpy as np
import pytest
from helpers.commands import run_ok
from helpers.consoles import RecordingConsole
from helpers.pictures import MIXED, MIXED_NAMES, archive, names_of, png, store_of, write_folder
from helpers.tiny_training import write_pictures

from stylegan.data import Preparation, Skipped, Store, check, is_store, open_source, prepare
from stylegan.data.check import grouped
from stylegan.data.sources import FolderSource, walk


def test_open_source_sorts_names_and_ignores_other_files(mixed):
    source = open_source(mixed)
    assert source.names == MIXED_NAMES
    assert source.ignored == ["a/notes.txt"]
    assert [source.read(name) for name in source.names] == [MIXED[name] for name in MIXED_NAMES]


def test_include_option_selects_sub_folders_or_lists_them(mixed):
    assert open_source(mixed, include=["c", "a"]).names == ["a/deep/er/1.webp", "c/3.tiff"]
    with pytest.raises(ValueError, match=r"no sub-folder 'd' .*available: a, b, c"):
        open_source(mixed, include=["a", "d"])


def test_prepare_and_check_skip_files_that_are_not_regular(tmp_path):
    source = write_folder(tmp_path / "images", {"good.png": png(), "lost+found/1.png": png()})
    os.mkfifo(source / "pipe.png")
    (source / "loop").symlink_to("loop")
    (source / "zero.png").symlink_to("/dev/zero")
    store = prepare(source, tmp_path / "store")
    assert names_of(store) == ["good.png"]
    assert dict(store.skipped) == {
        "pipe.png": "not a regular file",
        "zero.png": "not a regular file",
    }
    assert check(source).skipped == check(source, decode=False).skipped == store.skipped


@pytest.mark.parametrize("target", ["nowhere", "lost.png"])
def test_prepare_and_check_name_a_broken_link(target, tmp_path):
    source = write_folder(tmp_path / "images", {"good.png": png()})
    (source / "lost.png").symlink_to(target)
    for read in (check, lambda source: prepare(source, tmp_path / "store")):
        with pytest.raises(OSError) as caught:
            read(source)
        assert caught.value.filename == str(source / "lost.png")
    assert not (tmp_path / "store").exists()


class Failing(io.BytesIO):
    """A file whose drive fails, or for which no memory is left."""

    def __init__(self, error):
        super().__init__(png())
        self.error = error

    def read(self, *_):
        raise self.error()


@pytest.mark.parametrize("error", [lambda: OSError(errno.EIO, "a drive fails"), MemoryError])
@pytest.mark.parametrize("lost", ["a/0.png", "b/1.png", "labels.csv"])
def test_prepare_and_check_stop_at_read_errors_and_name_the_file(
    lost, error, tmp_path, monkeypatch
):
    """What is left would pass for the whole."""
    files = {"a/0.png": png(), "b/1.png": png(seed=1), "labels.csv": b"a/0.png,a\nb/1.png,b\n"}
    path = write_folder(tmp_path / "images", files)
    usual = FolderSource.open
    monkeypatch.setattr(
        FolderSource,
        "open",
        lambda source, name: Failing(error) if name == lost else usual(source, name),
    )
    reads = [
        lambda: check(path),
        lambda: check(path, decode=False),
        lambda: prepare(path, tmp_path / "store"),
        lambda: prepare(path, tmp_path / "store", Preparation(8)),
    ]
    for read in reads:
        with pytest.raises(type(error()), match=lost):
            read()
    assert not (tmp_path / "store").exists()


NAMES = [os.fsdecode(b"caf\xe9/0.png"), "a\nb/1.png", "a\rb/2\r\n.png", "\x1b[2J/3.png", " / .png"]


def test_prepare_and_check_accept_any_file_name_of_the_system(tmp_path):
    store = store_of(tmp_path, {name: png(seed=i) for i, name in enumerate(sorted(NAMES))})
    store = Store(store.path)
    assert store.skipped == []
    assert names_of(store) == [name.replace("\n", "\\n") for name in sorted(NAMES)]
    assert set(store.label_names) == {"caf?", "a\nb", "a\rb", "\x1b[2J", " "}
    store.verify()
    findings = check(tmp_path / "images")
    assert (findings.num_usable, len(findings.label_names)) == (5, 5)
    printed = run_ok("check", tmp_path / "images").splitlines()
    assert len(printed) == len(findings.lines()) and all(map(str.isprintable, printed))


RUN = {"config.toml": b"", "data.txt": b"", "reals.png": png(), "samples/000001.png": png(16, 99)}


@pytest.mark.parametrize("make", [write_folder, archive])
def test_open_source_leaves_out_run_folders(make, tmp_path):
    inside = {f"runs/mine/{name}": content for name, content in RUN.items()}
    mine = {"a/0.png": png(), "config.toml": b"", "b/meta.json": b"stylegan-store"}
    mine["b/1.png"] = png()
    source = open_source(make(tmp_path / "images.zip", inside | mine))
    assert source.names == ["a/0.png", "b/1.png"]
    assert source.notes() == ["left out as run folders: runs/mine"]
    assert not is_store(write_folder(tmp_path / "photos", mine) / "b")


def test_open_source_explains_each_wrong_source_in_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("text")
    write_folder(tmp_path / "texts", {"a.txt": b"", "b.txt": b"", "c": b""})
    archive(tmp_path / "empty.zip", {})
    for name, kind, words in [
        ("missing", FileNotFoundError, "there is no file or folder"),
        ("empty", ValueError, "is empty"),
        ("empty.zip", ValueError, "is empty"),
        ("file.txt", ValueError, "neither a folder nor an intact zip"),
        ("texts", ValueError, r"no images .*: found 2 \.txt files, 1 file without an extension;"),
    ]:
        with pytest.raises(kind, match=words) as caught:
            open_source(tmp_path / name)
        assert name in str(caught.value)
        assert "stylegan check --help" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_prepare_skips_unreadable_zip_entries(tmp_path):
    path = archive(tmp_path / "odd.zip", {"size.png": bytes(10_000_000), "good.png": png()})
    with zipfile.ZipFile(path, "a") as out:
        out.writestr("locked.png", png())
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    true, false = (size.to_bytes(4, "little") for size in (10_000_000, 99))
    path.write_bytes(bytes(content).replace(true, false))
    store = prepare(path, tmp_path / "store")
    assert names_of(store) == ["good.png"]
    reasons = dict(store.skipped)
    assert "encrypted" in reasons["locked.png"] and "Bad CRC" in reasons["size.png"]


def test_open_source_normalizes_dot_paths_in_zips(tmp_path):
    files = {"./": b"", "./a/": b"", "a/": b"", "__MACOSX/../x": b""}  # none of these is taken
    files |= {"./a/0.png": png(), "a/1.png": png(seed=1), "b/./2.png": png()}
    source = open_source(archive(tmp_path / "dots.zip", files))
    assert source.names == ["a/0.png", "a/1.png", "b/2.png"]
    assert source.labels.names == ["a", "b"]
    assert source.read("a/0.png") == png()
    archive(tmp_path / "up.zip", {"a/0.png": png(), "../b/1.png": png()})
    with pytest.raises(ValueError, match=r"\.\./b/1\.png is outside of .*up\.zip"):
        open_source(tmp_path / "up.zip")


@pytest.mark.parametrize("second", ["a.png", "x\\c.png"])
def test_check_rejects_duplicate_names_in_a_zip(second, tmp_path):
    path = tmp_path / "images.zip"
    with zipfile.ZipFile(path, "w") as out, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of zipfile
        for i, name in enumerate(["a.png", "x/c.png", second]):
            out.writestr(name, png(seed=i))
    with pytest.raises(ValueError, match=r"images\.zip contains two files of the same name"):
        check(path)


def test_grouped_merges_reasons_that_differ_only_in_numbers():
    damaged = [Skipped(f"{i}.png", f"broken chunk at 0x7f{i:02d}a") for i in range(9)]
    lines = grouped([Skipped("a.jpg", "fault"), *damaged])
    assert lines[0].startswith("9 images: broken chunk at 0x7f00a: 0.png, 1.png")
    assert lines[1:] == ["1 image: fault: a.jpg"]


def test_prepare_detects_heic_images_by_content(tmp_path):
    files = {"a.HEIC": png(), "b.jpg": b"\0\0\0\x18ftypheic" + bytes(40), "c.png": png(seed=1)}
    store = store_of(tmp_path, files)
    assert names_of(store) == ["a.HEIC", "c.png"]
    assert [name for name, _ in store.skipped] == ["b.jpg"]


@pytest.mark.parametrize("what", ["file", "folder"])
def test_prepare_and_check_fail_if_the_source_disappears(what, tmp_path):
    pictures = write_pictures(tmp_path / "photos", n=60)

    def take_away(done, total):
        if pictures.exists() and done == 1:
            last = pictures / "b" / "59.png"
            last.unlink() if what == "file" else shutil.rmtree(pictures)

    for read in (
        lambda: prepare(
            pictures, tmp_path / "store", Preparation(16), console=RecordingConsole(done=take_away)
        ),
        lambda: check(pictures, Preparation(16), console=RecordingConsole(done=take_away)),
    ):
        with pytest.raises(FileNotFoundError, match=r"photos/.*\.png"):
            read()
        assert not (tmp_path / "store").exists()
        shutil.rmtree(pictures, ignore_errors=True)
        write_pictures(tmp_path / "photos", n=60)
    assert prepare(pictures, tmp_path / "store", Preparation(16)).num_images == 60


def test_walk_fails_if_a_folder_disappears_while_listed(tmp_path, monkeypatch):
    pictures = write_pictures(tmp_path / "photos", n=8)
    usual = os.scandir

    def scandir(path):
        if path == str(pictures / "b"):
            (pictures / "b").rename(tmp_path / "elsewhere")
        return usual(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(FileNotFoundError, match="photos/b"):
        list(walk(pictures))


@pytest.mark.parametrize("name", ["images", "all.npy"])
def test_check_refers_arrays_to_prepare_images(name, tmp_path):
    (tmp_path / "images").mkdir()
    for path in (tmp_path / "all.npy", tmp_path / "images" / "0.npy"):
        np.save(path, np.zeros((2, 8, 8, 3), np.uint8))
    with pytest.raises(ValueError, match=r"by stylegan\.data\.prepare_images; .*check --help"):
        check(tmp_path / name)
