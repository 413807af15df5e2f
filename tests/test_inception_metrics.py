"""FID, KID, precision and recall, IS: the same numbers as torch-fidelity's and torchmetrics' own.

The network has random weights. Where the numbers are not the point it looks at 75x75 pixels.
"""

import io

import pytest
import torch
import torch_fidelity as fidelity
from helpers.consoles import RecordingConsole
from helpers.tiny_training import write_pictures

from stylegan import load_generator
from stylegan.data import Preparation, cached_store
from stylegan.metrics import (
    METRICS,
    Comparison,
    Conditions,
    Measurement,
    Tools,
    evaluate,
    feature_metrics,
    features,
    parse,
)

InceptionV3 = fidelity.FeatureExtractorInceptionV3
FAKES, REALS = 24, 20
CPU = torch.device("cpu")


class Unread(InceptionV3):
    """With the weights that it draws."""

    def load_state_dict(self, weights):
        pass


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file of random weights, of which features and logits are of the usual sizes."""
    nothing = io.BytesIO()
    torch.save({}, nothing)
    nothing.seek(0)
    network = Unread("random", ["2048"], feature_extractor_weights_path=nothing)
    random = torch.Generator().manual_seed(0)
    tensors = network.state_dict()
    for tensor in tensors.values():
        if tensor.ndim > 1:
            tensor.normal_(generator=random).mul_((2 / tensor[0].numel()) ** 0.5)
    images = torch.cat(list(samples_of(None).fake_batches(8)))
    scale = 0.5 / network(images)[0].mean()
    tensors["Conv2d_1a_3x3.conv.weight"].mul_(scale)  # scales all features: there are no biases
    features = network(images)[0]
    fc, mean = tensors["fc.weight"], features.mean(dim=0)
    fc.sub_(torch.outer(fc @ mean, mean) / mean.square().sum())  # or all are of one class
    fc.mul_(2 / (features @ fc.T).std())
    path = tmp_path_factory.mktemp("weights") / "random.pth"
    torch.save(tensors, path)
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    pictures = write_pictures(folder / "pictures", n=REALS, size=32)
    return cached_store(pictures, Preparation(resolution=32), cache_dir=folder / "cache")


@pytest.fixture
def small(monkeypatch):
    """Inception looks at 75x75 pixels, the least it can, and takes a fifteenth of the time."""
    monkeypatch.setattr(InceptionV3, "INPUT_IMAGE_SIZE", 75)


def samples_of(store, **options):
    loaded = load_generator("faces64").with_settings(resolution=32)
    return Comparison.from_generator(loaded, store, Conditions(batch=8, **options))


class Images(torch.utils.data.TensorDataset):
    """For torch-fidelity."""

    def __getitem__(self, index):
        return self.tensors[0][index]


# Against the libraries


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Metric .* will save all extracted features:UserWarning")
@pytest.mark.filterwarnings(r"ignore:std\(\). degrees of freedom:UserWarning")  # of one split
def test_inception_metrics_equal_torch_fidelity_and_torchmetrics(
    weights, small, store, tmp_path, monkeypatch
):
    from torchmetrics.image.fid import FrechetInceptionDistance, NoTrainInceptionV3
    from torchmetrics.image.inception import InceptionScore
    from torchmetrics.image.kid import KernelInceptionDistance

    tools = Tools(tmp_path, weights)
    source = samples_of(store, mirror=True, seed=1).at_psi(4.0)  # random weights tell these apart
    kinds = ["fid", "kid", "pr", "is"]

    def measured(kinds, images):
        memo = {}
        return {kind: of_kind(kind, images, memo) for kind in kinds}

    def of_kind(kind, images, memo):  # of fewer images than `evaluate` takes
        m = Measurement(**vars(source), num=images, tools=tools, memo=memo)
        return METRICS[kind].measure(m).values

    ours = measured(kinds, FAKES)
    fakes, reals = (
        Images(torch.cat(list(x))) for x in (source.fake_batches(FAKES), source.real_batches(REALS))
    )
    theirs = fidelity.calculate_metrics(
        input1=fakes,
        input2=reals,
        feature_extractor="inception-v3-compat",  # else precision and recall look with VGG16
        feature_extractor_weights_path=str(weights),
        kid_subset_size=REALS,
        cuda=False,
        cache=False,
        save_cpu_ram=True,  # no processes that load images
        verbose=False,
        **dict.fromkeys(("fid", "kid", "prc", "isc"), True),
    )
    expected = {
        "fid": {"fid": "frechet_inception_distance"},
        "kid": {
            "kid": "kernel_inception_distance_mean",
            "kid_std": "kernel_inception_distance_std",
        },
        "pr": {"precision": "precision", "recall": "recall"},
        "is": {"is": "inception_score_mean", "is_std": "inception_score_std"},
    }
    for kind in kinds:
        named = {name: theirs[their_name] for name, their_name in expected[kind].items()}
        assert ours[kind] == pytest.approx(named, rel=1e-3)
    means, logits = (
        NoTrainInceptionV3("inception", [name], str(weights), antialias=False)
        for name in ("2048", "logits_unbiased")
    )
    fid = FrechetInceptionDistance(means)
    kid = KernelInceptionDistance(means, subsets=2, subset_size=REALS)
    score = InceptionScore(logits, splits=1)
    for metric in (fid, kid):
        metric.update(reals[:], real=True)
    fid.update(fakes[:], real=False)
    kid.update(fakes[:REALS], real=False)  # all in each subset: nothing is drawn
    score.update(fakes[:])
    score.features = [x.double() for x in score.features]  # else nan: rare classes are below 1e-38
    assert ours["fid"]["fid"] > 1  # all are of a size that can be compared
    assert ours["kid"]["kid"] > 0.001
    assert ours["is"]["is"] > 1.005
    assert ours["fid"]["fid"] == pytest.approx(fid.compute().item(), rel=1e-3)
    as_many = measured(["kid"], REALS)["kid"]["kid"]
    assert as_many == pytest.approx(kid.compute()[0].item(), rel=1e-3)
    monkeypatch.setattr(feature_metrics, "SPLITS", 1)
    assert measured(["is"], FAKES)["is"]["is"] == pytest.approx(score.compute()[0].item(), rel=1e-3)


def test_inception_features_equal_torch_fidelity(weights, small, store, tmp_path):
    network = features.inception(Tools(tmp_path, weights), CPU)
    reference = InceptionV3("x", ["2048"], feature_extractor_weights_path=str(weights))
    images = torch.cat(list(samples_of(store).real_batches(4)))
    found = network(images)
    torch.testing.assert_close(found[:, :2048], reference(images)[0])
    assert found[:, :2048].std(dim=0).mean() > 1e-3  # the images are told from each other
    torch.testing.assert_close(network(images[:, :1]), network(images[:, :1].repeat(1, 3, 1, 1)))


# Weights


def test_inception_rejects_weights_of_another_network(tmp_path):
    torch.save({"fc.weight": torch.ones(2)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match="does not hold the weights of the Inception network"):
        features.inception(Tools(tmp_path, tmp_path / "other.pth"), CPU)


def test_feature_weights_missing_offline_are_reported_once(store, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.delenv(name.replace("https", "no").replace("HTTPS", "NO"), raising=False)
    told = []
    source = samples_of(store)
    requests = parse("fid4,kid4,is10")
    assert not list(
        evaluate(source, requests, Tools(tmp_path / "cache", console=RecordingConsole(told)))
    )
    assert told[1:] == [
        f"{name} could not be measured: the reason is that of fid4" for name in ("kid4", "is10")
    ]
    path = tmp_path / "torch" / "hub" / "checkpoints" / "weights-inception-2015-12-05-6726825d.pth"
    for text in (features.INCEPTION, "6726825d", str(path), "--feature-weights"):
        assert text in told[0]
