"""Tars, Parquet and data sets of the Hub as sources: the same store as of a folder."""

import os
import sys
import tarfile

import numpy as np
import pytest
from helpers.commands import run_fails, run_ok
from helpers.pictures import archive, assert_same_store, names_of, png, write_folder
from helpers.shards import cached_data_set, link, tar, write_parquet

from stylegan.data import Store, cached_store, check, open_source, prepare
from stylegan.data.shards import ParquetSource
from stylegan.metrics.image_folders import holds_images

FILES = {f"{'cat' if i < 4 else 'dog'}/{i}.png": png(seed=i) for i in range(7)}
IMAGES = list(FILES.values())
CLASSES = ["cat", "dog"]
NUMBERS = [0, 0, 0, 0, 1, 1, 1]


def webdataset(path, files):
    """A sample per image, with its class in a file of its own."""
    samples = []
    for name, image in files.items():
        folder, file = name.split("/")
        key = file.removesuffix(".png")
        samples += [(file, image), (f"{key}.cls", folder.encode()), (f"{key}.txt", b"a caption")]
    return tar(path, samples)


def folder(path):
    return write_folder(path, FILES)


def two_tars(path, write=tar):
    path.mkdir()
    names = list(FILES)
    for number, part in enumerate((names[:3], names[3:])):
        write(path / f"train-{number:06}.tar", {name: FILES[name] for name in part})
    return path


def two_parquet_files(path):
    for number, part in enumerate((slice(3), slice(3, None))):
        write_parquet(
            path / "data" / f"train-{number:05}-of-00002.parquet",
            IMAGES[part],
            classes=CLASSES,
            label=NUMBERS[part],
        )
    return path


