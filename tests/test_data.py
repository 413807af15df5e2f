"""Sources and stores: what is found, what is refused, what is written."""

import io
import os
import pickle
import random
import shutil
import threading
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stylegan.data import Crop, Skipped, Store, cached_store, check, is_store, open_source, prepare
from stylegan.data import cache as cache_module
from stylegan.data import prepare as prepare_function
from stylegan.data.prepare import pyramid, store_bytes

REFERENCE = Path(__file__).parent / "reference" / "process_reals.npz"


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


@pytest.fixture(params=["folder", "zip"])
def mixed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "zip":
        return archive(tmp_path / "mixed.zip", MIXED)
    return folder(tmp_path / "mixed", MIXED)


def test_names_are_sorted_hidden_files_unseen_and_others_ignored(mixed: Path) -> None:
    source = open_source(mixed)
    assert source.names == MIXED_NAMES
    assert source.ignored == ["a/notes.txt"]
    assert source.labels == ["a", "b", "b", "c"]
    assert [source.read(name) for name in source.names] == [MIXED[name] for name in MIXED_NAMES]


def test_include_keeps_some_sub_folders_and_names_those_there_are(mixed: Path) -> None:
    assert open_source(mixed, include=["c", "a"]).names == ["a/deep/er/1.webp", "c/3.tiff"]
    with pytest.raises(ValueError, match=r"no sub-folder 'd' .*available: a, b, c"):
        open_source(mixed, include=["a", "d"])


def test_sources_travel_to_other_processes(mixed: Path) -> None:
    source = open_source(mixed)
    source.read(source.names[0])
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read("b/2.PNG") == MIXED["b/2.PNG"]
    assert copy.fingerprint() == source.fingerprint()


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
        ("missing", FileNotFoundError, "there is no folder or zip"),
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


def test_pyramid_equals_the_official_one_exactly() -> None:
    with np.load(REFERENCE) as reference:
        levels = pyramid(reference["pyramid/r64"])
        assert sorted(levels) == [4, 8, 16, 32, 64]
        for resolution, level in levels.items():
            np.testing.assert_array_equal(level, reference[f"pyramid/r{resolution}"])


def test_store_holds_the_images_in_order_with_labels_and_names(mixed: Path, tmp_path: Path) -> None:
    store = prepare(mixed, tmp_path / "store")
    assert (store.num_images, store.resolution, store.channels) == (4, 16, 3)
    assert store.names == MIXED_NAMES
    assert store.label_names == ["a", "b", "c"]
    assert store.labels is not None
    assert store.labels.tolist() == [0, 1, 1, 2]
    assert store.one_hot([3, 0]).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert store.active_rectangle is None
    assert (store.skipped, store.meta.num_ignored) == ([], 1)
    for i, name in enumerate(store.names):
        expected = np.asarray(Image.open(io.BytesIO(MIXED[name]))).transpose(2, 0, 1)
        for resolution, level in pyramid(expected).items():
            np.testing.assert_array_equal(store.images(resolution)[i], level)
    store.verify()


def test_store_files_are_plain_numpy_and_reading_needs_no_other_path(tmp_path: Path) -> None:
    source = folder(tmp_path / "images", {"0.png": png(), "1.png": png(seed=1)})
    prepare(source, tmp_path / "store")
    shutil.rmtree(source)
    moved = (tmp_path / "store").rename(tmp_path / "moved")
    assert sorted(p.name for p in moved.iterdir()) == [
        "0004.npy", "0008.npy", "0016.npy", "meta.json", "names.txt",
    ]  # fmt: skip
    assert np.load(moved / "0016.npy", allow_pickle=False).shape == (2, 3, 16, 16)
    assert str(tmp_path) not in (moved / "meta.json").read_text()
    store = pickle.loads(pickle.dumps(Store(moved)))
    assert isinstance(store.images(8), np.memmap)
    assert store.labels is None
    with pytest.raises(ValueError, match="labels are asked for"):
        store.one_hot([0])
    with pytest.raises(ValueError, match="no resolution 32; it has 4, 8, 16"):
        store.images(32)


def test_one_image_outside_of_sub_folders_means_no_labels(tmp_path: Path) -> None:
    source = folder(tmp_path / "images", {"a/0.png": png(), "1.png": png()})
    assert prepare(source, tmp_path / "store").label_names == []


