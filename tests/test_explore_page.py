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
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
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
from stylegan.explore import Mixing, Scene, View, between, render
from stylegan.explore.points import point_of
from stylegan.files.latents import read_latents
from stylegan.files.loading import load_source, save_generator

ROOT = Path(__file__).parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
MISSING = [name for name in ("gradio", "playwright") if importlib.util.find_spec(name) is None]
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
        self.page.wait_for_selector("#picture img")

    def seen(self):
        """The picture that is shown."""
        content = self.page.get_attribute("#picture img", "src").partition("base64,")[2]
        with Image.open(io.BytesIO(base64.b64decode(content))) as image:
            return np.array(image)

    def tab(self, name):
        self.page.get_by_role("tab", name=name, exact=True).click()

    def slide(self, name, value):
        self.page.eval_on_selector(f"#{name} input[type=range]", SET, str(value))

    def choose(self, name, option):
        self.page.click(f"#{name} label:has-text('{option}')")

    def pick(self, name, option):
        self.page.click(f"#{name} input")
        self.page.get_by_role("option", name=option).click()

    def sees(self, scene, view):
        """Whether the picture becomes that of the view."""
        expected = render(scene, view).astype(int)

        def same():
            seen = self.seen()
            return seen.shape == expected.shape and np.abs(seen - expected).max() <= 1

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

    def upload(self, path):
        clear = self.page.locator("#upload").get_by_role("button", name="Clear")
        if clear.is_visible():
            clear.click()
        self.page.set_input_files("#upload input[type=file]", path)
        self.page.locator("#upload").get_by_text(path.stem).wait_for()

    def message(self):
        """The message that pops up, which is then closed."""
        toast = self.page.locator(".toast-body.error")
        toast.wait_for()
        text = toast.inner_text()
        self.page.locator(".toast-close").first.click()
        toast.wait_for(state="detached")
        return text

    def close(self):
        assert not self.faults
        self.page.context.close()


@pytest.fixture
def user(browser, server):
    with contextlib.closing(User(browser, server[0])) as user:
        yield user


def test_every_control_shows_what_render_says(user, scene):
    start = {"label": 0, "cutoff": "all"}
    assert user.sees(scene, View(**start))
    user.slide("seed", 5)
    assert user.sees(scene, View(5, **start))
    user.slide("psi", 1.2)
    assert user.sees(scene, View(5, psi=1.2, **start))
    user.slide("cutoff", 2)
    assert user.sees(scene, View(5, psi=1.2, label=0, cutoff=2))
    user.pick("label", NAMES[2])
    now = {"psi": 1.2, "label": 2, "cutoff": 2}
    assert user.sees(scene, View(5, **now))
    user.slide("growth", 3.25)
    assert user.sees(scene, View(5, growth=3.25, **now))
    user.slide("growth", 4)
    user.choose("noise", "off")
    assert user.sees(scene, View(5, noise="none", **now))
    user.slide("noise_seed", 8)  # turns random noise on
    now |= {"noise": "random", "noise_seed": 8}
    assert user.sees(scene, View(5, **now))
    user.tab("Mixing")
    user.slide("mix_seed", 6)  # turns mixing on
    assert user.sees(scene, View(5, mixing=Mixing(6, range(3, 6)), **now))
    user.slide("mix_last", 4)
    user.slide("mix_first", 2)
    now |= {"mixing": Mixing(6, range(1, 4))}
    assert user.sees(scene, View(5, **now))
    user.tab("Directions")
    user.slide("pca_2", 2)
    user.slide("sefa_3", -1.5)
    moves = {"pca": [0, 2, 0], "sefa": [0, 0, -1.5]}
    assert user.sees(scene, View(5, moves=moves, **now))
    user.page.click("#reset")
    assert user.sees(scene, View(5, **now))
    user.tab("Picture")
    user.page.click("#random")
    wait(lambda: user.page.input_value("#seed input[type=number]") != "5")
    seed = int(user.page.input_value("#seed input[type=number]"))
    assert user.sees(scene, View(seed, **now))


def test_points_are_saved_walked_between_and_removed(user, scene, tmp_path):
    user.tab("Directions")
    user.slide("pca_1", 3)
    moved = View(label=0, cutoff="all", moves={"pca": [3, 0, 0]})
    assert user.sees(scene, moved)
    user.save(1)
    user.page.click("#reset")
    user.tab("Picture")
    user.slide("seed", 9)
    plain = View(9, label=0, cutoff="all")
    assert user.sees(scene, plain)
    user.save(2)
    points = [point_of(scene, view, "") for view in (moved, plain)]
    user.tab("Saved points")
    user.slide("between", 0.25)
    assert user.sees(scene, View(styles=between(*points, 0.25)))
    user.page.locator("#gallery .grid-container button").nth(1).click()
    assert user.sees(scene, View(styles=points[1].styles))
    assert user.download("#latents_file", tmp_path / "p.npz") == "point.npz"
    found = read_latents(tmp_path / "p.npz", scene.generator)
    assert np.allclose(found.ws[0], points[1].styles, atol=1e-5) and found.noise is None
    user.page.click("#remove")  # the second, where the way begins
    user.page.locator("#gallery .grid-container button").nth(1).wait_for(state="detached")
    user.slide("between", 0.5)
    assert user.sees(scene, View(styles=points[0].styles))
    user.choose("start", "Seed")
    assert user.sees(scene, plain)
    assert user.download("#picture_file", tmp_path / "p.png") == "seed0009-a_b.png"
    with Image.open(tmp_path / "p.png") as image:
        assert np.abs(np.array(image).astype(int) - render(scene, plain)).max() <= 1


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
        one.tab("Saved points")
        other.tab("Saved points")
        one.page.locator("#gallery .grid-container button").wait_for()
        assert other.page.locator("#gallery .grid-container button").count() == 0
        other.choose("start", "Saved points")
        assert "no points are saved yet" in other.message()
        other.choose("start", "Seed")
        assert other.sees(scene, View(105, label=0, cutoff="all"))


