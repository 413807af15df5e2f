"""Augmentation of what the discriminator sees, against numbers of the published pipelines."""

import math

import pytest
import torch
import torch.nn.functional as F
from helpers import reference
from helpers.tiny_training import stage, tiny_config
from helpers.two_processes import fixed_signs, strengths
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from stylegan.augment import ada, diffaugment, resampling, select_rows, to_device
from stylegan.training.terms import discriminator_logits, discriminator_terms

ARRAYS, META = reference.load("ada")
RESAMPLED = {*ada.BLIT, *ada.GEOMETRY}


def drawn(module, shape, names, probability=1.0, seed=0):
    return module.draw(shape, names, probability, torch.Generator().manual_seed(seed))


def test_the_official_pipeline_has_108_cases():
    assert len(META["cases"]) == 108  # 54 of color, 54 of gray: no case would be skipped in silence


@pytest.mark.parametrize("case", META["cases"])
def test_ada_equals_the_official_pipeline(case):
    folder, name, u = case.rsplit("/", 2)
    names = META["multipliers"][name]
    images = torch.from_numpy(ARRAYS[f"{folder}/images"])
    transform = ada.at_percentile(images.shape, names, float(u))
    limit = 2e-5 if RESAMPLED & names.keys() else 5e-6
    expected = torch.from_numpy(ARRAYS[case])
    assert_close(ada.apply(images, transform), expected, rtol=0, atol=limit)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("module", [ada, diffaugment])
def test_augment_apply_has_correct_first_and_second_gradients(module, channels):
    names = ada.PARAMETERS if module is ada else diffaugment.NAMES
    images = torch.randn(2, channels, 6, 4, dtype=torch.float64, requires_grad=True)
    transform = drawn(module, images.shape, names)
    assert gradcheck(lambda x: module.apply(x, transform), images, fast_mode=True)
    assert gradgradcheck(lambda x: module.apply(x, transform), images, fast_mode=True)


@pytest.mark.parametrize("module", [ada, diffaugment])
def test_augment_color_keeps_alpha_and_geometry_moves_it(module):
    images = torch.randn(3, 4, 16, 16)
    colored = module.apply(images, drawn(module, images.shape, ["color"]))
    assert torch.equal(colored[:, 3], images[:, 3])
    assert not torch.equal(colored[:, :3], images[:, :3])
    rgb = drawn(module, (3, 3, 16, 16), ["color"])
    assert_close(module.apply(images[:, :3], rgb), colored[:, :3])
    name = "geom" if module is ada else "translation"
    moved = drawn(module, images.shape, [name])
    together = module.apply(images, moved)
    assert_close(together[:, 3:], module.apply(images[:, 3:], moved))


@pytest.mark.parametrize("module", [ada, diffaugment])
def test_select_rows_transforms_part_of_a_batch_like_the_whole(module):
    names = ada.PARAMETERS if module is ada else diffaugment.NAMES
    images = torch.randn(6, 3, 32, 32, dtype=torch.float64)
    transform = drawn(module, images.shape, names)
    whole = module.apply(images, transform)
    for rows in (slice(0, 2), slice(2, 6)):
        found = module.apply(images[rows], select_rows(transform, rows))
        assert_close(found, whole[rows], rtol=0, atol=1e-12)


def touched(module, name, n, probability, resolution=16):
    """Which of n images a transform changes."""
    images = torch.randn(n, 3, resolution, resolution)
    changed = module.apply(images, drawn(module, images.shape, [name], probability)) - images
    return changed.abs().amax(dim=(1, 2, 3)) > 1e-4


# of those that a transform is given to, some are turned by 0, flipped by nothing, shifted by 0
VISIBLE = {"xflip": 1 / 2, "rotate90": 3 / 4, "lumaflip": 1 / 2, "xint": 1 - 1 / 16}
SHIFT_0 = {"color": 1.0, "translation": 24 / 25, "cutout": 1.0}


@pytest.mark.parametrize("name", [*ada.PARAMETERS, *diffaugment.NAMES[1:]])
def test_augment_probability_is_the_fraction_of_changed_images(name):
    module = ada if name in ada.PARAMETERS else diffaugment
    visible = VISIBLE.get(name, 1.0) if module is ada else SHIFT_0[name]
    if name == "imgfilter":
        visible = (1 - 0.7**4) / 0.3  # four chances
    n, expected = 600, 0.3 * visible
    share = touched(module, name, n, 0.3).float().mean().item()
    assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / n)
    assert not touched(module, name, 20, 0.0).any()


def plain_diffaugment(image, brightness, saturation, contrast, shift, edges):
    """One image (C, H, W), transform by transform."""
    x = image + brightness
    gray = x.mean(dim=0, keepdim=True)
    x = (x - gray) * saturation + gray
    x = (x - x.mean()) * contrast + x.mean()
    (right, down), (height, width) = shift, x.shape[1:]
    result = torch.zeros_like(x)
    for i in range(height):
        for j in range(width):
            if 0 <= i - down < height and 0 <= j - right < width:
                result[:, i, j] = x[:, i - down, j - right]
    left, top, last_x, last_y = edges
    result[:, max(top, 0) : last_y + 1, max(left, 0) : last_x + 1] = 0
    return result


def test_diffaugment_equals_the_published_transforms():
    images = torch.randn(8, 3, 16, 16, dtype=torch.float64)
    transform = drawn(diffaugment, images.shape, diffaugment.NAMES)
    assert transform.shift.abs().max() <= 2
    shifts, edges = transform.shift.long().tolist(), transform.cutout.long().tolist()
    rows = zip(images, transform.color, shifts, edges, strict=True)
    expected = [plain_diffaugment(x, *color, *places) for x, color, *places in rows]
    assert_close(diffaugment.apply(images, transform), torch.stack(expected))
    size = transform.cutout[:, 2:] - transform.cutout[:, :2]
    assert (size == 7).all()  # half of 16 pixels


