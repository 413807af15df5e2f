"""The command that draws the figures of the paper."""

import re
import shlex
from pathlib import Path

import commands
import numpy as np
import pytest
from commands import look, told
from PIL import Image
from tiny_generators import random_generator

from stylegan import figures, sampling
from stylegan.cli import values
from stylegan.cli.figure import figure
from stylegan.cli.video import video
from stylegan.files.latents import write_latents
from stylegan.files.loading import load_source, save_generator
from stylegan.networks import NetworkConfig

ROOT = Path(__file__).parent.parent
STILL = ["grid", "mixing", "truncation", "noise-detail", "noise-components"]
SHORT = {
    "grid": ["--seeds", "0-3"],
    "mixing": ["--seeds", "0,1", "--columns", "5,6"],
    "truncation": ["--seeds", "0,1"],
    "noise-detail": ["--seeds", "0", "--realizations", "5"],
    "noise-components": ["--seeds", "0"],
    "growth": ["--seeds", "0,1"],
    "timelapse": ["--seeds", "0,1"],
}


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for images, resolution in ((1_000, 8), (2_000, 16)):
        path = folder / f"generator-{images:09d}.pt"
        save_generator(path, random_generator(), images_seen=images, resolution=resolution)
    return folder


def drawn(out, *arguments):
    printed = told("figure", *arguments, "--device", "cpu", "--out", out)
    image = look(out)
    assert f"{out}, {image.width}x{image.height}, from the" in printed
    return np.asarray(image.convert("RGB"))


def refused(*arguments, **options):
    return commands.refused("figure", *arguments, "--device", "cpu", **options)


@pytest.mark.parametrize("kind", SHORT)
def test_every_kind_is_drawn_alike_as_png_and_webp_and_again(kind, run_folder, tmp_path):
    arguments = [kind, run_folder, *SHORT[kind]]
    png, webp, again = (tmp_path / name for name in ("a.png", "b.webp", "deeper/c.png"))
    assert np.array_equal(drawn(png, *arguments), drawn(webp, *arguments))
    drawn(again, *arguments)
    assert png.read_bytes() == again.read_bytes()
    drawn(png, *arguments)  # the same picture on top of itself


def test_what_is_drawn_is_what_the_library_draws(run_folder, tmp_path):
    loaded = load_source(run_folder)
    a, b = (figures.of_seeds(loaded, seeds) for seeds in ([0, 1], [5, 6]))
    found = drawn(tmp_path / "a.png", "mixing", run_folder, *SHORT["mixing"])
    assert np.array_equal(found, np.asarray(figures.mixing(loaded, a, b)))
    layers = [figures.StyleRange(range(3)), figures.StyleRange(range(5, 6))]
    found = drawn(tmp_path / "b.png", "mixing", run_folder, *SHORT["mixing"], "--layers", "0-2,5")
    assert np.array_equal(found, np.asarray(figures.mixing(loaded, a, b, layers)))


def test_truncation_reaches_all_layers_unless_told(tmp_path):
    path = tmp_path / "g.pt"
    save_generator(path, random_generator(), cutoff=2)
    arguments = ["truncation", path, "--seeds", "0-2", "--psis", "0,1"]
    whole = drawn(tmp_path / "a.png", *arguments)
    assert np.array_equal(whole, drawn(tmp_path / "b.png", *arguments, "--cutoff", "all"))
    assert not np.array_equal(whole, drawn(tmp_path / "c.png", *arguments, "--cutoff", 2))


def test_psi_cutoff_noise_and_resolution_are_those_asked_for(run_folder, tmp_path):
    plain = drawn(tmp_path / "a.png", "grid", run_folder, "--seeds", "1,2")
    for number, option in enumerate(
        (["--psi", 0.2], ["--cutoff", 1], ["--noise", "none"], ["--resolution", 8])
    ):
        out = tmp_path / f"{number}.png"
        assert not np.array_equal(plain, drawn(out, "grid", run_folder, "--seeds", "1,2", *option))


