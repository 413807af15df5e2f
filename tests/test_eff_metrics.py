"""What is measured in EfficientNet's features, and the training images nearest to samples."""

from pathlib import Path

import matplotlib.cbook
import numpy as np
import pytest
import torch
from PIL import Image
from processes import gathered

from stylegan.data import Store, cached_store
from stylegan.files.loading import load_generator
from stylegan.metrics import (
    FeatureNetwork,
    Subject,
    Tools,
    default_names,
    eff,
    efficientnet,
    evaluate,
    frechet_distance,
    neighbours,
    parse,
)
from stylegan.metrics.features import read_weights
from stylegan.metrics.neighbours import comparing, nearest, picture, samples
from stylegan.metrics.statistics import (
    frechet_estimate,
    kernel_estimate,
    nearest_rows,
    precision_recall,
)
from stylegan.metrics.wasserstein import binomial, measure_swd, sliced_wasserstein

CPU = torch.device("cpu")
ZIP = Path(__file__).parent.parent / "datasets" / "emoji-32.zip"
SIZE = 16  # the emoji, averaged down


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Three classes of emoji, 362 pictures."""
    cache = tmp_path_factory.mktemp("cache")
    return cached_store(ZIP, resolution=32, include=["smileys", "animals", "food"], cache_dir=cache)


def of_data(store, size=SIZE, **options):
    return Subject(load_generator("emoji32"), store=store, resolution=size, **options)


def coarse_pixels(device=CPU, resolution=SIZE):
    """A network that takes no time: averages over sixteenths of an image."""

    def averages(images):
        return torch.nn.functional.adaptive_avg_pool2d(images.float() / 255, 4).flatten(1)

    return FeatureNetwork("coarse pixels", "0", 48, "none", averages)


@pytest.fixture
def quick(monkeypatch):
    """The coarse pixels in the place of EfficientNet."""
    monkeypatch.setattr(eff, "efficientnet", coarse_pixels)


# The network


def test_the_network_recognises_a_military_uniform():
    pytest.importorskip(efficientnet.PACKAGE)
    with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as file:
        portrait = np.asarray(Image.open(file).crop((0, 40, 512, 552)).resize((224, 224)))
    network = efficientnet.efficientnet(CPU, 224)
    features = network(torch.tensor(portrait).permute(2, 0, 1)[None])
    tensors = read_weights(efficientnet.weights_path()).tensors
    logits = features @ tensors["_fc.weight"].T + tensors["_fc.bias"]
    assert logits.argmax() == 652  # of ImageNet's 1000 classes
    assert logits.softmax(dim=1).max() > 0.2


def test_features_do_not_depend_on_the_batch_and_small_images_are_enlarged(smileys):
    pytest.importorskip(efficientnet.PACKAGE)
    network = efficientnet.efficientnet(CPU, 32)
    assert (network.dim, network.resize) == (1280, "bilinear to 112x112, antialiased")
    images = torch.from_numpy(smileys.images(32)[:3].copy())
    together = network(images)
    assert together.shape == (3, 1280)
    torch.testing.assert_close(network(images[2:]), together[2:], rtol=1e-4, atol=1e-4)
    gray = images[:1, :1]
    torch.testing.assert_close(network(gray), network(gray.expand(-1, 3, -1, -1)))
    opaque = torch.cat([images, torch.full_like(images[:, :1], 255)], dim=1)
    torch.testing.assert_close(network(opaque), network(images))


def test_without_the_weights_or_with_others_it_is_said_how_to_get_them(
    monkeypatch, smileys, tmp_path
):
    forged = tmp_path / "weights.pth"
    torch.save({"_fc.bias": torch.zeros(1)}, forged)
    monkeypatch.setattr(efficientnet, "weights_path", lambda: forged)
    with pytest.raises(ValueError, match="is not the published file"):
        efficientnet.load_efficientnet(CPU)
    monkeypatch.setattr(efficientnet, "weights_path", lambda: None)
    told = []
    found = evaluate(of_data(smileys), parse("eff-fd20"), Tools(tmp_path), tell=told.append)
    assert list(found) == []
    assert "pip install 'stylegan[features]'" in told[0]
    assert "pixels at 16x16" in comparing(of_data(smileys)).name


def test_the_default_is_what_can_be_measured(monkeypatch):
    monkeypatch.setattr("stylegan.metrics.engine.weights_path", lambda: Path("here"))
    assert default_names() == "eff-fd,eff-pr,swd"
    monkeypatch.setattr("stylegan.metrics.engine.weights_path", lambda: None)
    assert default_names() == "swd"


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


# Distances and their intervals


@pytest.mark.parametrize("n", [30, 200])
def test_the_frechet_distance_of_rows_is_that_of_their_moments(n):
    fakes, reals = rows(n, 100, 0) + 0.1, 1.2 * rows(n + 5, 100, 1)
    both = [(x.mean(axis=0), np.cov(x, rowvar=False)) for x in (fakes, reals)]
    found = frechet_estimate(fakes, reals)
    assert found.value == pytest.approx(frechet_distance(*both[0], *both[1]), rel=1e-5)


def test_the_kernel_distance_is_torch_fidelitys_of_one_subset_and_0_on_average():
    kid = pytest.importorskip("torch_fidelity.metric_kid")
    fakes, reals = rows(60, 20, 0) + 0.3, rows(60, 20, 1)
    theirs = kid.kid_features_to_metric(
        *map(torch.from_numpy, (fakes, reals)),
        kid_subsets=1,
        kid_subset_size=60,
        rng_seed=0,
        verbose=False,
    )
    found = kernel_estimate(fakes, reals)
    expected = theirs["kernel_inception_distance_mean"]
    assert found.value == pytest.approx(expected, rel=1e-5)
    assert found.interval[0] < found.value < found.interval[1]
    same = [kernel_estimate(rows(40, 20, i), reals).value for i in range(2, 42)]
    assert abs(np.mean(same)) < 0.3 * np.std(same) + 0.02


@pytest.mark.parametrize("estimate", [frechet_estimate, kernel_estimate])
def test_an_interval_is_as_wide_as_other_samples_would_make_it(estimate):
    reals = rows(400, 8, 0)
    found = [estimate(1.3 * rows(200, 8, seed), reals) for seed in range(1, 41)]
    spread = np.std([one.value for one in found], ddof=1)
    reach = np.mean([np.diff(one.interval)[0] / 2 for one in found])
    assert 0.7 < reach / (2.262 * spread) < 1.6


def test_the_interval_of_swd_is_as_wide_as_other_samples_would_make_it(tmp_path):
    def noise(seed):
        rng = torch.Generator().manual_seed(seed)
        levels = torch.randint(0, 256, (40, 1, 1, 1), generator=rng)
        return (levels + torch.randint(0, 40, (40, 1, 8, 8), generator=rng)).clamp(0, 255).byte()

    shape = (40, 1, 8, 8)
    found = [
        sliced_wasserstein([noise(0)], [noise(i) // 2], shape, folder=tmp_path)["swd"]
        for i in range(1, 13)
    ]
    spread = np.std([one.value for one in found], ddof=1)
    reach = np.mean([np.diff(one.interval)[0] / 2 for one in found])
    assert 0.5 < reach / (2.262 * spread) < 2


# Better and worse sets of emoji


def as_bytes(images):
    return images.round().clamp(0, 255).to(torch.uint8)


def damaged(images):
    """Sets that are worse than the images, each as large."""
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    coarse = torch.nn.functional.avg_pool2d(images.float(), images.shape[-1] // 4)
    enlarged = torch.nn.functional.interpolate(coarse, images.shape[-2:], mode="bicubic")
    return {
        "noisy": as_bytes(images + 30 * noise),
        "blurred": as_bytes(binomial(images.float())),
        "few of them": images[::10].repeat(10, 1, 1, 1)[: len(images)],
        "blobs": as_bytes(enlarged),
        "average": as_bytes(images.float().mean(dim=0, keepdim=True)).expand_as(images),
    }


@pytest.mark.slow  # 1,300 images pass the network
def test_distances_put_worse_sets_behind_better_ones(store, tmp_path):
    pytest.importorskip(efficientnet.PACKAGE)
    network = efficientnet.efficientnet(CPU, 32)
    images = torch.from_numpy(store.images(32)[:].copy())
    half, other = images[::2], images[1::2]
    features = {n: network(x).numpy() for n, x in damaged(other).items()}
    reals = network(half).numpy()
    for estimate in (frechet_estimate, kernel_estimate):
        best = estimate(network(other).numpy(), reals)
        found = {name: estimate(x, reals) for name, x in features.items()}
        assert all(one.interval[0] > best.interval[1] for one in found.values())
        mild = max(found[name].value for name in ("noisy", "blurred", "few of them"))
        assert min(found["blobs"].value, found["average"].value) > mild
    sliced = {
        name: sliced_wasserstein([half], [x], tuple(half.shape), folder=tmp_path)["swd"].value
        for name, x in {"another half": other, **damaged(other)}.items()
    }
    assert min(sliced, key=sliced.get) == "another half"


def test_blobs_are_farther_than_other_images(smileys):
    pytest.importorskip(efficientnet.PACKAGE)
    network = efficientnet.efficientnet(CPU, 32)
    images = torch.from_numpy(smileys.images(32)[:40].copy())
    reals, other = network(images[::2]).numpy(), images[1::2]
    better, blobs = (
        kernel_estimate(network(x).numpy(), reals) for x in (other, damaged(other)["blobs"])
    )
    assert blobs.interval[0] > better.interval[1]


def test_the_bundled_generator_is_better_than_its_average_image(quick, smileys, tmp_path):
    looked_at = []

    def count(what, done, total):
        looked_at.extend([what] * (done == total))

    kinds = ["eff-fd", "eff-kid"]
    subject = of_data(smileys, mirror=True, progress=count)
    found = eff.measure_eff(subject, kinds, 60, Tools(tmp_path))
    assert found.about["reals"]["number"] == 60
    low, high = found.of_kinds["eff-fd"]["interval_95"]["eff-fd"]
    assert low < found.values["eff-fd"]["eff-fd"] < high
    assert eff.measure_eff(subject, kinds, 60, Tools(tmp_path)).values == found.values
    assert looked_at.count("real") == 1  # their features are kept
    worse = eff.measure_eff(of_data(smileys, mirror=True, psi=0), kinds, 60, Tools(tmp_path))
    for kind in kinds:
        assert found.values[kind][kind] < 0.9 * worse.values[kind][kind]


def test_where_the_data_is_small_all_of_it_is_used_both_ways_round(quick, smileys, tmp_path):
    about = eff.measure_eff(of_data(smileys, mirror=True), ["eff-fd"], 200, Tools(tmp_path)).about
    assert (about["images"], about["reals"]["number"]) == (200, 182)


def test_precision_and_recall_of_few_images_are_refused_and_the_rest_is_measured(
    quick, smileys, tmp_path
):
    told = []
    requests = parse("eff-pr200,eff-fd200")
    found = evaluate(of_data(smileys), requests, Tools(tmp_path), tell=told.append)
    assert [result.metric for result in found] == ["eff-fd200"]
    (line,) = told
    assert "eff-pr200 was refused: found 200 samples and 91 real images, at least" in line


# Neighbours


@pytest.fixture
def network(monkeypatch, store):
    """What stands in where the weights are missing: pixels."""
    monkeypatch.setattr(neighbours, "obstacle", lambda: "missing")
    return comparing(of_data(store))


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
    """Metrics that need no download, and neighbours."""
    images, kinds = 25, ["eff-fd", "eff-kid"]  # does not divide by 2
    subject = of_data(Store(folder / "store"), mirror=True, batch=4)
    tools, network = Tools(folder / cache), coarse_pixels()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eff, "efficientnet", coarse_pixels)
        values = eff.measure_eff(subject, kinds, images, tools).values
    found = nearest(samples(subject, 5), subject, network)
    return {
        "values": values | measure_swd(subject, ["swd"], images, tools).values,
        "neighbours": (found.indices.tolist(), found.mirrored.tolist(), found.distances.tolist()),
        "typical": found.typical,
    }


def test_two_processes_measure_what_one_does(smileys, tmp_path):
    (tmp_path / "store").symlink_to(smileys.path)
    first, second = gathered(measured, (tmp_path, "cache of two"), tmp_path)
    assert first == second
    alone = measured(tmp_path, "cache of one")
    assert first["typical"] == pytest.approx(alone["typical"], rel=1e-6)
    for kind, values in alone["values"].items():
        assert first["values"][kind] == pytest.approx(values, rel=1e-6)
    for ours, theirs in zip(first["neighbours"], alone["neighbours"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