FORMS = {
    "mine.zip": lambda path: archive(path, FILES),
    "mine.tar": lambda path: tar(path, FILES),
    "inside a folder.tar": lambda path: tar(path, {f"./top/{k}": v for k, v in FILES.items()}),
    "webdataset.tar": lambda path: webdataset(path, FILES),
    "tars": two_tars,
    "webdataset": lambda path: two_tars(path, webdataset),
    "mine.parquet": lambda path: write_parquet(path, IMAGES, classes=CLASSES, label=NUMBERS),
    "parquet": two_parquet_files,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_data_set_gives_the_same_store(form, tmp_path):
    wanted = prepare(folder(tmp_path / "folder"), tmp_path / "a")
    source = FORMS[form](tmp_path / form)
    before = sorted(tmp_path.rglob("*"))
    store = prepare(source, tmp_path / "b", workers=4, strict=True)
    assert_same_store(store, wanted)
    assert (store.labels.tolist(), store.label_names) == (NUMBERS, CLASSES)
    assert not set(before) - set(tmp_path.rglob("*"))
    written = {path for path in tmp_path.rglob("*") if tmp_path / "b" not in (path, *path.parents)}
    assert written == set(before), "nothing is extracted"
    assert holds_images(str(source))
    assert check(source, decode=False).sizes == {(16, 16): 7}


def test_tar_labels_are_integers_names_or_vectors(tmp_path):
    def labels(name, *files):
        samples = [(f"{i}.png", png(seed=i)) for i in range(len(files))]
        return open_source(tar(tmp_path / name, [*samples, *files])).labels_or_reason

    numbers = labels("a.tar", ("0.cls", b"10\n"), ("1.cls", b"2"))
    assert (numbers.names, numbers.rows.tolist()) == (["2", "10"], [1, 0])
    names = labels("b.tar", ("0.json", b'{"label": "b"}'), ("1.json", b'{"label": "a"}'))
    assert (names.names, names.rows.tolist()) == (["a", "b"], [1, 0])
    vectors = labels("c.tar", ("0.json", b'{"label": [0.5, 1]}'), ("1.json", b"[2, 3]"))
    np.testing.assert_array_equal(vectors.rows, [[0.5, 1], [2, 3]])
    assert "1 image without a label: 1.png" in labels("d.tar", ("0.cls", b"1"), ("x.cls", b"1"))
    assert "0.json holds no label" in labels("e.tar", ("0.json", b"{"), ("1.json", b"1"))
    assert not labels("f.tar", ("0.json", b'{"caption": 1}'), ("1.txt", b"1")).names


def test_parquet_labels_are_numbers_names_or_missing(tmp_path):
    def labels(name, values, **options):
        images = [png(seed=i) for i in range(len(values))]
        path = write_parquet(tmp_path / name, images, label=values, **options)
        return open_source(path).labels_or_reason

    numbers = labels("a.parquet", [10, 2, 2])
    assert (numbers.names, numbers.rows.tolist()) == (["2", "10"], [1, 0, 0])
    assert labels("b.parquet", ["b", "a"]).rows.tolist() == [1, 0]
    assert not labels("c.parquet", [-1, -1], classes=CLASSES).names
    assert "1 image without a label" in labels("d.parquet", [0, -1], classes=CLASSES)
    assert "has no valid labels" in labels("e.parquet", [0, 7], classes=CLASSES)


def test_shards_that_number_their_samples_alike_keep_all(tmp_path):
    for shard in ("train-0", "train-1"):
        path = tmp_path / "shards" / f"{shard}.tar"
        path.parent.mkdir(exist_ok=True)
        tar(path, {"0.png": png(seed=len(shard)), "0.cls": shard[-1].encode()})
    source = open_source(tmp_path / "shards")
    assert source.names == ["0.png", "train-1.tar/0.png"]
    assert source.labels.names == ["0", "1"]


@pytest.mark.parametrize("decode", [True, False])
def test_bad_members_of_a_tar_are_named_and_left_out(decode, tmp_path):
    path = tar(
        tmp_path / "mine.tar",
        [
            ("good.png", png()),
            ("link.png", link("link.png")),
            ("hard.png", link("hard.png", tarfile.LNKTYPE, "good.png")),
            ("device.png", link("device.png", tarfile.CHRTYPE)),
            ("../outside.png", png()),
            ("twice.png", png()),
            ("twice.png", png(seed=1)),
            ("text.png", b"text"),
            ("notes.txt", b"text"),
            (".hidden.png", png()),
            ("zut.png", png(64, 64)),
        ],
    )
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 10240)
    findings = check(path, decode=decode)
    reasons = dict(findings.skipped)
    irregular = {reasons.pop(f"{name}.png") for name in ("link", "hard", "device")}
    assert irregular == {"not a regular file"}
    assert "outside of the tar" in reasons.pop("../outside.png")
    assert "more than one file of this name" in reasons.pop("twice.png")
    assert "not a PNG" in reasons.pop("text.png")
    assert reasons.pop("zut.png") == "truncated"
    assert "truncated" in reasons.pop("mine.tar")
    assert not reasons
    assert (findings.num_usable, findings.ignored) == (1, ["notes.txt"])


def test_damaged_header_of_a_tar_is_not_taken_for_its_end(tmp_path):
    path = tar(tmp_path / "mine.tar", {f"{i}.png": png(seed=i) for i in range(3)})
    content = bytearray(path.read_bytes())
    start = content.index(b"1.png")
    content[start + 148 : start + 154] = b"777777"  # its checksum
    path.write_bytes(content)
    store = prepare(path, tmp_path / "store")
    assert names_of(store) == ["0.png"]
    assert [name for name, _ in store.skipped] == ["mine.tar"]