@pytest.mark.parametrize(
    ("size", "crop", "resolution"),
    [
        ((40, 33), "center", 32),
        ((31, 90), "center", 16),
        ((33, 25), "pad", 32),
        ((1500, 1100), "center", 1024),
    ],
)
def test_resolution_follows_from_the_first_readable_image(
    size: tuple[int, int], crop: Crop, resolution: int, tmp_path: Path
) -> None:
    image = io.BytesIO()
    Image.new("RGB", size).save(image, "PNG")
    source = folder(tmp_path / "images", {"0.png": b"broken", "1.png": image.getvalue()})
    assert prepare(source, tmp_path / "store", crop=crop).resolution == resolution


def test_pad_stores_the_active_rectangle_and_black_elsewhere(tmp_path: Path) -> None:
    source = folder(tmp_path / "images", {"0.png": png(64, 48), "1.png": png(100, 90)})
    store = prepare(source, tmp_path / "store", crop="pad", resolution=64)
    assert store.active_rectangle == (8, 56, 0, 64)
    assert Store(store.path).active_rectangle == (8, 56, 0, 64)
    original = np.asarray(Image.open(source / "0.png")).transpose(2, 0, 1)
    np.testing.assert_array_equal(store.images(64)[0, :, 8:56], original)
    assert (store.images(64)[:, :, :8] == 0).all()
    assert (store.images(64)[:, :, 56:] == 0).all()


def test_gray_and_alpha_stores(tmp_path: Path) -> None:
    source = folder(tmp_path / "images", {"0.png": png()})
    assert prepare(source, tmp_path / "1", channels=1).images(4).shape == (1, 1, 4, 4)
    alpha = prepare(source, tmp_path / "4", channels=4)
    assert (alpha.images(8)[:, 3] == 255).all()


BAD = {
    "0.png": png(),
    "1.png": b"text",
    "2.png": b"",
    "3.jpg": png()[:300],
    "4.png": png(12, 30),
    "5.png": png(seed=5),
}


def test_bad_images_are_skipped_with_a_reason_and_counted(tmp_path: Path) -> None:
    source = folder(tmp_path / "images", BAD)
    seen: list[tuple[int, int]] = []
    store = prepare(source, tmp_path / "store", progress=lambda *done: seen.append(done))
    assert store.names == ["0.png", "5.png"]
    assert store.images(16).shape == (2, 3, 16, 16)
    assert [name for name, _ in store.skipped] == ["1.png", "2.png", "3.jpg", "4.png"]
    assert store.skipped[1] == Skipped("2.png", "the file is empty")
    assert store.skipped[3].reason == "image smaller than the resolution 16: 12x30"
    assert Store(store.path).skipped == store.skipped
    assert seen == [(i, 6) for i in range(1, 7)]


def test_strict_refuses_and_names_every_bad_image(tmp_path: Path) -> None:
    source = folder(tmp_path / "images", BAD)
    with pytest.raises(ValueError, match=r"4 of 6 images.*1\.png.*2\.png.*3\.jpg.*4\.png"):
        prepare(source, tmp_path / "store", strict=True)
    assert os.listdir(tmp_path) == ["images"]


def test_no_usable_image_is_an_error(tmp_path: Path) -> None:
    broken = folder(tmp_path / "broken", {"1.png": b"text", "2.png": b""})
    small = folder(tmp_path / "small", {"1.png": png(20, 30), "2.png": png(40, 9)})
    with pytest.raises(ValueError, match=r"no image .* can be read; .* not a PNG"):
        prepare(broken, tmp_path / "store")
    with pytest.raises(ValueError, match=r"none of the 2 images .* is usable: 1\.png"):
        prepare(broken, tmp_path / "store", resolution=8)
    with pytest.raises(
        ValueError, match=r"smaller than the resolution 32: 20x30.*choose a smaller"
    ):
        prepare(small, tmp_path / "store", resolution=32)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("resolution", [0, 2, 3, 48, 2048, -8])
def test_resolution_must_be_a_power_of_two(resolution: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"power of two from 4 to 1024, not {resolution}"):
        prepare(tmp_path, tmp_path / "store", resolution=resolution)


def test_disk_space_is_checked_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder(tmp_path / "images", {"0.png": png(64, 64)})
    usage = shutil.disk_usage(tmp_path)._replace(free=50_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=r"no disk space: 1 images at 64x64 need 0\.1 MiB"):
        prepare(source, tmp_path / "store")
    assert os.listdir(tmp_path) == ["images"]


