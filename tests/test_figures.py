"""Grids, charts, and the figures of the paper: what their pictures are."""

import dataclasses

import numpy as np
import pytest
import torch
from helpers.charts import cells, enlarged
from helpers.tiny_generators import TINY, loaded_of, random_generator, with_fine_noise_only
from torch.testing import assert_close

from stylegan import figures, load_generator, sampling
from stylegan.data.images import Fit
from stylegan.figures import layout
from stylegan.figures.noise import deviation
from stylegan.files.formats.native import save_generator
from stylegan.files.latents import write_latents


@pytest.fixture(scope="module")
def loaded():
    return loaded_of(random_generator(noise=0.5))


@pytest.fixture(scope="module")
def points(loaded):
    return figures.points_from_seeds(loaded, [3, 4, 5])


def one(loaded, seeds, **settings):
    """What `generate` makes of the seeds."""
    settings = {"psi": loaded.settings.psi, "cutoff": loaded.settings.cutoff, **settings}
    return np.concatenate(list(sampling.generate(loaded.generator, seeds, **settings)))


def of_styles(loaded, ws, **options):
    return np.stack(list(loaded.generate(ws=ws, **options)))


def same(cell, picture):
    """But for one gray level, which arithmetic in another batch may make."""
    assert gray_levels(cell, enlarged(picture)) <= 1


def gray_levels(a, b):
    """The largest difference."""
    return np.abs(a.astype(int) - b.astype(int)).max()


