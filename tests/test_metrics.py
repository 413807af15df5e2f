"""Statistics against closed forms, the same with any number of processes, and the command."""

import json

import numpy as np
import pytest
import torch
from commands import refused, told
from measuring_processes import IMAGES, WORLDS, measured, work
from processes import free_port, spawned
from tiny_training import differing, run, tiny_config, tiny_store, write_pictures

from stylegan.data import cached_store
from stylegan.files.loaded import weights_sha256
from stylegan.files.loading import load_generator
from stylegan.metrics import (
    Moments,
    Request,
    Result,
    Subject,
    Tools,
    evaluate,
    frechet_distance,
    parse,
    score_name,
)
from stylegan.metrics.cache import Rows, entry
from stylegan.metrics.engine import NAMES, kind_of
from stylegan.metrics.evaluation import evaluation_of
from stylegan.metrics.features import as_rgb
from stylegan.run_folder import RunFolder
from stylegan.schedule import Stage
from stylegan.training import Evaluation, TrainState


def gaussian(dim, rank, seed):
    random = np.random.default_rng(seed)
    root = random.standard_normal((dim, rank))
    return random.standard_normal(dim), root @ root.T


def closed_form(mean1, covariance1, mean2, covariance2):
    """Of Gaussians whose covariances commute: |m1 - m2|^2 + |C1^(1/2) - C2^(1/2)|^2."""
    v1, v2 = (np.sqrt(np.linalg.eigvalsh(c).clip(0)) for c in (covariance1, covariance2))
    return ((mean1 - mean2) ** 2).sum() + ((v1 - v2) ** 2).sum()


# Frechet distance


def test_frechet_distance_of_commuting_gaussians_is_the_closed_form():
    rotation, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 20)))
    values = np.linspace(0.1, 4, 20)
    first = rotation * values @ rotation.T
    second = rotation * (values**2 + 1) @ rotation.T  # in the same order
    mean1, mean2 = np.zeros(20), np.linspace(-1, 1, 20)
    found = frechet_distance(mean1, first, mean2, second)
    assert found == pytest.approx(closed_form(mean1, first, mean2, second), rel=1e-10)


def test_frechet_distance_is_exact_for_singular_covariances():
    a, b = np.diag([4.0, 1, 0, 0]), np.diag([1.0, 0, 9, 0])
    assert frechet_distance(np.zeros(4), a, np.zeros(4), b) == pytest.approx(1 + 1 + 9, abs=1e-12)
    assert frechet_distance(np.zeros(4), a, np.ones(4), 0 * a) == pytest.approx(4 + 5, abs=1e-12)


@pytest.mark.parametrize("rank", [3, 30])
def test_frechet_distance_to_itself_is_zero_and_it_is_symmetric(rank):
    first, second = gaussian(30, rank, 1), gaussian(30, rank, 2)
    assert frechet_distance(*first, *first) == pytest.approx(0, abs=1e-9)
    there, back = frechet_distance(*first, *second), frechet_distance(*second, *first)
    assert there == pytest.approx(back, rel=1e-10)
    assert there > 1


def test_frechet_distance_grows_by_the_squared_distance_of_means():
    mean, covariance = gaussian(8, 8, 3)
    shift = np.arange(8.0)
    found = frechet_distance(mean, covariance, mean + shift, covariance)
    assert found == pytest.approx((shift**2).sum(), rel=1e-9)


# Moments


