"""The cache of prepared stores, and the check before training."""

import os
import threading

import pytest
from pictures import BAD, folder, png, store_of

from stylegan.data import cached_store, check, default_cache_dir, prepare


def test_cache_is_used_while_the_source_is_unchanged_and_settings_equal(mixed):
    cache = mixed.parent / "cache"
    first = cached_store(mixed, cache_dir=cache)
    made = (first.path / "meta.json").stat().st_mtime_ns

    def refuse(*done):
        raise AssertionError("prepared again")

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


def test_default_cache_is_a_folder_of_this_program(monkeypatch):
    monkeypatch.delenv("STYLEGAN_CACHE", raising=False)
    assert default_cache_dir().name == "stylegan" and default_cache_dir().is_absolute()
