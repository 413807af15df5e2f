"""Labels in files: classes and vectors; what is refused."""

import json
import unicodedata

import numpy as np
import pytest
import torch
from helpers.pictures import archive, names_of, png, store_of, write_folder
from helpers.tiny_generators import LABELED, loaded_of, random_generator
from helpers.tiny_training import resumed, tiny_config, train_tiny

from stylegan import load_generator
from stylegan.data import batches, cached_store, check, open_source, prepare
from stylegan.data.labels import match_labels, read_labels
from stylegan.training.run import set_label_dim

IMAGES = {"00000/img0.png": png(), "00000/img1.png": png(seed=1), "00001/img2.png": png(seed=2)}


def with_json(labels, names=tuple(IMAGES), **more):
    pairs = [list(pair) for pair in zip(names, labels, strict=True)]
    return IMAGES | {"dataset.json": json.dumps({"labels": pairs, **more}).encode()}


def with_csv(*lines):
    return IMAGES | {"labels.csv": "\n".join(lines).encode()}


def fault_of(tmp_path, files):
    """Why the labels cannot be used, which is one line, told before anything is written."""
    path = write_folder(tmp_path / "images", files)
    with pytest.raises(ValueError, match="labels were asked for, but ") as caught:
        cached_store(path, cache_dir=tmp_path / "cache", labels=True)
    assert not (tmp_path / "cache").exists()
    assert "\n" not in str(caught.value)
    assert check(path).label_names == cached_store(path, cache_dir=tmp_path / "c").label_names == []
    return str(caught.value)


@pytest.mark.parametrize("make", [write_folder, archive])
def test_dataset_json_classes_replace_sub_folders(make, tmp_path):
    path = make(tmp_path / "images.zip", with_json([12, 3, 12]))
    store = prepare(path, tmp_path / "store")
    assert (store.label_names, store.labels.tolist()) == (["3", "12"], [1, 0, 1])
    found = check(path)
    assert (found.label_names, found.labels.counts()) == (["3", "12"], {"3": 1, "12": 2})
    assert found.notes == ["labels are those in dataset.json, not the sub-folders"]
    assert "labels with fewer than 50 images are learned poorly: 1 3, 2 12" in found.lines()
    assert set_label_dim(tiny_config(data={"labels": True}), found).network.label_dim == 2


def test_dataset_json_vectors_are_stored_and_change_training_hash(tmp_path):
    numbers = [[0.25, -1], [0, 2], [1, 0.5]]
    store = store_of(tmp_path, with_json(numbers))
    assert (store.labels.dtype, store.labels.shape) == (np.float32, (3, 2))
    assert store.one_hot(store.labels[[2, 0]]).tolist() == [numbers[2], numbers[0]]
    assert store.sample_labels(6).tolist() == [numbers[i] for i in (0, 0, 1, 1, 2, 2)]
    _, labels = next(batches(store, 8, batch_size=3, start=0, seed=0, labels=True))
    assert sorted(labels.tolist()) == sorted(numbers)
    other = store_of(tmp_path / "other", with_json([[0.25, -1], [0, 2], [1, 0.75]]))
    assert store.pixel_hash(16) == other.pixel_hash(16)
    known = [one.training_hash(16, labels=True) for one in (store, other)]
    assert known[0] != known[1]
    assert check(tmp_path / "images").labels.counts() == {"0": 2, "1": 3}
    assert (
        set_label_dim(tiny_config(data={"labels": True}), check(store.path)).network.label_dim == 2
    )


@pytest.mark.parametrize("lines", [
    ("file,label", "00000/img0.png,cat", "00000/img1.png,dog", "00001/img2.png, cat"),
    ("00000\\img0.png,cat", "00000/img1.png,dog", "", "00001/img2.png,cat"),
    ("\ufefffile;kind\r", "00000/img0.png;cat\r", "00000/img1.png;dog\r", "00001/img2.png;cat"),
])  # fmt: skip
def test_labels_csv_names_the_class_of_each_image(lines, tmp_path):
    store = store_of(tmp_path, with_csv(*lines))
    assert (store.label_names, store.labels.tolist()) == (["cat", "dog"], [0, 1, 0])


