"""A run goes on with what it was trained on, and is refused anything else."""

import pytest
from helpers.pictures import encoded, folder, heic, png, store_of
from helpers.tiny_training import run, tiny_config

from stylegan.data import Preparation, Store, cached_store, images
from stylegan.data import cache as cache_module


def labeled(root, moved=False, renamed=False):
    """A conditional set of six pictures of two classes, whose order does not depend on these."""
    names = [f"{'ab'[i > (1 if moved else 2)]}/{i}.png" for i in range(6)]
    files = {name.replace("b/", "c/" if renamed else "b/"): png(seed=i)
             for i, name in enumerate(names)}  # fmt: skip
    return store_of(root, files)


@pytest.mark.parametrize("change", ["moved", "renamed"])
def test_a_conditional_run_of_pictures_in_other_classes_is_refused(change, tmp_path):
    config = tiny_config(data={"labels": True}, schedule={"total_kimg": 0.036})
    before, after = labeled(tmp_path / "1"), labeled(tmp_path / "2", **{change: True})
    assert before.identity(16) == after.identity(16)
    run(config, before, tmp_path / "run", stop_at=20)
    with pytest.raises(ValueError, match="on other images or classes than images holds"):
        run(config, after, tmp_path / "run")
    assert run(config, before, tmp_path / "run").finished


def test_a_run_on_the_averages_of_larger_pictures_knows_them_from_the_same_made_small(tmp_path):
    large = store_of(tmp_path / "1", {f"{i}.png": png(32, 32, seed=i) for i in range(4)})
    averages = enumerate(large.images(16))
    small = {f"{i}.png": encoded(pixels.transpose(1, 2, 0)) for i, pixels in averages}
    other = store_of(tmp_path / "2", small)
    assert large.identity(16) == other.identity(16)
    config = tiny_config(schedule={"total_kimg": 0.036})
    run(config, large, tmp_path / "run", stop_at=20)
    with pytest.raises(ValueError, match="on other images or classes"):
        run(config, other, tmp_path / "run")
    assert run(config, large, tmp_path / "run").finished


def test_the_store_before_stays_and_a_refusal_names_what_cannot_be_used(tmp_path):
    source = folder(tmp_path / "in", {f"{i}.png": png(seed=i) for i in range(4)})
    cache, config = tmp_path / "cache", tiny_config(schedule={"total_kimg": 0.036})
    before = cached_store(source, Preparation(resolution=16), cache_dir=cache)
    run(config, before, tmp_path / "run", stop_at=20)
    (source / "2.png").write_bytes(b"")
    after = cached_store(source, Preparation(resolution=16), cache_dir=cache)
    changes = r"\(cannot be used: 2\.png \(the file is empty\)\).* --init-from"
    with pytest.raises(ValueError, match=changes):
        run(config, after, tmp_path / "run")
    assert run(config, Store(before.path), tmp_path / "run").finished


def test_a_run_is_refused_pictures_that_have_become_readable(tmp_path, monkeypatch):
    source = folder(tmp_path / "in", {"0.png": png(), "1.heic": heic(seed=1)})
    cache, config = tmp_path / "cache", tiny_config(schedule={"total_kimg": 0.036})
    with monkeypatch.context() as without_heif:
        for module in (images, cache_module):
            without_heif.setattr(module, "formats", lambda: ("PNG", "JPEG"))
        before = cached_store(source, cache_dir=cache)
    assert before.skipped == [("1.heic", "a HEIC image; pip install pillow-heif to read it")]
    run(config, before, tmp_path / "run", stop_at=20)
    after = cached_store(source, cache_dir=cache)
    assert after.names == ["0.png", "1.heic"]
    with pytest.raises(ValueError, match="on other images or classes than in holds"):
        run(config, after, tmp_path / "run")
    assert run(config, before, tmp_path / "run").finished
