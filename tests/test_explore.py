"""The explorer without its page: view, pictures, saved points, projection, names."""

import base64
import dataclasses
import io
import math

import numpy as np
import pytest
import torch
from explorer import TINY, controls, explored
from PIL import Image
from torch.testing import assert_close

from stylegan import sampling
from stylegan.blending import blended
from stylegan.centers import find_centers
from stylegan.directions import (
    default_path,
    find_directions,
    known_directions,
    save_directions,
)
from stylegan.edits import edited, total_move
from stylegan.explore import (
    Blend,
    Mixing,
    Scene,
    View,
    activations,
    contact_sheet,
    final_styles,
    grown,
    growth_of,
    render,
)
from stylegan.explore.controls import (
    POINTS,
    class_names,
    described,
    file_of,
    name_of,
    view_of,
)
from stylegan.explore.page import Page, latents_file
from stylegan.explore.projecting import searched, target_of
from stylegan.files.keyframes import styles_text
from stylegan.files.latents import read_latents
from stylegan.ops import truncate


@pytest.fixture(scope="module")
def scene():
    return explored()


def edits_of(scene, **strengths):
    """Edits along some directions of the scene."""
    return [
        scene.directions[method].edit(name, strength)
        for method, some in strengths.items()
        for name, strength in some.items()
    ]


def difference(picture, other):
    return np.abs(picture.astype(int) - other.astype(int)).max()


@pytest.mark.parametrize(
    ("view", "options"),
    [
        (View(seed=3), {"psi": 0.7}),
        (View(seed=3, psi=-1, cutoff=2), {"psi": -1, "cutoff": 2}),
        (View(seed=3, psi=1, noise="none"), {"psi": 1, "noise": "none"}),
        (View(seed=3, noise="random", noise_seed=3), {"noise": "random"}),
        (View(seed=3, growth=3.0), {"resolution": 8}),
        (View(seed=3, growth=3.25), {"resolution": 16, "alpha": 0.25}),
    ],
)
def test_a_seed_is_the_picture_that_generate_makes(scene, view, options):
    view = dataclasses.replace(view, label=2)
    (expected,) = sampling.generate(
        scene.generator, [3], labels=torch.eye(3)[2:], **({"cutoff": None} | options)
    )
    assert difference(render(scene, view), expected[0]) <= 1


def test_noise_and_its_seed_change_the_picture(scene):
    kinds = [("const", 0), ("none", 0), ("random", 0), ("random", 1)]
    pictures = [render(scene, View(label=0, noise=n, noise_seed=s)) for n, s in kinds]
    for i in range(4):
        assert all(difference(pictures[i], other) > 1 for other in pictures[:i])


def test_mixing_takes_the_layers_of_the_other_seed(scene):
    view = View(seed=1, label=0, psi=1, mixing=Mixing(2, range(1, 3)))
    found = final_styles(scene, view)
    own, other = (final_styles(scene, View(seed=s, label=0, psi=1)) for s in (1, 2))
    assert_close(found[1:3], other[1:3])
    assert_close(found[[0, 3, 4, 5]], own[[0, 3, 4, 5]])


def test_edits_come_after_truncation(scene):
    edits = edits_of(scene, pca={"2": 2}, sefa={"1": -1})
    view = View(seed=4, label=1, psi=0.5, edits=edits)
    ws = final_styles(scene, View(seed=4, label=1, psi=1))[None]
    ws = truncate(ws, scene.generator.w_avg, 0.5, None)
    ws = edited(ws, edits, scene.generator.config)
    assert_close(final_styles(scene, view), ws[0])


def test_given_styles_take_the_place_of_seed_and_truncation(scene):
    styles = torch.randn(6, 8)
    view = View(seed=5, psi=0, mixing=Mixing(1, range(6)), styles=styles)
    assert torch.equal(final_styles(scene, view), styles)


@pytest.mark.parametrize(
    ("growth", "resolution", "alpha"),
    [(2, 4, 1.0), (2.25, 8, 0.25), (4, 16, 1.0), (4.5, 32, 0.5), (10, 1024, 1.0)],
)
def test_growth_is_the_logarithm_of_the_size_and_fades_between(growth, resolution, alpha):
    assert grown(growth) == (resolution, alpha)
    assert growth_of(resolution, alpha) == growth


