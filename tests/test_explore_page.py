"""The explorer's page in a browser: every control, downloads, a picture of one's own.

The server runs in a process of its own, which writes down whom it calls.
"""

import contextlib
import dataclasses
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from helpers import ROOT
from helpers.browsing import NEEDS_BROWSER, Files, User, hosted, launched, runtime, wait
from helpers.commands import run_ok
from helpers.processes import environment
from helpers.tiny_generators import LABELED, random_generator
from PIL import Image

from stylegan import load_generator, sampling
from stylegan.directions import (
    default_path,
    find_directions,
    load_directions,
    read_edits,
    save_directions,
)
from stylegan.explore.controls import View
from stylegan.explore.page import render
from stylegan.files.formats.native import save_generator
from stylegan.files.latents import read_latents
from stylegan.utils.lineage import LineageEntry

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
NAMES = ("<b>a/b</b>", "笑", "z")  # of classes, as a page may get them from a folder
SECTIONS = ("Seed plane", "Mixing", "Directions", "Your image")

pytestmark = [pytest.mark.slow, NEEDS_BROWSER]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A file of a tiny generator, and its directions beside it."""
    path = tmp_path_factory.mktemp("explored") / "<i>g.pt"
    lineage = [LineageEntry("the <b>begin</b>", "0" * 64, "CC0")]
    generator = random_generator(LABELED, noise=0.5)
    save_generator(path, generator, label_names=NAMES, lineage=lineage)
    generator = load_generator(path).generator
    found = find_directions(generator, ["pca", "sefa"], count=3, samples=200)
    save_directions(default_path(path), found, generator)
    return path


@pytest.fixture(scope="module")
def loaded(source):
    return load_generator(source)


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


@pytest.fixture(scope="module")
def browser():
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(source, tmp_path_factory):
    """The page as a folder."""
    folder = tmp_path_factory.mktemp("exported") / "page"
    run_ok("explore", source, "--export", folder, "--runtime", runtime())
    return folder


@pytest.fixture(scope="module")
def exported(folder):
    """The address of the folder."""
    with hosted(folder) as address:
        yield address


@pytest.fixture
def user(browser, server):
    with contextlib.closing(User(browser, server[0])) as user:
        yield user


@pytest.fixture
def visitor(browser, exported):
    with contextlib.closing(User(browser, exported)) as user:
        yield user


@pytest.fixture(params=["user", "visitor"])
def somebody(request):
    """In front of the page that is served, then of the folder."""
    return request.getfixturevalue(request.param)


def test_explore_page_controls_show_what_render_gives(somebody, source, loaded):
    user = somebody
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
    assert shows(edits=[directions["pca"].edit("2", 2, range(3))])
    parts = user.caption().split(" · ")
    assert parts[:2] == ["seed 5", "ψ 1.2"] and parts[2] in NAMES
    assert parts[3:] == ["layers 2,3 of seed 6", "--edit pca:2=+2@0-2"]
    user.page.click("#reset")
    user.slide("sefa:3", -1.5)
    assert shows(edits=[directions["sefa"].edit("3", -1.5)])
    user.page.click("#reset")
    assert shows(edits=())
    user.page.click("#random")
    wait(lambda: user.page.input_value("#seed_number") != "5")
    assert shows(seed=int(user.page.input_value("#seed_number")))


def test_explore_page_projects_edits_and_saves_an_uploaded_image(user, loaded, tmp_path):
    sampling.to_pil(render(loaded, View(3, 0, 0.5))).save(tmp_path / "mine.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    user.choose("start", "your image")
    user.message("project an image first")
    user.open("Your image", "Directions")
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
    wait(lambda: user.caption() == "your image")
    assert "wanted: mine.png" in user.page.inner_text("#target")
    assert "moving ψ shows the seed again" in user.page.inner_text("#target")
    user.slide("pca:1", 2)
    wait(lambda: user.caption() == "your image · --edit pca:1=+2")
    found = read_latents(user.download("#latents_file", tmp_path), loaded.generator)
    assert user.sees(loaded, View(styles=found.ws[0]))  # whatever psi is
    png = user.download("#picture_file", tmp_path)
    assert png.name == "own.png"
    with Image.open(png) as image:
        shown, expected = np.array(image).astype(int), render(loaded, View(styles=found.ws[0]))
    assert np.abs(shown - expected).max() <= 1
    user.page.evaluate("location.hash = 'seed=3'")  # a link shows its seed
    assert user.sees(loaded, View(3))
    user.choose("start", "your image")
    wait(lambda: user.caption().startswith("your image"))
    user.page.click("#seeds button:nth-child(8)")  # a seed takes its place again
    wait(lambda: user.caption().startswith("seed 7 "))
    path = user.download("#latents_file", tmp_path)
    assert path.name == "seed0007.npz"
    assert user.page.inner_text("#message") == ""


def test_explore_page_link_keeps_the_view_and_escapes_names(somebody, loaded):
    page = somebody.page
    assert page.inner_text("#name") == "<i>g.pt" and page.title().startswith("<i>g.pt")
    somebody.choose("label", NAMES[0])  # has markup, too
    somebody.slide("psi", 1.1)
    somebody.open("Mixing", "Directions")
    page.check("#mix_layers input[value='3']")
    somebody.slide("sefa:1", -1)
    address = wait(lambda: re.search(".*sefa.*", page.evaluate("location.href")))[0]
    caption = somebody.caption()
    assert address.endswith("#psi=1.1&mix_layers=3&sefa%3A1=-1")
    page.goto("about:blank")
    page.goto(address)
    wait(lambda: somebody.caption() == caption)
    assert page.is_checked("#mix_layers input[value='3']")
    page.evaluate("location.hash = 'seed=7&label=2'")
    assert somebody.sees(loaded, View(7, 2))
    page.evaluate("location.hash = 'seed=-3&psi=abc&label=99'")  # what cannot be is left out
    assert somebody.sees(loaded, View(10))
    page.evaluate("location.hash = 'seed=0x10'")
    assert somebody.sees(loaded, View(16))
    page.evaluate("location.hash = 'seed=1.5'")
    assert somebody.sees(loaded, View(10))


JS = "text/javascript"
BROKEN = [  # a file, what is in it (None: it is gone), how scripts are sent, what the page says
    ("random.js", None, JS, "random.js or onnxruntime/ort.js is missing in this page"),
    ("random.js", "", "text/plain", "or its web server does not send it as text/javascript"),
    ("scene.json", "null", JS, "scene.json does not describe a page"),
]


@pytest.mark.parametrize(("file", "content", "kind", "message"), BROKEN)
def test_explore_page_names_missing_or_wrong_files(
    browser, folder, tmp_path, monkeypatch, file, content, kind, message
):
    broken = shutil.copytree(folder, tmp_path / "page") / file
    broken.unlink() if content is None else broken.write_text(content or broken.read_text())
    monkeypatch.setitem(Files.extensions_map, ".js", kind)
    with hosted(tmp_path / "page") as address:
        page = browser.new_page()
        page.goto(address)
        wait(lambda: message in page.inner_text("#message"), 60)


def test_explore_page_walk_goes_from_seed_to_seed(somebody, loaded):
    somebody.page.click("#walk")
    wait(lambda: somebody.page.input_value("#seed_number") != "10")
    somebody.page.click("text=Stop")
    somebody.page.wait_for_selector("text=Walk")
    seed = int(somebody.page.input_value("#seed_number"))
    way = float(somebody.page.input_value("#plane_x_number"))
    assert somebody.sees(loaded, View(seed, plane_x=way, plane_a=seed + 1))
    somebody.page.click("#walk")
    somebody.page.click("#seeds button:nth-child(8)")
    assert somebody.sees(loaded, View(7))
    somebody.page.wait_for_selector("text=Walk")
    somebody.page.click("#walk")
    somebody.page.evaluate("location.hash = 'seed=5'")  # a link ends a walk
    assert somebody.sees(loaded, View(5))
    somebody.page.wait_for_selector("text=Walk")


def test_explore_page_supports_keys_and_small_screens(somebody, loaded):
    somebody.page.set_viewport_size({"width": 375, "height": 667})
    somebody.page.focus("#seed input[type=range]")
    somebody.page.keyboard.press("ArrowRight")
    assert somebody.sees(loaded, View(11))
    somebody.page.focus("#more")
    somebody.page.keyboard.press("Enter")
    somebody.page.wait_for_selector("#seeds [title='seed 23'] [src]")
    height = "document.getElementById('seeds').offsetHeight"
    before = somebody.page.evaluate(height)  # the next images have their places before they arrive
    assert somebody.page.evaluate(f"document.getElementById('more').click(), {height}") == before
    assert somebody.page.evaluate("document.documentElement.scrollWidth") <= 375


def test_explore_page_contacts_no_other_server(user, visitor, server, exported):
    for person, address in ((user, server[0]), (visitor, exported)):
        person.slide("seed", 1)
        outside = [url for url in person.asked if not url.startswith((address, "data:", "blob:"))]
        assert not outside
    assert "CALLED" not in server[1].read_text()


def test_explore_page_explains_missing_projection(visitor):
    visitor.open("Your image")
    assert "needs PyTorch" in visitor.page.inner_text(".no_project")
    assert not visitor.page.is_visible("#project") and not visitor.page.is_visible("#latents_file")


def test_explore_export_page_starts_with_edits_and_shows_lineage(browser, source, loaded, tmp_path):
    file, folder = tmp_path / "a=b" / "<u>v.npy", tmp_path / "page"
    file.parent.mkdir()
    np.save(file, np.linspace(-1, 1, loaded.generator.config.w_dim))
    edits = [f"{file}=0.5@0-2", "pca:1=-1"]
    options = [word for edit in edits for word in ("--edit", edit)]
    run_ok("explore", source, "--export", folder, "--runtime", runtime(), *options)
    given = read_edits(edits, loaded, source)
    with hosted(folder) as address, contextlib.closing(User(browser, address)) as visitor:
        assert visitor.sees(loaded, View(10, edits=given))
        assert visitor.caption().endswith(" · --edit <u>v.npy=+0.5@0-2 · --edit pca:1=-1")
        visitor.open("Directions")
        assert "<u>v.npy" in visitor.page.inner_text("#of_edits")
        visitor.slide("<u>v.npy@0-2", 2)
        moved = dataclasses.replace(given[0], strength=2)
        assert visitor.sees(loaded, View(10, edits=[moved, given[1]]))
        assert "Weights from the <b>begin</b>" in visitor.page.inner_text("footer")
        assert "CC0" in visitor.page.inner_text("footer")
    assert str(tmp_path) not in (folder / "scene.json").read_text()


def test_explore_page_opened_as_a_file_explains_what_to_do(browser, folder):
    page = browser.new_page()
    page.goto((folder / "index.html").as_uri())
    wait(lambda: "python -m http.server" in page.inner_text("#message"))
    assert "--export page.html" in page.inner_text("#message")
    assert not page.is_visible("#controls")
