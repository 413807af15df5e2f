"""`figure`, `video` and `directions`: they make what the library makes, or say why they cannot."""

import itertools

import numpy as np
import pytest
from helpers import commands
from helpers.commands import look, refused, told
from helpers.films import decoded
from helpers.tiny_generators import LABELED, random_generator
from PIL import Image

from stylegan import figures, load_generator
from stylegan import video as library
from stylegan.directions import default_path, find_directions, read_edits, save_directions
from stylegan.files.formats.own import save_generator
from stylegan.paths import places, spline


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


def drawn(out, *arguments):
    printed = told("figure", *arguments, "--device", "cpu", "--out", out)
    image = look(out)
    assert f"{out}, {image.width}x{image.height}, from the" in printed
    return np.asarray(image.convert("RGB"))


STILL = {
    "grid --seeds 0-3 --columns 2": lambda some: figures.labeled_grid(
        some, figures.of_seeds(some, range(4)), 2
    ),
    "mixing --seeds 0,1 --seeds-b 5,6": lambda some: figures.mixing(
        some, figures.of_seeds(some, [0, 1]), figures.of_seeds(some, [5, 6])
    ),
    "truncation --seeds 0,1 --psis 1,0.5": lambda some: figures.truncation(
        some.adjusted(cutoff="all"), figures.of_seeds(some, [0, 1]), [1, 0.5]
    ),
    "noise-components --seeds 0 --noise random": lambda some: figures.noise_components(
        some, figures.of_seeds(some, [0], noise="random")
    ),
    "grid --seeds 1 --psi 0.2 --cutoff 1 --noise none --resolution 8": lambda some: (
        figures.labeled_grid(
            some.adjusted(psi=0.2, cutoff=1, resolution=8),
            figures.of_seeds(some, [1], noise="none"),
        )
    ),
}


@pytest.mark.parametrize("words", STILL)
def test_figures_are_those_of_the_library_in_lossless_formats_and_again(source, tmp_path, words):
    name, *options = words.split()
    arguments = [name, source, *options]
    png, webp, again = (tmp_path / file for file in ("a.png", "b.webp", "deeper/c.PNG"))
    found = drawn(png, *arguments)
    assert np.array_equal(found, np.asarray(STILL[words](load_generator(source).loaded)))
    assert np.array_equal(found, drawn(webp, *arguments))
    drawn(again, *arguments)
    assert png.read_bytes() == again.read_bytes()
    drawn(png, *arguments)  # the same picture on top of itself
    other = [*arguments, "--psi", 0.1] if name != "truncation" else [*arguments, "--psis", 3]
    assert f"{png} exists; pass --overwrite" in refused("figure", *other, "--out", png)
    assert png.read_bytes() == again.read_bytes()
    assert not np.array_equal(found, drawn(png, *other, "--overwrite"))


def test_a_timelapse_has_so_many_moments(run_folder, tmp_path):
    for images in range(3_000, 9_000, 1_000):
        path = run_folder / f"generator-{images:09d}.pt"
        save_generator(path, random_generator(), images_seen=images)
    wide = drawn(tmp_path / "a.png", "timelapse", run_folder)
    narrow = drawn(tmp_path / "b.png", "timelapse", run_folder, "--moments", 3)
    assert wide.shape[1] - narrow.shape[1] == 5 * 100


def test_a_timelapse_of_a_run_that_kept_few_files_is_of_its_samples(run_folder, tmp_path):
    (run_folder / "samples").mkdir(exist_ok=True)
    for kimg in range(5):
        grid = np.zeros((4, 96, 8, 96, 3), np.uint8)
        grid[..., 0] = 10 * kimg
        grid[..., 1] = 5 * np.arange(32).reshape(4, 1, 8, 1)
        Image.fromarray(grid.reshape(384, 768, 3)).save(run_folder / "samples" / f"{kimg:06d}.png")
    image = drawn(tmp_path / "a.png", "timelapse", run_folder, "--seeds", "9,30", "--moments", 4)
    middles = image[-50 - 100 :: 100, -50 - 300 :: 100]  # of pictures of 96 pixels, 4 apart
    assert middles[..., 0].tolist() == [[0, 10, 30, 40]] * 2
    assert middles[:, 0, 1].tolist() == [45, 150]
    of_files = drawn(tmp_path / "b.png", "timelapse", run_folder, "--psi", 1)
    assert of_files.shape[1] < image.shape[1]


def test_classes_have_columns_or_are_chosen(classes, tmp_path):
    seeds = ["classes", classes, "--seeds", "4,5"]
    every = drawn(tmp_path / "a.png", *seeds)
    bees = drawn(tmp_path / "b.png", *seeds, "--classes=bee")
    assert every.shape[1] - bees.shape[1] == 2 * 100
    assert np.array_equal(every[:, -200:-100], bees[:, -100:])
    loaded = load_generator(classes).loaded
    whole = list(loaded.pictures([5], labels=loaded.label("bee")))
    assert np.array_equal(bees[-100:-4:6, -100:-4:6], whole[0])
    one = drawn(tmp_path / "c.png", "grid", classes, "--seeds", 5, "--class", "1")
    assert np.array_equal(one[4:100:6, 4:100:6], whole[0])


