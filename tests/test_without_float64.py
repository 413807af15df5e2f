"""What runs on a GPU makes no float64 there: Apple's has none. The meta device stands for it."""

import dataclasses

import numpy as np
import pytest
import torch
from helpers.tiny_training import stage, tiny_config, tiny_store
from helpers.without_float64 import WithoutFloat64

from stylegan import video
from stylegan.blending import blend
from stylegan.centers import find_centers
from stylegan.directions import find_directions
from stylegan.edits import Edit
from stylegan.figures import StyleRange, of_seeds
from stylegan.files.loaded import LoadedGenerator, weights_sha256
from stylegan.lineage import Source
from stylegan.metrics import Comparison, Tools, evaluate, parse
from stylegan.metrics.efficientnet import load_efficientnet
from stylegan.metrics.path_length import measured_lengths
from stylegan.networks import Discriminator, Generator
from stylegan.paths import spherical, spline
from stylegan.projection import PixelDistance, SearchOptions, project
from stylegan.projection.distance import EfficientNetDistance, psnr
from stylegan.projection.tuning import TuningOptions, tune
from stylegan.training import Share, TrainState, draw, train_step

META = torch.device("meta")

AUGMENTED = {
    "none": {},
    "ada": {"kind": "ada", "transforms": ["blit", "geom", "color", "imgfilter", "noise", "cutout"]},
    "bgc": {"kind": "ada", "strength": 0.5},
    "diffaugment": {"kind": "diffaugment"},
}


def test_float64_on_the_device_is_refused():
    with WithoutFloat64():
        x = torch.ones(3, device="meta")
        for wide in (
            lambda: x.double(),
            lambda: torch.zeros(3, dtype=torch.float64, device="meta"),
            lambda: torch.zeros(3, dtype=torch.float64).to("meta"),
            lambda: x + torch.zeros((3,), dtype=torch.float64, device="meta"),
        ):
            with pytest.raises(TypeError, match="the device has no float64"):
                wide()
        assert x.cpu().double().dtype == torch.float64
        assert torch.zeros(3, dtype=torch.float64).float().to("meta").dtype == torch.float32


@pytest.mark.parametrize("name", AUGMENTED)
@pytest.mark.parametrize("labels", [0, 3])
def test_training(name, labels):
    """Four steps: the fourth reads what adapts the augmentation."""
    config = tiny_config(augment=AUGMENTED[name], network={"label_dim": labels}, r2_gamma=1.0)
    with torch.device("meta"):
        networks = Generator(config.network), Discriminator(config.network)
    state, now = TrainState.create(config, *networks, device="meta"), stage(8, 0.5)
    reals = torch.empty(4, 3, 8, 8, device="meta")
    pool = torch.eye(3) if labels else None
    with WithoutFloat64():
        for _ in range(4):
            draws = draw(config, state.images_seen, now, pool, Share(device="meta"), 0.5)
            train_step(
                state, reals, torch.empty(4, 3, device="meta") if labels else None, now, draws
            )
        state.to_payload()
    assert state.images_seen == 16


@pytest.fixture(params=[0, 2], ids=["plain", "labels"])
def loaded(request):
    with META:
        generator = Generator(tiny_config(network={"label_dim": request.param}).network)
    return LoadedGenerator(generator.eval(), "memory", resolution=16)


def label_of(loaded):
    """A label (1, label_dim), if there are any."""
    return torch.eye(2)[:1] if loaded.generator.config.label_dim else None


@pytest.mark.parametrize("noise", ["const", "random"])
def test_pictures_edited_and_truncated_toward_centers(loaded, noise):
    kinds = [3, "class"] if loaded.generator.config.label_dim else [3]
    edit = Edit(torch.ones(7), 2.0, range(2))
    with WithoutFloat64():
        for kind in kinds:
            centers = find_centers(loaded.generator, kind)
            near = dataclasses.replace(loaded, centers=centers.to(META))
            pictures = near.pictures([1, 2], labels=label_of(loaded), noise=noise, edits=[edit])
            assert len(list(pictures)) == 2
            assert len(near.description()["centers"]) == len(centers)
        assert weights_sha256(loaded.generator)


def test_films(loaded):
    label, t = label_of(loaded), torch.linspace(0, 1, 2, dtype=torch.float64)
    with WithoutFloat64():
        points = of_seeds(loaded, range(3), labels=label)
        knots, z = points.ws.cpu()[:, None], points.z.cpu()
        layers = [StyleRange(range(2))]
        films = [
            video.film(loaded, spline(knots, closed=True), t),
            video.film(loaded, video.walk_in_z(loaded, [spherical(z, closed=True)], label), t),
            video.film(loaded, video.walk_in_z(loaded, [video.noise_loop(1, 5, 2)], label), t),
            video.film(
                loaded, video.mixing_walk(loaded, points.ws, points.ws, layers, closed=True), t
            ),
            video.truncation_film(loaded, points, t),
            video.edit_film(loaded, points, {"a": Edit(torch.ones(7))}, t),
        ]
        assert [len(list(film.frames)) for film in films] == [2] * 6


@pytest.mark.parametrize("space", ["w", "w+"])
def test_projection_and_tuning(loaded, space):
    label, targets = label_of(loaded), torch.zeros(2, 3, 16, 16)
    options = SearchOptions(steps=2, space=space, fit_noise=space == "w+", samples=8)
    how = {"noise": None, "labels": label}
    with WithoutFloat64():
        for distance in (PixelDistance(), EfficientNetDistance(*load_efficientnet(META))):
            states = project(loaded.generator, targets, distance, options, labels=label, start=1)
            *_, found = states
            how["noise"] = found.noise
            few = TuningOptions(steps=1)
            tuned = list(tune(loaded.generator, targets, found.ws, distance, few, **how))
            assert [state.step for state in tuned] == [0, 1]
        assert psnr(found.images, targets.to(META)).shape == (2,)


def test_directions(loaded):
    with WithoutFloat64():
        pca, sefa = find_directions(loaded.generator, count=3, samples=64)
    assert pca.vectors.shape == sefa.vectors.shape == (3, 7)


def test_blends(loaded):
    origin = dataclasses.replace(loaded, lineage=(Source("memory", "0" * 64),))
    with WithoutFloat64():
        assert blend(origin, origin, share=0.5).generator.w_avg.is_meta


@pytest.mark.parametrize("names", ["eff-fd100,eff-kid100,eff-pr100", "swd100"])
def test_metrics(loaded, tmp_path, names):
    told = []
    source = Comparison.of(loaded, tiny_store(tmp_path, n=100), batch=50)
    with WithoutFloat64():
        results = list(evaluate(source, parse(names), Tools(tmp_path, tell=told.append)))
    assert told == []
    assert results


@pytest.mark.parametrize("kind", ["ppl-z-full", "ppl-w-full"])
def test_path_lengths(loaded, store, kind):
    source = Comparison.of(loaded, store, batch=8)
    distance = EfficientNetDistance(*load_efficientnet(META))
    with WithoutFloat64():
        assert measured_lengths(source, kind, 8, distance).dtype == np.float64
