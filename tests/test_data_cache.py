"""The cache of prepared stores, and the check before training."""

import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import run_fails, run_ok
from helpers.consoles import RecordingConsole
from helpers.pictures import BAD, png, store_of, write_folder

from stylegan.data import Preparation, Store, cached_store, check, prepare
from stylegan.data.sources import open_source
from stylegan.data.store import ORIGIN, remove_files
from stylegan.utils.console import Console


def test_cached_store_is_reused_for_the_same_source_and_settings(mixed):
    cache = mixed.parent / "cache"
    first = cached_store(mixed, cache_dir=cache)

    def refuse(*done):
        raise AssertionError("prepared again")

    assert (
        cached_store(mixed, cache_dir=cache, console=RecordingConsole(done=refuse)).path
        == first.path
    )
    others = [
        cached_store(mixed, Preparation(resolution=8), cache_dir=cache).path,
        cached_store(mixed, Preparation(channels=1), cache_dir=cache).path,
        cached_store(mixed, Preparation(include=["a"]), cache_dir=cache).path,
    ]
    assert len({first.path, *others}) == 4


def test_cached_store_of_a_read_only_cache_is_used(mixed, monkeypatch):
    first = cached_store(mixed, cache_dir=mixed.parent / "cache").path
    (first / ORIGIN).unlink()  # as if its maker had been killed before
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert cached_store(mixed, cache_dir=mixed.parent / "cache").path == first
    assert not (first / ORIGIN).exists()


def test_cached_store_notices_new_removed_renamed_and_changed_images(tmp_path):
    source = write_folder(tmp_path / "images", {"0.png": png(), "1.png": png(seed=1)})

    def path():
        return cached_store(source, cache_dir=tmp_path / "cache").path

    paths = [path()]
    (source / "2.png").write_bytes(png(seed=2))
    paths.append(path())
    (source / "2.png").rename(source / "3.png")
    paths.append(path())
    (source / "3.png").write_bytes((source / "0.png").read_bytes())
    paths.append(path())
    assert len(set(paths)) == 4
    (source / "3.png").unlink()
    assert path() == paths[0]
    (source / "notes.txt").write_text("not an image")
    assert path() == paths[0]


@pytest.mark.parametrize("first", [(), ("x",)])
def test_cached_store_takes_classes_from_the_included_sub_folders(first, tmp_path):
    source = write_folder(
        tmp_path / "in", {f"x/{c}/0.png": png(seed=i) for i, c in enumerate("bgr")}
    )
    classes = {(): ["b", "g", "r"], ("x",): ["x"]}
    for include in (first, *classes, first):
        preparation = Preparation(include=include)
        for data in (source, open_source(source, include=include)):
            store = cached_store(data, preparation, cache_dir=tmp_path / "cache", labels=True)
            assert store.label_names == classes[include]
    assert len(os.listdir(tmp_path / "cache")) == 2


def test_cached_store_is_rebuilt_if_a_file_changes_the_classes(tmp_path):
    source = write_folder(
        tmp_path / "in", {f"x/{c}/0.png": png(seed=i) for i, c in enumerate("bgr")}
    )
    found = {}
    for text in ("x/b/notes.txt", "notes.txt"):
        before = cached_store(source, cache_dir=tmp_path / "cache")
        write_folder(source, {text: b""})
        after = cached_store(source, cache_dir=tmp_path / "cache")
        found[text] = (after.path == before.path, after.label_names)
    assert found == {"x/b/notes.txt": (True, ["b", "g", "r"]), "notes.txt": (False, ["x"])}


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def garble(path):
    path.write_bytes(path.read_bytes().replace(b"{", b"("))  # in the header


def rename(path):
    path.write_text(path.read_text().replace("0016", "0032"))  # of a hash


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("meta.json", cut),
        ("0008.npy", os.unlink),
        ("names.txt", os.unlink),
        ("0016.npy", cut),
        ("0004.npy", garble),
        ("meta.json", rename),
    ],
)
def test_cached_store_is_rebuilt_when_damaged(name, change, tmp_path):
    source = write_folder(tmp_path / "images", {f"{i}.png": png(seed=i) for i in range(3)})
    path = cached_store(source, cache_dir=tmp_path / "cache").path
    change(path / name)
    write_folder(tmp_path / "cache" / ".other.unfinished", {"0016.npy": b""})  # of a killed process
    (tmp_path / "cache" / ".other.unfinished.lock").touch()
    store = cached_store(source, cache_dir=tmp_path / "cache")
    store.verify()
    assert (store.path, os.listdir(tmp_path / "cache")) == (path, [path.name])