def test_latents_take_the_place_of_seeds(run_folder, tmp_path):
    loaded = load_source(run_folder)
    saved = tmp_path / "w.npz"
    write_latents(saved, figures.of_seeds(loaded, [5, 6, 7]).ws)
    options = ["truncation", run_folder, "--psis", "1,0"]
    seeds = drawn(tmp_path / "a.png", *options, "--seeds", "5-7")
    latents = drawn(tmp_path / "b.png", *options, "--latents", saved)
    assert np.array_equal(seeds[:, -200:], latents[:, -200:])  # all but the names of the rows
    shown = drawn(tmp_path / "c.png", "grid", run_folder, "--latents", saved, "--seeds", "2")
    (whole,) = sampling.generate(loaded.generator, [7], psi=1.0)  # as projected, untruncated
    assert np.array_equal(shown[4:100:6, 4:100:6], whole[0])
    three = ["grid", run_folder, "--latents", saved, "--seeds", "3"]
    assert "holds latents 0 to 2, but 3" in refused(*three, "--out", tmp_path / "d.png")


def test_classes(tmp_path):
    path = tmp_path / "g.pt"
    config = NetworkConfig(resolution=8, z_dim=4, label_dim=2, max_channels=4)
    save_generator(path, random_generator(config), label_names=["cat", "dog"])
    shown = [
        drawn(tmp_path / f"{kind}-{name}.png", kind, path, *SHORT[kind], "--class", name)
        for kind in STILL
        for name in ("cat", "dog", "1")
    ]
    for cat, dog, number in zip(shown[::3], shown[1::3], shown[2::3], strict=True):
        assert np.array_equal(dog, number)
        assert not np.array_equal(cat, dog)


def test_a_column_for_each_class(tmp_path):
    path = tmp_path / "g.pt"
    config = NetworkConfig(resolution=8, z_dim=4, label_dim=3, max_channels=4)
    save_generator(path, random_generator(config), label_names=["ant", "bee", "cat"])
    seeds = ["classes", path, "--seeds", "4,5"]
    every, bees = (
        drawn(tmp_path / "a.png", *seeds),
        drawn(tmp_path / "b.png", *seeds, "--classes=bee"),
    )
    assert every.shape[1] - bees.shape[1] == 2 * 100
    assert np.array_equal(every[:, -200:-100], bees[:, -100:])
    loaded = load_source(path)
    whole = list(loaded.pictures([5], labels=loaded.label("bee")))
    assert np.array_equal(bees[-100:-4:12, -100:-4:12], whole[0])
    assert "has no labels" in refused("classes", "emoji32", "--out", tmp_path / "c.png")
    assert "there is no class 'dog'" in refused(
        *seeds, "--classes=dog", "--out", tmp_path / "c.png"
    )


def test_a_timelapse_has_so_many_moments(run_folder, tmp_path):
    for images in range(3_000, 9_000, 1_000):
        path = run_folder / f"generator-{images:09d}.pt"
        save_generator(path, random_generator(), images_seen=images)
    wide = drawn(tmp_path / "a.png", "timelapse", run_folder)
    narrow = drawn(tmp_path / "b.png", "timelapse", run_folder, "--moments", 3)
    assert wide.shape[1] - narrow.shape[1] == 5 * 100


# Errors


def test_another_figure_is_not_overwritten_unless_told(run_folder, tmp_path):
    out = tmp_path / "a.png"
    before = drawn(out, "grid", run_folder, "--seeds", "1")
    message = refused("grid", run_folder, "--seeds", "2", "--out", out)
    assert f"{out} exists; pass --overwrite" in message
    assert np.array_equal(before, np.asarray(Image.open(out).convert("RGB")))
    after = drawn(out, "grid", run_folder, "--seeds", "2", "--overwrite")
    assert not np.array_equal(before, after)


def test_an_ending_may_be_in_capitals(run_folder, tmp_path):
    drawn(tmp_path / "a.PNG", "grid", run_folder, "--seeds", "1")
    assert {path.name for path in tmp_path.iterdir()} == {"a.PNG", run_folder.name}


def test_a_folder_is_refused_before_any_work(tmp_path):
    (tmp_path / "a.png").mkdir()
    message = refused("grid", "gone.pt", "--out", tmp_path / "a.png")
    assert message == f"Error: {tmp_path / 'a.png'} is a folder; give the name of a file to write"