@pytest.mark.parametrize("growth", [1.75, 4.25, math.nan])
def test_growth_beyond_training_is_refused(scene, growth):
    with pytest.raises(ValueError, match="growth is from 2 to 4 here"):
        render(scene, View(label=0, growth=growth))


def test_a_network_that_still_grows_is_shown_as_far_as_it_is():
    scene = explored(resolution=8, alpha=0.5)
    (expected,) = sampling.generate(
        scene.generator, [0], labels=torch.eye(3)[:1], cutoff=None, resolution=8, alpha=0.5
    )
    assert difference(render(scene, View(label=0)), expected[0]) <= 1
    assert difference(render(scene, View(label=0, growth=2.5)), expected[0]) <= 1
    with pytest.raises(ValueError, match=r"growth is from 2 to 2\.5 here, not 3"):
        render(scene, View(label=0, growth=3))


def test_classes_without_names_are_numbered():
    scene = explored(label_names=())
    assert class_names(scene) == ["class 0", "class 1", "class 2"]


def test_many_can_look_at_one_generator(scene):
    """Nothing of one picture remains for the next."""
    view = [View(seed=s, label=s % 3, noise="random", noise_seed=s) for s in range(3)]
    before = [render(scene, one) for one in view]
    for i in (2, 0, 1, 2):
        assert np.array_equal(render(scene, view[i]), before[i])
    assert all(not p.requires_grad for p in scene.generator.parameters())


def test_the_active_rectangle_alone_is_shown():
    scene = explored(active_rectangle=(2, 14, 0, 16))
    assert render(scene, View(label=0)).shape == (12, 16, 3)


def test_a_point_is_seen_again_as_it_was(scene):
    view = View(seed=9, label=0, psi=0.4, edits=edits_of(scene, pca={"1": 3}))
    point = View(styles=final_styles(scene, view))
    assert difference(render(scene, point), render(scene, view)) <= 1


@pytest.mark.parametrize("noise", ["const", "random"])
def test_latents_give_the_picture_again(scene, tmp_path, noise):
    view = View(
        seed=2, label=1, noise=noise, noise_seed=5, edits=edits_of(scene, pca={"1": 1, "2": 1})
    )
    (tmp_path / "l.npz").write_bytes(latents_file(scene, view))
    latents = read_latents(tmp_path / "l.npz", scene.generator)
    (again,) = sampling.generate(
        scene.generator, [0], psi=1, ws=latents.ws, noise=latents.noise or "const"
    )
    assert difference(again[0], render(scene, view)) <= 1


@pytest.mark.parametrize("growth", [3.0, 3.5])
def test_latents_of_a_lower_growth_hold_the_noise_of_all_layers(scene, tmp_path, growth):
    view = View(seed=2, label=1, noise="random", noise_seed=5, growth=growth)
    (tmp_path / "l.npz").write_bytes(latents_file(scene, view))
    ws, noise = read_latents(tmp_path / "l.npz", scene.generator)
    resolution, alpha = grown(growth)
    options = {"resolution": resolution, "alpha": alpha}
    (again,) = sampling.generate(scene.generator, [0], psi=1, ws=ws, noise=noise, **options)
    assert difference(again[0], render(scene, view)) <= 1
    (full,) = sampling.generate(scene.generator, [0], psi=1, ws=ws, noise=noise)
    assert difference(full[0], render(scene, dataclasses.replace(view, growth=4.0))) <= 1


def test_controls_become_a_view(scene):
    given = controls(scene, seed=3.0, label=2, psi=1, cutoff=2, noise="none", noise_seed=4)
    found = view_of(scene, given | {"pca": [1, 0]})
    edits = edits_of(scene, pca={"1": 1})
    expected = View(3, 2, 1.0, 2, None, None, edits, ["pca:1=+1"], 4.0, "none", 4)
    found, expected = (
        dataclasses.replace(view, edits=total_move(view.edits, scene.generator.config).tolist())
        for view in (found, expected)
    )
    assert dataclasses.asdict(found) == dataclasses.asdict(expected)