def test_a_picture_of_the_users_own_becomes_a_point(user, scene, tmp_path):
    pixels = render(scene, View(3, label=0, psi=0.5))
    sampling.picture(pixels).save(tmp_path / "mine.png")
    user.tab("Your picture")
    user.slide("steps", 40)
    user.upload(tmp_path / "mine.png")
    user.page.click("#project")
    wait(lambda: user.page.inner_text("#picture figcaption").startswith("point 1"))
    assert "wanted: mine.png" in user.page.inner_text("#target")
    user.tab("Saved points")
    assert user.page.input_value("#from input").startswith("1: mine.png, ")


def test_a_search_that_was_stopped_leaves_room_for_the_next(user, scene, tmp_path):
    sampling.picture(render(scene, View(3, label=0))).save(tmp_path / "mine.png")
    user.tab("Your picture")
    user.upload(tmp_path / "mine.png")
    user.slide("steps", 1000)
    user.page.click("#project")
    wait(lambda: user.page.inner_text("#picture figcaption").startswith("step "))
    user.page.click("#stop")
    user.slide("steps", 20)

    def found():
        user.page.click("#project")  # without effect until the first has ended
        with contextlib.suppress(AssertionError):
            wait(lambda: user.page.inner_text("#picture figcaption").startswith("point 1"), 3)
            return True

    wait(found)


def test_ctrl_c_ends_a_search_and_open_sessions(browser, source, scene, tmp_path):
    sampling.picture(render(scene, View(3, label=0))).save(tmp_path / "mine.png")
    with served(source, tmp_path / "log") as place:
        users = [User(browser, place) for _ in range(2)]
        users[0].tab("Your picture")
        users[0].upload(tmp_path / "mine.png")
        users[0].slide("steps", 1000)
        users[0].page.click("#project")
        wait(lambda: users[0].page.inner_text("#picture figcaption").startswith("step "))
    assert (tmp_path / "log").read_text().splitlines()[1:] == ["ended"]
    for user in users:
        user.page.context.close()


def test_bad_uploads_are_refused_politely(user, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no picture")
    Image.new("1", (12_000, 12_000)).save(tmp_path / "huge.png")
    before = user.seen()
    user.tab("Your picture")
    user.page.click("#project")
    assert "choose a picture first" in user.message()
    user.upload(tmp_path / "bad.png")
    user.page.click("#project")
    assert "bad.png: not a PNG" in user.message()
    user.upload(tmp_path / "huge.png")
    user.page.click("#project")
    assert "huge.png: 12000x12000 pixels are more" in user.message()
    assert np.array_equal(user.seen(), before)


def test_nobody_else_is_asked_for_anything(user, server):
    address, log = server
    user.slide("seed", 1)
    outside = [url for url in user.asked if not url.startswith((address, "data:", "blob:"))]
    assert not outside
    assert "CALLED" not in log.read_text()


@pytest.mark.parametrize(("label_dim", "styles"), [(0, True), (3, False)])
def test_only_controls_that_can_do_something_are_shown(label_dim, styles):
    import gradio as gr

    from stylegan.explore.layout import Layout

    config = dataclasses.replace(TINY, label_dim=label_dim, styles=styles, constant_input=styles)
    with gr.Blocks(analytics_enabled=False) as blocks:
        layout = Layout(explored(config=config, methods=METHODS if styles else ["pca"]))
    assert layout.controls["label"].visible == (label_dim > 0)
    tabs = {block.label: block.visible for block in blocks.blocks.values() if is_tab(block)}
    assert tabs["Mixing"] == styles and tabs["Directions"]
    assert ("sefa_1" in layout.controls) == styles


def is_tab(block):
    return type(block).__name__ == "Tab"


def test_a_port_that_is_taken_is_refused(server, scene):
    from stylegan.explore.server import serving

    port = int(server[0].strip("/").rpartition(":")[2])
    with (
        pytest.raises(OSError, match=rf"port {port} of 127\.0\.0\.1 cannot be used"),
        serving(scene, port=port),
    ):
        pass


def test_files_of_this_computer_are_not_served(server, source):
    for path in (source, ROOT / "pyproject.toml"):
        with pytest.raises(urllib.error.HTTPError, match="40"):
            urllib.request.urlopen(f"{server[0]}gradio_api/file={path}")


def test_pages_of_another_name_get_nothing(server):
    """What DNS makes of a name must not let a page of the web look at this one."""
    port = server[0].strip("/").rpartition(":")[2]
    for host in ("127.0.0.1", "localhost"):
        request = urllib.request.Request(f"{server[0]}config", headers={"Host": f"{host}:{port}"})
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 200
    for host in ("example.org", f"example.org:{port}", "127.0.0.1.example.org", ""):
        request = urllib.request.Request(f"{server[0]}config", headers={"Host": host})
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(request)


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
