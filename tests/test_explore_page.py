"""The explorer's page in a browser: every control, saved points, downloads, uploads, two users.

The server runs in a process of its own, which writes down whom it calls.
"""

import base64
import contextlib
import dataclasses
import importlib.util
import io
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from explorer import NAMES, TINY, explored, tiny_generator
from PIL import Image

from stylegan import sampling
from stylegan.directions import (
    METHODS,
    default_path,
    find_directions,
    load_directions,
    save_directions,
)
from stylegan.explore import Blend, Mixing, Plane, Scene, View, final_styles, render
from stylegan.explore.page import FIRST_SEED
from stylegan.explore.server import serving
from stylegan.files.keyframes import read_keyframes
from stylegan.files.latents import read_latents
from stylegan.files.loading import load_source, save_generator

ROOT = Path(__file__).parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
MISSING = [] if importlib.util.find_spec("playwright") else ["playwright"]
FLAGS = "no-sandbox disable-gpu disable-background-networking disable-component-update disable-sync"
SERVER = """
import socket, sys
connect, resolve = socket.socket.connect, socket.getaddrinfo
def note(host):
    if host not in ("127.0.0.1", "localhost", "::1", b"localhost"):
        print("CALLED", host, flush=True)
def connecting(self, address):
    if isinstance(address, tuple):
        note(address[0])
    return connect(self, address)
def resolving(host, *more, **options):
    note(host)
    return resolve(host, *more, **options)
socket.socket.connect, socket.getaddrinfo = connecting, resolving
from stylegan.cli import main
main(sys.argv[1:])
"""
SET = """(element, value) => {
  element.value = value;
  element.dispatchEvent(new Event("input", {bubbles: true}));
}"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}: pip install .[dev]"),
    pytest.mark.skipif(BROWSER is None, reason=f"needs a browser: one of {', '.join(BROWSERS)}"),
]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A file of a tiny generator, and its directions beside it."""
    path = tmp_path_factory.mktemp("explored") / "g.pt"
    save_generator(path, tiny_generator(), label_names=NAMES)
    generator = load_source(path).generator
    save_directions(default_path(path), find_directions(generator, count=3, samples=200), generator)
    return path


@pytest.fixture(scope="module")
def scene(source):
    loaded = load_source(source)
    return Scene(loaded, load_directions(default_path(source), loaded.generator))


@pytest.fixture(scope="module")
def server(source, tmp_path_factory):
    """The address of the page, and the output of the server."""
    log = tmp_path_factory.mktemp("server") / "log"
    with served(source, log) as place:
        yield place, log


