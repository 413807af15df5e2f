"""The network of our own, what is measured by it, and the training images nearest to samples."""

from pathlib import Path

import numpy as np
import pytest
import torch
from processes import gathered
from tiny_training import write_pictures

from stylegan.data import Store, cached_store
from stylegan.files.loading import load_generator
from stylegan.metrics import FeatureNetwork, Moments, Subject, Tools
from stylegan.metrics.neighbours import nearest, picture, samples
from stylegan.metrics.own import measure_own
from stylegan.metrics.own_network import Recipe, own_network
from stylegan.metrics.statistics import frechet, nearest_rows, precision_recall
from stylegan.metrics.wasserstein import binomial, measure_swd, sliced_wasserstein

ZIP = Path(__file__).parent.parent / "datasets" / "emoji-32.zip"
SIZE = 16  # the emoji, averaged down
QUICK = Recipe(steps=3, batch=8)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Three classes of emoji, 362 pictures."""
    cache = tmp_path_factory.mktemp("cache")
    return cached_store(ZIP, resolution=32, include=["smileys", "animals", "food"], cache_dir=cache)


@pytest.fixture(scope="module")
def network(store, tmp_path_factory):
    recipe = Recipe(steps=15, batch=32)
    return own_network(of_data(store), Tools(tmp_path_factory.mktemp("network")), recipe)


def of_data(store, size=SIZE, **options):
    return Subject(load_generator("emoji32"), store, resolution=size, **options)


# The network


def test_the_same_seed_gives_the_same_bits_and_the_cache_keeps_them(smileys, tmp_path):
    def made(folder, **options):
        return own_network(of_data(smileys), Tools(tmp_path / folder), QUICK, **options)

    torch.manual_seed(1)
    first, state = made("a"), torch.get_rng_state()
    torch.manual_seed(2)
    again, other, kept = made("b"), made("a", seed=1), made("a")
    assert first.sha256 == again.sha256 == kept.sha256 != other.sha256
    images = torch.from_numpy(smileys.images(SIZE)[:5].copy())
    for network in (again, kept):
        np.testing.assert_array_equal(network(images), first(images))
    torch.manual_seed(1)
    assert torch.equal(state, torch.get_rng_state())  # training draws from its own stream
    assert len(list((tmp_path / "a").iterdir())) == 2


def test_a_network_is_trained_once_and_anew_when_its_file_is_damaged(smileys, tmp_path):
    told, steps = [], []

    def made():
        subject = of_data(smileys, progress=lambda *done: steps.append(done))
        return own_network(subject, Tools(tmp_path, tell=told.append), QUICK).sha256

    sha256 = made()
    assert steps == [("own network", i, 3) for i in (1, 2, 3)]
    (path,) = tmp_path.iterdir()
    assert made() == sha256
    assert len(steps) == 3
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], content[:40] + b"?" + content[41:]):
        path.write_bytes(damaged)
        assert made() == sha256
        assert path.read_bytes() == content
    assert told == [f"{path} is damaged and made again"] * 2


def test_features_of_the_data_have_mean_0_and_variance_1_in_any_batches(store, network):
    images = torch.from_numpy(store.images(SIZE)[:].copy())
    features = network(images)
    assert features.shape == (362, network.dim)
    assert 128 <= network.dim <= 256
    torch.testing.assert_close(features.mean(dim=0), torch.zeros(network.dim), rtol=0, atol=1e-4)
    assert (features.std(dim=0, correction=0) < 1 + 1e-4).all()
    assert (features.std(dim=0, correction=0) > 1 - 1e-4).float().mean() > 0.9
    one_by_one = torch.cat([network(image[None]) for image in images[:20]])
    torch.testing.assert_close(one_by_one, features[:20], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (4, 16), (3, 128)])
def test_any_channels_and_sizes_with_classes(channels, size, tmp_path):
    pictures = write_pictures(tmp_path / "pictures", n=12, size=size)
    store = cached_store(pictures, resolution=size, channels=channels, cache_dir=tmp_path)
    network = own_network(of_data(store, size), Tools(tmp_path / "network"), QUICK)
    features = network(torch.from_numpy(store.images(size)[:].copy()))
    assert features.isfinite().all()
    assert "classes" in network.name


def test_large_images_are_averaged_down_to_64_pixels(tmp_path):
    pictures = write_pictures(tmp_path / "pictures", n=12, size=256)
    store = cached_store(pictures, resolution=256, cache_dir=tmp_path)
    network = own_network(of_data(store, 256), Tools(tmp_path / "network"), QUICK)
    assert network.resize == "averaged down to 64x64"
    small = torch.from_numpy(store.images(64)[:].copy())
    large = small.repeat_interleave(4, dim=2).repeat_interleave(4, dim=3)
    torch.testing.assert_close(network(large), network(small))


# Precision and recall


def rows(n, dim, seed):
    return np.random.default_rng(seed).standard_normal((n, dim), np.float32)


def test_precision_and_recall_are_those_of_torch_fidelity():
    prc = pytest.importorskip("torch_fidelity.metric_prc")
    for fakes, reals in [
        (rows(1500, 3, 0), rows(1100, 3, 1) + 0.5),
        (rows(90, 20, 2) * 0.8, rows(70, 20, 3)),
    ]:
        theirs = prc.prc_features_to_metric(
            *map(torch.from_numpy, (fakes, reals)),
            prc_neighborhood=3,
            prc_batch_size=500,
            save_cpu_ram=False,
            verbose=False,
        )
        precision, recall = precision_recall(fakes, reals)
        assert precision == pytest.approx(theirs["precision"], abs=1e-6)
        assert recall == pytest.approx(theirs["recall"], abs=1e-6)
        assert 0 < precision < 1
        assert 0 < recall < 1


def test_a_few_equal_pictures_are_precise_and_recall_little():
    reals = rows(50, 4, 0)
    assert precision_recall(reals, reals) == (1, 1)
    precision, recall = precision_recall(np.repeat(reals[:5], 10, axis=0), reals)
    assert (precision, recall) == (1, 0.1)
    with pytest.raises(ValueError, match="more than 3 images of each sort, not 3 generated"):
        precision_recall(reals[:3], reals)


def test_nearest_rows_are_found_across_blocks():
    table = rows(2500, 5, 0)
    distances, whose = nearest_rows(torch.from_numpy(table[[2400, 7]]), table, 4)
    exact = np.linalg.norm(table[[2400, 7], None].astype(np.float64) - table, axis=2)
    np.testing.assert_array_equal(whose, exact.argsort(axis=1)[:, :4])
    np.testing.assert_allclose(distances, np.sort(exact)[:, :4], atol=1e-6)


# Better and worse sets of emoji


def as_bytes(images):
    return images.round().clamp(0, 255).to(torch.uint8)


@pytest.fixture(scope="module")
def sets(store):
    """Half of the emoji, and sets to compare with it, each as large."""
    images = torch.from_numpy(store.images(SIZE)[:].copy())
    half, other = images[::2], images[1::2]
    noise = torch.randn(other.shape, generator=torch.Generator().manual_seed(0))
    average = other.float().mean(dim=0, keepdim=True)
    return half, {
        "another half": other,
        "noisy": as_bytes(other + 30 * noise),
        "blurred": as_bytes(binomial(other.float())),
        "channels shuffled": other[:, [1, 2, 0]],
        "few of them": other[::10].repeat(10, 1, 1, 1)[: len(other)],
        "average": as_bytes(average).expand_as(other),
    }


def test_own_frechet_distance_and_swd_put_worse_sets_behind_better_ones(sets, network, tmp_path):
    def moments(images):
        found = Moments(network.dim)
        found.add(network(images))
        return found

    half, others = sets
    distances = {name: frechet(moments(half), moments(images)) for name, images in others.items()}
    assert min(distances, key=distances.get) == "another half"
    worse = [d for name, d in distances.items() if name != "another half"]
    assert min(worse) > 1.5 * distances["another half"]
    mild = max(distances[name] for name in ("noisy", "blurred", "few of them"))
    assert distances["average"] > 4 * mild
    assert frechet(moments(half), moments(half)) == pytest.approx(0, abs=1e-3)
    sliced = {
        name: sliced_wasserstein([half], [images], tuple(half.shape), folder=tmp_path)["swd"]
        for name, images in others.items()
    }
    assert min(sliced, key=sliced.get) == "another half"
    assert max(sliced, key=sliced.get) == "average"


def test_precision_falls_with_damage_and_recall_with_variety(sets, network):
    half, others = sets
    reals = network(half).numpy()
    found = {name: precision_recall(network(x).numpy(), reals) for name, x in others.items()}
    precision, recall = found["another half"]
    assert min(precision, recall) > 0.5
    assert found["blurred"][0] < 0.8 * precision
    assert found["channels shuffled"][0] < 0.8 * precision
    assert found["noisy"][1] < 0.9 * recall
    assert found["few of them"][1] < 0.5 * recall
    assert found["few of them"][0] > 0.8 * precision
    assert found["average"][1] == 0


def test_the_bundled_generator_is_between_its_data_and_the_average_image(smileys, tmp_path):
    looked_at = []

    def count(what, done, total):
        looked_at.extend([what] * (done == total))

    subject = Subject(
        load_generator("emoji32"), smileys, mirror=True, resolution=32, progress=count
    )
    tools = Tools(tmp_path)
    values, about, of_kinds = measure_own(subject, ["own-fd", "own-pr"], 60, tools, QUICK)
    assert about["reals"]["number"] == 60
    assert of_kinds["own-fd"]["between_halves_of_reals"] > 0
    assert measure_own(subject, ["own-fd", "own-pr"], 60, tools, QUICK).values == values
    assert looked_at.count("real") == 1  # their features are kept
    assert values["own-pr"]["own-precision"] > 0.5
    bad = Subject(load_generator("emoji32"), smileys, mirror=True, resolution=32, psi=0)
    worse, _, *_ = measure_own(bad, ["own-fd", "own-pr"], 60, Tools(tmp_path), QUICK)
    assert values["own-fd"]["own-fd"] < 0.5 * worse["own-fd"]["own-fd"]
    assert values["own-pr"]["own-recall"] > worse["own-pr"]["own-recall"]


def test_where_the_data_is_small_all_of_it_is_used_both_ways_round(smileys, tmp_path):
    subject = of_data(smileys, mirror=True)
    _, about, *_ = measure_own(subject, ["own-fd"], 200, Tools(tmp_path), QUICK)
    assert (about["images"], about["reals"]["number"]) == (200, 182)


# Neighbours


def test_the_nearest_training_image_of_a_training_image_is_itself(store, network):
    subject = of_data(store)
    images = torch.from_numpy(store.images(SIZE)[[3, 100, 361]])
    found = nearest(images, subject, network, k=2)
    assert found.indices[:, 0].tolist() == [3, 100, 361]
    np.testing.assert_allclose(found.distances[:, 0], 0, atol=1e-5)
    assert (found.distances[:, 1] > 0.1).all()
    assert not found.mirrored.any()


def test_mirrored_images_are_found_where_training_mirrors(store, network):
    flipped = torch.from_numpy(store.images(SIZE)[[3, 100]]).flip(3)
    subject = of_data(store, mirror=True)
    found = nearest(flipped, subject, network)
    assert found.indices[:, 0].tolist() == [3, 100]
    np.testing.assert_allclose(found.distances[:, 0], 0, atol=1e-5)
    assert found.mirrored[:, 0].tolist() == [True, True]
    assert all(len(set(row)) == 3 for row in found.indices.tolist())


def test_the_yardstick_is_the_median_distance_to_the_nearest_other_real(store):
    def mean_colour(images):
        return images.float().mean(dim=(2, 3))

    network = FeatureNetwork("mean colour", "", 3, "none", mean_colour)
    subject = of_data(store)
    images = torch.from_numpy(store.images(SIZE)[:].copy())
    colours = mean_colour(images).double()
    apart = torch.cdist(colours, colours).fill_diagonal_(torch.inf).amin(dim=1).median()
    found = nearest(images[:2], subject, network)
    assert found.typical == pytest.approx(apart.item())
    np.testing.assert_allclose(found.relative, found.distances / apart.item())


def test_the_picture_has_a_row_for_each_sample(store, network):
    subject = of_data(store, mirror=True)
    pictures = samples(subject, 4)
    drawn = picture(pictures, subject, nearest(pictures, subject, network, k=2))
    assert drawn.width // (drawn.height // 4) == 2
    scale = 6  # 16 pixels become 96
    corner = np.asarray(drawn)[4 : 4 + 96 : scale, 4 : 4 + 96 : scale]
    np.testing.assert_array_equal(corner, pictures[0].permute(1, 2, 0))


# Processes


def measured(folder, cache):
    """All metrics that need no download, and neighbours."""
    images, kinds = 25, ["own-fd", "own-pr"]  # does not divide by 2
    subject = of_data(Store(folder / "store"), mirror=True, batch=4)
    tools = Tools(folder / cache)
    own, about, of_kinds = measure_own(subject, kinds, images, tools, QUICK)
    found = nearest(samples(subject, 5), subject, own_network(subject, tools, QUICK))
    return {
        "values": own | measure_swd(subject, ["swd"], images, tools).values,
        "halves": of_kinds["own-fd"]["between_halves_of_reals"],
        "sha256": about["sha256"],
        "neighbours": (found.indices.tolist(), found.mirrored.tolist(), found.distances.tolist()),
        "typical": found.typical,
    }


def test_two_processes_measure_what_one_does(smileys, tmp_path):
    (tmp_path / "store").symlink_to(smileys.path)
    first, second = gathered(measured, (tmp_path, "cache of two"), tmp_path)
    assert first == second
    alone = measured(tmp_path, "cache of one")
    assert first["sha256"] == alone["sha256"]
    assert first["halves"] == pytest.approx(alone["halves"], rel=1e-6)
    assert first["typical"] == pytest.approx(alone["typical"], rel=1e-6)
    for kind, values in alone["values"].items():
        assert first["values"][kind] == pytest.approx(values, rel=1e-6)
    for ours, theirs in zip(first["neighbours"], alone["neighbours"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