@pytest.mark.parametrize("batches", [[50], [1] * 50, [7, 1, 30, 12]])
def test_moments_equal_numpy_in_any_batches_also_far_from_zero(batches):
    rows = torch.randn(50, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = rows + 1e6
    moments = Moments(6)
    for some in rows.split(batches):
        moments.add(some)
    assert moments.count == 50
    np.testing.assert_allclose(moments.mean(), rows.numpy().mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(
        moments.covariance(), np.cov(rows.numpy(), rowvar=False), rtol=1e-7, atol=1e-9
    )


def test_a_covariance_of_one_image_is_refused():
    moments = Moments(2)
    moments.add(torch.ones(1, 2))
    with pytest.raises(ValueError, match="at least 2 images, not 1"):
        moments.covariance()


# Processes


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    pictures = write_pictures(folder / "pictures", n=IMAGES, size=32)
    return cached_store(pictures, resolution=32, cache_dir=folder / "cache")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, store):
    """Where three processes, and the first two again, have left their results."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "store").symlink_to(store.path)
    ports = [free_port() for _ in WORLDS]
    spawned(work, (ports, str(folder)), WORLDS[0])
    return folder


@pytest.fixture(scope="module")
def alone(folder):
    return measured(folder)


@pytest.mark.parametrize("world", WORLDS)
def test_statistics_of_several_processes_are_those_of_one(world, folder, alone):
    results = [torch.load(folder / f"{world}-{rank}.pt") for rank in range(world)]
    for result in results:
        assert result["count"] == alone["count"] == IMAGES
        for name in ("mean", "covariance"):
            torch.testing.assert_close(result[name], alone[name], rtol=1e-6, atol=1e-9)
    for ours, theirs in zip(results[0]["arrays"], alone["arrays"], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    assert results[1]["arrays"] == [None] * 4


@pytest.mark.parametrize("world", WORLDS)
def test_the_error_of_one_process_is_the_error_of_all(world, folder):
    results = [torch.load(folder / f"{world}-{rank}.pt") for rank in range(world)]
    assert [result["in all"] for result in results] == ["the last has no room"] * world
    assert [result["from first"] for result in results] == ["the first knows"] * world
    assert [result["ranks"] for result in results] == list(range(world))
    assert [result["first"] for result in results] == [0] * world
    notes = ["swd9 could not be measured: the last disk is full"]
    assert [result["full disk"] for result in results] == [([], notes)] * world


# Images, names, the cache


def test_gray_is_repeated_and_transparency_shows_white():
    gray = torch.arange(4, dtype=torch.uint8).reshape(1, 1, 2, 2)
    assert as_rgb(gray)[0].tolist() == [gray[0, 0].tolist()] * 3
    pixels = torch.tensor([[10, 20, 30, 255], [10, 20, 30, 0], [100, 0, 255, 51]])
    images = pixels.to(torch.uint8).reshape(3, 4, 1, 1)
    expected = [[10, 20, 30], [255, 255, 255], [224, 204, 255]]
    assert as_rgb(images).flatten(1).tolist() == expected
    assert as_rgb(images.float()).flatten(1).tolist() == expected


def test_names_of_metrics_carry_the_number_of_images():
    assert parse("fid50k, fid ,kid5k,ppl-w-end10k,swd") == [
        Request("fid", 50_000),
        Request("kid", 5_000),
        Request("ppl-w-end", 10_000),
        Request("swd", 16_384),
    ]
    names = ["fid50k", "swd16384", "eff-pr777", "ppl-z-full100k"]
    assert [request.name for request in parse(",".join(names))] == names


@pytest.mark.parametrize("name", ["", "fid50m", "fidd", "50k", "fid-50k", "fid1", "fid0k"])
def test_what_is_no_metric_is_refused(name):
    with pytest.raises(ValueError, match=r"there is no metric|at least 2 images"):
        parse(name)


def test_what_was_withdrawn_says_what_to_use_and_its_results_are_known():
    with pytest.raises(ValueError, match=r"own-pr was withdrawn.* use eff-pr \(pip install"):
        parse("own-pr2k")
    known = kind_of("own-fd2k")
    assert known is not None
    assert (known.best_by, known.lower_is_better) == ("own-fd", True)
    assert kind_of("other5k") is kind_of("50k") is None


def test_scores_are_named_after_the_metric_and_where_that_is_not_enough_the_value():
    names = [score_name("fid50k", "fid"), score_name("pr5k", "recall"), score_name("is2", "is")]
    assert names == ["fid50k", "pr5k/recall", "is2"]


def test_an_entry_of_the_cache_is_read_back_and_a_damaged_one_is_told(tmp_path):
    notes = []
    array = np.random.default_rng(0).standard_normal((5, 7))
    place = entry(tmp_path / "new", "x", {"data": "a"}, "<f8", (5, 7))
    assert place.read(notes.append) is None
    place.write(array)
    np.testing.assert_array_equal(place.read(notes.append), array)
    assert notes == []
    sound = place.path.read_bytes()
    for damaged in (sound[:-1], sound + b"x", b"y" + sound[1:], b""):
        place.path.write_bytes(damaged)
        assert place.read(notes.append) is None
    assert notes == [f"{place.path} is damaged and made again"] * 4
    other = entry(tmp_path / "new", "x", {"data": "b"}, "<f8", (5, 7))
    assert other.path != place.path
    place.write(array)
    assert list((tmp_path / "new").iterdir()) == [place.path]


def test_rows_wait_in_a_file(tmp_path):
    rows, collected = torch.randn(9, 4), Rows(9, 4, tmp_path)
    for some in rows.split(2):
        collected.add(some)
    np.testing.assert_array_equal(collected.gathered(), rows.numpy())
    assert list(tmp_path.iterdir()) == []  # it has no name, so nothing is left behind


# The engine


def test_a_metric_without_its_data_is_told_and_the_message_says_what_to_do(tmp_path):
    subject, notes = Subject(load_generator("emoji32")), []
    results = evaluate(subject, parse("fid4,kid4"), Tools(tmp_path), tell=notes.append)
    assert list(results) == []
    assert notes == [
        "fid4, kid4 could not be measured: this metric compares with real images; pass --data"
    ]


def test_a_line_is_json_without_nan():
    result = Result("fid2", {"fid": float("nan")}, {"a": (1.5, float("inf")), "b": "x"})
    assert json.loads(result.line()) == {
        "metric": "fid2",
        "values": {"fid": None},
        "protocol": {"a": [1.5, None], "b": "x"},
    }


def test_the_hash_of_a_generator_is_of_its_weights_alone():
    generator, same = load_generator("emoji32"), load_generator("emoji32")
    assert weights_sha256(generator) == weights_sha256(same)
    with torch.no_grad():
        same.w_avg[0] += 1
    assert weights_sha256(generator) != weights_sha256(same)


# Training


def test_the_best_is_sought_among_those_of_the_same_resolution():
    evaluation = Evaluation(lambda state, stage: {}, "fid5k")
    coarse, fine = ({"resolution": r, "fid5k": v} for r, v in ((8, 1.0), (16, 9.0)))
    assert evaluation.is_best([coarse])
    assert evaluation.is_best([coarse, fine])
    assert not evaluation.is_best([coarse, fine, fine])
    assert evaluation.is_best([coarse, fine, {"resolution": 16, "fid5k": 8.0}])
    assert not evaluation.is_best([coarse, {"resolution": 16}])  # could not be measured


@pytest.mark.parametrize(
    ("every_kimg", "expected"), [(0.012, [12, 24, 36, 48, 60]), (0.05, [52, 60])]
)
def test_measuring_has_an_interval_of_its_own_and_none_is_lost_or_repeated_by_a_stop(
    every_kimg, expected, tmp_path
):
    store, measured, states = tiny_store(tmp_path), {"once": [], "twice": []}, {}
    config = tiny_config(schedule={"total_kimg": 0.06, "tick_kimg": {4: 0.02}})
    for name, stop_at in (("once", None), ("twice", 24), ("twice", 52), ("twice", None)):

        def measure(state, stage, name=name):
            measured[name].append(state.images_seen)
            return {"x": state.generator_ema.w_avg.norm().item()}

        evaluation = Evaluation(measure, "x", every_kimg=every_kimg)
        state = run(config, store, tmp_path / name, stop_at, evaluation=evaluation)
        states[name] = state.to_payload()
    assert measured == {"once": expected, "twice": expected}
    assert [score["images_seen"] for score in states["once"]["scores"]] == expected
    assert differing(states["once"], states["twice"]) == []
    for name in measured:
        files = sorted(path.name for path in (tmp_path / name).glob("generator-*.pt"))
        assert files == ["generator-000000040.pt", "generator-000000060.pt", "generator-best.pt"]


def test_the_first_metric_tells_which_generator_is_best(tmp_path):
    store = tiny_store(tmp_path)
    for names, best_by, lower in (("pr5k,fid", "pr5k/precision", False), ("swd", "swd16384", True)):
        found = evaluation_of(names, 2.5, RunFolder(tmp_path), False, store, Tools(tmp_path))
        assert (found.best_by, found.lower_is_better, found.every_kimg) == (best_by, lower, 2.5)


def test_results_that_cannot_be_written_are_told_and_training_goes_on(tmp_path):
    store, told = tiny_store(tmp_path), []
    tools = Tools(tmp_path, tell=told.append)
    found = evaluation_of("swd14", None, RunFolder(tmp_path / "gone"), False, store, tools)
    state = TrainState.create(tiny_config())
    assert found.measure(state, Stage(16, 1.0, 4, 1e-3, 1e-3, 1.0))["swd14"] > 0
    assert told == ["could not write metrics.jsonl: No such file or directory; going on"]


# The command


def test_the_help_knows_every_metric():
    found = told("metrics", "--help")
    for kind in NAMES:
        assert kind in "".join(found.split())  # lines are broken at hyphens


def test_an_unknown_metric_is_one_line():
    message = refused("metrics", "emoji32", "--metrics", "fidd")
    assert message.startswith("Error: there is no metric 'fidd'; known: fid, kid, pr, is")
