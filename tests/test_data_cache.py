"""The cache of prepared stores, and the check before training."""

import gc
import os
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from pictures import BAD, archive, folder, png, store_of

from stylegan.cli import main
from stylegan.data import Store, cached_store, check, default_cache_dir, place_of, prepare, sources
from stylegan.data.cache import cached_stores


def test_cache_is_used_while_the_source_is_unchanged_and_settings_equal(mixed, monkeypatch):
    cache = mixed.parent / "cache"
    first = cached_store(mixed, cache_dir=cache)
    made = (first.path / "meta.json").stat().st_mtime_ns

    def refuse(*done):
        raise AssertionError("prepared or read again")

    monkeypatch.setattr(Store, "verify", refuse)
    again = cached_store(mixed, cache_dir=cache, progress=refuse)
    assert again.path == first.path
    assert (again.path / "meta.json").stat().st_mtime_ns == made
    others = [
        cached_store(mixed, cache_dir=cache, resolution=8).path,
        cached_store(mixed, cache_dir=cache, channels=1).path,
        cached_store(mixed, cache_dir=cache, include=["a"]).path,
    ]
    assert len({first.path, *others}) == 4


def test_cache_notices_new_removed_renamed_and_rewritten_images(tmp_path):
    source = folder(tmp_path / "images", {"0.png": png(), "1.png": png(seed=1)})

    def path():
        return cached_store(source, cache_dir=tmp_path / "cache").path

    paths = [path()]
    (source / "2.png").write_bytes(png(seed=2))
    paths.append(path())
    (source / "2.png").rename(source / "3.png")
    paths.append(path())
    (source / "3.png").write_bytes(png(seed=3))
    os.utime(source / "3.png", ns=(1, 1))
    paths.append(path())
    assert len(set(paths)) == 4
    (source / "3.png").unlink()
    assert path() == paths[0]
    (source / "notes.txt").write_text("not an image")
    assert path() == paths[0]