def test_grid_enlarges_and_shrinks_images_by_whole_factors():
    pixels = np.random.RandomState(0).randint(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    cell = np.asarray(figures.grid(pixels))[figures.GAP : -figures.GAP, figures.GAP : -figures.GAP]
    assert np.array_equal(cell, pixels[0].repeat(3, axis=0).repeat(3, axis=1))
    large = np.zeros((1, 1024, 1024, 1), np.uint8)
    large[:, ::2] = 200
    cell = np.asarray(figures.grid(large))[figures.GAP : -figures.GAP, figures.GAP : -figures.GAP]
    assert np.array_equal(cell, np.full((512, 512, 3), 100))
    assert figures.grid(np.zeros((1, 128, 96, 3), np.uint8)).size == (
        96 + 2 * figures.GAP,
        128 + 2 * figures.GAP,
    )


def plain(value, side=8):
    return np.full((side, side, 3), value, np.uint8)


def test_image_table_places_images_and_leaves_cells_empty():
    image = figures.image_table(
        [[plain(10), plain(20)], [None, plain(40)]], columns=["a", "b"], names=["one", "two"]
    )
    found = [[np.unique(cell).tolist() for cell in row] for row in cells(image, 2, 2)]
    assert found == [[[10], [20]], [[255], [40]]]
    clear = figures.image_table([[np.zeros((8, 8, 4), np.uint8)]], columns=["a"], names=["b"])
    assert set(np.unique(cells(clear, 1, 1)[0][0])) == {204, 255}  # transparent, on squares
    sizes = figures.image_table(
        [[plain(10, 4), plain(20, 32)]], columns=["4", "32"], names=["seed"]
    )
    assert [np.unique(cell).tolist() for cell in cells(sizes, 1, 2)[0]] == [[10], [20]]


def test_generate_images_equals_generate_for_seeds(loaded, points):
    assert points.names == ["seed 3", "seed 4", "seed 5"]
    for noise in ("const", "random", "none"):
        found = figures.generate_images(
            loaded, figures.points_from_seeds(loaded, [3, 4, 5], noise=noise)
        )
        assert np.array_equal(found, one(loaded, [3, 4, 5], noise=noise))


def test_latent_points_are_read_from_files_with_their_noise(loaded, points, tmp_path):
    path = tmp_path / "w.npz"
    maps = sampling.noise_from_seeds([3, 4, 5], TINY)
    write_latents(path, points.ws, maps)
    some = figures.of_latents(loaded, path, [2, 0])
    assert some.names == ["latent 2", "latent 0"]
    assert_close(some.ws, points.ws[[2, 0]])
    assert all(torch.equal(a, b[[2, 0]]) for a, b in zip(some.noise, maps, strict=True))
    assert len(figures.of_latents(loaded, path).names) == 3
    with pytest.raises(ValueError, match="latents 0 to 2, got 3"):
        figures.of_latents(loaded, path, [3])


@pytest.mark.parametrize(
    ("resolution", "ranges"),
    [
        (4, [(0, 1)]),
        (8, [(0, 1), (2, 3)]),
        (32, [(0, 1), (2, 3), (4, 7)]),
        (64, [(0, 3), (4, 7), (8, 9)]),
        (1024, [(0, 3), (4, 7), (8, 17)]),
    ],
)
def test_style_ranges_are_coarse_middle_and_fine_as_in_the_paper(resolution, ranges):
    found = figures.style_ranges(resolution)
    assert [(some.layers[0], some.layers[-1]) for some in found] == ranges
    assert [some.name for some in found] == ["coarse", "middle", "fine"][: len(ranges)]
    if resolution == 32:
        labels = [some.label for some in found]
        assert labels == ["coarse 4 px", "middle 8 px", "fine 16-32 px"]
        assert figures.StyleRange(range(3, 9)).label == "layers 3-8, 8-64 px"


def test_mixing_takes_the_chosen_layers_from_source_b(loaded, points):
    others = figures.points_from_seeds(loaded, [10, 11])
    image = figures.mixing(loaded, points, others, [figures.StyleRange(range(6))])
    rows = cells(image, 4, 3, wide_rows={1}, wide_columns={1})
    a, b = one(loaded, [3, 4, 5]), one(loaded, [10, 11])
    assert (rows[0][0] == 255).all()
    for row, own in zip(rows[1:], a, strict=True):
        same(row[0], own)
    for row in rows:
        for cell, picture in zip(row[1:], b, strict=True):
            same(cell, picture)
    low = loaded.with_settings(resolution=8)
    image = figures.mixing(low, points, others, [figures.StyleRange(range(2, 4))])
    assert not np.array_equal(*(np.asarray(row[1]) for row in cells(image, 4, 3, {1}, {1})[1:3]))


def test_truncation_goes_from_a_sample_through_w_avg_to_its_opposite(loaded, points):
    whole = loaded.with_settings(cutoff="all")
    rows = cells(figures.truncation(whole, points, [1, 0, -1]), 3, 3)
    mirrored = of_styles(whole, 2 * loaded.generator.w_avg - points.ws, psi=1.0)
    for row, full, opposite in zip(rows, one(loaded, [3, 4, 5], psi=1), mirrored, strict=True):
        same(row[0], full)
        assert gray_levels(row[1], rows[0][1]) <= 1
        same(row[2], opposite)


def test_deviation_is_measured_over_random_noise(loaded, points):
    found = deviation(loaded, points.ws[:1], 40)  # in chunks of 32
    many = of_styles(loaded, points.ws[:1].expand(40, -1, -1), noise="random")
    expected = np.sqrt(many.astype(np.float64).var(axis=0).mean(axis=2))
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert found.max() > 1


def test_noise_detail_shows_one_style_with_different_noise(loaded, points):
    rows = cells(figures.noise_detail(loaded, points), 3, 6)
    many = of_styles(loaded, points.ws[1:2].expand(5, -1, -1), noise="random")
    for cell, picture in zip(rows[1], many, strict=False):
        same(cell, picture)
    assert max(row[5].max() for row in rows) == 255


@pytest.mark.parametrize("noise", ["const", "random"])
def test_noise_components_show_all_no_fine_and_coarse_noise(loaded, points, noise):
    some = dataclasses.replace(points, noise=noise)
    rows = cells(figures.noise_components(loaded, some), 3, 4)
    for i, (full, none) in enumerate(
        zip(one(loaded, [3, 4, 5], noise=noise), one(loaded, [3, 4, 5], noise="none"), strict=True)
    ):
        same(rows[i][0], full)
        same(rows[i][1], none)
    maps = loaded.generator.synthesis.noise_maps(1, 16, "const")
    if noise == "const":
        coarse = [m if m.shape[-1] == 4 else torch.zeros_like(m) for m in maps]
        for row, picture in zip(rows, of_styles(loaded, points.ws, noise=coarse), strict=True):
            same(row[3], picture)


def test_noise_components_work_with_noise_in_fine_layers_only():
    loaded = loaded_of(with_fine_noise_only(noise=0.5))
    some = figures.points_from_seeds(loaded, [3, 4])
    rows = cells(figures.noise_components(loaded, some), 2, 4)
    full, none = (one(loaded, [3, 4], noise=noise) for noise in ("const", "none"))
    assert not np.array_equal(full, none)
    for row, with_noise, without in zip(rows, full, none, strict=True):
        for cell, picture in zip(row, (with_noise, without, with_noise, without), strict=True):
            same(cell, picture)


def test_timelapse_has_a_column_per_file_at_its_resolution(tmp_path):
    files = [tmp_path / "a.pt", tmp_path / "b.pt"]
    save_generator(files[0], random_generator(), images_seen=20_000, resolution=8)
    save_generator(files[1], random_generator(), images_seen=30_000, alpha=0.5)
    moments = [load_generator(file) for file in files]
    image = figures.timelapse(moments, lambda loaded: figures.points_from_seeds(loaded, [3]))
    small, large = cells(image, 1, 2)[0]
    at_last = load_generator(files[1])
    same(small, one(at_last, [3], resolution=8)[0])
    same(large, one(at_last, [3], resolution=16, alpha=0.5)[0])


@pytest.mark.parametrize("crop", ["pad 2:3", "pad 3:2", "pad 16:9"])
def test_filling_leaves_no_gap_around_images_with_padding(crop):
    rectangle = Fit.parse(crop).active_rectangle(64)
    height, width = sampling.crop_padding(np.zeros((1, 64, 64, 3)), rectangle).shape[1:3]
    for r in (4, 8, 16, 32, 64):
        (white,) = sampling.crop_padding(np.full((1, r, r, 3), 255, np.uint8), rectangle)
        filled = layout.filling(sampling.to_pil(white), (4 * width, 4 * height))
        assert filled.size == (4 * width, 4 * height) and np.asarray(filled).min() == 255


def test_evenly_includes_both_ends():
    assert figures.evenly([0, 1, 2, 50, 97, 100], 3) == [0, 3, 5]
    assert figures.evenly([0, 1, 2], 8) == [0, 1, 2]
    assert figures.evenly([], 8) == []
    assert figures.nearest([0, 10], 6) == [0, 0, 0, 1, 1, 1]


@pytest.fixture
def one_font(monkeypatch):
    """A machine whose only font is DejaVu Sans, which comes with matplotlib."""
    dejavu = next(layout.font_files())
    monkeypatch.setattr(layout, "font_files", lambda: iter([dejavu]))
    layout.file_with.cache_clear()
    yield str(dejavu)
    layout.file_with.cache_clear()


def test_legible_escapes_characters_that_no_font_has(one_font):
    assert layout.file_with(frozenset("seed 1")) == ""  # Pillow's own font
    assert layout.file_with(frozenset("Ψ é")) == one_font
    assert layout.legible(["seed 1", "Ψ é"]) == ["seed 1", "Ψ é"]
    assert layout.legible(["猫 1", "Ψ"]) == ["\\u732b 1", "Ψ"]
    assert layout.legible(["a\ue000"]) == ["a\\ue000"]
    pictures = np.zeros((1, 16, 16, 3), np.uint8)
    cat, escaped, psi = (
        np.asarray(figures.grid(pictures, labels=[label])) for label in ("猫", "\\u732b", "Ψ")
    )
    assert np.array_equal(cat, escaped)
    assert not np.array_equal(cat, psi)