def published_warp(images, matrices, margins):
    """By operations of torch, in the order of appendix B.1."""
    channels, height, width = images.shape[1:]
    left, right, top, bottom = margins
    taps = torch.tensor(resampling.TAPS, dtype=images.dtype)
    kernel = (taps * taps[:, None]).repeat(channels, 1, 1, 1)
    padded = F.pad(images, margins, mode="reflect")
    fine = F.conv_transpose2d(padded, 4 * kernel, stride=2, padding=5, groups=channels)
    size = torch.tensor([width, height], dtype=images.dtype)
    padded_size = size + torch.tensor([left + right, top + bottom])
    # Pixels of the result and of the padded image, from the center, and there half a fine pixel on:
    # affine_grid counts both from -1 to 1 between the outermost edges.
    reach = size + 2 * resampling.REACH
    offset = torch.tensor([left - right, top - bottom]) / 2
    linear = matrices[:, :2, :2] * reach / padded_size[:, None]
    quarter = matrices[:, :2, :2] @ torch.full((2,), 0.25, dtype=images.dtype) - 0.25
    shift = (matrices[:, :2, 2] + offset + quarter) * 2 / padded_size
    theta = torch.cat([linear, shift[:, :, None]], dim=2)
    shape = [len(images), channels, *(2 * reach.flip(0)).int().tolist()]
    grid = F.affine_grid(theta, shape, align_corners=False)
    samples = F.grid_sample(fine, grid, align_corners=False)
    return F.conv2d(samples[:, :, 1:-1, 1:-1], kernel, stride=2, groups=channels)


@pytest.mark.parametrize("at_once", [1, 2**20])
def test_warp_equals_the_published_warp_for_any_chunk_size(at_once, monkeypatch):
    """A few at a time, or all together."""
    monkeypatch.setitem(resampling.CHUNK_SIZE, "cpu", at_once)
    images = torch.randn(8, 3, 24, 20, dtype=torch.float64)
    transform = drawn(ada, images.shape, ["bg"])
    expected = published_warp(images, transform.geometry, transform.margins)
    assert_close(ada.apply(images, transform), expected, rtol=0, atol=1e-11)


def test_spread_in_order_equals_bilinear_sample_transposed():
    """Also from beyond the edges; a GPU in deterministic mode takes it."""
    samples = torch.randn(2, 3, 7, 5, dtype=torch.float64)
    grid = torch.rand(2, 7, 5, 2, dtype=torch.float64) * 2.6 - 1.3
    expected = resampling.bilinear_sample_transposed(samples, grid, (6, 9))
    assert_close(
        resampling.spread_deterministic(samples, grid, (6, 9)), expected, rtol=0, atol=1e-12
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("deterministic", [False, True])
def test_augment_apply_on_gpu_equals_cpu(deterministic, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    images = torch.randn(6, 3, 32, 32)
    transform = drawn(ada, images.shape, ada.PARAMETERS)
    results = []
    torch.use_deterministic_algorithms(deterministic)
    try:
        for device in ("cpu", "cuda", "cuda"):
            x = images.to(device).requires_grad_()
            y = ada.apply(x, to_device(transform, torch.device(device), x.dtype))
            (gradient,) = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)
            (second,) = torch.autograd.grad(gradient.square().sum(), x)
            results.append([t.detach().cpu() for t in (y, gradient, second)])
    finally:
        torch.use_deterministic_algorithms(False)
    for expected, found, again in zip(*results, strict=True):
        assert_close(found, expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
        assert not deterministic or torch.equal(found, again)


# In training


def test_augment_strength_follows_the_ada_rule_across_a_resume():
    expected, probability = [], 0.0
    for signs in fixed_signs().mean(dim=1).split(4):
        expected += [probability] * 3
        probability = max(probability + float(signs.mean().sub(0.6).sign()) * 4 * 8 / 500_000, 0.0)
        expected.append(probability)
    assert len(set(expected)) > 3
    seen = strengths()
    assert seen == pytest.approx(expected, rel=0, abs=1e-15)
    # after a change, and in the middle of an interval
    assert strengths(resume_before=(4, 6)) == seen


def test_r1_penalty_differentiates_at_the_unaugmented_images():
    """With D(x) = a * sum(x) and images multiplied by c, the penalty is (a c)^2 for each number."""
    config = tiny_config(augment={"kind": "ada", "probability": 1.0})
    reals, factor = torch.randn(4, 3, 8, 8), 1.7
    color = torch.diag(torch.tensor([factor, factor, factor, 1.0])).expand(4, 4, 4)
    transform = ada.Transform(color=color)

    class Sum(torch.nn.Module):
        def forward(self, images, labels, alpha):
            return 0.5 * images.sum(dim=(1, 2, 3))

    now = stage(8, 1.0)
    found = discriminator_logits(config, Sum(), reals, None, now, transform, penalized=True)
    real_terms = discriminator_terms(config, "real", *found, now, config.r1_gamma)
    terms = {term.name: term for term in real_terms}
    assert_close(terms["d/real_logits"].value, 0.5 * factor * reals.sum(dim=(1, 2, 3)).mean())
    penalty = terms["d/r1_penalty"].value
    assert_close(penalty, torch.tensor((0.5 * factor) ** 2 * 3 * 8 * 8))