def test_any_seed_of_generate_is_taken(scene):
    largest = sampling.MAX_SEED
    given = controls(scene, seed=largest, noise_seed=largest, mix=True, mix_seed=largest)
    found = view_of(scene, given)
    assert (found.seed, found.noise_seed, found.mixing.seed) == (largest,) * 3


def test_all_layers_truncated_is_no_cutoff(scene):
    assert view_of(scene, controls(scene, cutoff=6)).cutoff == "all"


def test_any_layers_are_mixed(scene):
    found = view_of(scene, controls(scene, mix=True, mix_layers=[4, 1, 2]))
    assert found.mixing == Mixing(1, (1, 2, 4))
    assert "layers 1-2,4 of seed 1" in described(scene, found)
    ws, own, other = (final_styles(scene, v) for v in (found, View(0, 0), View(1, 0)))
    for layer in range(6):
        assert_close(ws[layer], (other if layer in (1, 2, 4) else own)[layer])


def test_the_plane_of_three_seeds_has_them_at_its_corners(scene):
    at = {"psi": 1, "plane_a": 7, "plane_b": 8}
    for place, seed in (((0, 0), 0), ((1, 0), 7), ((0, 1), 8)):
        given = controls(scene, plane_x=place[0], plane_y=place[1], **at)
        found = final_styles(scene, view_of(scene, given))
        assert_close(found, final_styles(scene, View(seed, 0, psi=1)))
    ws = [final_styles(scene, View(seed, 0, psi=1)) for seed in (0, 7, 8)]
    found = final_styles(scene, view_of(scene, controls(scene, plane_x=0.5, plane_y=-2, **at)))
    assert_close(found, ws[0] + 0.5 * (ws[1] - ws[0]) - 2 * (ws[2] - ws[0]))


def test_truncation_pulls_toward_the_chosen_centres(scene):
    view = view_of(scene, controls(scene, centers="4", psi=0, label=2))
    centers = find_centers(scene.generator, 4, torch.eye(3)[2:])
    distances = (final_styles(scene, view)[0] - centers).norm(dim=1)
    assert distances.min() < 1e-5 and "--centers 4" in described(scene, view)
    own = Scene(dataclasses.replace(scene.loaded, centers=centers), name="own")
    first = {"pca": None, "sefa": None, "psi": 0, "label": 2}
    assert_close(
        final_styles(own, view_of(own, controls(own, centers="file", **first))),
        final_styles(scene, view),
    )
    none = final_styles(own, view_of(own, controls(own, centers="none", **first)))
    assert_close(none[0], own.generator.w_avg)


def test_points_take_the_place_of_the_seed_and_the_way_between_them_is_straight(scene):
    start, end = (final_styles(scene, View(seed=s, label=0)) for s in (0, 1))
    ends = {"from": styles_text(start), "to": styles_text(end)}
    for t, expected in [(0, start), (0.25, 0.75 * start + 0.25 * end), (1, end)]:
        found = view_of(scene, controls(scene, start=POINTS, between=t, **ends)).styles
        assert_close(found, expected)