def test_space_asked_for_covers_what_is_written(tmp_path: Path) -> None:
    source = folder(tmp_path / "images", {f"a/{i}.png": png(32, 32) for i in range(20)})
    store = prepare(source, tmp_path / "store")
    written = sum(path.stat().st_size for path in store.path.iterdir())
    assert written <= store_bytes(20, 32, 3) <= written + 2**17


def test_existing_output_is_never_overwritten(tmp_path: Path) -> None:
    source = folder(tmp_path / "images", {"0.png": png()})
    (tmp_path / "file").write_text("mine")
    folder(tmp_path / "full", {"mine.txt": b"mine"})
    for name, words in [("file", "is a file"), ("full", "is not empty")]:
        with pytest.raises(FileExistsError, match=words):
            prepare(source, tmp_path / name)
    (tmp_path / "made" / "empty").mkdir(parents=True)
    prepare(source, tmp_path / "made" / "empty")
    with pytest.raises(FileExistsError, match="is a store already"):
        prepare(source, tmp_path / "made" / "empty")
    assert (tmp_path / "file").read_text() == "mine"
    assert os.listdir(tmp_path / "full") == ["mine.txt"]


def test_interrupted_preparation_leaves_nothing(tmp_path: Path) -> None:
    source = folder(tmp_path / "images", {f"{i}.png": png() for i in range(9)})

    def interrupt(done: int, total: int) -> None:
        assert any(".unfinished-" in name for name in os.listdir(tmp_path))
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(source, tmp_path / "store", progress=interrupt)
    assert os.listdir(tmp_path) == ["images"]


def test_what_a_killed_preparation_left_is_removed_by_the_next(tmp_path: Path) -> None:
    source = folder(tmp_path / "images", {"0.png": png()})
    left = folder(tmp_path / ".store.unfinished-0123", {"0016.npy": bytes(100)})
    fresh = folder(tmp_path / ".store.unfinished-4567", {"0016.npy": bytes(100)})
    assert not is_store(left)
    for path in (left / "0016.npy", left):
        os.utime(path, (1, 1))
    prepare(source, tmp_path / "store")
    assert not left.exists()
    assert fresh.exists()  # somebody may be at it


def damage_cut(path: Path) -> None:
    os.truncate(path / "0016.npy", 500)


def damage_shape(path: Path) -> None:
    np.save(path / "0008.npy", np.zeros((2, 3, 8, 8), np.uint8))


def damage_missing(path: Path) -> None:
    (path / "0004.npy").unlink()


def damage_pickle(path: Path) -> None:
    np.save(path / "labels.npy", np.array([{"code": 1}], object), allow_pickle=True)


def damage_meta(path: Path) -> None:
    meta = (path / "meta.json").read_text()
    (path / "meta.json").write_text(meta[: len(meta) // 2] + '"stylegan-store"')


def damage_version(path: Path) -> None:
    meta = (path / "meta.json").read_text()
    (path / "meta.json").write_text(meta.replace('"version": 1', '"version": 7'))


@pytest.mark.parametrize(
    "damage",
    [damage_cut, damage_shape, damage_missing, damage_pickle, damage_meta, damage_version],
)
def test_a_damaged_store_says_so(damage: Callable[[Path], None], tmp_path: Path) -> None:
    source = folder(tmp_path / "images", {"a/0.png": png()})
    prepare(source, tmp_path / "store")
    damage(tmp_path / "store")
    with pytest.raises(ValueError, match=r"store .* is damaged \(.*\); delete it and prepare"):
        Store(tmp_path / "store")


def test_changed_pixels_are_found_by_verifying(tmp_path: Path) -> None:
    store = prepare(folder(tmp_path / "images", {"0.png": png()}), tmp_path / "store")
    images = np.load(store.path / "0008.npy")
    images[0, 0, 0, 0] ^= 1
    np.save(store.path / "0008.npy", images)
    with pytest.raises(ValueError, match=r"0008\.npy has changed"):
        Store(store.path).verify()


def test_the_number_of_threads_changes_nothing(tmp_path: Path) -> None:
    source = folder(tmp_path / "images", {f"{i:02}.png": png(40, 33, i) for i in range(30)})
    one = prepare(source, tmp_path / "1", workers=1)
    four = prepare(source, tmp_path / "4", workers=4)
    assert one.meta == four.meta


def test_memory_of_preparation_does_not_grow_with_the_number_of_images(tmp_path: Path) -> None:
    content = png(64, 64)
    peaks = []
    for count in (20, 200):
        source = folder(tmp_path / f"{count}", {f"{i}.png": content for i in range(count)})
        tracemalloc.start()
        prepare(source, tmp_path / f"store{count}", workers=2)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 180 * 1500  # far below the 16 KiB of pixels of each image


def test_cache_is_used_while_the_source_is_unchanged_and_settings_equal(mixed: Path) -> None:
    cache = mixed.parent / "cache"
    first = cached_store(mixed, cache_dir=cache)
    made = (first.path / "meta.json").stat().st_mtime_ns

    def refuse(*done: int) -> None:
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


def test_cache_notices_new_removed_renamed_and_rewritten_images(tmp_path: Path) -> None:
    source = folder(tmp_path / "images", {"0.png": png(), "1.png": png(seed=1)})

    def path() -> Path:
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


def test_cache_folder_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder(tmp_path / "images", {"0.png": png()})
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "here"))
    assert cached_store(source).path.parent == tmp_path / "here"


