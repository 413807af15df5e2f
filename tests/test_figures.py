"""Grids, charts, and the figures of the paper: what their pictures are."""

import dataclasses

import numpy as np
import pytest
import torch
from PIL import ImageFont
from tiny_generators import TINY, random_generator
from torch.testing import assert_close

from stylegan import sampling
from stylegan.figures import (
    GAP,
    StyleRange,
    chart,
    default_columns,
    evenly,
    grid,
    lettering,
    mixed,
    mixing,
    nearest,
    noise_components,
    noise_detail,
    of_latents,
    of_seeds,
    pictures,
    pictures_at_psis,
    style_ranges,
    timelapse,
)
from stylegan.figures.layout import wrapped
from stylegan.figures.lettering import font_of, legible
from stylegan.figures.noise import deviation, fine_from, liveliest
from stylegan.files.latents import write_latents
from stylegan.files.loading import (
    LoadedGenerator,
    load_file,
    newest_of_each_resolution,
    save_generator,
)
from stylegan.networks import NetworkConfig
from stylegan.run_folder import RunFolder

SIDE = 96  # of a cell that shows a small picture


@pytest.fixture(scope="module")
def loaded():
    return LoadedGenerator(random_generator(noise=0.5), "memory", resolution=16)


@pytest.fixture(scope="module")
def points(loaded):
    return of_seeds(loaded, [3, 4, 5])


def one(loaded, seeds, **settings):
    """What `generate` makes of the seeds."""
    settings = {"psi": loaded.psi, "cutoff": loaded.cutoff, **settings}
    return np.concatenate(list(sampling.generate(loaded.generator, seeds, **settings)))


def of_styles(loaded, ws, **options):
    return np.stack(list(loaded.pictures(ws=ws, **options)))


def cells(image, rows, columns, wide_rows=(), wide_columns=()):
    """The places of a chart, counted from its lower right corner."""

    def starts(end, n, wide):
        found, place = [], end - GAP - SIDE
        for i in reversed(range(n)):
            found.append(place)
            place -= SIDE + (4 * GAP if i in wide else GAP)
        return found[::-1]

    pixels = np.asarray(image)
    return [
        [pixels[y : y + SIDE, x : x + SIDE] for x in starts(image.width, columns, wide_columns)]
        for y in starts(image.height, rows, wide_rows)
    ]


def enlarged(picture):
    factor = SIDE // len(picture)
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)


def same(cell, picture):
    """But for one gray level, which arithmetic in another batch may make."""
    assert np.abs(cell.astype(int) - enlarged(picture).astype(int)).max() <= 1


# Grids


def grays(n, height=4, width=4, channels=3):
    """Pictures of one value each: 10, 20, ..."""
    values = np.arange(1, n + 1, dtype=np.uint8) * 10
    return np.broadcast_to(values[:, None, None, None], (n, height, width, channels))


