"""`figure`, `video` and `directions`: what is asked for reaches the library, which makes it."""

import numpy as np
import pytest
import torch
from helpers import commands
from helpers.charts import cells, enlarged
from helpers.commands import open_image, run_ok, stylegan
from helpers.films import decoded
from helpers.pictures import save_picture
from helpers.tiny_generators import LABELED, random_generator
from torch.testing import assert_close

from stylegan import figures, load_generator
from stylegan import video as library
from stylegan.directions import default_path, find_directions, read_edits, save_directions
from stylegan.figures import StyleRange
from stylegan.files.formats.native import save_generator
from stylegan.sampling.curves import frame_positions, spline


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for images, resolution in ((1_000, 8), (2_000, 16)):
        path = folder / f"generator-{images:09d}.pt"
        save_generator(path, random_generator(), images_seen=images, resolution=resolution)
    return folder


@pytest.fixture
def classes(tmp_path):
    path = tmp_path / "classes.pt"
    save_generator(path, random_generator(LABELED), label_names=["ant", "bee", "cat"])
    return path


@pytest.fixture
def source(tmp_path):
    """A generator with directions beside it."""
    path, generator = tmp_path / "g.pt", random_generator()
    save_generator(path, generator, cutoff=3)
    save_directions(default_path(path), find_directions(generator, count=3, samples=99), generator)
    return path


def rendered(out, *arguments):
    printed = run_ok("figure", *arguments, "--device", "cpu", "--out", out)
    image = open_image(out)
    assert f"{out}, {image.width}x{image.height}, from the" in printed
    return np.asarray(image.convert("RGB"))


class Reached(Exception):
    """Raised in the place of what the library would draw."""


def reached(patch, function, group, name, source, *options):
    """The arguments with which a command calls a function of the library, by order and by name."""
    calls = []

    def spy(*arguments, **named):
        calls.append((arguments, named))
        raise Reached

    patch.setattr(figures if group == "figure" else library, function, spy)
    timing = ["--seconds", "0.15", "--fps", "20"] if group == "video" else []
    result = stylegan(group, name, source, *options, *timing, "--device", "cpu", "--out", "a.webp")
    assert isinstance(result.exception, Reached), result.output
    (call,) = calls
    return call


SETTINGS = "--psi 0.2 --cutoff 1 --resolution 8 --edit pca:1=+2@0-1"
ALL_LAYERS = "--cutoff all --resolution 8 --edit pca:1=+2@0-1"


@pytest.mark.parametrize(
    ("words", "function", "more"),
    [
        (f"figure grid {SETTINGS} --noise none --columns 2", "labeled_grid", [2]),
        (
            f"figure mixing {SETTINGS} --noise none --seeds-b 5 --layers 0-1,3-5",
            "mixing",
            [["seed 5"], [StyleRange(range(2)), StyleRange(range(3, 6))]],
        ),
        (f"figure truncation {ALL_LAYERS} --noise none --psis 1,0.5", "truncation", [[1, 0.5]]),
        (f"figure noise-detail {SETTINGS}", "noise_detail", []),
        (f"figure noise-components {SETTINGS} --noise none", "noise_components", []),
        (
            f"video truncation {ALL_LAYERS} --noise none --psis 1,0 --no-loop",
            "truncation_clip",
            [[1, 0.5, 0]],
        ),
        (
            f"video edit {SETTINGS} --noise none --strengths=-1,1 --no-loop",
            "edit_clip",
            [{"pca:1=+2@0-1": (2, range(2))}, [-1, 0, 1]],
        ),
    ],
)
def test_figure_and_video_pass_their_options_to_the_library(
    source, tmp_path, monkeypatch, words, function, more
):
    """The generator as it is to be shown, the points, and what else the function takes."""
    monkeypatch.chdir(tmp_path)
    group, name, *options = words.split()
    command = [group, name, source, "--seeds", "3,4", *options]
    (loaded, points, *rest), _ = reached(monkeypatch, function, *command)
    whole = "all" in words
    assert (loaded.settings.psi, loaded.settings.cutoff) == ((0.7, None) if whole else (0.2, 1))
    assert (loaded.resolution, points.names) == (8, ["seed 3", "seed 4"])
    moves = [(edit.strength, edit.layers) for edit in loaded.settings.edits]
    assert moves == ([] if function == "edit_clip" else [(2, range(2))])
    assert points.noise == ("none" if "--noise none" in words else "const")
    assert [plain(argument) for argument in rest] == more


