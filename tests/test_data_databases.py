"""TFRecords, LMDB, Parquet and Arrow as sources, and the way back to a folder or zip."""

import io
import json
import zipfile

import numpy as np
import pytest
from commands import refused, stylegan, told
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pictures import folder, png
from PIL import Image
from tensorboard.summary.writer.record_writer import RecordWriter

from stylegan.data import Store, cached_store, check, export, open_source, prepare
from stylegan.data.prepare import pyramid
from stylegan.data.tfrecords import crc32c

SIZES = (4, 8, 16)
LABELS = np.eye(3, dtype=np.float32)[[2, 0, 0, 2, 2]]


def example_class():
    """The message `Example`, as TensorFlow defines it, by Google's own implementation."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, field, kind, label, of in fields:
            made.field.add(
                name=field, number=number, type=kind, label=label, type_name=of and f".t.{of}"
            )
        return made

    one, many = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED
    message("Bytes", (1, "value", kinds.TYPE_BYTES, many, None))
    message("Ints", (1, "value", kinds.TYPE_INT64, many, None))
    message("Feature", (1, "bytes_list", kinds.TYPE_MESSAGE, one, "Bytes"),
            (3, "int64_list", kinds.TYPE_MESSAGE, one, "Ints"))  # fmt: skip
    features = message("Features", (1, "feature", kinds.TYPE_MESSAGE, many, "Features.Entry"))
    entry = features.nested_type.add(name="Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=one)
    entry.field.add(
        name="value", number=2, type=kinds.TYPE_MESSAGE, label=one, type_name=".t.Feature"
    )
    message("Example", (1, "features", kinds.TYPE_MESSAGE, one, "Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


EXAMPLE = example_class()


def record(image):
    made = EXAMPLE()
    made.features.feature["shape"].int64_list.value.extend(image.shape)
    made.features.feature["data"].bytes_list.value.append(image.tobytes())
    return made.SerializeToString()


def write_records(path, records):
    with open(path, "wb") as file:
        writer = RecordWriter(file)
        for one in records:
            writer.write(one)


def images(n=5, size=16, channels=3):
    return np.random.default_rng(1).integers(0, 256, (n, channels, size, size), np.uint8)


def official_set(path, pixels, labels=LABELS):
    """The files that the official `dataset_tool.py` writes, but for the order of the images."""
    path.mkdir()
    for size in (size for size in SIZES if size <= pixels.shape[-1]):
        name = f"mine-r{size.bit_length() - 1:02}.tfrecords"
        write_records(path / name, (record(pyramid(image)[size]) for image in pixels))
    if labels is not None:
        with open(path / "mine-rxx.labels", "wb") as file:
            np.save(file, labels)
    return path


def as_folder(path, pixels, classes=None):
    files = {}
    for i, image in enumerate(pixels):
        file = io.BytesIO()
        Image.fromarray(image.transpose(1, 2, 0).squeeze()).save(file, "PNG")
        files[f"{'' if classes is None else f'{classes[i]}/'}{i:03}.png"] = file.getvalue()
    return folder(path, files)


def assert_same_store(found, wanted):
    """The same pixels and labels, byte for byte."""
    files = sorted(path.name for path in wanted.path.glob("*.npy"))
    assert sorted(path.name for path in found.path.glob("*.npy")) == files
    for name in files:
        assert (found.path / name).read_bytes() == (wanted.path / name).read_bytes()
    assert found.label_names == wanted.label_names
    assert found.meta.pixel_hashes == wanted.meta.pixel_hashes


def test_crc32c_is_castagnolis():
    assert crc32c(b"123456789") == 0xE3069283  # the check value of its definition
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"\xff" * 32) == 0x62A8AB43


@pytest.mark.parametrize("channels", [1, 3])
def test_tfrecords_give_the_store_of_the_same_pictures_as_a_folder(channels, tmp_path):
    pixels = images(channels=channels)
    path = official_set(tmp_path / "records", pixels, labels=None)
    wanted = prepare(as_folder(tmp_path / "images", pixels), tmp_path / "a", channels=channels)
    for source in (path, path / "mine-r04.tfrecords"):
        found = prepare(source, tmp_path / source.name / "b" if source == path else tmp_path / "c",
                        channels=channels)  # fmt: skip
        assert_same_store(found, wanted)


def test_one_hot_labels_of_tfrecords_are_classes_and_others_vectors(tmp_path):
    pixels = images()
    path = official_set(tmp_path / "records", pixels)
    found = cached_store(path, cache_dir=tmp_path / "cache", labels=True)
    assert (found.label_names, found.labels.tolist()) == (["0", "2"], [1, 0, 0, 1, 1])
    assert check(path, decode=False).labels == {"0": 2, "2": 3}
    numbers = np.float32([[0.5], [1], [2], [3], [4]])
    other = official_set(tmp_path / "numbers", pixels, numbers)
    store = cached_store(other / "mine-r04.tfrecords", cache_dir=tmp_path / "cache", labels=True)
    np.testing.assert_array_equal(store.labels, numbers)
    none = official_set(tmp_path / "none", pixels, np.zeros((5, 0), np.float32))
    assert prepare(none, tmp_path / "store").label_names == []


@pytest.mark.parametrize(("labels", "message"), [
    (LABELS[:4], "the labels in mine-rxx.labels are not float32 (images, numbers) of 5 images"),
    (LABELS * np.nan, "the labels in mine-rxx.labels are not all finite"),
    (LABELS.astype(np.float64), "are not float32"),
])  # fmt: skip
def test_labels_of_tfrecords_that_do_not_fit_are_refused_when_asked_for(labels, message, tmp_path):
    path = official_set(tmp_path / "records", images(), labels)
    with pytest.raises(ValueError, match="labels were asked for, but") as caught:
        cached_store(path, cache_dir=tmp_path / "cache", labels=True)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    found = prepare(path, tmp_path / "store")
    assert (found.num_images, found.label_names) == (5, [])


def test_a_record_with_a_wrong_checksum_is_left_out_with_the_reason(tmp_path):
    path = official_set(tmp_path / "records", images())
    file = path / "mine-r04.tfrecords"
    content = bytearray(file.read_bytes())
    content[len(content) // 5 * 2 + 100] ^= 1  # in the third of five records
    file.write_bytes(content)
    store = prepare(path, tmp_path / "store")
    (skipped,) = store.skipped
    assert skipped == ("000000002.tif", "the checksum of its record in mine-r04.tfrecords is wrong")
    assert store.labels.tolist() == [1, 0, 1, 1]  # the others keep theirs
    assert cached_store(path, cache_dir=tmp_path / "cache").num_images == 4


@pytest.mark.parametrize(("damage", "message"), [
    (lambda content: content[:-1], "is cut short; copy it again"),
    (lambda content: content[:5], "is cut short; copy it again"),
    (lambda content: b"\x01" + content[1:], "is damaged at byte 0, or not a TFRecord file"),
    (lambda content: b"x" * 1000, "is damaged at byte 0, or not a TFRecord file"),
])  # fmt: skip
def test_damaged_tfrecords_are_refused_in_one_line(damage, message, tmp_path):
    file = official_set(tmp_path / "records", images()) / "mine-r04.tfrecords"
    file.write_bytes(damage(file.read_bytes()))
    assert message in refused("check", tmp_path / "records")


@pytest.mark.parametrize("content", [
    b"", b"text", b"\x0a\xff\xff\xff\xff\x7f", b"\x0a\x00", record(images(1)[0])[:-9],
    record(images(1)[0].reshape(-1)), record(images(1)[0][:2]), record(np.zeros((3, 0, 4), "u1")),
])  # fmt: skip
def test_records_of_other_things_are_refused_in_one_line(content, tmp_path):
    write_records(tmp_path / "other.tfrecords", [content])
    found = refused("check", tmp_path / "other.tfrecords")
    assert "its record" in found or "not a record" in found


def test_several_sets_in_a_folder_must_be_chosen_from(tmp_path):
    path = official_set(tmp_path / "records", images())
    (path / "mine-r04.tfrecords").rename(path / "other-r04.tfrecords")
    (path / "copy-r04.tfrecords").write_bytes((path / "other-r04.tfrecords").read_bytes())
    assert "several sets (copy-r04.tfrecords, other-r04.tfrecords); give one file" in refused(
        "check", path
    )


def test_pictures_beside_a_database_are_the_source(tmp_path):
    path = official_set(tmp_path / "records", images())
    for name in ("b/c/d.png", "a.png"):
        folder(path, {name: png()})
        assert name in open_source(path).names


# LMDB


def database(path, entries, **options):
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(path), map_size=2**24, **options) as made, made.begin(write=True) as writing:
        for key, value in entries.items():
            writing.put(key, value)
    return path


def encoded(seed, kind):
    file = io.BytesIO()
    Image.open(io.BytesIO(png(seed=seed))).save(file, kind)
    return file.getvalue()


def test_an_lmdb_of_lsun_gives_the_store_of_the_same_files(tmp_path):
    kinds = {b"0a": "WEBP", b"1b": "PNG", b"2c.jpg": "JPEG"}
    files = {key: encoded(i, kind) for i, (key, kind) in enumerate(kinds.items())}
    path = database(tmp_path / "cat_lmdb", files)
    names = [key.decode() + ("" if b"." in key else ".webp") for key in files]
    wanted = prepare(folder(tmp_path / "images", dict(zip(names, files.values(), strict=True))),
                     tmp_path / "a")  # fmt: skip
    found = prepare(path, tmp_path / "b")
    assert_same_store(found, wanted)
    assert found.names == names
    assert check(path).num_good == check(path / "data.mdb", decode=False).num_good == 3


def test_other_lmdbs_are_refused_in_one_line(tmp_path):
    several = database(tmp_path / "rosinality", {b"8-00000": png(), b"length": b"1"})
    assert "has its images at several sizes" in refused("check", several)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "data.mdb").write_bytes(b"text" * 4096)
    assert "is not a sound LMDB" in refused("check", tmp_path / "bad")


@pytest.mark.parametrize("package", ["lmdb", "pyarrow"])
def test_a_package_that_is_missing_is_named(package, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    (tmp_path / "data.mdb" if package == "lmdb" else tmp_path / "a.parquet").write_bytes(b"")
    message = refused("check", tmp_path)
    assert f'need the package {package}; pip install "stylegan[databases]"' in message


# Parquet and Arrow


def table(rows, **columns):
    """Images and other columns, with what `datasets` notes about them."""
    pa = pytest.importorskip("pyarrow")
    cells = [{"bytes": png(seed=i), "path": None} for i in range(rows)]
    kinds = {"image": {"_type": "Image"}}
    kinds |= {name: {"_type": "ClassLabel", "names": ["cat", "dog"]} for name in columns}
    noted = json.dumps({"info": {"features": kinds}})
    return pa.table({"image": cells} | columns).replace_schema_metadata({"huggingface": noted})


def write_table(path, made, **options):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(made, path, **options)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, made.schema) as writer:
            writer.write_table(made, **options)
    return path


@pytest.mark.parametrize("name", ["data/train-00000-of-00001.parquet",
                                  "train/data-00000-of-00001.arrow"])  # fmt: skip
def test_tables_of_hugging_face_give_the_store_of_the_same_files(name, tmp_path):
    options = {"row_group_size": 2} if name.endswith("parquet") else {"max_chunksize": 2}
    write_table(tmp_path / "set" / name, table(5, label=[1, 0, 0, 1, 1]), **options)
    names = ["dog", "cat", "cat", "dog", "dog"]
    wanted = prepare(folder(tmp_path / "images", {f"{i}.png": png(seed=i) for i in range(5)}),
                     tmp_path / "a")  # fmt: skip
    found = prepare(tmp_path / "set", tmp_path / "b")
    assert found.meta.pixel_hashes == wanted.meta.pixel_hashes
    assert [found.label_names[i] for i in found.labels] == names
    assert found.names[3] == "train/000000003.png"
    assert check(tmp_path / "set").notes == ["images of column image, labels of column label"]


def test_splits_and_columns_of_a_table_are_chosen_with_include(tmp_path):
    for split, n in (("train", 4), ("test", 2)):
        made = table(n, fine=[i % 2 for i in range(n)], coarse=[1] * n)
        write_table(tmp_path / "set" / f"{split}-00000-of-00001.parquet", made)
    found = check(tmp_path / "set")
    assert (found.num_good, found.label_names) == (6, [])
    assert "several columns hold classes (fine, coarse); choose one" in found.notes[1]
    assert found.notes[2] == "2 splits together (test, train); --include takes some"
    store = prepare(tmp_path / "set", tmp_path / "store", include=["train", "label=fine"])
    assert (store.num_images, store.labels.tolist()) == (4, [0, 1, 0, 1])
    for include, message in (("image=fine", "fine does not hold images; columns: image, fine, coa"),
                             ("label=x", "there is no column x for labels; columns: image"),
                             ("val", "no sub-folder 'val'")):  # fmt: skip
        assert message in refused("check", tmp_path / "set", "--include", include)


def test_tables_without_one_column_of_images_are_refused_in_one_line(tmp_path):
    pa = pytest.importorskip("pyarrow")
    path = write_table(tmp_path / "a.parquet", pa.table({"a": [b"x"], "b": [b"y"]}))
    assert "several columns hold images; choose one with --include image=" in refused("check", path)
    path = write_table(tmp_path / "b.parquet", pa.table({"a": [1]}))
    assert "no column holds images" in refused("check", path)
    path.write_bytes(b"text")
    assert refused("check", path).startswith(f"Error: {path}: ")
    path = write_table(tmp_path / "c.parquet", pa.table({"image": [{"bytes": None, "path": "x"}]}))
    assert "its image is not in the file" in stylegan("check", path).stdout


# The way back


@pytest.mark.parametrize("out", ["out", "out.zip"])
@pytest.mark.parametrize("classes", [None, ["dog", "cat", "dog", "ox", "ox"]])
def test_what_is_exported_gives_the_same_store_again(out, classes, tmp_path):
    store = prepare(as_folder(tmp_path / "images", images(), classes), tmp_path / "a")
    export(store, tmp_path / out)
    again = prepare(tmp_path / out, tmp_path / "b")
    assert_same_store(again, store)
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_an_exported_zip_is_laid_out_for_stylegan2_ada(tmp_path):
    path = official_set(tmp_path / "records", images(), np.float32([[i, 0.5] for i in range(5)]))
    prepare(path, tmp_path / "a")
    text = told("export-data", tmp_path / "a", tmp_path / "x" / "a.zip", "--resolution", 8)
    assert text.endswith("a.zip: 5 images of 8x8, 2 labels\n")
    with zipfile.ZipFile(tmp_path / "x" / "a.zip") as archive:
        labels = json.loads(archive.read("dataset.json"))["labels"]
        assert labels[3] == ["00000/img00000003.png", [3.0, 0.5]]
        with Image.open(io.BytesIO(archive.read(labels[3][0]))) as image:
            assert (image.size, image.mode) == ((8, 8), "RGB")
            wanted = Store(tmp_path / "a").images(8)[3].transpose(1, 2, 0)
            np.testing.assert_array_equal(np.asarray(image), wanted)
    again = prepare(tmp_path / "x" / "a.zip", tmp_path / "b")
    np.testing.assert_array_equal(again.labels, Store(tmp_path / "a").labels)


def test_an_export_overwrites_nothing(tmp_path):
    store = prepare(as_folder(tmp_path / "images", images()), tmp_path / "a")
    (tmp_path / "out.zip").write_bytes(b"mine")
    assert "exists; pass --overwrite" in refused("export-data", store.path, tmp_path / "out.zip")
    assert "is not empty" in refused("export-data", store.path, tmp_path / "images")
    assert "has no resolution 32" in refused(
        "export-data", store.path, tmp_path / "b", "--resolution", 32
    )
    assert "there is no store at" in refused("export-data", tmp_path / "images", tmp_path / "c")
    assert (tmp_path / "out.zip").read_bytes() == b"mine"
    told("export-data", store.path, tmp_path / "out.zip", "--overwrite")
    assert open_source(tmp_path / "out.zip").names[0] == "00000/img00000000.png"
