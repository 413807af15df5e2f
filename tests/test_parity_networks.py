"""Our networks against numbers computed by the official program, see CONTRIBUTING.md."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.reference import DEVICE, SLACK, SNAPSHOT, load, to_test_device, under

from stylegan.interop import (
    discriminator_from_official,
    generator_from_official,
    load_official,
    mapping_from_official,
    synthesis_from_official,
)
from stylegan.ops import downsample

IMAGES = {torch.float64: 1e-9, torch.float32: 5e-5}
SCORES = {torch.float64: 1e-9, torch.float32: 5e-6}
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
LODS = ["0", "0.3", "1", "1.75", "2", "2.5", "3"]


FILES = {
    name: load(name)
    for name in (
        "mapping",
        "synthesis_32",
        "synthesis_variants",
        "discriminator_32",
        "generator_truncation",
        "official_snapshot_expected",
    )
}


def key(path, dtype):
    """float64 results lie in a folder of their own, within that of a variant."""
    return f"f64/{path}" if dtype == torch.float64 else path


def assert_near(ours, official, limits):
    official = torch.from_numpy(official)
    assert ours.dtype == official.dtype
    assert ours.shape == official.shape
    limit = limits[ours.dtype] * SLACK[ours.dtype]
    torch.testing.assert_close(ours.cpu(), official, rtol=0, atol=limit)


def growth(lod, full):
    """Our resolution and alpha for an official level of detail, a float32 number there."""
    lod = float(np.float32(lod))
    return full >> int(lod), 1 - lod % 1


def enlarged(images, full):
    return F.interpolate(images, size=full, mode="nearest")


def shrunk(images, resolution):
    while images.shape[-1] > resolution:
        images = downsample(images)
    return images


def structures(arrays, folder, dtype):
    """Keys of every stored result of `folder`: (key, lod)."""
    start = key(folder, dtype) + "/"
    return {k: k.rsplit("lod", 1)[1] for k in arrays if k.startswith(start)}


@torch.no_grad()
@DTYPES
@pytest.mark.parametrize("variant", FILES["mapping"][1]["variants"])
def test_mapping_equals_the_official_one(variant, dtype):
    files, meta = FILES["mapping"]
    arrays, settings = under(f"{variant}/", files), meta["variants"][variant]["kwargs"]
    network = mapping_from_official(under("G/G_mapping/", arrays), settings).to(DEVICE, dtype)
    labels = to_test_device(arrays["labels"], dtype) if "labels" in arrays else None
    w = network(to_test_device(arrays["latents"], dtype), labels)
    if broadcast := settings.get("dlatent_broadcast"):
        w = w[:, None].expand(-1, broadcast, -1)
    assert_near(w, arrays[key("dlatents", dtype)], IMAGES)


@torch.no_grad()
@DTYPES
def test_synthesis_equals_the_official_one_while_growing(dtype):
    arrays, meta = FILES["synthesis_32"]
    network = synthesis_from_official(under("G/G_synthesis/", arrays), meta["kwargs"]).to(
        DEVICE, dtype
    )
    cases = structures(arrays, "images", dtype)
    assert sorted(cases.values()) == sorted(LODS * (1 if dtype == torch.float64 else 2))
    for case, lod in cases.items():
        resolution, alpha = growth(lod, 32)
        ws = to_test_device(arrays["dlatents"], dtype)
        images = network(ws, resolution=resolution, alpha=alpha, noise="const")
        assert images.shape[-1] == resolution
        assert_near(enlarged(images, 32), arrays[case], IMAGES)


@torch.no_grad()
@DTYPES
@pytest.mark.parametrize("variant", FILES["synthesis_variants"][1]["variants"])
def test_synthesis_ablations_equal_the_official_ones(variant, dtype):
    files, meta = FILES["synthesis_variants"]
    arrays, settings = under(f"{variant}/", files), meta["variants"][variant]["kwargs"]
    network = synthesis_from_official(under("G/G_synthesis/", arrays), settings).to(DEVICE, dtype)
    images = network(to_test_device(arrays["dlatents"], dtype), noise="const")
    assert_near(images, arrays[key("images", dtype)], IMAGES)


@torch.no_grad()
@DTYPES
@pytest.mark.parametrize("fused", [True, False])
def test_synthesis_from_official_distinguishes_fused_scale(fused, dtype):
    files, meta = FILES["synthesis_variants"]
    arrays = under("fused_pair/", files)
    settings = meta["fused_pair"]["kwargs"] | {"fused_scale": fused}
    network = synthesis_from_official(under("G/G_synthesis/", arrays), settings).to(DEVICE, dtype)
    images = network(to_test_device(arrays["dlatents"], dtype), noise="const")
    assert_near(images, arrays[key(f"images/fused_{fused}".lower(), dtype)], IMAGES)


def discriminator_inputs(arrays, dtype):
    images = to_test_device(arrays["images"], dtype)
    return images, to_test_device(arrays["labels"], dtype) if "labels" in arrays else None


@torch.no_grad()
@DTYPES
@pytest.mark.parametrize("variant", FILES["discriminator_32"][1]["variants"])
def test_discriminator_equals_the_official_one_while_growing(variant, dtype):
    files, meta = FILES["discriminator_32"]
    arrays, settings = under(f"{variant}/", files), meta["variants"][variant]["kwargs"]
    network = discriminator_from_official(under("D/", arrays), settings).to(DEVICE, dtype)
    images, labels = discriminator_inputs(arrays, dtype)
    cases = structures(arrays, "scores", dtype)
    assert sorted(cases.values()) == sorted(LODS * (1 if dtype == torch.float64 else 2))
    for case, lod in cases.items():
        resolution, alpha = growth(lod, 32)
        logits = network(shrunk(images, resolution), labels, alpha=alpha)
        assert_near(logits[:, None], arrays[case], SCORES)


@torch.no_grad()
@DTYPES
@pytest.mark.parametrize("fused", [True, False])
def test_discriminator_from_official_ignores_fused_scale(fused, dtype):
    files, meta = FILES["discriminator_32"]
    arrays = under("fused_pair/", files)
    settings = meta["fused_pair"]["kwargs"] | {"fused_scale": fused}
    network = discriminator_from_official(under("D/", arrays), settings).to(DEVICE, dtype)
    logits = network(*discriminator_inputs(arrays, dtype))
    assert_near(logits[:, None], arrays[key(f"scores/fused_{fused}".lower(), dtype)], SCORES)


def truncation(case):
    """psi, as the float32 number it is officially, and cutoff; no cutoff means no truncation."""
    psi, cutoff = case.get("truncation_psi", 1), case.get("truncation_cutoff")
    return {"psi": float(np.float32(psi)) if cutoff else 1.0, "cutoff": cutoff}


@torch.no_grad()
@DTYPES
def test_generator_with_truncation_equals_the_official_one(dtype):
    arrays, meta = FILES["generator_truncation"]
    network = generator_from_official(under("G/", arrays), meta["kwargs"]).to(DEVICE, dtype)
    z = to_test_device(arrays["latents"], dtype)
    ws = network.broadcast(network.mapping(z))
    assert_near(ws, arrays[key("dlatents", dtype)], IMAGES)
    for name, case in meta["cases"].items():
        images = network(z, noise="const", **truncation(case))
        assert_near(images, arrays[key(f"images/{name}", dtype)], IMAGES)


@torch.no_grad()
def test_load_official_snapshot_computes_the_official_numbers():
    arrays, meta = FILES["official_snapshot_expected"]
    snapshot = load_official(SNAPSHOT)
    assert (snapshot.loaded.settings.psi, snapshot.loaded.settings.cutoff) == (0.7, 8)
    for network in (snapshot.generator, snapshot.generator_ema, snapshot.discriminator):
        network.to(DEVICE)
    ema = snapshot.generator_ema
    z = to_test_device(arrays["latents"])
    assert_near(ema.broadcast(ema.mapping(z)), arrays["dlatents"], IMAGES)
    for name, case in meta["cases"].items():
        psi = case["truncation_psi"]
        images = ema(z, psi=psi, cutoff=snapshot.loaded.settings.cutoff, noise="const")
        assert_near(images, arrays[f"Gs_images/{name}"], IMAGES)
        logits = snapshot.discriminator(to_test_device(arrays[f"Gs_images/{name}"]))
        assert_near(logits[:, None], arrays[f"D_scores/{name}"], SCORES)
    images = snapshot.generator(z, psi=0.7, cutoff=snapshot.loaded.settings.cutoff, noise="const")
    assert_near(images, arrays["G_images/psi0.7"], IMAGES)


def test_reference_holds_every_case_of_these_tests():
    doubles = {name: sum("f64/" in k for k in arrays) for name, (arrays, _) in FILES.items()}
    assert doubles == {
        "mapping": 7,
        "synthesis_32": len(LODS),
        "synthesis_variants": 13 + 2,
        "discriminator_32": 3 * len(LODS) + 2,
        "generator_truncation": 5 + 1,
        "official_snapshot_expected": 0,
    }
    assert len(FILES["official_snapshot_expected"][0]) == 1 + 1 + 2 + 2 + 1