def of_point(*numbers):
    return {"start": POINTS, "to": "", "from": base64.b64encode(np.array(numbers, "<f4")).decode()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, "seed is a whole number from 0 to 4294967295, not -1"),
        ({"seed": None}, "seed is a whole number from 0 to 4294967295, not empty"),
        ({"seed": 2**32}, "seed is a whole number from 0 to 4294967295, not 4294967296"),
        ({"seed": True}, "seed is a whole number from 0 to 4294967295, not True"),
        ({"seed": "5"}, "seed is a whole number from 0 to 4294967295, not '5'"),
        ({"seed": math.nan}, "seed is a whole number from 0 to 4294967295, not nan"),
        ({"noise_seed": math.inf}, "noise_seed is a whole number from .*, not inf"),
        ({"noise_seed": 10**4000}, r"noise_seed is a whole number from .*, not 10*\.\.\.$"),
        ({"mix": True, "mix_seed": 0.5}, "mix_seed is a whole number from .*, not 0.5"),
        ({"label": 3}, "label is a whole number from 0 to 2, not 3"),
        ({"mix_layers": [6]}, "mix_layers is a whole number from 0 to 5, not 6"),
        ({"mix_layers": 1}, "mix_layers is a list of layers from 0 to 5, not 1"),
        ({"centers": "5"}, "centers is one of 'none', '4', '16', '64', 'class', not '5'"),
        ({"plane_x": math.nan}, "plane_x is a number from -100 to 100, not nan"),
        ({"mix": 1}, "mix is one of False, True, not 1"),
        ({"cutoff": 7}, "cutoff is a whole number from 0 to 6, not 7"),
        ({"psi": 1e306}, "psi is a number from -100 to 100, not 1e"),
        ({"psi": []}, "psi is a number from -100 to 100, not "),
        ({"growth": 1.75}, "growth is a number from 2 to 4, not 1.75"),
        ({"noise": "loud"}, "noise is one of 'const', 'random', 'none', not 'loud'"),
        ({"noise": {}}, "noise is one of 'const', 'random', 'none', not {}"),
        ({"pca": [0]}, "pca is a list of 2 numbers"),
        ({"pca": [0, None]}, "direction 2 of pca is a number from -100 to 100, not empty"),
        ({"sefa": 0}, "sefa is a list of 2 numbers"),
        ({"edit_first": 6}, "edit_first is a whole number from 0 to 5, not 6"),
        ({"saved": []}, "saved are strengths of saved edits by name"),
        ({"saved": {"a": "1"}}, "a is a number from -100 to 100, not '1'"),
        ({"saved": {"a": 1}}, "there is no saved edit 'a'"),
        ({"start": "x" * 999}, r"start is one of 'seed', 'points', not 'x*\.\.\.$"),
        ({"start": POINTS}, "choose two saved points"),
        (of_point(1.0), "the saved point is of another network"),
        (of_point(*[math.nan] * 48), "numbers that are not finite"),
        ({"start": POINTS, "from": "%%%%"}, "the saved point must be base64"),
        ({"start": POINTS, "from": 3}, "the saved point must be base64: it is 3"),
    ],
)
def test_controls_that_cannot_be_are_refused_in_words(scene, changes, message):
    with pytest.raises(ValueError, match=message):
        view_of(scene, controls(scene, **changes))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (None, "choose a file first"),
        ("x", "choose a file first"),
        ({"content": ""}, "choose a file first"),
        ({"name": "x"}, "the file's content must be base64"),
    ],
)
def test_files_that_cannot_be_are_refused_in_words(file, message):
    with pytest.raises(ValueError, match=message):
        file_of({"file": file})


def test_of_a_files_name_only_the_last_part_is_used():
    for name in ("/home/me/p.png", "C:\\me\\p.png", "p.png"):
        assert file_of({"file": {"name": name, "content": "YQ=="}}) == ("p.png", b"a")


@pytest.mark.parametrize(
    ("changes", "name", "description"),
    [
        ({"seed": 7}, "seed0007-a_b", "seed 7 · a/b · ψ 0.7 · 16×16"),  # noqa: RUF001
        ({"growth": 3.25, "psi": 1}, "seed0000-a_b", "25 % grown in"),
        ({"mix": True}, "seed0000-a_b-mixed1", "layers 1-2 of seed 1"),
        ({"sefa": [0, 1]}, "seed0000-a_b-edited", "16 · --edit sefa:2=+1"),
        ({"pca": [-2, 0], "edit_last": 3}, "seed0000-a_b-edited", "--edit pca:1=-2@0-3"),
        (of_point(*[0.0] * 48) | {"to": of_point(*[0.0] * 48)["from"]}, "point", "16"),
    ],
)
def test_pictures_are_named_and_described(scene, changes, name, description):
    view = view_of(scene, controls(scene, **changes))
    assert name_of(scene, view) == name
    assert description in described(scene, view)