@contextlib.contextmanager
def served(source, log):
    """The address of a server in a process of its own, which Ctrl-C ends."""
    words = [sys.executable, "-c", SERVER, "explore", source, "--no-browser", "--device", "cpu"]
    with log.open("w") as file:
        process = subprocess.Popen(
            list(map(str, words)),
            cwd=ROOT,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    try:
        yield wait(lambda: address(log, process))
        process.send_signal(signal.SIGINT)
        assert process.wait(600) == 0, log.read_text()
    finally:
        process.kill()


def address(log, process):
    """Where the page is, once the server has printed it."""
    text = log.read_text()
    assert process.poll() is None, text
    return next((word for word in text.split() if word.startswith("http://")), None)


def wait(condition, seconds=600.0):
    """What `condition` gives, once it is something."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return found


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = [f"--{flag}" for flag in FLAGS.split()]
        browser = playwright.chromium.launch(executable_path=BROWSER, args=arguments)
        yield browser
        browser.close()


class User:
    """Somebody in front of the page."""

    def __init__(self, browser, address):
        self.page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
        self.page.set_default_timeout(600_000)
        self.asked, self.faults = [], []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.goto(address)
        self.page.wait_for_selector("#seeds button:nth-child(12)")

    def shown(self):
        """The picture that is shown."""
        content = self.page.get_attribute("#picture img", "src").partition("base64,")[2]
        with Image.open(io.BytesIO(base64.b64decode(content))) as image:
            return np.array(image)

    def open(self, name):
        self.page.click(f"summary:text-is('{name}')")

    def slide(self, name, value):
        self.page.eval_on_selector(f"#{name} input[type=range]", SET, str(value))

    def type(self, name, value):
        self.page.fill(f"#{name}_number", str(value))

    def sees(self, scene, view):
        """Whether the picture becomes that of the view."""
        expected = render(scene, view).astype(int)

        def same():
            shown = self.shown()
            return shown.shape == expected.shape and np.abs(shown - expected).max() <= 1

        wait(same)
        return True

    def save(self, number):
        self.page.click("#save")
        self.page.get_by_text(f"Saved as point {number}.").wait_for()

    def download(self, button, path):
        with self.page.expect_download() as download:
            self.page.click(button)
        download.value.save_as(path)
        return download.value.suggested_filename

    def message(self):
        """The message that comes."""
        wait(lambda: self.page.inner_text("#message"))
        return self.page.inner_text("#message")

    def caption(self):
        return self.page.inner_text("#picture figcaption")

    def close(self):
        assert not self.faults
        self.page.context.close()


@pytest.fixture
def user(browser, server):
    with contextlib.closing(User(browser, server[0])) as user:
        yield user


def test_every_control_shows_what_render_says(user, scene):
    start = {"label": 0, "cutoff": "all"}
    assert user.sees(scene, View(FIRST_SEED, **start))
    user.slide("seed", 5)
    assert user.sees(scene, View(5, **start))
    user.slide("psi", 1.2)
    assert user.sees(scene, View(5, psi=1.2, **start))
    user.slide("cutoff", 2)
    assert user.sees(scene, View(5, psi=1.2, label=0, cutoff=2))
    user.page.select_option("#label", NAMES[2])
    now = {"psi": 1.2, "label": 2, "cutoff": 2}
    assert user.sees(scene, View(5, **now))
    user.page.select_option("#centers", "4")
    assert user.sees(scene, View(5, centers=4, **now))
    user.page.select_option("#centers", "none")
    user.slide("growth", 3.25)
    assert user.sees(scene, View(5, growth=3.25, **now))
    user.slide("growth", 4)
    user.page.select_option("#noise", "off")
    assert user.sees(scene, View(5, noise="none", **now))
    user.slide("noise_seed", 8)  # turns random noise on
    now |= {"noise": "random", "noise_seed": 8}
    assert user.sees(scene, View(5, **now))
    user.open("Mixing")
    user.slide("mix_seed", 6)  # turns mixing on
    assert user.sees(scene, View(5, mixing=Mixing(6, range(3, 6)), **now))
    for layer in (2, 5):
        user.page.click(f"#mix_{layer}")
    now |= {"mixing": Mixing(6, (2, 3, 4))}
    assert user.sees(scene, View(5, **now))
    user.open("Seed plane")
    user.slide("plane_a", 7)
    box = user.page.locator("#plane").bounding_box()
    user.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    user.page.mouse.down()
    user.page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.3)
    user.page.mouse.up()
    x, y = (float(user.page.input_value(f"#plane_{axis}_number")) for axis in "xy")
    assert abs(x - 1) < 0.02 and abs(y - 0.5) < 0.02
    assert user.sees(scene, View(5, plane=Plane((7, 2), x, y), **now))
    user.page.click("#plane_zero")
    assert user.sees(scene, View(5, **now))
    user.open("Edits")
    user.slide("pca_2", 2)
    user.slide("sefa_3", -1.5)
    edits = [scene.directions["pca"].edit("2", 2), scene.directions["sefa"].edit("3", -1.5)]
    assert user.sees(scene, View(5, edits=edits, **now))
    user.slide("edit_last", 2)
    layers = range(3)
    edits = [dataclasses.replace(edit, layers=layers) for edit in edits]
    assert user.sees(scene, View(5, edits=edits, **now))
    user.page.fill("#edit_name", "mine")
    user.page.click("#keep_edit")
    user.page.get_by_text("Saved as mine in").wait_for()
    assert user.sees(scene, View(5, edits=edits, **now))
    user.slide("edit_0", -0.5)
    half = [dataclasses.replace(edit, strength=-0.5 * edit.strength) for edit in edits]
    assert user.sees(scene, View(5, edits=half, **now))
    user.page.click("#reset")
    assert user.sees(scene, View(5, **now))
    user.open("Picture")
    user.page.click("#random")
    wait(lambda: user.page.input_value("#seed_number") != "5")
    seed = int(user.page.input_value("#seed_number"))
    assert user.sees(scene, View(seed, **now))


def test_the_number_and_the_picture_agree_for_any_seed(user, scene):
    start = {"label": 0, "cutoff": "all"}
    for seed in (123_456, sampling.MAX_SEED):
        user.type("seed", seed)
        assert user.sees(scene, View(seed, **start))
        assert user.page.input_value("#seed_number") == str(seed)
        assert user.caption().startswith(f"seed {seed} ")
    for wrong in (sampling.MAX_SEED + 1, -1, 0.5, ""):
        user.type("seed", wrong)
        user.page.get_by_text(f", not {wrong or 'empty'}").wait_for()
        assert "stale" in user.page.get_attribute("#picture", "class")
    user.type("seed", 3)
    assert user.sees(scene, View(3, **start))
    assert user.page.inner_text("#message") == ""


def test_it_opens_with_seeds_to_choose_from(user, scene):
    assert user.page.locator("#seeds button span").all_inner_texts() == list(map(str, range(12)))
    user.page.click("#seeds button:nth-child(8)")
    assert user.sees(scene, View(7, label=0, cutoff="all"))
    user.page.click("#more")
    user.page.get_by_title("seed 23", exact=True).click()
    assert user.sees(scene, View(23, label=0, cutoff="all"))
    assert user.page.input_value("#seed_number") == "23"


def test_points_are_saved_walked_between_removed_and_loaded(user, scene, tmp_path):
    user.open("Edits")
    user.slide("pca_1", 3)
    moved = View(FIRST_SEED, label=0, cutoff="all", edits=[scene.directions["pca"].edit("1", 3)])
    assert user.sees(scene, moved)
    user.save(1)
    user.page.click("#reset")
    user.slide("seed", 9)
    plain = View(9, label=0, cutoff="all")
    assert user.sees(scene, plain)
    user.save(2)
    points = [final_styles(scene, view) for view in (moved, plain)]
    user.open("Saved points")
    user.slide("between", 0.25)
    assert user.sees(scene, View(styles=torch.lerp(*points, 0.25)))
    assert user.caption() == "25 % from point 1 to 2 · 16×16"  # noqa: RUF001
    user.page.locator("#gallery button").nth(1).click()
    assert user.sees(scene, View(styles=points[1]))
    assert user.download("#latents_file", tmp_path / "p.npz") == "point.npz"
    found = read_latents(tmp_path / "p.npz", scene.generator)
    assert np.allclose(found.ws[0], points[1], atol=1e-5) and found.noise is None
    user.page.click("#remove")  # the second, where the way begins
    user.page.locator("#gallery button").nth(1).wait_for(state="detached")
    assert user.sees(scene, View(styles=points[0]))
    user.page.set_input_files("#load", tmp_path / "p.npz")
    user.page.get_by_title("p.npz", exact=True).wait_for()
    assert user.sees(scene, View(styles=points[1]))
    user.page.check("#start input[value=seed]")
    assert user.sees(scene, plain)
    assert user.download("#picture_file", tmp_path / "p.png") == "seed0009-a_b.png"
    with Image.open(tmp_path / "p.png") as image:
        assert np.abs(np.array(image).astype(int) - render(scene, plain)).max() <= 1


def test_saved_points_become_a_film(user, scene, tmp_path):
    for number, seed in enumerate((3, 4), start=1):
        user.slide("seed", seed)
        assert user.sees(scene, View(seed, label=0, cutoff="all"))
        user.save(number)
    user.open("Saved points")
    user.type("film_seconds", 0.2)
    user.page.uncheck("#loop")
    user.page.check("#ease")
    name = user.download("#keyframes_file", tmp_path / "keyframes.json")
    keyframes = read_keyframes(tmp_path / name, scene.loaded)
    assert (len(keyframes.ws), keyframes.loop, keyframes.ease) == (2, False, True)
    name = user.download("#film", tmp_path / "film")
    assert name in ("film.mp4", "film.webp") and (tmp_path / "film").stat().st_size > 100
    user.page.get_by_text(f"The film is {name}.").wait_for()
    user.type("film_seconds", 60)
    user.page.click("#film")
    user.page.get_by_text("frame ").wait_for()
    user.page.click("#stop_film")
    user.page.get_by_text("The film was stopped.").wait_for()


def test_activations_follow_the_picture_and_the_layer(user):
    def caption():
        return user.page.text_content("#maps figcaption")

    user.open("Activations")
    wait(lambda: caption().startswith("layer 4: 8 channels of 16×16"))  # noqa: RUF001
    before = user.page.get_attribute("#maps img", "src")
    user.slide("seed", 5)
    wait(lambda: user.page.get_attribute("#maps img", "src") != before)
    user.slide("activations_layer", 1)
    wait(lambda: caption().startswith("layer 1: 8 channels of 4×4"))  # noqa: RUF001
    user.slide("activations_layer", 5)
    user.slide("growth", 3)
    wait(lambda: caption() == "a picture of 8x8 has layers 0 to 3, not 5")


def test_every_control_says_what_it_does(user):
    untold = user.page.evaluate(
        """() => [...document.querySelectorAll("button, input, select")]
          .filter((element) => !element.closest("[title]")).map((element) => element.outerHTML)"""
    )
    assert not untold


def test_two_users_do_not_mix(browser, server, scene):
    with (
        contextlib.closing(User(browser, server[0])) as one,
        contextlib.closing(User(browser, server[0])) as other,
    ):
        for seed in range(1, 6):  # both at once
            one.slide("seed", seed)
            other.slide("seed", 100 + seed)
        assert one.sees(scene, View(5, label=0, cutoff="all"))
        assert other.sees(scene, View(105, label=0, cutoff="all"))
        one.save(1)
        assert one.page.locator("#gallery button").count() == 1
        assert other.page.locator("#gallery button").count() == 0
        other.page.check("#start input[value=points]")
        assert "choose two saved points" in other.message()
        other.page.check("#start input[value=seed]")
        assert other.sees(scene, View(105, label=0, cutoff="all"))


def test_a_picture_of_the_users_own_becomes_a_point(user, scene, tmp_path):
    pixels = render(scene, View(3, label=0, psi=0.5))
    sampling.picture(pixels).save(tmp_path / "mine.png")
    user.open("Your picture")
    user.slide("steps", 1000)
    user.page.set_input_files("#upload", tmp_path / "mine.png")
    user.page.click("#project")
    wait(lambda: user.caption().startswith("step "))
    user.page.click("#stop")
    user.slide("steps", 40)
    user.page.click("#project")  # waits for the end of the first
    wait(lambda: user.caption().startswith("point 1"))
    assert "wanted: mine.png" in user.page.inner_text("#target")
    assert user.page.text_content("#from option").startswith("1: mine.png, ")
    assert user.page.inner_text("#message") == user.page.inner_text("#note") == ""


def test_a_generator_is_tuned_to_a_picture_and_downloaded(user, scene, tmp_path):
    long = tmp_path / f"{'mine' * 15}.png"
    sampling.picture(render(scene, View(3, label=0)) // 2 + 60).save(long)
    assert not user.page.is_visible("#tuned")
    user.open("Your picture")
    user.slide("steps", 20)
    user.page.check("#tune")
    user.slide("tune_steps", 40)
    user.page.set_input_files("#upload", long)
    user.page.click("#project")
    wait(lambda: user.caption().startswith("tuning, step "))
    wait(lambda: user.caption().startswith("point 1"))
    assert user.caption().endswith(" · tuned generator")
    assert user.page.text_content("#tuned option:checked").startswith("minemine")
    user.page.set_viewport_size({"width": 500, "height": 900})
    assert user.page.evaluate("document.documentElement.scrollWidth") <= 500
    assert user.download("#tuned_file", tmp_path / "tuned.pt") == "tuned.pt"
    tuned = Scene(load_source(tmp_path / "tuned.pt"))
    user.page.check("#start input[value=seed]")
    now = View(FIRST_SEED, label=0, cutoff="all")
    assert user.sees(tuned, now)
    user.page.select_option("#tuned", "the original")
    assert user.sees(scene, now)


def test_ctrl_c_ends_a_search_and_open_pages(browser, source, scene, tmp_path):
    sampling.picture(render(scene, View(3, label=0))).save(tmp_path / "mine.png")
    with served(source, tmp_path / "log") as place:
        users = [User(browser, place) for _ in range(2)]
        users[0].open("Your picture")
        users[0].page.set_input_files("#upload", tmp_path / "mine.png")
        users[0].slide("steps", 1000)
        users[0].page.click("#project")
        wait(lambda: users[0].caption().startswith("step "))
    assert (tmp_path / "log").read_text().splitlines()[1:] == ["ended"]
    users[1].slide("seed", 1)
    assert "the page's server has ended" in users[1].message()
    for user in users:
        user.page.context.close()


def test_bad_files_are_refused_politely(user, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no picture")
    before = user.shown()
    user.open("Your picture")
    user.page.click("#project")
    assert "choose a file first" in user.message()
    user.page.set_input_files("#upload", tmp_path / "bad.png")
    user.page.click("#project")
    wait(lambda: "bad.png: not a PNG" in user.message())
    user.open("Saved points")
    user.page.set_input_files("#load", tmp_path / "bad.png")
    wait(lambda: "bad.png is damaged or no file of plain arrays" in user.message())
    assert np.array_equal(user.shown(), before)


def test_nobody_else_is_asked_for_anything(user, server):
    address, log = server
    user.slide("seed", 1)
    outside = [url for url in user.asked if not url.startswith((address, "data:", "blob:"))]
    assert not outside
    assert "CALLED" not in log.read_text()


@pytest.mark.parametrize(("label_dim", "styles"), [(0, True), (3, False)])
def test_only_controls_that_can_do_something_are_shown(browser, label_dim, styles):
    config = dataclasses.replace(TINY, label_dim=label_dim, styles=styles, constant_input=styles)
    scene = explored(config=config, methods=METHODS if styles else ["pca"])
    with serving(scene) as address, contextlib.closing(User(browser, address)) as user:
        assert user.page.is_visible("#label") == (label_dim > 0)
        assert user.page.is_visible("#mixing") == styles
        user.open("Edits")
        assert user.page.is_visible("#pca_1")
        assert bool(user.page.query_selector("#sefa_1")) == styles
        assert user.sees(scene, View(FIRST_SEED, 0 if label_dim else None, cutoff="all"))


def test_layers_of_another_network_are_blended_in(browser):
    scene = explored()
    both = Scene(scene.loaded, list(scene.directions.values()), other=explored(seed=1).loaded)
    now = {"label": 0, "cutoff": "all"}
    with serving(both) as address, contextlib.closing(User(browser, address)) as user:
        user.slide("blend_from", 3)
        assert user.sees(scene, View(FIRST_SEED, **now))  # its share is 0
        user.slide("share", 0.5)
        assert user.sees(both, View(FIRST_SEED, blend=Blend(8, 0.5), **now))
        assert "blend --from 8 --share 0.5" in user.caption()
        user.slide("share", 0)
        assert user.sees(scene, View(FIRST_SEED, **now))


def test_narrow_screens_show_everything_in_one_column(user):
    user.page.set_viewport_size({"width": 500, "height": 900})
    assert user.page.evaluate("document.documentElement.scrollWidth") <= 500
    picture, panel = (user.page.locator(name).bounding_box() for name in ("#view", "#panel"))
    assert picture["y"] + picture["height"] <= panel["y"] + 1
    user.page.mouse.move(250, 700)
    user.page.mouse.wheel(0, 600)
    wait(lambda: user.page.locator("#panel").bounding_box()["y"] < panel["y"] - 100)
    box = user.page.locator("#picture img").bounding_box()
    assert box["y"] >= 0  # it stays in sight
    for name in ("Seed plane", "Mixing", "Edits", "Activations", "Saved points"):
        user.open(name)
        assert user.page.evaluate("document.documentElement.scrollWidth") <= 500
