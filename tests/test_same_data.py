"""A run goes on with what it was trained on, and is refused anything else."""

import re

import pytest
from helpers.pictures import encoded, heic, names_of, png, store_of, write_folder
from helpers.tiny_training import tiny_config, train_tiny

from stylegan.data import Preparation, Store, cached_store, images
from stylegan.data import cache as cache_module
from stylegan.utils import distributed


def assert_refused(before, after, words, folder, **options):
    """A run of the images before goes on with them alone."""
    config = tiny_config(schedule={"total_kimg": 0.036}, **options)
    train_tiny(config, before, folder / "run", stop_at=20)
    with pytest.raises(ValueError, match=words):
        train_tiny(config, after, folder / "run")
    assert train_tiny(config, Store(before.path), folder / "run").finished


def labeled(root, moved=False, renamed=False):
    """A conditional set of six pictures of two classes, whose order does not depend on these."""
    names = [f"{'ab'[i > (1 if moved else 2)]}/{i}.png" for i in range(6)]
    files = {name.replace("b/", "c/" if renamed else "b/"): png(seed=i)
             for i, name in enumerate(names)}  # fmt: skip
    return store_of(root, files)


def test_start_refuses_other_images_on_another_process(tmp_path, monkeypatch):
    store = store_of(tmp_path / "1", {f"{i}.png": png(seed=i) for i in range(8)})
    digest = store.training_hash(16, labels=False)

    def gather(value):
        return [value, ("another", 9)] if value == (digest, 8) else [value]

    monkeypatch.setattr(distributed, "all_gather", gather)
    with pytest.raises(ValueError, match=r"different images \(8, 9, in order of ranks\)"):
        train_tiny(tiny_config(), store, tmp_path / "run")


@pytest.mark.parametrize("change", ["moved", "renamed"])
def test_resume_refuses_images_with_other_labels(change, tmp_path):
    before, after = labeled(tmp_path / "1"), labeled(tmp_path / "2", **{change: True})
    assert before.pixel_hash(16) == after.pixel_hash(16)
    words = "other images or classes than images"
    assert_refused(before, after, words, tmp_path, data={"labels": True})


def test_resume_refuses_small_images_equal_to_averages_of_large_ones(tmp_path):
    large = store_of(tmp_path / "1", {f"{i}.png": png(32, 32, seed=i) for i in range(4)})
    averages = enumerate(large.images(16))
    small = {f"{i}.png": encoded(pixels.transpose(1, 2, 0)) for i, pixels in averages}
    other = store_of(tmp_path / "2", small)
    assert large.pixel_hash(16) == other.pixel_hash(16)
    assert_refused(large, other, "other images or classes", tmp_path)


def test_resume_refusal_names_images_that_became_unusable(tmp_path):
    source = write_folder(tmp_path / "in", {f"{i}.png": png(seed=i) for i in range(4)})
    cache = tmp_path / "cache"
    before = cached_store(source, Preparation(resolution=16), cache_dir=cache)
    (source / "2.png").write_bytes(b"")
    after = cached_store(source, Preparation(resolution=16), cache_dir=cache)
    words = r"now \(4 images then, 3 now; .*2\.png \(the file is empty\)\).* --init-from"
    assert_refused(before, after, words, tmp_path)


def test_resume_refusal_of_more_images_names_a_command_before_any_step(tmp_path, monkeypatch):
    before = store_of(tmp_path / "1", {f"{i}.png": png(seed=i) for i in range(4)})
    after = store_of(tmp_path / "2", {"a.png": b"", **{f"{i}.png": png(seed=i) for i in range(6)}})
    config = tiny_config(schedule={"total_kimg": 0.036})
    run = tmp_path / "my run"
    train_tiny(config, before, run, stop_at=20)
    (tmp_path / "my run-2").mkdir()
    monkeypatch.setattr("stylegan.training.run.possible_costs", None)
    words = f"--data {after.origin} --init-from '{run}' --out '{run}-3'"
    pattern = rf"now \(4 images then, 6 now\); use .*: stylegan train {re.escape(words)}$"
    with pytest.raises(ValueError, match=pattern):
        train_tiny(config, after, run, preflight=True)


def test_resume_refuses_images_that_became_readable(tmp_path, monkeypatch):
    source = write_folder(tmp_path / "in", {"0.png": png(), "1.heic": heic(seed=1)})
    cache = tmp_path / "cache"
    with monkeypatch.context() as without_heif:
        for module in (images, cache_module):
            without_heif.setattr(module, "formats", lambda: ("PNG", "JPEG"))
        before = cached_store(source, cache_dir=cache)
    assert before.skipped == [("1.heic", "a HEIC image; pip install pillow-heif to read it")]
    after = cached_store(source, cache_dir=cache)
    assert names_of(after) == ["0.png", "1.heic"]
    assert_refused(before, after, "other images or classes", tmp_path)