def test_cache_command_lists_and_clears_stores(tmp_path, monkeypatch):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    sources = [write_folder(tmp_path / name, {"0.png": png()}) for name in "abc"]
    a, b, c = (cached_store(source, Preparation(resolution=16)).path for source in sources)
    os.utime(b / "origin.json", (1, 1))
    (c / "meta.json").write_text("")
    (sources[1] / "0.png").unlink()
    sources[1].rmdir()
    first, _, *rows = run_ok("cache").splitlines()
    assert first.startswith(f"{tmp_path / 'cache'}: 3 stores, 0.0 MiB")
    assert {row.split()[0] for row in rows[:2]} == {a.name, c.name}
    assert [("damaged" in row) for row in rows if c.name in row] == [True]
    assert rows[2].startswith(b.name) and rows[2].endswith(f"{sources[1]} (gone)")
    assert run_ok("cache", "--older", "5").splitlines()[2].startswith(b.name)
    assert run_ok("cache", "--clear", "--older", "5").startswith("removed 1 store")
    assert sorted(os.listdir(tmp_path / "cache")) == sorted([a.name, c.name])
    write_folder(tmp_path / "cache" / ".other.unfinished", {"0016.npy": b""})  # of a killed process
    (tmp_path / "cache" / ".other.unfinished.lock").touch()
    assert run_ok("cache", "--clear").startswith("removed 2 stores")
    assert os.listdir(tmp_path / "cache") == []
    assert run_ok("cache") == f"{tmp_path / 'cache'}: 0 stores, 0.0 MiB\n"
    monkeypatch.setenv("STYLEGAN_CACHE", "~nobody-here")
    assert "Set STYLEGAN_CACHE" in run_fails("cache")


def test_cache_command_lists_and_clears_metric_features(tmp_path, monkeypatch):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path))
    name = f"eff-features-{'0' * 24}.npy"
    others = tmp_path / "metrics" / "mine.npy"
    others.parent.mkdir()
    np.save(others.with_name(name), np.zeros((3, 4), np.float32))
    others.write_bytes(b"mine")
    first, _, row = run_ok("cache").splitlines()
    assert first == f"{tmp_path}: 0 stores and 1 file of features, 0.0 MiB"
    assert row.startswith(name) and row.endswith("features of metrics")
    assert run_ok("cache", "--clear", name).startswith("removed 0 stores and 1 file of features")
    assert list((tmp_path / "metrics").iterdir()) == [others]


def test_cache_clear_removes_only_what_the_cache_made(tmp_path, monkeypatch):
    """Also where STYLEGAN_CACHE is a folder of the user's."""
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path))
    source = write_folder(tmp_path / "images", {"0.png": png()})
    made = cached_store(source).path
    mine = prepare(source, tmp_path / "my-dataset").path
    (mine / "notes.txt").write_text("mine")
    write_folder(tmp_path / "other", {"meta.json": b"", "0001.npy": b""})
    made.symlink_to(made.rename(tmp_path / "elsewhere"))
    (tmp_path / ".x.unfinished-mine").mkdir()
    second = cached_store(source, Preparation(resolution=8)).path
    (second / "notes.txt").write_text("mine")
    (second / "origin.json").write_text(100_000 * "[")  # damaged
    before = {path for path in tmp_path.rglob("*") if path.parent != second}
    assert run_ok("cache", "--clear").startswith("removed 1 store")
    assert {*tmp_path.rglob("*")} == before | {second / "notes.txt"}
    assert made.is_symlink()


def test_cached_store_is_prepared_by_one_process_while_others_wait(tmp_path):
    source = write_folder(tmp_path / "images", {f"{i}.png": png(seed=i) for i in range(20)})
    stores, told, done = [], [], []
    waits = threading.Semaphore(0)

    class Both(Console):
        def info(self, text):
            told.append(text)
            if "waiting" in text:
                waits.release()

        def progress(self, what, images, total):
            if images == total:
                done.append(images)
                assert waits.acquire(timeout=300) and waits.acquire(timeout=300)

    def run():
        cache = tmp_path / "cache"
        stores.append(cached_store(source, cache_dir=cache, console=Both()))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(stores), done) == (3, [20])
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [stores[0].path.name]
    assert sum("another process prepares" in text for text in told) == 2
    stores[0].verify()


def test_cached_store_uses_a_given_store_if_the_settings_match(tmp_path):
    path = store_of(tmp_path, BAD).path
    assert cached_store(path).path == path
    assert cached_store(path, Preparation(resolution=8)).images(8).shape == (2, 3, 8, 8)
    refused = [
        ("has resolution 16, but 32 is requested", Preparation(resolution=32)),
        (
            "3 channels, but 1 are requested; train with --channels RGB, or prep",
            Preparation(channels=1),
        ),
        ('pad is requested; train with -o .data.crop="center"., or prep', Preparation(crop="pad")),
        (r"is prepared; sub-folders \(a\)", Preparation(include=("a",))),
    ]
    for words, preparation in refused:
        with pytest.raises(ValueError, match=words):
            cached_store(path, preparation)
    with pytest.raises(ValueError, match="4 of 6 images of images cannot be used"):
        cached_store(path, strict=True)


def flip(path, at=-1, bit=1):
    content = bytearray(path.read_bytes())
    content[at] ^= bit
    path.write_bytes(content)


DAMAGED_FILES = ["0016.npy", "0004.npy", "names.txt", "labels.npy"]
TWO_CLASSES = {"a/0.png": png(), "b/1.png": png(seed=1)}


