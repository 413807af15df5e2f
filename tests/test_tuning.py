"""Pivotal tuning: its parts, a generator that comes nearer and stays elsewhere, the command."""

import json

import pytest
import torch
from helpers.commands import pixels, run_fails, run_ok
from helpers.projecting import EXACT, draws, found_by_pixels, last, pictures_of
from helpers.tiny_generators import assert_same_weights, random_generator
from torch.testing import assert_close

from stylegan import load_generator
from stylegan.files.formats.native import save_generator
from stylegan.files.formats.official import LICENSE as NVIDIA
from stylegan.projection import PixelDistance, SearchOptions, TuningOptions, psnr, tune
from stylegan.projection.tuning import toward
from stylegan.sampling import to_pil, to_uint8
from stylegan.utils.lineage import LineageEntry, sha256_of

FEW = TuningOptions(steps=5, learning_rate=1e-2)


def pivots(seeds=(1, 2, 3)):
    """A generator, styles, and targets that differ from its images of those."""
    generator = random_generator()
    ws, images = pictures_of(generator, list(seeds))
    return generator, ws, 0.5 * images + 0.3


def tuning(dtype=torch.float32, **arguments):
    """The states of a short one."""
    generator, ws, targets = pivots()
    return tune(generator.to(dtype), targets, ws, PixelDistance(), FEW, **arguments)


def test_toward_moves_ws_by_a_fixed_distance_to_another_w():
    ws, w = draws(2, 6, 8), draws(2, 8, seed=1)
    moved = toward(ws, w, 0.5)
    assert_close((moved - ws).norm(dim=2), torch.full((2, 6), 0.5))
    left = (w[:, None] - ws).norm(dim=2)
    assert_close((w[:, None] - moved).norm(dim=2), (left - 0.5).abs())


def test_tune_comes_nearer_by_synthesis_weights_alone():
    generator, ws, targets = pivots()
    before = {name: tensor.clone() for name, tensor in generator.state_dict().items()}
    states = list(tune(generator, targets, ws, PixelDistance(), TuningOptions(60, 1e-2)))
    assert [state.step for state in states] == list(range(61))
    assert (states[-1].distances < states[0].distances / 4).all()
    assert_close(dict(generator.state_dict()), before, **EXACT)
    result = states[-1].generator
    with torch.no_grad():
        images = result.synthesis(ws, noise="const")
    assert_close(PixelDistance()(images, targets), states[-1].distances, **EXACT)
    for name, tensor in result.state_dict().items():
        used = name.startswith("synthesis") and not name.endswith("noise.const")
        used &= "to_rgb" not in name or "to_rgb.16" in name  # the others are of smaller stages
        assert torch.equal(tensor, before[name]) != used, name
    assert all(p.requires_grad and p.grad is None for p in result.parameters())


def test_tune_locality_keeps_other_images():
    generator, ws, targets = pivots()
    z = draws(64, 8, seed=5)
    distances, kept = [], []
    for locality in (0.0, 10.0):
        options = TuningOptions(60, 1e-2, locality=locality)
        state = last(tune(generator, targets, ws, PixelDistance(), options))
        with torch.no_grad():
            images = [g(z, noise="const") for g in (state.generator, generator)]
        distances.append(float(state.distances.mean()))
        kept.append(float(psnr(*images).mean()))
        assert bool(state.locality.any()) == (locality > 0)
    assert kept[1] > kept[0] + 3 and distances[1] > distances[0]


def test_tune_is_reproducible():
    first, again, other = (last(tuning(seed=seed)).generator for seed in (0, 0, 1))
    assert_same_weights(first, again)
    assert not torch.equal(first.synthesis.input.const, other.synthesis.input.const)


@pytest.mark.parametrize("batch", [1, 2])
def test_tune_is_equal_in_any_batch_up_to_round_off(batch):
    before, whole = next(tuning(batch=batch)), next(tuning())
    assert_close(before.distances, whole.distances, rtol=1e-5, atol=0)
    parameters = zip(*(s.generator.synthesis.parameters() for s in (before, whole)), strict=True)
    for a, b in parameters:
        if b.grad is not None:
            assert_close(a.grad, b.grad, rtol=0, atol=1e-3 * float(b.grad.abs().max()))
    # Adam divides gradients by their size, small ones too: round-off grows 100,000 times.
    after, whole = (last(tuning(torch.float64, batch=size)) for size in (batch, None))
    assert_close(after.distances, whole.distances, rtol=1e-8, atol=0)