def plain(argument):
    """Points by their names, edits by strength and layers, numbers as they are."""
    match argument:
        case figures.LatentPoints():
            return argument.names
        case dict():
            return {text: (edit.strength, edit.layers) for text, edit in argument.items()}
        case torch.Tensor():
            return argument.tolist()
    return argument


def test_figure_grid_equals_labeled_grid_and_is_reproducible(source, tmp_path):
    arguments = ["grid", source, "--seeds", "0-3", "--columns", 2]
    png, webp, again = (tmp_path / file for file in ("a.png", "b.webp", "deeper/c.PNG"))
    found = rendered(png, *arguments)
    loaded = load_generator(source)
    expected = figures.labeled_grid(loaded, figures.points_from_seeds(loaded, range(4)), 2)
    assert np.array_equal(found, np.asarray(expected))
    assert np.array_equal(found, rendered(webp, *arguments))
    rendered(again, *arguments)
    assert png.read_bytes() == again.read_bytes()
    rendered(png, *arguments)  # the same picture on top of itself
    assert not np.array_equal(found, rendered(png, *arguments, "--psi", 0.1, "--overwrite"))


def test_figure_timelapse_snapshots_sets_the_number_of_columns(run_folder, tmp_path):
    for images in range(3_000, 9_000, 1_000):
        path = run_folder / f"generator-{images:09d}.pt"
        save_generator(path, random_generator(), images_seen=images)
    wide = rendered(tmp_path / "a.png", "timelapse", run_folder)
    narrow = rendered(tmp_path / "b.png", "timelapse", run_folder, "--snapshots", 3)
    assert wide.shape[1] - narrow.shape[1] == 5 * 100


def test_figure_timelapse_of_few_files_uses_the_sample_grids(run_folder, tmp_path):
    for kimg in range(5):
        grid = np.zeros((4, 96, 8, 96, 3), np.uint8)
        grid[..., 0] = 10 * kimg
        grid[..., 1] = 5 * np.arange(32).reshape(4, 1, 8, 1)
        save_picture(run_folder / "samples" / f"{kimg:06d}.png", grid.reshape(384, 768, 3))
    image = rendered(tmp_path / "a.png", "timelapse", run_folder, "--seeds", "9,30", "--moments", 4)
    middles = image[-50 - 100 :: 100, -50 - 300 :: 100]  # of pictures of 96 pixels, 4 apart
    assert middles[..., 0].tolist() == [[0, 10, 30, 40]] * 2
    assert middles[:, 0, 1].tolist() == [45, 150]
    few = rendered(tmp_path / "few.png", "timelapse", run_folder, "--seeds", "9", "--snapshots", 2)
    assert few[-50, -50 - 100 :: 100, 0].tolist() == [0, 40]  # of grids, too: files are late ones
    of_files = rendered(tmp_path / "b.png", "timelapse", run_folder, "--psi", 1)
    assert of_files.shape[1] < image.shape[1]
    for path in run_folder.glob("*.pt"):
        path.unlink()
    words = ("timelapse", run_folder, "--seeds", "9,30", "--moments", 4)
    assert np.array_equal(rendered(tmp_path / "c.png", *words), image)


def test_figure_classes_draws_all_or_the_chosen_classes(classes, tmp_path):
    seeds = ["classes", classes, "--seeds", "4,5"]
    every = rendered(tmp_path / "a.png", *seeds)
    bees = rendered(tmp_path / "b.png", *seeds, "--classes=bee")
    assert every.shape[1] - bees.shape[1] == 2 * 100
    shown = [row[0] for row in cells(bees, 2, 1)]
    assert np.array_equal([row[1] for row in cells(every, 2, 3)], shown)
    loaded = load_generator(classes)
    (bee,) = loaded.generate([5], labels=loaded.label("bee"))
    assert np.array_equal(shown[1], enlarged(bee))
    alone = rendered(tmp_path / "c.png", "grid", classes, "--seeds", 5, "--class=1")
    assert np.array_equal(alone[4:100, 4:100], enlarged(bee))  # above its label