def test_labels_csv_with_columns_gives_named_vectors(tmp_path):
    columns = with_csv(
        "file,smile,age", "00000/img0.png,0.7,30", "00000/img1.png,0,4", "00001/img2.png,1,5.5"
    )
    store = store_of(tmp_path / "columns", columns)
    assert store.label_names == ["smile", "age"]
    np.testing.assert_array_equal(store.labels, np.float32([[0.7, 30], [0, 4], [1, 5.5]]))


@pytest.mark.parametrize(("files", "message"), [
    (with_json([1, 2, 3]) | with_csv("00000/img0.png,1"), "in dataset.json and in labels.csv"),
    (with_json([0, 1], list(IMAGES)[:2]), "1 image without a label: 00001/img2.png"),
    (with_json([0, 1, 2], label_names=["a", "b"]), "class 2 has no name"),
    (with_json([[0.5, 1], [1, 1], [2]]), "00001/img2.png has 1 numbers, but the first image has 2"),
    (with_json([[0.5], [float("nan")], [2]]), "numbers of 00000/img1.png must be finite, got nan"),
    (with_json([[0.5], [1e39], [2]]), "numbers of 00000/img1.png must be finite, got 1e+39"),
    (with_json([0, 1, 2], ["00000/img0.png"] * 3), "00000/img0.png has two labels"),
    (IMAGES | {"dataset.json": b"[1, 2"}, "Expecting"),
    (with_json([[], [], []]), "labels must have at least one number"),
    (with_json(["a", "b", "a"], label_names=["a", "c"]), "label_names needs class numbers"),
    (with_csv("file,a,b", "00000/img0.png,1,2", "00000/img1.png,1"), "expected 3 columns, got 2"),
    (with_csv("img/0.png,a", "img/1.png,b"), "3 images without a label: 00000/img0.png"),
    (with_csv("img/0.png,a", "img/1.png,b"), "its first name is img/0.png"),
    *((with_json([0, 1, 1], label_names=names), "label_names must be a list")
      for names in ("cat", [None, "dog"], {"cat": 0, "dog": 1}, 3)),
])  # fmt: skip
def test_cached_store_rejects_unusable_labels_in_one_line(files, message, tmp_path):
    assert message in fault_of(tmp_path, files)


def test_labels_csv_with_a_different_number_per_image_is_rejected(tmp_path):
    """They would be as many classes. Digits are classes, and so are numbers that have a name."""
    images = {f"{i}.png": png(seed=i) for i in range(12)}
    for j, rows in enumerate([range(12), [i + 0.5 for i in range(12)], ["1e3", *range(11)]]):
        csv = "\n".join(["file,age", *(f"{i}.png,{n}" for i, n in enumerate(rows))])
        found = fault_of(tmp_path / str(j), images | {"labels.csv": csv.encode()})
        assert "12 different numbers of 12 images" in found
        assert '[["a.png", [0.3]], ...]' in found
    for labels, more in [
        ([i % 10 for i in range(12)], {}),
        ([*range(12)], {"label_names": [*"abcdefghijkl"]}),
        ([f"id{i}" for i in range(12)], {}),
        ([[i / 10] for i in range(12)], {}),
    ]:
        pairs = [[name, label] for name, label in zip(images, labels, strict=True)]
        content = json.dumps({"labels": pairs, **more}).encode()
        assert check(
            write_folder(tmp_path / "good", images | {"dataset.json": content})
        ).label_names


@pytest.mark.parametrize(("names", "warned"), [
    (("train", "test"), True), (("Train", "val", "test"), True), (("train", "cat"), False),
    (("train",), False),
])  # fmt: skip
def test_check_warns_of_train_and_test_sub_folders(names, warned, tmp_path):
    found = check(write_folder(tmp_path / "images", {f"{name}/a.png": png() for name in names}))
    assert any("are splits of a data set" in note for note in found.notes) is warned