def png(pixels):
    buffer = io.BytesIO()
    sampling.picture(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def test_a_picture_of_the_generator_is_found_again(scene):
    pixels = render(scene, View(seed=1, label=0, psi=0.6))
    target = target_of(scene, png(pixels), "p.png")
    found = list(searched(scene, target, steps=200, each_layer=True, label=0))
    assert [found[0].step, found[-1].step, found[-1].steps] == [0, 200, 200]
    assert found[-1].decibels > found[0].decibels + 10
    again = render(scene, View(styles=found[-1].styles))
    assert difference(again, found[-1].picture) <= 1


def test_what_is_told_of_a_found_picture_leaves_out_the_padding():
    scene = explored(active_rectangle=(2, 14, 0, 16))
    pixels = render(scene, View(seed=1, label=0))
    target = target_of(scene, png(pixels), "p.png")
    found = list(searched(scene, target, steps=1, each_layer=False, label=0))[-1]
    error = np.square((found.picture - pixels.astype(float)) / 255).mean()
    assert found.decibels == pytest.approx(-10 * math.log10(error), abs=0.1)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"not a picture", r"^mine\.png: not a PNG"), (b"", r"^mine\.png: the file is empty")],
)
def test_what_is_no_picture_is_refused_by_its_name(scene, content, message):
    with pytest.raises(ValueError, match=message):
        target_of(scene, content, "mine.png")


def test_a_huge_picture_is_refused(scene):
    buffer = io.BytesIO()
    Image.new("1", (12_000, 12_000)).save(buffer, "PNG")
    with pytest.raises(ValueError, match=r"^huge\.png: 12000x12000 pixels are more"):
        target_of(scene, buffer.getvalue(), "huge.png")


@pytest.mark.parametrize("steps", [0, 1001])
def test_a_search_takes_its_time_but_no_more(scene, steps):
    with pytest.raises(ValueError, match="1 to 1000 steps here"):
        next(searched(scene, torch.zeros(1, 3, 16, 16), steps=steps, each_layer=False, label=0))


def test_kept_directions_are_taken_and_others_found_anew(scene, tmp_path):
    path = tmp_path / "g.pt"
    path.touch()
    found = find_directions(scene.generator, ["pca"], count=1, samples=50)
    save_directions(default_path(path), found, scene.generator)
    kept = known_directions(path, scene.loaded)
    assert [(d.method, d.samples) for d in kept] == [("pca", 50), ("sefa", 10_000)]
    assert [d.method for d in known_directions(path, scene.loaded, default_path(path))] == ["pca"]
    other, told = explored(seed=1), []
    anew = known_directions(path, other.loaded, tell=told.append)
    assert [(d.method, len(d.vectors)) for d in anew] == [("pca", 8), ("sefa", 8)]
    assert "directions of other weights" in told[0]
    with pytest.raises(ValueError, match="directions of other weights"):
        known_directions(path, other.loaded, default_path(path))


def test_networks_without_styles_or_noise_have_their_pictures():
    config = dataclasses.replace(TINY, styles=False, constant_input=False, noise=False, label_dim=0)
    scene = explored(config=config, methods=["pca"])
    a, b = (render(scene, View(seed=s, psi=1, noise="random")) for s in (0, 1))
    assert difference(a, b) > 1


def test_layers_of_another_network_take_part(scene):
    other = explored(seed=1).loaded
    both = Scene(scene.loaded, list(scene.directions.values()), other=other)
    given = controls(both, seed=3, share=0.5, blend_from=3)
    view = view_of(both, given)
    assert view.blend == Blend(8, 0.5) and "blend --from 8 --share 0.5" in described(both, view)
    network = blended(scene.loaded, other, first=8, share=0.5)
    mixture = dataclasses.replace(scene.loaded, generator=network)
    label = torch.eye(3)[:1]
    (expected,) = mixture.pictures([3], labels=label, psi=0.7, cutoff="all")
    assert difference(render(both, view), expected) <= 1
    plain = view_of(both, given | {"share": 0})
    assert plain.blend is None
    assert (
        difference(render(both, plain), render(scene, view_of(scene, controls(scene, seed=3)))) == 0
    )
    with pytest.raises(ValueError, match="blend_from is a whole number from 2 to 4, not 5"):
        view_of(both, given | {"blend_from": 5})
    with pytest.raises(ValueError, match="different shapes"):
        Scene(scene.loaded, other=explored(config=dataclasses.replace(TINY, w_dim=4)).loaded)


