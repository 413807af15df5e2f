"""The explorer's page as a folder and as one file: a seed is the same picture there as here."""

import base64
import dataclasses
import hashlib
import html.parser
import importlib.resources
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
from helpers import ROOT
from helpers.browsing import NEEDS_BROWSER, hosted, launched, runtime, wait
from helpers.commands import run_fails
from helpers.pictures import pixels_of
from helpers.tiny_generators import LABELED, TINY, loaded_of, random_generator, with_fine_noise_only

from stylegan import load_generator, sampling, streams
from stylegan.data.images import Fit
from stylegan.explore.controls import moves_of
from stylegan.explore.export import HELD, LICENSES, RUNTIME, PageNetwork, inlined, save_page
from stylegan.explore.page import styles_of
from stylegan.explore.server import FOLDER
from stylegan.networks.edits import Edit

SEEDS = [*range(990), 2**16, 2**31 - 1, 2**31, *range(2**32 - 7, 2**32)]
DRAW = """
import { next, ofSeed, ofSequence } from "./random.mjs";
const of = (seed) => [ofSeed(seed), ofSequence(seed, 1)].map((draws) => [...next(draws, 700)]);
console.log(JSON.stringify(JSON.parse(process.argv[2]).map(of)));
"""
SHOWN = 'async (change) => (await ask("picture", {...values(), ...change})).picture'


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_random_js_equals_numpy_for_a_thousand_seeds(tmp_path):
    shutil.copy(FOLDER / "random.js", tmp_path / "random.mjs")
    (tmp_path / "draw.mjs").write_text(DRAW)
    words = ["node", tmp_path / "draw.mjs", json.dumps(SEEDS)]
    drawn = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    assert len(drawn) == 1000
    of_latents = streams.latent_rngs(SEEDS)
    of_noise = map(streams.image_noise_rng, SEEDS)
    for found, *rngs in zip(drawn, of_latents, of_noise, strict=True):
        for numbers, rng in zip(found, rngs, strict=True):
            expected = rng.randn(700).astype(np.float32)
            np.testing.assert_allclose(numbers, expected, rtol=3e-7)


def tiny(**about):
    return loaded_of(random_generator(TINY, noise=0.5), **about)


def large():
    """A generator of 1024x1024 whose colors lie in [-1, 1], as those of a trained one do."""
    generator = random_generator(dataclasses.replace(TINY, resolution=1024), noise=0.1)
    with torch.no_grad():
        generator.synthesis.to_rgb["1024"].weight.mul_(0.25)
    return generator


SOURCES = {
    "faces64": lambda: load_generator("faces64"),
    "glyphs64, with classes": lambda: load_generator("glyphs64"),
    "fading in": lambda: tiny(alpha=0.3),
    "not fully grown": lambda: tiny(resolution=8, cutoff=2),
    "3:2": lambda: loaded_of(
        random_generator(dataclasses.replace(TINY, resolution=64), noise=0.5),
        active_rectangle=Fit.parse("pad 3:2").active_rectangle(64),
    ),
    "with centers": lambda: tiny(centers=torch.eye(TINY.w_dim)[:3]),
    "gray": lambda: loaded_of(random_generator(dataclasses.replace(TINY, image_channels=1))),
    "without noise": lambda: loaded_of(
        random_generator(dataclasses.replace(TINY, noise=False), biases=True)
    ),
    "1024 pixels": lambda: loaded_of(large()),
    "labels of the data": lambda: loaded_of(
        random_generator(LABELED), label_rows=torch.linspace(0, 1, 12).view(4, 3)
    ),
}


@pytest.fixture(scope="module")
def page():
    with launched() as browser:
        yield browser.new_page()


@pytest.mark.slow
@NEEDS_BROWSER
@pytest.mark.parametrize("name", SOURCES)
def test_explore_export_images_equal_generate(page, name, tmp_path):
    loaded = SOURCES[name]()
    count = 20 if loaded.resolution < 1024 else 3
    save_page(loaded, {}, name, tmp_path, runtime())
    with hosted(tmp_path) as address:
        page.goto(address)
        page.wait_for_selector("body.built")
        shows_the_pictures_of(loaded, page, count)