def test_figure_neighbors_draws_samples_next_to_training_images(run_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    photos = tmp_path / "photos"
    pixels = np.random.RandomState(0).randint(0, 256, (12, 16, 16, 3), dtype=np.uint8)
    for i, picture in enumerate(pixels):
        save_picture(photos / f"{i}.png", picture)
    loaded = load_generator(run_folder)
    whole = np.stack(list(loaded.generate([0, 1, 2], psi=1, noise="random")))
    arguments = ["neighbors", run_folder, "--data", photos, "--rows", 3, "--nearest", 2]
    shown = rendered(tmp_path / "a.png", *arguments)
    assert shown.shape[1] == 3 * (96 + 4) + 4
    rows = [shown[i * shown.shape[0] // 3 :] for i in range(3)]
    samples, beside = ([row[4:100:6, left : left + 96 : 6] for row in rows] for left in (4, 104))
    assert np.array_equal(samples, whole)
    assert all((pixels == picture).all(axis=(1, 2, 3)).any() for picture in beside)


def filmed(source, out, words):
    name, *options = words.split()
    options += ["--seconds", "0.5", "--fps", "10", "--device", "cpu"]
    assert f"{out}, 0.5 s at 10 frames" in run_ok("video", name, source, *options, "--out", out)


def test_video_walk_writes_the_frames_of_make_clip(source, tmp_path):
    out, own = tmp_path / "a.webp", tmp_path / "b.webp"
    filmed(source, out, "walk --grid 2x1 --psi 0.3")
    loaded = load_generator(source)
    knots = figures.points_from_seeds(loaded, range(8)).ws.unflatten(0, (2, 4)).transpose(0, 1)
    t = frame_positions(5, 4, closed=True)
    film = library.make_clip(
        loaded.with_settings(psi=0.3), spline(knots, closed=True), t, columns=2
    )
    library.write_video(own, film.arrange(), count=film.count, fps=10)
    assert out.read_bytes() == own.read_bytes()


def test_video_out_without_ending_writes_png_frames(source, tmp_path):
    filmed(source, tmp_path / "frames", "walk")
    assert sorted(path.name for path in (tmp_path / "frames").iterdir())[-1] == "000004.png"


@pytest.mark.parametrize(
    ("words", "seeds"),
    [
        ("walk --seeds 3,4", [3]),
        ("walk --seeds 3,4,5,6 --grid 1x2 --space z", [3, 5]),
        ("loop --seeds 5,6", [5, 6]),
        ("mixing --seeds 5,6 --seeds-b 3,4 --layers 4-5", [5, 6]),
    ],
)
def test_video_clips_start_at_the_ws_of_their_seeds(source, tmp_path, monkeypatch, words, seeds):
    """In a mixing film some layers begin with those of the first seed of source B."""
    monkeypatch.chdir(tmp_path)
    name, *options = words.split()
    call, named = reached(
        monkeypatch, "make_clip", "video", name, source, *options, "--noise", "none"
    )
    loaded, styles, times = call
    assert (float(times[0]), len(times), named["noise"]) == (0, 3, "none")
    expected = figures.points_from_seeds(loaded, seeds).ws.clone()
    if name == "mixing":
        expected[:, 4:] = figures.points_from_seeds(loaded, [3]).ws[:, 4:]
    assert_close(styles(times[:1])[0].to(expected), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "words",
    [
        "walk --space z",
        "mixing --seeds 0 --seeds-b 3,4",
        "truncation --psis 1,0",
        "loop --seeds 5",
        "timelapse --seeds 1 --scale 12",
    ],
)
def test_video_clips_change_over_time(source, run_folder, tmp_path, words):
    filmed(run_folder if "timelapse" in words else source, tmp_path / "a.webp", words)
    shown, _ = decoded(tmp_path / "a.webp")
    assert 2 <= len(shown) <= 5 and np.ptp(shown.mean(axis=(1, 2, 3))) > 0  # equal ones are one


def test_generate_edit_reaches_the_layers_of_the_chosen_resolution(source, tmp_path):
    path = tmp_path / "grown.pt"
    save_generator(path, random_generator(), resolution=8)
    edit = ("--edit", f"{default_path(source)}:pca:1=+3@4-5", "--out")
    assert "4 to 5" in commands.run_fails("generate", path, "--seeds", 5, *edit, tmp_path / "a")
    run_ok("generate", path, "--resolution", 16, "--seeds", 5, *edit, tmp_path / "b")


def test_generate_edit_gives_the_pixels_of_the_python_api(source, tmp_path):
    texts = ["pca:2=+3@0-3", "sefa:1=-1@0-3"]
    options = [word for text in texts for word in ("--edit", text)]
    run_ok("generate", source, "--seeds", 5, *options, "--out", tmp_path)
    loaded = load_generator(source)
    (expected,) = loaded.generate([5], edits=read_edits(texts, loaded, source))
    assert np.array_equal(commands.pixels(tmp_path / "seed0005.png"), expected)