@pytest.mark.parametrize(("ending", "side"), [("webp", 16_384), ("jpg", 65_501)])
def test_a_figure_too_large_for_its_format_is_refused(tmp_path, ending, side):
    with pytest.raises(ValueError, match=f"has at most {side - 1} pixels a side; choose png"):
        figures.save_picture(tmp_path / f"a.{ending}", Image.new("L", (1, side)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a", "a.bmp"])
def test_an_ending_that_says_nothing_is_refused_before_any_work(tmp_path, name):
    message = refused("grid", "gone.pt", "--out", tmp_path / name)
    assert "it must end in .png, .webp, .jpg" in message


@pytest.mark.parametrize("kind", ["growth", "timelapse"])
def test_training_is_shown_of_run_folders_alone(kind, tmp_path):
    message = refused(kind, "emoji32", "--out", tmp_path / "a.png")
    assert "of a run folder, but emoji32 is not a folder" in message


def test_layers_beyond_the_network_are_refused(run_folder, tmp_path):
    message = refused("mixing", run_folder, "--layers", "4-6", "--out", tmp_path / "a.png")
    assert "layers 4-6 were asked for, but at 16x16 there are layers 0-5" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["mixing", "--layers", "x"], "x is neither a layer nor a range like 0-3"),
        (["mixing", "--layers", "3-1"], "the range 3-1 ends before it begins"),
        (["mixing", "--columns", "5-"], "5- is neither a seed"),
        (["truncation", "--psis", "1,"], "'' is not a number"),
        (["truncation", "--psis", "1,nan"], "nan is not a number from"),
    ],
)
def test_lists_that_are_none_are_usage_errors(run_folder, options, message):
    assert message in refused(*options, run_folder, exit_code=2)


def test_lists_of_numbers_and_layers():
    assert values.numbers("1, -0.5,0") == [1, -0.5, 0]
    assert values.layer_ranges("0-3, 4,5-7") == [range(4), range(4, 5), range(5, 8)]


def documented_commands():
    """Of docs/figures.md and the script that makes its pictures."""
    script = (ROOT / "docs" / "figures" / "make.sh").read_text()
    page = (ROOT / "docs" / "figures.md").read_text()
    found = re.findall(r"^ *(stylegan (?:figure|video) .*)$", script, re.MULTILINE)
    return found + re.findall(r"`(stylegan (?:figure|video) [a-z].*?)`", page)


@pytest.mark.parametrize("line", documented_commands())
def test_commands_of_the_documentation_are_understood(line):
    _, group, kind, *arguments = shlex.split(line)
    command = {"figure": figure, "video": video}[group].commands[kind]
    context = command.make_context(kind, arguments)
    assert context.params["out"].suffix == ".webp"


def test_documented_pictures_are_small_and_made_by_the_script():
    script = (ROOT / "docs" / "figures" / "make.sh").read_text()
    names = re.findall(r"!\[.*\]\((figures/.*)\)", (ROOT / "docs" / "figures.md").read_text())
    assert len(names) >= 9
    for name in names:
        assert (ROOT / "docs" / name).stat().st_size < 150_000
        assert f"$to/{name.removeprefix('figures/')}" in script


def test_samples_beside_the_training_images_nearest_to_them(run_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    photos = tmp_path / "photos"
    photos.mkdir()
    pixels = np.random.RandomState(0).randint(0, 256, (12, 16, 16, 3), dtype=np.uint8)
    for i, picture in enumerate(pixels):
        Image.fromarray(picture).save(photos / f"{i}.png")
    (whole,) = sampling.generate(
        load_source(run_folder).generator, [0, 1, 2], psi=1.0, noise="random"
    )
    arguments = ["neighbours", run_folder, "--data", photos, "--samples", 3, "--nearest", 2]
    shown = drawn(tmp_path / "a.png", *arguments)
    assert shown.shape[1] == 3 * (96 + 4) + 4
    rows = [shown[i * shown.shape[0] // 3 :] for i in range(3)]
    samples, beside = ([row[4:100:6, left : left + 96 : 6] for row in rows] for left in (4, 104))
    assert np.array_equal(samples, whole)
    assert all((pixels == picture).all(axis=(1, 2, 3)).any() for picture in beside)
    message = refused("neighbours", run_folder, "--out", tmp_path / "b.png")
    assert "does not say what it was trained on; pass --data" in message