def test_tune_uses_noise_and_growth_of_the_projection():
    generator = random_generator()
    targets = pictures_of(generator, [1, 2], resolution=8, alpha=0.5)[1] + 0.1
    growth = {"resolution": 8, "alpha": 0.5}
    search = SearchOptions(3, fit_noise=True, samples=100)
    found = found_by_pixels(generator, targets, search, **growth)
    how = growth | {"noise": found.noise, "batch": 1}
    states = list(tune(generator, targets, found.ws, PixelDistance(), FEW, **how))
    assert_close(states[0].distances, found.distances, rtol=1e-5, atol=1e-6)
    fine = states[-1].generator.synthesis.blocks["16"]
    assert_same_weights(fine, generator.synthesis.blocks["16"])


def test_tune_refuses_invalid_options_and_reports_divergence():
    with pytest.raises(ValueError, match=r"locality is -1.0: it must be"):
        TuningOptions(locality=-1.0)
    generator, ws, targets = pivots()
    with pytest.raises(ValueError, match=r"pivots must be \(3, 6, 8\)"):
        next(tune(generator, targets, ws[:2], PixelDistance()))
    wild = TuningOptions(steps=5, learning_rate=1e12)
    with pytest.raises(ValueError, match=r"tuning failed: .* after [1-4] steps must be"):
        last(tune(generator, targets, ws, PixelDistance(), wild))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A generator that began from official weights, and two pictures that it does not make."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))  # there is no LPIPS
    began = [LineageEntry("official.pkl", "0" * 64, NVIDIA)]
    save_generator(tmp_path / "mine.pt", random_generator(), lineage=began)
    _, _, images = pivots([1, 2])
    for name, content in zip("ab", to_uint8(images), strict=True):
        to_pil(content).save(tmp_path / f"{name}.png")
    return tmp_path


def test_project_tune_writes_a_generator_for_the_same_latents(folder):
    out, words = folder / "out", ["project", folder / "mine.pt", folder / "a.png", folder / "b.png"]
    projecting = [*words, "--out", out, "--steps", 3, "--device", "cpu", "--tune"]
    printed = run_ok(*projecting, "--tune-steps", 40).splitlines()
    before = [json.loads((out / name / "result.json").read_text())["psnr_db"] for name in "ab"]
    after = [float(line.split()[-4]) for line in printed if "after tuning" in line]
    assert all(b > a for a, b in zip(before, after, strict=True))
    assert f"generate {out / 'tuned.pt'} --latents {out / 'latents.npz'}" in printed[-1]
    words = ["generate", out / "tuned.pt", "--latents", out / "latents.npz", "--no-grid"]
    run_ok(*words, "--out", folder / "new", "--device", "cpu")
    for i, name in enumerate("ab"):
        again = pixels(folder / "new" / f"latent000{i}.png")
        assert abs(pixels(out / name / "tuned.png") - again).max() <= 1
    (out / "tuned.pt").unlink()
    run_ok(*projecting, "--tune-steps", 2)
    assert abs(pixels(out / "b/tuned.png") - again).max() > 1  # of the latest tuning
    lineage = load_generator(out / "tuned.pt").lineage
    assert [s.source for s in lineage] == ["official.pkl", "mine.pt"]
    assert lineage[1].sha256 == sha256_of(folder / "mine.pt") and lineage[1].license == NVIDIA


def test_project_keeps_results_of_older_tuning_without_overwrite(folder):
    out = folder / "out"
    (out / "a").mkdir(parents=True)
    for file in ("tuned.pt", "a/tuned.png"):
        (out / file).write_text("of an earlier projection")
    words = ["project", folder / "mine.pt", folder / "a.png", "--steps", 1, "--out", out]
    assert f"{out / 'tuned.pt'} exists; pass --overwrite" in run_fails(*words)
    run_ok(*words, "--overwrite")
    assert sorted(path.name for path in out.iterdir()) == ["a", "latents.npz"]
    assert not (out / "a" / "tuned.png").exists()