def test_header_of_a_tar_allocates_no_memory_for_what_it_claims(tmp_path):
    huge = tarfile.TarInfo("huge.png")
    huge.size = 2**60
    extended = tarfile.TarInfo("x")
    extended.type = tarfile.XHDTYPE
    extended.size = 2**50
    for number, info in enumerate((huge, extended)):
        path = tar(tmp_path / f"{number}.tar", {"0.png": png()})
        good = path.read_bytes()[: 512 + 512 * -(-len(png()) // 512)]
        path.write_bytes(good + info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
        assert check(path).num_usable == 1
        assert check(path).skipped


def test_bad_rows_and_files_of_parquet_are_named_and_left_out(tmp_path):
    images = [png(), None, b"", b"text", png(seed=1)]
    path = tmp_path / "data"
    write_parquet(path / "a.parquet", images, label=[0, 0, 0, 0, 1])
    write_folder(path, {"b.parquet": b"PAR1 and no more", "README.md": b"text"})
    other = path / "c.parquet"
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"pixels": [1]}), other)
    findings = check(path)
    reasons = dict(findings.skipped)
    assert reasons.pop("a-000000001.png") == reasons.pop("a-000000002.png")
    assert "not a PNG" in reasons.pop("a-000000003.png")
    assert "cannot be read" in reasons.pop("b.parquet")
    assert "expected a column image" in reasons.pop("c.parquet")
    assert not reasons
    assert (findings.num_usable, findings.ignored) == (2, ["README.md"])
    assert findings.labels.counts() == {"0": 1, "1": 1}
    assert "c.parquet cannot be read: expected a column image" in run_fails("check", other)


def test_rows_of_parquet_that_repeat_one_large_value_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("stylegan.data.shards.MAX_ROW_GROUP", 10**6)
    content = png() + bytes(10**4)
    path = write_parquet(tmp_path / "a.parquet", [content] * 1000, group=1000, label=[0] * 1000)
    assert path.stat().st_size < 10**5  # the value once, and a thousand numbers of it
    assert "at most 1000000 bytes" in check(path).skipped[0][1]


def test_parquet_without_pyarrow_names_the_package(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "mine.parquet", [png()])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install pyarrow"):
        open_source(path)


def test_include_selects_a_split_of_parquet(tmp_path):
    for split, seed in (("train", 0), ("test", 1)):
        write_parquet(tmp_path / "set" / f"{split}-00000-of-00001.parquet", [png(seed=seed)])
    source = open_source(tmp_path / "set", include=["train"])
    assert source.names == ["train/00000-of-00001-000000000.png"]
    assert "test, train are splits" in open_source(tmp_path / "set").notes()[0]


@pytest.mark.parametrize("form", ["tars", "parquet"])
def test_cache_notices_changes_of_any_shard(form, tmp_path):
    path = FORMS[form](tmp_path / form)
    cache = tmp_path / "cache"
    first = cached_store(path, cache_dir=cache).path
    assert cached_store(path, cache_dir=cache).path == first
    last = sorted(file for file in path.rglob("*") if file.is_file())[-1]
    os.utime(last, ns=(0, 0))
    assert cached_store(path, cache_dir=cache).path != first


def test_hub_data_set_is_read_from_its_cache(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    files = {
        "data/train-00000-of-00001.parquet": lambda path: write_parquet(
            path, IMAGES, classes=CLASSES, label=NUMBERS
        ),
        "assets/preview.png": lambda path: path.write_bytes(png(seed=99)),
    }
    snapshot = cached_data_set(tmp_path / "hub", "owner/pets", files)
    wanted = prepare(folder(tmp_path / "folder"), tmp_path / "a")
    run_ok("prepare", "hf:owner/pets", str(tmp_path / "b"))
    assert_same_store(Store(tmp_path / "b"), wanted)
    assert open_source("hf:owner/pets@main").path == snapshot
    assert type(open_source(snapshot)) is ParquetSource  # as a run finds it again
    assert holds_images("hf:owner/pets")
    assert "hf:owner/none cannot be fetched" in run_fails("check", "hf:owner/none")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install huggingface-hub"):
        open_source("hf:owner/pets")


def test_checkpoints_hold_no_images_even_damaged_ones(tmp_path):
    checkpoint = archive(tmp_path / "mine.pth.tar", {"data.pkl": b""})
    assert not holds_images(str(checkpoint))
    content = bytearray(checkpoint.read_bytes())
    content[content.index(b"PK\x01\x02")] ^= 1  # the directory of the zip
    (tmp_path / "damaged.pt").write_bytes(content)
    assert not holds_images(str(tmp_path / "damaged.pt"))