def test_a_picture_edited_at_its_size_and_time_is_noticed(tmp_path):
    source = folder(tmp_path / "images", {"0.png": png(), "1.png": png(seed=1)})
    first = cached_store(source, cache_dir=tmp_path / "cache")
    status = (source / "0.png").stat()
    (source / "0.png").write_bytes((source / "1.png").read_bytes().ljust(status.st_size))
    os.truncate(source / "0.png", status.st_size)
    os.utime(source / "0.png", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert cached_store(source, cache_dir=tmp_path / "cache").path != first.path


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "empty": ("meta.json", lambda path: os.truncate(path, 0)),
    "cut": ("meta.json", cut),
    "gone": ("meta.json", os.unlink),
    "no pixels": ("0008.npy", os.unlink),
    "byte": ("0016.npy", flip),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cached_store_is_made_anew(damage, tmp_path):
    source = folder(tmp_path / "images", {f"{i}.png": png(seed=i) for i in range(3)})
    path = cached_store(source, cache_dir=tmp_path / "cache").path
    name, change = DAMAGE[damage]
    change(path / name)
    (tmp_path / "cache" / ".other.unfinished-01234567").mkdir()  # of a preparation that was killed
    store = cached_store(source, cache_dir=tmp_path / "cache")
    store.verify()
    assert (store.path, os.listdir(tmp_path / "cache")) == (path, [path.name])


def test_a_store_that_was_written_to_without_a_change_is_kept(tmp_path):
    source = folder(tmp_path / "images", {"0.png": png()})
    path = cached_store(source, cache_dir=tmp_path / "cache").path
    (path / "0016.npy").write_bytes((path / "0016.npy").read_bytes())
    made = (path / "meta.json").stat().st_ino
    store = cached_store(source, cache_dir=tmp_path / "cache")
    assert (store.path / "meta.json").stat().st_ino == made


def test_a_picture_that_could_not_be_read_for_a_while_is_not_left_out_for_ever(
    tmp_path, monkeypatch
):
    source = folder(tmp_path / "images", {"0.png": png(), "1.png": png(seed=1), "2.png": b"?"})
    opened = sources.FolderSource.open

    def refuse(self, name):
        if name == "1.png":
            raise PermissionError(13, os.strerror(13), name)
        return opened(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(sources.FolderSource, "open", refuse)
        first = cached_store(source, cache_dir=tmp_path / "cache")
        assert first.skipped[0] == ("1.png", "Permission denied")
        again = cached_store(source, cache_dir=tmp_path / "cache")
        assert os.path.samefile(first.path / "meta.json", again.path / "meta.json")
    del first, again
    store = cached_store(source, cache_dir=tmp_path / "cache")
    assert store.names == ["0.png", "1.png"]
    assert len(cached_stores(tmp_path / "cache")) == 1


def test_a_newer_store_replaces_the_older_one_of_its_source_unless_that_is_in_use(tmp_path):
    source = folder(tmp_path / "images", {"0.png": png()})
    told = []

    def made(**settings):
        return cached_store(source, cache_dir=tmp_path / "cache", tell=told.append, **settings)

    used, small = made(), made(resolution=8)
    (source / "1.png").write_bytes(png(seed=1))
    made()
    assert {used.path, small.path} < {store.path for store in cached_stores(tmp_path / "cache")}
    gone = used.path
    del used
    gc.collect()
    (source / "2.png").write_bytes(png(seed=2))
    newest = made()
    left = {store.path for store in cached_stores(tmp_path / "cache")}
    assert left == {newest.path, small.path}
    assert any(line.startswith(f"removed {gone}") for line in told)


def test_stores_of_sources_that_are_gone_go_when_nobody_has_used_them_for_long(tmp_path):
    sources = [folder(tmp_path / name, {"0.png": png()}) for name in "abc"]
    paths = [cached_store(source, cache_dir=tmp_path / "cache").path for source in sources]
    gc.collect()
    for source, path in zip(sources[:2], paths, strict=False):
        (source / "0.png").unlink()
        source.rmdir()
        if source.name == "a":
            os.utime(path / "origin.json", (1, 1))
    os.utime(paths[2] / "origin.json", (1, 1))  # old, but not gone
    new = cached_store(folder(tmp_path / "d", {"0.png": png()}), cache_dir=tmp_path / "cache").path
    assert {store.path for store in cached_stores(tmp_path / "cache")} == {*paths[1:], new}


def test_place_and_size_are_said_before_anything_is_written(tmp_path):
    source = folder(tmp_path / "images", {f"{i}.png": png(40, 40, i) for i in range(3)})
    cache, told = tmp_path / "cache", []
    place = place_of(source, cache_dir=cache)
    assert not cache.exists() and not place.exists
    store = cached_store(source, cache_dir=cache, tell=told.append)
    assert place.exists and store.path == place.path
    assert told == [f"preparing {place}"]
    assert str(place).startswith(f"3 images of images at 32x32: 0.1 MiB in {cache}/images-auto-")
    assert str(place).endswith(" free)")


def test_any_name_of_a_folder_gives_a_cached_store(tmp_path):
    names = ["photos ", "line\nbreak", ".hidden", "-rf", "x" * 250, os.fsdecode(b"caf\xe9")]
    for name in names:
        source = folder(tmp_path / name, {"a/0.png": png()})
        store = cached_store(source, cache_dir=tmp_path / "cache")
        assert store.path.name.isascii() and store.path.name[0].isalnum()
        assert cached_store(source, cache_dir=tmp_path / "cache").path == store.path


def test_cached_stores_are_listed_and_cleared(tmp_path, monkeypatch):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    stores = [
        cached_store(folder(tmp_path / name, {"0.png": png()}), resolution=16) for name in "abc"
    ]
    a, b, c = (store.path for store in stores)
    os.utime(b / "origin.json", (1, 1))
    (c / "meta.json").write_text("")
    (tmp_path / "b" / "0.png").unlink()
    (tmp_path / "b").rmdir()
    (tmp_path / "cache" / ".x.unfinished-89abcdef").mkdir()

    def run(*words):
        done = CliRunner().invoke(main, ["cache", *words])
        return done.exit_code, done.output

    code, text = run()
    assert code == 0
    first, _, *rows = text.splitlines()
    assert first.startswith(f"{tmp_path / 'cache'}: 3 stores, 0.0 MiB")
    assert [row.split()[0] for row in rows] == [c.name, a.name, b.name]
    assert "damaged" in rows[0] and rows[2].endswith(f"{tmp_path / 'b'} (gone)")
    assert run("--older", "5")[1].splitlines()[2].startswith(b.name)
    assert run("--clear", "nobody")[1].startswith("Error: nobody is not in")
    assert f"{b.name} is in use, and stays" in run("--clear", b.name)[1]
    del stores
    gc.collect()
    assert run("--clear", "--older", "5")[1].startswith("removed 1 store")
    assert sorted(os.listdir(tmp_path / "cache")) == sorted([a.name, c.name])
    assert run("--clear")[1].startswith("removed 2 stores")
    assert run()[1] == f"{tmp_path / 'cache'}: 0 stores, 0.0 MiB\n"


def test_clearing_removes_what_the_cache_made_and_nothing_else(tmp_path, monkeypatch):
    """Also where STYLEGAN_CACHE is a folder of the user's."""
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path))
    source = folder(tmp_path / "images", {"0.png": png()})
    made = cached_store(source).path
    mine = prepare(source, tmp_path / "my-dataset").path
    (mine / "notes.txt").write_text("mine")
    other = folder(tmp_path / "other", {"meta.json": b"", "0001.npy": b""})
    elsewhere = made.rename(tmp_path / "elsewhere")
    made.symlink_to(elsewhere)
    second = cached_store(source, resolution=8).path
    (second / "notes.txt").write_text("mine")
    (tmp_path / ".x.unfinished-mine").mkdir()
    before = {path for path in tmp_path.rglob("*") if path.parent != second}
    gc.collect()
    done = CliRunner().invoke(main, ["cache", "--clear"])
    assert done.output.startswith("removed 1 store")
    assert {*tmp_path.rglob("*")} == before | {second / "notes.txt"}
    assert made.is_symlink() and {mine, other} < before