def shows_the_pictures_of(loaded, page, count):
    """Whether a page gives the pictures of some seeds with every kind of noise."""
    rows = loaded.label_rows
    classes = loaded.generator.config.label_dim if rows is None else len(rows)
    for noise, seeds in (("const", range(count)), ("random", [5]), ("none", [6])):
        expected = loaded.generate(seeds, psi=loaded.settings.psi, noise=noise)
        for seed, picture in zip(seeds, expected, strict=True):
            change = {"seed": seed}
            if loaded.generator.config.noise:
                change |= {"noise": noise, "noise_seed": seed}
            if classes:
                change["label"] = str(seed % classes)
            shown = pixels_of(page.evaluate(SHOWN, change)).astype(int)[..., :3]
            assert shown.shape[:2] == picture.shape[:2]
            assert np.abs(shown - picture).max() <= 1


@pytest.mark.slow
@NEEDS_BROWSER
@pytest.mark.parametrize("name", ["faces64", "glyphs64, with classes", "3:2"])
def test_one_file_opens_without_a_server_and_asks_nobody(page, name, tmp_path):
    loaded = SOURCES[name]()
    save_page(loaded, {}, name, tmp_path / "# friend?.html", runtime())
    address = (tmp_path / "# friend?.html").as_uri()
    page, asked, faults = page.context.browser.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text))
    page.goto(f"{address}#seed=3&psi=0.5")
    page.wait_for_selector("#seeds button:nth-child(12) [src]")
    assert page.inner_text("#picture figcaption").startswith("seed 3 · ψ 0.5")
    page.evaluate("location.hash = ''")
    shows_the_pictures_of(loaded, page, 8)
    assert {url for url in asked if not url.startswith("data:")} == {address}
    assert not faults
    refused = page.evaluate("fetch('http://127.0.0.1:9/').catch((error) => error.message)")
    assert refused == "Failed to fetch"
    assert "violates the following Content Security Policy" in faults[0]


OLD_BROWSERS = {
    "no WebAssembly": "delete window.WebAssembly",
    "no workers": "delete window.Worker",
    "no module workers": """window.Worker = class extends Worker {
      constructor(address) { super(address); }
    }""",
}


@pytest.mark.slow
@NEEDS_BROWSER
def test_a_browser_that_cannot_run_one_file_says_so(page, tmp_path):
    save_page(tiny(), {}, "tiny", tmp_path / "friend.html", runtime())
    address = (tmp_path / "friend.html").as_uri()
    browser = page.context.browser
    for script in OLD_BROWSERS.values():
        old = browser.new_page()
        old.add_init_script(script)
        old.goto(address)
        wait(lambda old=old: "Firefox from 114" in old.inner_text("#message"), 60)
        assert not old.is_visible("#controls")
    plain = browser.new_page(java_script_enabled=False)
    plain.goto(address)
    assert "needs JavaScript" in plain.inner_text("#view")