def test_cached_store_depends_on_the_labels(tmp_path):
    path = write_folder(tmp_path / "images", with_json([0, 1, 1]))
    first = cached_store(path, cache_dir=tmp_path / "cache", labels=True)
    write_folder(path, {"dataset.json": with_json([1, 1, 0])["dataset.json"]})
    second = cached_store(path, cache_dir=tmp_path / "cache", labels=True)
    assert (first.labels.tolist(), second.labels.tolist()) == ([0, 1, 1], [1, 1, 0])


def test_label_files_with_too_many_values_are_refused_before_they_are_parsed(monkeypatch):
    monkeypatch.setattr("stylegan.data.labels.MAX_LABEL_VALUES", 1000)
    monkeypatch.setattr("json.loads", lambda _: pytest.fail("is parsed"))
    with pytest.raises(ValueError, match="2,001 values, at most 1,000"):
        read_labels("dataset.json", b'{"labels": ' + b"[]," * 1000, ["0.png"])


def test_label_vectors_resume_bit_identically(tmp_path):
    files = {f"{i}.png": png(seed=i) for i in range(8)}

    def stored(name, scale):
        rows = [f"{file},{scale * i},{1 - scale * i}" for i, file in enumerate(files)]
        labels = "\n".join(["file,sad,smile", *rows]).encode()
        return store_of(tmp_path / name, files | {"labels.csv": labels})

    store = stored("1", 0.3)
    schedule = {"total_kimg": 0.036}
    config = tiny_config(data={"labels": True}, schedule=schedule, batch_gpu=2)
    resumed(config, store, tmp_path, 20)
    loaded = load_generator(tmp_path / "run")
    assert loaded.label_names == ("sad", "smile")
    assert torch.equal(loaded.label_rows, torch.from_numpy(store.sample_labels(32)))
    assert loaded.label("smile=0.25,0=0.75").tolist() == [[0.75, 0.25]]
    with pytest.raises(ValueError, match="was trained on other"):
        train_tiny(config, stored("2", 0.4), tmp_path / "run")


def test_match_labels_ignores_unicode_normalization_of_file_names(tmp_path):
    composed, decomposed = (unicodedata.normalize(form, "über/é.png") for form in ("NFC", "NFD"))
    assert composed != decomposed
    for i, (file, label) in enumerate([(decomposed, composed), (composed, decomposed)]):
        lines = f"{label},wild\nb.png,tame".encode()
        files = {file: png(), "b.png": png(seed=1), "labels.csv": lines}
        store = store_of(tmp_path / str(i), files)
        assert dict(zip(names_of(store), store.labels, strict=True))[file] == 1
        assert store.label_names == ["tame", "wild"]


def test_classes_and_folders_compare_by_composed_letters(tmp_path):
    composed, decomposed = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    assert match_labels([decomposed, "thé"], [composed]) == [0, None]
    folder = write_folder(tmp_path / "images", {f"{decomposed}/a.png": png(), "b/b.png": png()})
    assert open_source(folder, include=[composed]).names == [f"{decomposed}/a.png"]
    generator = random_generator(LABELED)
    loaded = loaded_of(generator, label_names=("b", decomposed, "c"))
    assert loaded.class_number(composed) == 1


@pytest.mark.parametrize("make", [write_folder, archive])
def test_prepare_looks_inside_a_single_top_folder(make, tmp_path):
    inside = {f"photos/{name}": content for name, content in IMAGES.items()}
    store = prepare(make(tmp_path / "photos.zip", inside), tmp_path / "a")
    assert store.label_names == ["00000", "00001"]
    labeled = {f"photos/{name}": content for name, content in with_json([5, 6, 5]).items()}
    findings = check(make(tmp_path / "labeled.zip", labeled))
    assert (findings.label_names, findings.ignored) == (["5", "6"], [])
    assert findings.notes == ["labels are those in photos/dataset.json, not the sub-folders"]
    flat = {f"photos/{i}.png": png(seed=i) for i in range(2)}
    assert check(make(tmp_path / "flat.zip", flat)).label_names == []  # not one class, photos