@pytest.mark.parametrize("name", DAMAGED_FILES)
def test_cached_store_checks_sizes_and_check_verifies_content(name, tmp_path):
    """Of a store in its place or a copy, which a start does not read."""
    store = store_of(tmp_path, TWO_CLASSES)
    copy = shutil.copytree(store.path, tmp_path / "copy", copy_function=shutil.copy)
    flip(copy / name, at=-8)  # another file of the same size
    for path in (store.path, copy):
        told = []
        cached_store(path, console=RecordingConsole(told))
        assert told == []
    check(store.path)
    with pytest.raises(ValueError, match=rf"{name} has changed\); delete it and prepare it"):
        check(copy)
    if name.endswith(".npy"):
        with open(copy / name, "ab") as file:
            file.write(b"x")
        with pytest.raises(ValueError, match=rf"damaged \({name} has \d+ bytes"):
            cached_store(copy)
    (copy / name).unlink()
    for read in (cached_store, check):
        with pytest.raises(ValueError, match=rf"damaged \(.*{name}"):
            read(copy)


def test_check_reports_progress_in_images(tmp_path, monkeypatch):
    monkeypatch.setattr("stylegan.data.store.BLOCK", 100)
    seen = []
    check(
        store_of(tmp_path, TWO_CLASSES).path,
        console=RecordingConsole(done=lambda *done: seen.append(done)),
    )
    assert seen == sorted(seen) and seen[-1] == (2, 2)


def test_cached_store_opens_stores_of_older_versions(tmp_path):
    store = store_of(tmp_path, TWO_CLASSES)
    (store.path / "read.json").write_text('{"0004.npy": [1, 1]}')
    meta = json.loads((store.path / "meta.json").read_text())
    meta["pixel_hashes"] = {n: h for n, h in meta["pixel_hashes"].items() if n[0] == "0"}
    meta["checksums"] = dict.fromkeys([*meta["pixel_hashes"], "names.txt", "labels.npy"], 1)
    (store.path / "meta.json").write_text(json.dumps(meta))
    found = cached_store(store.path)
    known = [one.training_hash(16, labels=True) for one in (store, found)]
    assert known[0] == known[1]
    remove_files(store.path)
    assert not store.path.exists()


def of_meta(store, **changes):
    """The store with another description."""
    meta = json.loads((store.path / "meta.json").read_text())
    (store.path / "meta.json").write_text(json.dumps(meta | changes))
    return store.path


@pytest.mark.parametrize(
    "changes",
    [
        {"active_rectangle": [-4, 4, 0, 16]},
        {"active_rectangle": [2, 14, 0, 16]},
        {"crop": "pad", "active_rectangle": [4, 4, 0, 16]},
        {"premultiplied": True},
    ],
)
def test_store_rejects_impossible_metadata(changes, tmp_path):
    path = of_meta(store_of(tmp_path, TWO_CLASSES), **changes)
    with pytest.raises(ValueError, match="damaged"):
        Store(path)


def test_store_rejects_unknown_files_and_labels_out_of_range(tmp_path):
    store = store_of(tmp_path, TWO_CLASSES)
    hashes = json.loads((store.path / "meta.json").read_text())["pixel_hashes"]
    of_meta(store, pixel_hashes=hashes | {"../outside.txt": "0"})
    with pytest.raises(ValueError, match=r"unknown file '\.\./outside\.txt'"):
        Store(store.path)
    of_meta(store, pixel_hashes=hashes)
    labels = np.load(store.path / "labels.npy")
    for wrong in (-1, 2):
        np.save(store.path / "labels.npy", np.full_like(labels, wrong))
        with pytest.raises(ValueError, match=r"labels\.npy exceeds the 2 classes"):
            Store(store.path)


def test_store_rejects_a_folder_for_a_file_and_a_folder_of_pictures(tmp_path):
    store = store_of(tmp_path, TWO_CLASSES)
    (store.path / "0004.npy").rename(tmp_path / "0004.npy")
    (store.path / "0004.npy").mkdir()
    with pytest.raises(ValueError, match=r"0004\.npy is missing or not a file"):
        Store(store.path)
    with pytest.raises(FileNotFoundError, match="no store at"):
        Store(tmp_path / "in")


def test_cached_store_of_another_resolution_is_its_own_origin(tmp_path):
    source = write_folder(tmp_path / "in", {"0.png": png(), "1.png": png(seed=1)})
    cache = tmp_path / "cache"
    for resolution, origin in ((16, source), (8, None)):
        store = cached_store(source, Preparation(resolution=16), cache_dir=cache)
        found = cached_store(store, Preparation(resolution=resolution))
        assert found.origin == (origin or store.path)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file whose reading fails")
def test_cached_store_is_not_removed_on_a_read_error(tmp_path):
    source = write_folder(tmp_path / "in", {"0.png": png()})
    store = cached_store(source, cache_dir=tmp_path / "cache")
    (store.path / "0008.npy").unlink()
    (store.path / "0008.npy").symlink_to("/proc/self/mem")
    with pytest.raises(OSError, match="Input/output error"):
        cached_store(source, cache_dir=tmp_path / "cache")
    assert (store.path / "0004.npy").exists()