def test_processes_preparing_at_the_same_time_share_one_store(tmp_path: Path) -> None:
    source = folder(tmp_path / "images", {f"{i}.png": png(seed=i) for i in range(20)})
    meet = threading.Barrier(3)
    stores = []

    def run() -> None:
        def wait_for_the_others(done: int, total: int) -> None:
            if done == total:
                meet.wait(20)

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


def test_a_store_given_as_data_is_used_if_it_is_what_is_asked_for(tmp_path: Path) -> None:
    made = prepare_function(folder(tmp_path / "images", BAD), tmp_path / "store")
    path = made.path
    assert cached_store(path).path == path
    assert cached_store(path, resolution=8).images(8).shape == (2, 3, 8, 8)
    refused: list[tuple[str, dict[str, Any]]] = [
        ("has resolution 16, 32 is asked for", {"resolution": 32}),
        ("has 3 channels, 1 are asked for", {"channels": 1}),
        ("crop center, pad is asked for", {"crop": "pad"}),
        ("prepared already; sub-folders", {"include": ["a"]}),
        ("4 images of images could not be used", {"strict": True}),
    ]
    for words, settings in refused:
        with pytest.raises(ValueError, match=words):
            cached_store(path, **settings)


def test_strict_holds_for_a_cached_store_too(tmp_path: Path) -> None:
    source = folder(tmp_path / "images", BAD)
    cached_store(source, cache_dir=tmp_path / "cache")
    with pytest.raises(ValueError, match=r"strict allows none: 1\.png"):
        cached_store(source, cache_dir=tmp_path / "cache", strict=True)


def test_check_counts_what_is_there(tmp_path: Path) -> None:
    files = {f"x/{name}": content for name, content in BAD.items()}
    source = folder(tmp_path / "images", files | {"x/readme.md": b"", "y/wide.png": png(40, 20)})
    report = check(source)
    assert (report.kind, report.num_good, report.ignored) == ("folder", 4, ["x/readme.md"])
    assert [name for name, _ in report.skipped] == ["x/1.png", "x/2.png", "x/3.jpg"]
    assert report.sizes == {(16, 16): 2, (12, 30): 1, (40, 20): 1}
    assert (report.smallest, report.largest) == ((12, 30), (40, 20))
    assert report.resolution == 8
    assert report.modes == {"RGB": 4}
    assert report.labels == {"x": 3, "y": 1}
    assert (
        check(source, resolution=16).skipped
        == cached_store(source, resolution=16, cache_dir=tmp_path / "c").skipped
    )


def test_check_of_a_store_verifies_it(mixed: Path, tmp_path: Path) -> None:
    report = check(prepare(mixed, tmp_path / "store").path)
    assert (report.kind, report.num_good) == ("store", 4)
    assert report.labels == {"a": 1, "b": 2, "c": 1}


def test_default_cache_is_a_folder_of_this_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STYLEGAN_CACHE", raising=False)
    assert cache_module.default_cache_dir().name == "stylegan"
    assert cache_module.default_cache_dir().is_absolute()
