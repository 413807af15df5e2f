"""The explorer's page in a browser: every control, downloads, a picture of one's own.

The server runs in a process of its own, which writes down whom it calls.
"""

import base64
import contextlib
import io
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from helpers import ROOT
from helpers.explorer import NAMES
from helpers.processes import environment
from helpers.tiny_generators import LABELED, random_generator
from PIL import Image
from playwright.sync_api import sync_playwright

from stylegan import load_generator, sampling
from stylegan.directions import default_path, find_directions, load_directions, save_directions
from stylegan.explore.controls import View
from stylegan.explore.page import render
from stylegan.files.formats.own import save_generator
from stylegan.files.latents import read_latents

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
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
SECTIONS = ("Seed plane", "Mixing", "Directions", "Your picture")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=f"needs a browser: one of {', '.join(BROWSERS)}"),
]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A file of a tiny generator, and its directions beside it."""
    path = tmp_path_factory.mktemp("explored") / "g.pt"
    save_generator(path, random_generator(LABELED, noise=0.5), label_names=NAMES)
    generator = load_generator(path).loaded.generator
    found = find_directions(generator, ["pca", "sefa"], count=3, samples=200)
    save_directions(default_path(path), found, generator)
    return path


@pytest.fixture(scope="module")
def loaded(source):
    return load_generator(source).loaded


@pytest.fixture(scope="module")
def server(source, tmp_path_factory):
    """The address of the page and the output of its server, a process that Ctrl-C ends."""
    log = tmp_path_factory.mktemp("server") / "log"
    words = [sys.executable, "-c", SERVER, "explore", source, "--no-browser", "--device", "cpu"]
    unbuffered = environment(log.parent, PYTHONUNBUFFERED="1")
    with log.open("w") as file:
        process = subprocess.Popen(
            [*map(str, words)], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, env=unbuffered
        )

    def address():
        assert process.poll() is None, log.read_text()
        return next((word for word in log.read_text().split() if word.startswith("http://")), None)

    try:
        yield wait(address), log
        process.send_signal(signal.SIGINT)
        assert process.wait(600) == 0, log.read_text()
    finally:
        process.kill()


def wait(condition, seconds=600.0):
    """What `condition` gives, once it is something."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return found


@pytest.fixture(scope="module")
def browser():
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

    def open(self, *sections):
        for name in sections:
            self.page.click(f"summary:text-is('{name}')")

    def slide(self, name, value):
        self.page.eval_on_selector(f"[id='{name}'] input[type=range]", SET, str(value))

    def choose(self, name, text):
        self.page.select_option(f"#{name} select", label=text)

    def sees(self, loaded, view):
        """Whether the picture becomes that of the view."""
        expected = render(loaded, view).astype(int)

        def same():
            content = self.page.get_attribute("#picture img", "src").partition("base64,")[2]
            with Image.open(io.BytesIO(base64.b64decode(content))) as image:
                shown = np.array(image)
            return shown.shape == expected.shape and np.abs(shown - expected).max() <= 1

        return wait(same)

    def download(self, button, folder):
        with self.page.expect_download() as download:
            self.page.click(button)
        path = folder / download.value.suggested_filename
        download.value.save_as(path)
        return path

    def message(self, part):
        wait(lambda: part in self.page.inner_text("#message"))

    def caption(self):
        return self.page.inner_text("#picture figcaption")

    def close(self):
        assert not self.faults
        self.page.context.close()


@pytest.fixture
def user(browser, server):
    with contextlib.closing(User(browser, server[0])) as user:
        yield user