@pytest.mark.parametrize("note", ["[" * 100_000, "", "[]", '{"source": 1}'])
def test_a_damaged_note_of_a_cached_store_harms_nothing(note, tmp_path):
    source = folder(tmp_path / "images", {"0.png": png()})
    store = cached_store(source, cache_dir=tmp_path / "cache")
    (store.path / "origin.json").write_text(note)
    assert len(cached_stores(tmp_path / "cache")) == 1


def test_cache_folder_comes_from_the_environment(tmp_path, monkeypatch):
    source = folder(tmp_path / "images", {"0.png": png()})
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "here"))
    assert cached_store(source).path.parent == tmp_path / "here"


def test_processes_preparing_at_the_same_time_share_one_store(tmp_path):
    source = folder(tmp_path / "images", {f"{i}.png": png(seed=i) for i in range(20)})
    meet = threading.Barrier(3)
    stores = []

    def run():
        def wait_for_the_others(done, total):
            if done == total:
                meet.wait(300)

        progress = wait_for_the_others
        stores.append(cached_store(source, cache_dir=tmp_path / "cache", progress=progress))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 3
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [stores[0].path.name]
    stores[0].verify()


def test_the_list_of_stores_leaves_out_what_vanishes_while_it_is_made(tmp_path, monkeypatch):
    source = folder(tmp_path / "images", {f"{i}.png": png(seed=i) for i in range(3)})
    kept = cached_store(source, cache_dir=tmp_path / "cache")
    (size,) = [one.size_bytes for one in cached_stores(tmp_path / "cache")]
    iterdir = Path.iterdir

    def with_vanished(path):
        yield from iterdir(path)
        if path == tmp_path / "cache":
            yield path / "removed-meanwhile"
        elif path == kept.path:
            yield path / ".origin.json.0123.partial"  # of another process, complete by now

    monkeypatch.setattr(Path, "iterdir", with_vanished)
    monkeypatch.setattr("stylegan.data.cache.is_store", lambda path: True)
    (one,) = cached_stores(tmp_path / "cache")
    assert (one.path, one.size_bytes) == (kept.path, size)