class Elements(html.parser.HTMLParser):
    """The elements of a page in order: name, attributes and text."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.inside = False  # the last one
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes), []))
        self.inside = True

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.found[-1][2].append(data)


def test_one_file_holds_all_parts_and_no_address(tmp_path):
    dist, path = tmp_path / "dist", tmp_path / "friend.HTML"
    dist.mkdir()
    for source in RUNTIME.values():
        (dist / source).write_bytes(b"\xff</script>" + source.encode())
    small = dataclasses.replace(TINY, resolution=8)
    written = save_page(loaded_of(random_generator(small)), {}, "</script>", path, dist)
    page = path.read_text(encoding="utf-8")
    assert [*tmp_path.glob("*.HTML"), dist] == sorted(tmp_path.iterdir(), reverse=True)
    assert written.size == path.stat().st_size
    elements = [(tag, about, "".join(text)) for tag, about, text in Elements(page).found]
    addresses = [about.get(key) for _, about, _ in elements for key in ("src", "href")]
    assert {address for address in addresses if address} == {"data:,"}
    scripts = [(about, text) for tag, about, text in elements if tag == "script"]
    held = dict.fromkeys(HELD, "")
    for about, text in scripts:
        if "data-file" in about:
            held[about["data-file"]] += text
    contents = {name: base64.b64decode(text, validate=True) for name, text in held.items()}
    for name, source in RUNTIME.items():
        assert contents[name] == (dist / source).read_bytes()
    assert json.loads(contents["scene.json"])["name"] == "</script>"
    assert str(ROOT).encode() not in contents["network.onnx"]
    assert contents["worker.js"] == (FOLDER / "worker.js").read_bytes()
    (policy,) = (about["content"] for _, about, _ in elements if "http-equiv" in about)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    allowed = r"('none'|'sha256-[\w+/]+='|'wasm-unsafe-eval'|data:|\s)+"
    assert re.fullmatch(allowed, " ".join(rules.values()))
    texts = [text for about, text in scripts if "data-file" not in about]
    styles = [text for tag, _, text in elements if tag == "style"]
    assert texts == [(FOLDER / name).read_text("utf-8") for name in ("engine.js", "page.js")]
    assert styles == [(FOLDER / "page.css").read_text("utf-8")]
    for text in texts + styles:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    (licenses,) = (text for tag, _, text in elements if tag == "pre")
    package = importlib.resources.files("onnxruntime")
    for file in LICENSES:
        assert (package / file.partition("/")[2]).read_text("utf-8-sig").strip() in licenses
    with pytest.raises(ValueError, match="exists; pass --overwrite"):
        save_page(tiny(), {}, "again", path, dist)
    assert path.read_text(encoding="utf-8") == page


def test_a_script_cannot_end_within_its_text():
    element, _ = inlined(
        "script", b"a = ['</script>', '</SCRIPT>', '<!--<script>'];\r\nb = 1 </2/;"
    )
    assert element == (
        "<script>a = ['\\x3c/script>', '\\x3c/SCRIPT>', '\\x3c!--\\x3cscript>'];\nb = 1 </2/;"
        "</script>\n"
    )


@torch.no_grad()
def test_page_network_accepts_noise_in_fine_layers_only():
    """All maps in a row, also of the other layers, as a seed draws them."""
    loaded = loaded_of(with_fine_noise_only())
    drawing = PageNetwork(loaded, {})
    maps = sampling.noise_from_seeds([5], TINY)
    given = drawing.examples() | {"z": torch.randn(4, 8)}
    given["noise"] = torch.cat([m.flatten() for m in maps])
    ws = styles_of(loaded, given["z"], None, given["plane"], given["mixed"], given["psi"])
    expected = sampling.to_uint8(loaded.settings.synthesize(loaded.generator, ws, maps))
    assert np.array_equal(drawing(**given)[..., :3].to(torch.uint8).numpy(), expected[0])


def test_moves_of_names_edits_without_folders_and_strengths():
    texts = ["a=b/x.npz:svm:<b>s/m=1</b>=2@0-3", "c/v.npy=-1", "pca:2"]
    edits = [Edit(torch.ones(8))] * 3
    assert list(moves_of(texts, edits)) == ["x.npz:svm:<b>s/m=1</b>@0-3", "v.npy", "pca:2"]
    with pytest.raises(ValueError, match="twice"):
        moves_of(["a/v.npy=1", "b/v.npy=2"], edits[:2])


@pytest.mark.parametrize("name", ["page", "page.html"])
def test_a_page_needs_the_runtime_before_any_work(tmp_path, monkeypatch, source, name):
    monkeypatch.chdir(tmp_path)
    message = run_fails("explore", source, "--export", name)
    assert "npm install onnxruntime-web" in message and "--runtime" in message
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    both = r'needs onnxruntime: pip install .*-e "\.\[export\]".* npm install onnxruntime-web'
    assert re.search(both, run_fails("explore", source, "--export", name))
    assert not (tmp_path / name).exists()