def test_every_control_shows_what_render_says(user, source, loaded):
    user.open(*SECTIONS)
    assert user.page.locator("details[open]").count() == 5  # all stay open
    now = {"seed": 10, "label": 0}

    def shows(**changes):
        now.update(changes)
        return user.sees(loaded, View(**now))

    assert shows()
    user.slide("seed", 5)
    assert shows(seed=5)
    user.slide("psi", 1.2)
    assert shows(psi=1.2)
    user.choose("label", NAMES[1])
    assert shows(label=1)
    user.choose("noise", "off")
    assert shows(noise="none")
    user.slide("noise_seed", 8)  # turns random noise on
    assert shows(noise="random", noise_seed=8)
    user.slide("mix_seed", 6)
    for layer in (2, 3, 5):
        user.page.check(f"#mix_layers input[value='{layer}']")
    user.page.uncheck("#mix_layers input[value='5']")
    assert shows(mix_seed=6, mix_layers=(2, 3))
    user.slide("plane_a", 7)
    user.page.locator("#plane").scroll_into_view_if_needed()
    box = user.page.locator("#plane").bounding_box()
    user.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    user.page.mouse.down()
    user.page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.3)
    user.page.mouse.up()
    x, y = (float(user.page.input_value(f"#plane_{axis}_number")) for axis in "xy")
    assert abs(x - 1) < 0.02 and abs(y - 0.5) < 0.02
    assert shows(plane_a=7, plane_x=x, plane_y=y)
    user.page.click("#plane_zero")
    assert shows(plane_x=0, plane_y=0)
    directions = {d.method: d for d in load_directions(default_path(source), loaded.generator)}
    user.slide("edit_last", 2)
    user.slide("pca:2", 2)
    assert shows(edits={"": directions["pca"].edit("2", 2, range(3))})
    assert user.caption() == "seed 5 · ψ 1.2 · --edit pca:2=+2@0-2"
    user.page.click("#reset")
    user.slide("sefa:3", -1.5)
    assert shows(edits={"": directions["sefa"].edit("3", -1.5)})
    user.page.click("#reset")
    assert shows(edits={})
    user.page.click("#random")
    wait(lambda: user.page.input_value("#seed_number") != "5")
    assert shows(seed=int(user.page.input_value("#seed_number")))


def test_a_picture_of_the_users_own_is_projected_edited_and_saved(user, loaded, tmp_path):
    sampling.picture(render(loaded, View(3, 0, 0.5))).save(tmp_path / "mine.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    user.choose("start", "your picture")
    user.message("project a picture first")
    user.open("Your picture", "Directions")
    user.page.click("#project")
    user.message("choose a file first")
    user.page.set_input_files("#upload", tmp_path / "bad.png")
    user.page.click("#project")
    user.message("bad.png: not a PNG")
    user.choose("start", "the seed")
    user.slide("steps", 1000)
    user.page.set_input_files("#upload", tmp_path / "mine.png")
    user.page.click("#project")
    wait(lambda: user.caption().startswith("step "))
    user.page.click("#stop")
    assert user.sees(loaded, View(10, 0))
    user.slide("steps", 40)
    user.page.click("#project")  # waits for the end of the first
    wait(lambda: user.caption() == "your picture")
    assert "wanted: mine.png" in user.page.inner_text("#target")
    user.slide("pca:1", 2)
    wait(lambda: user.caption() == "your picture · --edit pca:1=+2")
    found = read_latents(user.download("#latents_file", tmp_path), loaded.generator)
    assert user.sees(loaded, View(styles=found.ws[0]))
    png = user.download("#picture_file", tmp_path)
    assert png.name == "own.png"
    with Image.open(png) as image:
        shown, expected = np.array(image).astype(int), render(loaded, View(styles=found.ws[0]))
    assert np.abs(shown - expected).max() <= 1
    user.page.click("#seeds button:nth-child(8)")  # a seed takes its place again
    wait(lambda: user.caption().startswith("seed 7 "))
    path = user.download("#latents_file", tmp_path)
    assert path.name == "seed0007.npz"
    assert user.page.inner_text("#message") == ""


def test_nobody_else_is_asked_for_anything(user, server):
    address, log = server
    user.slide("seed", 1)
    outside = [url for url in user.asked if not url.startswith((address, "data:", "blob:"))]
    assert not outside
    assert "CALLED" not in log.read_text()