def test_a_store_given_as_data_is_used_if_it_is_what_is_asked_for(tmp_path):
    made = store_of(tmp_path, BAD)
    path = made.path
    assert cached_store(path).path == path
    assert cached_store(path, resolution=8).images(8).shape == (2, 3, 8, 8)
    refused = [
        ("has resolution 16, 32 is asked for", {"resolution": 32}),
        ("has 3 channels, 1 are asked for", {"channels": 1}),
        ("crop center, pad is asked for", {"crop": "pad"}),
        ("prepared already; sub-folders", {"include": ["a"]}),
        ("4 images of images could not be used", {"strict": True}),
    ]
    for words, settings in refused:
        with pytest.raises(ValueError, match=words):
            cached_store(path, **settings)


def test_strict_holds_for_a_cached_store_too(tmp_path):
    source = folder(tmp_path / "images", BAD)
    cached_store(source, cache_dir=tmp_path / "cache")
    with pytest.raises(ValueError, match=r"strict allows none: 1\.png"):
        cached_store(source, cache_dir=tmp_path / "cache", strict=True)


def test_check_counts_what_is_there(tmp_path):
    files = {f"x/{name}": content for name, content in BAD.items()}
    source = folder(tmp_path / "images", files | {"x/readme.md": b"", "y/wide.png": png(40, 20)})
    report = check(source)
    assert (report.kind, report.num_good, report.ignored) == ("folder", 4, ["x/readme.md"])
    assert [name for name, _ in report.skipped] == ["x/1.png", "x/2.png", "x/3.jpg"]
    assert report.sizes == {(16, 16): 2, (12, 30): 1, (40, 20): 1}
    assert (report.smallest, report.largest) == ((12, 30), (40, 20))
    assert (report.resolution(), report.resolution(0.7)) == (8, 16)
    assert report.reach() == {4: 4, 8: 4, 16: 3}
    assert report.modes == {"RGB": 4}
    assert report.labels == {"x": 3, "y": 1}
    assert (
        check(source, resolution=16).skipped
        == cached_store(source, resolution=16, cache_dir=tmp_path / "c").skipped
    )


def test_check_of_a_store_verifies_it(mixed, tmp_path):
    report = check(prepare(mixed, tmp_path / "store").path)
    assert (report.kind, report.num_good) == ("store", 4)
    assert report.labels == {"a": 1, "b": 2, "c": 1}


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_heads_are_enough_for_sizes_and_reasons_of_size(kind, tmp_path):
    files = {f"x/{name}": content for name, content in BAD.items() if name != "3.jpg"}
    make = folder if kind == "folder" else archive
    source = make(tmp_path / "images.zip", files | {"y/z.avi": b""})
    whole = check(source, resolution=16)
    assert check(source, resolution=16, decode=False) == whole
    assert not (tmp_path / "cache").exists()
    *table, broken, empty, small, ignored = whole.lines()[-7:]
    assert [line.split() for line in table[1:]] == [["8x8", "3"], ["16x16", "2"]]
    assert small == "left out: 1 image smaller than 16x16 (largest 12x30): x/4.png"
    assert broken.startswith("left out: 1 image: not a PNG") and broken.endswith(": x/1.png")
    assert empty == "left out: 1 image: the file is empty: x/2.png"
    assert ignored == "ignored: 1 video"


def test_default_cache_is_a_folder_of_this_program(monkeypatch):
    monkeypatch.delenv("STYLEGAN_CACHE", raising=False)
    assert default_cache_dir().name == "stylegan" and default_cache_dir().is_absolute()