def test_samples_beside_the_training_images_nearest_to_them(run_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    photos = tmp_path / "photos"
    photos.mkdir()
    pixels = np.random.RandomState(0).randint(0, 256, (12, 16, 16, 3), dtype=np.uint8)
    for i, picture in enumerate(pixels):
        Image.fromarray(picture).save(photos / f"{i}.png")
    loaded = load_generator(run_folder).loaded
    whole = np.stack(list(loaded.pictures([0, 1, 2], psi=1, noise="random")))
    arguments = ["neighbors", run_folder, "--data", photos, "--rows", 3, "--nearest", 2]
    shown = drawn(tmp_path / "a.png", *arguments)
    assert shown.shape[1] == 3 * (96 + 4) + 4
    rows = [shown[i * shown.shape[0] // 3 :] for i in range(3)]
    samples, beside = ([row[4:100:6, left : left + 96 : 6] for row in rows] for left in (4, 104))
    assert np.array_equal(samples, whole)
    assert all((pixels == picture).all(axis=(1, 2, 3)).any() for picture in beside)


def filmed(source, out, words):
    name, *options = words.split()
    options += ["--seconds", "0.5", "--fps", "10", "--device", "cpu"]
    assert f"{out}, 0.5 s at 10 frames" in told("video", name, source, *options, "--out", out)


def walk(some, source):
    knots = figures.of_seeds(some, range(8)).ws.unflatten(0, (2, 4)).transpose(0, 1)
    t = places(5, 4, closed=True)
    return library.film(some.adjusted(psi=0.3), spline(knots, closed=True), t, columns=2)


def edit(some, source):
    (moved,) = read_edits(["pca:1=+2@0-1"], some, source)
    strengths = library.between(-1, 0.5, 5, closed=False)
    points = figures.of_seeds(some, [3, 4])
    return library.edit_film(some, points, {"pca:1=+2@0-1": moved}, strengths)


FILMS = {
    "walk --grid 2x1 --psi 0.3": walk,
    "edit --seeds 3,4 --edit pca:1=+2@0-1 --strengths=-1,0.5 --no-loop": edit,
}


@pytest.mark.parametrize("words", FILMS)
def test_films_are_those_of_the_library(source, tmp_path, words):
    out, own = tmp_path / "a.webp", tmp_path / "b.webp"
    filmed(source, out, words)
    film = FILMS[words](load_generator(source).loaded, source)
    frames = itertools.starmap(film.layout.frame, film.frames)
    library.write_video(own, frames, count=film.count, fps=10)
    assert out.read_bytes() == own.read_bytes()


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
def test_other_films_move(source, run_folder, tmp_path, words):
    filmed(run_folder if "timelapse" in words else source, tmp_path / "a.webp", words)
    shown, _ = decoded(tmp_path / "a.webp")
    assert 2 <= len(shown) <= 5 and np.ptp(shown.mean(axis=(1, 2, 3))) > 0  # equal ones are one


def test_an_edit_gives_equal_pixels_by_command_and_in_python(source, tmp_path):
    texts = ["pca:2=+3@0-3", "sefa:1=-1@0-3"]
    options = [word for text in texts for word in ("--edit", text)]
    told("generate", source, "--seeds", 5, *options, "--out", tmp_path)
    loaded = load_generator(source).loaded
    (expected,) = loaded.pictures([5], edits=read_edits(texts, loaded, source))
    assert np.array_equal(commands.pixels(tmp_path / "seed0005.png"), expected)


@pytest.mark.parametrize(
    ("words", "message", "exit_code"),
    [
        ("figure grid gone.pt --out a", "it must end in .png, .webp, .jpg", 1),
        ("figure timelapse faces64", "of a run folder, but faces64 is not a folder", 1),
        ("figure mixing g.pt --layers 4-6", "but at 16x16 there are layers 0-5", 1),
        ("figure classes classes.pt --classes=dog", "there is no class 'dog'", 1),
        ("figure neighbors g.pt", "does not say what it was trained on; pass --data", 1),
        ("video walk gone.pt --out there.webp", "there.webp exists; pass --overwrite", 1),
        ("video walk g.pt --seeds 1", "1 seed for 1 walk: each needs", 1),
        ("video walk g.pt --grid 100x100", "100x100 is not a grid like 3x2", 2),
        ("video edit g.pt", "pass --edit", 2),
        ("generate g.pt --edit pca:9", "there is no direction pca:9; there are 1 to 3", 1),
        ("directions find g.pt", "with directions pca and sefa; pass --overwrite", 1),
        ("directions find classes.pt --figure d.png", "a class is needed, as in --class ant", 1),
        ("directions learn new.pt a b", "there is no folder or file a with examples", 1),
        ("project g.pt there.webp --locality 1", "require --tune", 2),
        ("project g.pt there.webp --out new.pt/deep", "new.pt is a file; choose another", 1),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_and_leaves_no_file(
    source, classes, tmp_path, monkeypatch, words, message, exit_code
):
    monkeypatch.chdir(tmp_path)
    save_generator(tmp_path / "new.pt", random_generator())
    (tmp_path / "there.webp").touch()
    (tmp_path / "folder.png").mkdir()
    before = sorted(tmp_path.iterdir())
    words = words.split() + (["--out", "a.webp"] if words.startswith("video walk g.pt") else [])
    assert message in refused(*words, exit_code=exit_code)
    assert sorted(tmp_path.iterdir()) == before
