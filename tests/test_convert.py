"""`stylegan convert`: official snapshots as files of ours; what is kept and what is refused."""

import os

import numpy as np
import pytest
import torch
from helpers.commands import look, refused, told
from helpers.official import dumps, network_class, snapshot_objects
from helpers.reference import REFERENCE, SLACK

from stylegan import load_generator
from stylegan.files.formats.correspondence import GENERATOR_SETTINGS, config_from_official
from stylegan.files.loading import open_weights
from stylegan.interop import load_official
from stylegan.networks import Generator

SNAPSHOT = REFERENCE / "official_snapshot.pkl"


@pytest.fixture
def official(monkeypatch):
    return network_class(monkeypatch)


@pytest.fixture(scope="module")
def expected():
    with np.load(REFERENCE / "official_snapshot_expected.npz") as file:
        return dict(file)


def written(tmp_path, objects, name="network.pkl"):
    path = tmp_path / name
    path.write_bytes(dumps(objects))
    return path


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("case", "psi"), [("psi0.7", 0.7), ("psi1", 1.0)])
def test_the_converted_snapshot_computes_the_official_images_and_scores(
    tmp_path, expected, dtype, case, psi
):
    files = tmp_path / "g.pt", tmp_path / "d.pt"
    told("convert", SNAPSHOT, files[0], "--discriminator", files[1])
    loaded = load_generator(files[0]).loaded
    assert (loaded.psi, loaded.cutoff, loaded.resolution, loaded.alpha) == (0.7, 8, 32, 1.0)
    generator = loaded.generator.to(dtype)
    z = torch.from_numpy(expected["latents"]).to(dtype)
    with torch.no_grad():
        ws = generator.broadcast(generator.mapping(z))
        images = generator(z, psi=psi, cutoff=loaded.cutoff, noise="const")
    slack = SLACK[dtype]
    np.testing.assert_allclose(ws, expected["dlatents"], rtol=0, atol=1e-5 * slack)
    np.testing.assert_allclose(images, expected[f"Gs_images/{case}"], rtol=0, atol=5e-5 * slack)
    discriminator = open_weights(files[1], need="discriminator").discriminator.to(dtype)
    given = torch.from_numpy(expected[f"Gs_images/{case}"]).to(dtype)
    with torch.no_grad():
        scores = discriminator(given)[:, None]
    np.testing.assert_allclose(scores, expected[f"D_scores/{case}"], rtol=0, atol=5e-6 * slack)


def test_a_snapshot_of_a_growing_network_tells_how_far_it_has_grown(official, tmp_path):
    path = written(tmp_path, snapshot_objects(official, extra={"lod": np.float32(0.25)}))
    told("convert", path, tmp_path / "g.pt")
    for file in (path, tmp_path / "g.pt"):
        loaded = load_generator(file).loaded
        assert (loaded.resolution, loaded.alpha) == (8, 0.75)
    assert sorted(os.listdir(tmp_path)) == ["g.pt", "network.pkl"]
    path = written(tmp_path, snapshot_objects(official, extra={"lod": np.float32(2)}))
    assert "lod is 2.0, which is not a level of 8x8 images" in refused(
        "convert", path, tmp_path / "other.pt"
    )


@pytest.mark.parametrize(
    ("name", "size"), [("karras2019stylegan-cars-8x6.pkl", (8, 6)), ("cats-16x8.pkl", (8, 8))]
)
def test_pictures_of_a_rectangular_set_come_without_their_padding(official, tmp_path, name, size):
    path = written(tmp_path, snapshot_objects(official), name)
    told("convert", path, tmp_path / "g.pt")
    told("generate", tmp_path / "g.pt", "--seeds", "0", "--device", "cpu", "--out", tmp_path)
    assert look(tmp_path / "seed0000.png").size == size


def test_a_conditional_snapshot_keeps_its_labels(official, tmp_path):
    path = written(tmp_path, snapshot_objects(official, labels=3))
    told("convert", path, tmp_path / "g.pt")
    snapshot, loaded = load_official(path), load_generator(tmp_path / "g.pt").loaded
    z, labels = torch.randn(3, 6), torch.eye(3)
    theirs = snapshot.generator_ema(z, labels, noise="const")
    torch.testing.assert_close(loaded.generator(z, labels, noise="const"), theirs)
    assert theirs.shape == (3, 3, 8, 8)


def test_nothing_is_overwritten_unless_asked(official, tmp_path):
    source, target, other = (tmp_path / name for name in ("network.pkl", "g.pt", "d.pt"))
    written(tmp_path, snapshot_objects(official))
    for path in (target, other):
        path.write_bytes(b"mine")
    assert f"{target} exists; pass --overwrite" in refused("convert", source, target)
    message = refused("convert", source, tmp_path / "new.pt", "--discriminator", other)
    assert f"{other} exists; pass --overwrite" in message
    assert target.read_bytes() == other.read_bytes() == b"mine"
    assert not (tmp_path / "new.pt").exists()
    told("convert", source, target, "--overwrite")
    assert load_generator(target).loaded.resolution == 8
    before = source.read_bytes()
    assert f"{source} is the source" in refused("convert", source, source, "--overwrite")
    assert source.read_bytes() == before
    both = refused("convert", source, tmp_path / "x.pt", "--discriminator", tmp_path / "x.pt")
    assert "two files would both be written to" in both


def test_the_average_generator_has_the_architecture_of_the_trained_one(official, tmp_path):
    g, d, _ = snapshot_objects(official)
    other = snapshot_objects(official, {"nonlinearity": "relu"})[2]
    message = refused("convert", written(tmp_path, (g, d, other)), tmp_path / "g.pt")
    assert "the networks contradict each other: activation is lrelu in G, relu in Gs" in message
    other = snapshot_objects(official, {"truncation_psi": 0.5, "fused_scale": True})[2]
    told("convert", written(tmp_path, (g, d, other)), tmp_path / "g.pt")
    assert load_generator(tmp_path / "g.pt").loaded.psi == 0.5


def test_every_part_of_a_snapshot_is_accounted_for(official, tmp_path):
    objects = snapshot_objects(official)
    objects[2].components["mapping"].variables.append(("lod", np.float32(0)))
    message = refused("convert", written(tmp_path, objects), tmp_path / "g.pt")
    assert "G_mapping/lod is not a tensor of this network" in message


def test_the_published_generator_has_the_published_number_of_parameters():
    published = {"num_channels": 3, "resolution": 1024, "label_size": 0}
    with torch.device("meta"):
        generator = Generator(config_from_official(published, GENERATOR_SETTINGS))
    assert sum(p.numel() for p in generator.parameters()) == 26_219_627