def test_the_file_of_a_picture_with_alpha_keeps_it():
    scene = explored(config=dataclasses.replace(TINY, image_channels=4))
    page = Page(scene)
    (answer,) = page.picture(controls(scene))
    page.close()
    with Image.open(io.BytesIO(base64.b64decode(answer["file"].partition(",")[2]))) as file:
        assert file.mode == "RGBA"
        assert difference(np.asarray(file), render(scene, view_of(scene, controls(scene)))) == 0


def test_a_film_is_of_the_blended_network(scene, monkeypatch):
    other = explored(seed=1).loaded
    both, frames = Scene(scene.loaded, other=other), []

    def written(path, pictures, **options):
        frames.append(next(pictures))
        path.touch()

    monkeypatch.setattr("stylegan.explore.page.write_video", written)
    ws = final_styles(scene, View(seed=3, label=0))
    given = controls(both, share=1, blend_from=3, film_seconds=0.1, loop=False, ease=False)
    given["points"] = [styles_text(ws)] * 2
    page = Page(both)
    for share in (1, 0):
        list(page.film(given | {"share": share}))
    page.close()
    mixture = dataclasses.replace(scene.loaded, generator=blended(scene.loaded, other, first=8))
    for frame, loaded in zip(frames, (mixture, scene.loaded), strict=True):
        (expected,) = loaded.pictures([0], ws=ws[None], psi=1)
        assert difference(frame[8::16, 8::16], expected) <= 1
    assert difference(*frames) > 1


@pytest.mark.parametrize("growth", [4.0, 3.0])
def test_the_last_layers_activations_make_the_picture(scene, growth):
    view = View(seed=3, label=0, growth=growth)
    side = int(2**growth)
    maps = activations(scene, view, layer=int(2 * growth) - 3)
    assert maps.shape == (8, side, side)
    with torch.no_grad():
        image = scene.generator.synthesis.to_rgb[str(side)](maps[None])
    assert difference(sampling.to_uint8(image)[0], render(scene, view)) == 0
    assert activations(scene, view, layer=2).shape == (8, 8, 8)
    for layer in (-1, int(2 * growth) - 2):
        with pytest.raises(ValueError, match=f"a picture of {side}x{side} has layers 0 to"):
            activations(scene, view, layer)


def test_activations_are_those_of_the_blended_network_and_of_the_edits(scene):
    both = Scene(scene.loaded, list(scene.directions.values()), other=explored(seed=1).loaded)
    plain, mixed = View(seed=3, label=0), View(seed=3, label=0, blend=Blend(8, 1.0))
    assert torch.equal(activations(both, plain, 1), activations(both, mixed, 1))
    assert not torch.equal(activations(both, plain, 2), activations(both, mixed, 2))
    edit = View(seed=3, label=0, edits=edits_of(scene, pca={"1": 2}))
    assert not torch.equal(activations(both, plain, 0), activations(both, edit, 0))


def test_a_contact_sheet_shows_all_channels_on_one_scale():
    levels = torch.tensor([-2.0, -1, 0, 1, 2, 2, 2, 2, 2, 2, 2])
    sheet, white = contact_sheet(levels[:, None, None].expand(-1, 4, 4))
    assert white == 2 and sheet.shape == (3 * 257, 4 * 257, 1)
    assert sheet[128, 128::257, 0].tolist() == [0, 64, 128, 191]
    assert sheet[-128, 128::257, 0].tolist() == [255] * 4  # the last place is empty
    large, _ = contact_sheet(torch.ones(16, 512, 512))
    assert large.shape == (4 * 257, 4 * 257, 1)
    assert contact_sheet(torch.zeros(8, 4, 4))[1] == 1