def test_small_pictures_are_enlarged_and_large_ones_averaged_by_whole_factors():
    pixels = np.random.RandomState(0).randint(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    cell = np.asarray(grid(pixels))[GAP:-GAP, GAP:-GAP]
    assert np.array_equal(cell, pixels[0].repeat(3, axis=0).repeat(3, axis=1))
    large = np.zeros((1, 1024, 1024, 1), np.uint8)
    large[:, ::2] = 200
    cell = np.asarray(grid(large))[GAP:-GAP, GAP:-GAP]
    assert np.array_equal(cell, np.full((512, 512, 3), 100))
    assert grid(grays(1, 128, 96)).size == (96 + 2 * GAP, 128 + 2 * GAP)


def test_labels_stand_under_their_pictures_and_touch_nothing():
    pictures = grays(6, 100, 100)
    bare, labelled = grid(pictures, 3), grid(pictures, 3, [f"seed {i}" for i in range(6)])
    line = (labelled.height - bare.height) // 2
    assert 10 <= line <= 25
    pixels = np.asarray(labelled)
    step = 100 + GAP + line
    for i in range(6):
        x, y = GAP + i % 3 * (100 + GAP), GAP + i // 3 * step
        assert (pixels[y : y + 100, x : x + 100] == 10 * (i + 1)).all()
        below = pixels[y + 100 : y + 100 + line, x : x + 100]
        assert below.min() < 100  # ink
    gaps = pixels[:, 100 + GAP : 100 + 2 * GAP]
    assert (gaps == 255).all()


def test_transparent_pictures_lie_on_squares():
    pixels = np.zeros((1, 100, 100, 4), np.uint8)
    shown = np.asarray(grid(pixels))[GAP:-GAP, GAP:-GAP]
    assert (shown[:8, :8] == 255).all() and (shown[8:16, :8] == 204).all()
    pixels[..., 3] = 255
    assert not np.asarray(grid(pixels))[GAP:-GAP, GAP:-GAP].any()


@pytest.mark.parametrize(
    ("n", "columns"),
    [(1, 1), (2, 2), (3, 3), (7, 3), (8, 4), (9, 3), (32, 8), (36, 6), (37, 7), (64, 8)],
)
def test_default_columns_fill_the_rows_where_they_can(n, columns):
    assert default_columns(n) == columns


# Charts


def plain(value, side=8):
    return np.full((side, side, 3), value, np.uint8)


def test_a_chart_has_its_pictures_in_rows_and_columns_and_leaves_places_empty():
    image = chart(
        [[plain(10), plain(20)], [None, plain(40)]], columns=["a", "b"], names=["one", "two"]
    )
    found = [[np.unique(cell).tolist() for cell in row] for row in cells(image, 2, 2)]
    assert found == [[[10], [20]], [[255], [40]]]
    clear = chart([[np.zeros((8, 8, 4), np.uint8)]], columns=["a"], names=["b"])
    assert set(np.unique(cells(clear, 1, 1)[0][0])) == {204, 255}  # transparent, on squares
    sizes = chart([[plain(10, 4), plain(20, 32)]], columns=["4", "32"], names=["seed"])
    assert [np.unique(cell).tolist() for cell in cells(sizes, 1, 2)[0]] == [[10], [20]]


def test_labels_of_a_chart_are_ink_outside_of_its_pictures():
    rows = [[plain(0), plain(0)]] * 3
    image = chart(rows, columns=["x", "y"], names=["n"] * 3, title="t", bands=[("u", 1), ("v", 2)])
    pixels = np.asarray(image)
    left, top = image.width - 2 * (SIDE + GAP), image.height - 3 * (SIDE + GAP) - 3 * GAP
    assert (np.unique(pixels[top:, left:]) == [0, 255]).all()
    assert pixels[:top].min() == pixels[top:, :left].min() == 60
    one = chart(rows[:1], columns=["x", "y"], names=["n"])
    assert image.height > one.height + 2 * (SIDE + GAP)  # the title, and more air between bands


def test_pictures_without_padding_keep_the_middle_of_coarser_ones():
    flat, coarse = np.full((12, 16, 3), 9, np.uint8), plain(7, 4)
    coarse[1:3] = 8  # 4x4 pixels of which half a row above and below is padding
    image = np.asarray(chart([[flat, coarse]], columns=["a", "b"], names=["n"]))
    cell = image[-GAP - 72 : -GAP, -GAP - 96 : -GAP, 0]
    assert [np.unique(row).tolist() for row in cell[:: 72 // 6]] == [[7], [8], [8], [8], [8], [7]]


# Points


def test_pictures_of_seeds_are_those_that_generate_makes(loaded, points):
    assert points.names == ["seed 3", "seed 4", "seed 5"]
    for noise in ("const", "random", "none"):
        found = pictures(loaded, of_seeds(loaded, [3, 4, 5], noise=noise))
        assert np.array_equal(found, one(loaded, [3, 4, 5], noise=noise))


def test_saved_latents_are_points_with_their_noise(loaded, points, tmp_path):
    path = tmp_path / "w.npz"
    maps = sampling.seed_noise([3, 4, 5], TINY)
    write_latents(path, points.ws, maps)
    some = of_latents(loaded, path, [2, 0])
    assert some.names == ["latent 2", "latent 0"]
    assert_close(some.ws, points.ws[[2, 0]])
    assert all(torch.equal(a, b[[2, 0]]) for a, b in zip(some.noise, maps, strict=True))
    assert len(of_latents(loaded, path).names) == 3
    with pytest.raises(ValueError, match="holds latents 0 to 2, but 3 was asked for"):
        of_latents(loaded, path, [3])


# Mixing


@pytest.mark.parametrize(
    ("resolution", "ranges"),
    [
        (4, [(0, 1)]),
        (8, [(0, 1), (2, 3)]),
        (16, [(0, 1), (2, 3), (4, 5)]),
        (32, [(0, 1), (2, 3), (4, 7)]),
        (64, [(0, 3), (4, 7), (8, 9)]),
        (128, [(0, 3), (4, 7), (8, 11)]),
        (1024, [(0, 3), (4, 7), (8, 17)]),
    ],
)
def test_style_ranges_are_the_paper_s_where_there_are_all_three(resolution, ranges):
    found = style_ranges(resolution)
    assert [(some.layers[0], some.layers[-1]) for some in found] == ranges
    assert [some.name for some in found] == ["coarse", "middle", "fine"][: len(ranges)]
    layers = [i for some in found for i in some.layers]
    assert layers == list(range(NetworkConfig().num_layers(resolution)))
    if resolution == 32:
        labels = [some.label for some in found]
        assert labels == ["coarse 4 px", "middle 8 px", "fine 16-32 px"]
        assert StyleRange(range(3, 9)).label == "layers 3-8, 8-64 px"


def test_mixed_styles_are_those_of_the_other_within_the_range_alone():
    ws, others = torch.zeros(1, 6, 2), torch.ones(3, 6, 2)
    found = mixed(ws, others, range(2, 4))
    assert found.shape == (3, 6, 2)
    assert found[:, :, 0].tolist() == [[0, 0, 1, 1, 0, 0]] * 3


def test_mixing_all_layers_gives_source_b_and_none_of_the_picture_s_gives_source_a(loaded, points):
    others = of_seeds(loaded, [10, 11])
    image = mixing(loaded, points, others, [StyleRange(range(6))])
    rows = cells(image, 4, 3, wide_rows={1}, wide_columns={1})
    a, b = one(loaded, [3, 4, 5]), one(loaded, [10, 11])
    assert (rows[0][0] == 255).all()
    for row, own in zip(rows[1:], a, strict=True):
        same(row[0], own)
    for row in rows:
        for cell, picture in zip(row[1:], b, strict=True):
            same(cell, picture)
    low = dataclasses.replace(loaded, resolution=8)
    image = mixing(low, points, others, [StyleRange(range(2, 4))])
    assert not np.array_equal(*(np.asarray(row[1]) for row in cells(image, 4, 3, {1}, {1})[1:3]))


# Truncation


def test_psi_goes_from_the_picture_over_the_average_to_the_opposite(loaded, points):
    whole = dataclasses.replace(loaded, cutoff=None)
    full, average, opposite = pictures_at_psis(whole, points, [1, 0, -1])
    assert np.array_equal(full, one(loaded, [3, 4, 5], psi=1))
    assert np.array_equal(average[0], average[1])
    mirrored = 2 * loaded.generator.w_avg - points.ws
    upright = dataclasses.replace(loaded, psi=1.0)
    assert np.abs(opposite.astype(int) - of_styles(upright, mirrored)).max() <= 1


# Noise


def test_deviation_is_that_of_the_pictures_over_noise(loaded, points):
    found = deviation(loaded, points.ws[:1], 40)  # in chunks of 32
    many = of_styles(loaded, points.ws[:1].expand(40, -1, -1), noise="random")
    expected = np.sqrt(many.astype(np.float64).var(axis=0).mean(axis=2))
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert found.max() > 1


def test_noise_detail_shows_the_same_style_with_other_noise(loaded, points):
    image = noise_detail(loaded, points, realizations=8, examples=2)
    rows = cells(image, 3, 4)
    many = of_styles(loaded, points.ws[1:2].expand(3, -1, -1), noise="random")
    for cell, picture in zip(rows[1], many, strict=False):
        same(cell, picture)
    assert max(row[3].max() for row in rows) == 255


def test_the_part_that_is_looked_at_is_where_most_varies():
    varying = np.zeros((16, 12))
    varying[9:12, 4:7] = 1
    rows, columns = liveliest(varying, 4)
    assert (rows, columns) == (slice(8, 12), slice(4, 7))


def test_a_zoom_frames_that_part(loaded, points):
    image = noise_detail(loaded, of_seeds(loaded, [3]), realizations=5, examples=1, zoom=2)
    first, second, _ = cells(image, 1, 3)[0]
    part = liveliest(deviation(loaded, points.ws[:1], 5), 2)
    some = of_styles(loaded, points.ws[:1].expand(2, -1, -1), noise="random")
    same(second, some[1][part])
    assert (first[:: SIDE // 16, :: SIDE // 16][part][0] == 255).all()


@pytest.mark.parametrize(
    ("resolution", "fine"), [(8, 8), (16, 8), (32, 16), (64, 64), (128, 64), (1024, 64)]
)
def test_noise_is_fine_from_64_pixels_or_the_upper_half(resolution, fine):
    assert fine_from(resolution) == fine


@pytest.mark.parametrize("noise", ["const", "random"])
def test_noise_components(loaded, points, noise):
    some = dataclasses.replace(points, noise=noise)
    rows = cells(noise_components(loaded, some), 3, 4)
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


def plain_network(**settings):
    config = dataclasses.replace(TINY, **settings)
    return LoadedGenerator(random_generator(config), "memory", resolution=16)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda some, points: grid([]), "at least one picture"),
        (lambda some, points: grid(grays(3), labels=["a"]), "1 labels were given for 3 pictures"),
        (lambda some, points: grid(grays(3), columns=-1), "at least 1 column, not -1"),
        (lambda some, points: chart([], columns=[], names=[]), "at least one row"),
        (
            lambda some, points: chart([[plain(1)]], columns=["a", "b"], names=["n"]),
            r"2 columns and bands of \[1\] rows was given \[1\] pictures",
        ),
        (
            lambda some, points: mixing(some, points, points, [StyleRange(range(2, 7))]),
            "layers 2-6 were asked for, but at 16x16 there are layers 0-5",
        ),
        (
            lambda some, points: mixing(plain_network(styles=False), points, points),
            "has no styles",
        ),
        (
            lambda some, points: noise_components(plain_network(noise=False), points),
            "no noise inputs",
        ),
        (lambda some, points: noise_detail(some, points, realizations=4), "4 realizations of noi"),
        (lambda some, points: noise_detail(some, points, zoom=17), "16 rows has no 1/17 of them"),
        (lambda some, points: fine_from(4), "at 4x4 all layers are coarse"),
        (lambda some, points: evenly([1, 2], 1), "the first and the last"),
        (lambda some, points: of_seeds(some, []), "at least one seed"),
    ],
)
def test_figures_that_cannot_be_are_refused(loaded, points, draw, message):
    with pytest.raises(ValueError, match=message):
        draw(loaded, points)


# Training


@pytest.fixture
def run(tmp_path):
    generator = random_generator()
    for images, resolution, alpha in ((10_000, 8, 1.0), (20_000, 8, 1.0), (30_000, 16, 0.5)):
        save_generator(
            tmp_path / f"generator-{images:09d}.pt",
            generator,
            images_seen=images,
            resolution=resolution,
            alpha=alpha,
        )
    return tmp_path


def test_growth_shows_the_last_file_of_each_resolution(run):
    (run / "state-000020000.pt").touch()  # the generator of that moment is taken
    files = newest_of_each_resolution(RunFolder(run).checkpoints())
    image = timelapse(map(load_file, files), lambda some: of_seeds(some, [3]))
    small, large = cells(image, 1, 2)[0]
    at_last = load_file(run / "generator-000030000.pt")
    same(small, one(at_last, [3], resolution=8)[0])
    same(large, one(at_last, [3], resolution=16, alpha=0.5)[0])


def test_a_timelapse_has_a_column_for_each_file(run):
    image = timelapse(
        map(load_file, RunFolder(run).checkpoints()), lambda some: of_seeds(some, [3, 4])
    )
    rows = cells(image, 2, 3)
    assert np.array_equal(rows[0][0], rows[0][1])
    assert not np.array_equal(rows[0][1], rows[0][2])


def test_evenly_spread_places_have_both_ends():
    assert evenly([0, 1, 2, 50, 97, 100], 3) == [0, 3, 5]
    assert evenly([0, 1, 2], 8) == [0, 1, 2]
    assert evenly([], 8) == []
    assert nearest([0, 10], 6) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("text", ["Käse Ångström Ωμέγα Щука", "猫", "a\n\udcff\x1b"])
def test_labels_have_their_characters_or_escapes_and_no_boxes(text, monkeypatch):
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: [])  # of a bare machine
    lettering.file_with.cache_clear()
    (shown,) = legible([text])
    expected = {"猫": r"\u732b", "a\n\udcff\x1b": r"a\n\udcff\x1b"}.get(text, text)
    assert shown == expected
    box = font_of(["Щ"], 16).getmask("\u0378")  # of no character
    for c in set(shown) - {" "}:
        assert bytes(font_of([shown], 16).getmask(c)) != bytes(box)
    pixels = np.zeros((4, 4, 3), np.uint8)
    assert grid([pixels], labels=[text]).size == grid([pixels], labels=[expected]).size
    lettering.file_with.cache_clear()


def test_names_of_bands_are_wrapped_to_their_length():
    font = ImageFont.load_default(16)
    text = "layers 0-3, 4-8 px from B"
    length = int(font.getlength("layers 0-3,"))
    lines = wrapped(text, font, length)
    assert " ".join(lines) == text
    assert lines[0] == "layers 0-3,"
    assert all(font.getlength(line) <= length for line in lines)
    assert wrapped(text, font, 1000) == [text]
    assert wrapped("", font, 1000) == []
