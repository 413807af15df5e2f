"""The explorer's page as a folder: a seed is the same picture there as here."""

import base64
import dataclasses
import io
import json
import shutil
import subprocess

import numpy as np
import pytest
import torch
from helpers.browsing import NEEDS_BROWSER, hosted, launched, runtime
from helpers.tiny_generators import LABELED, TINY, loaded_of, random_generator, with_fine_noise_only
from PIL import Image

from stylegan import load_generator, sampling, streams
from stylegan.data.images import Fit
from stylegan.explore.controls import moves_of
from stylegan.explore.export import PageNetwork, save_page
from stylegan.explore.page import styles_of
from stylegan.explore.server import FOLDER
from stylegan.networks.edits import Edit

SEEDS = [*range(990), 2**16, 2**31 - 1, 2**31, *range(2**32 - 7, 2**32)]
DRAW = """
import { next, ofSeed, ofSequence } from "./random.mjs";
const of = (seed) => [ofSeed(seed), ofSequence(seed, 1)].map((draws) => [...next(draws, 700)]);
console.log(JSON.stringify(JSON.parse(process.argv[2]).map(of)));
"""
SHOWN = """async (change) =>
  (await ask("picture", {...values(), ...change})).picture.split("base64,")[1]"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_random_js_equals_numpy_for_a_thousand_seeds(tmp_path):
    shutil.copy(FOLDER / "random.js", tmp_path / "random.mjs")
    (tmp_path / "draw.mjs").write_text(DRAW)
    words = ["node", tmp_path / "draw.mjs", json.dumps(SEEDS)]
    drawn = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    assert len(drawn) == 1000
    for seed, found in zip(SEEDS, drawn, strict=True):
        for numbers, stream in zip(
            found, (streams.latent_rng, streams.image_noise_rng), strict=True
        ):
            expected = stream(seed).randn(700).astype(np.float32)
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
    rows = loaded.label_rows
    classes = loaded.generator.config.label_dim if rows is None else len(rows)
    with hosted(tmp_path) as address:
        page.goto(address)
        page.wait_for_selector("body.built")
        for noise, seeds in (("const", range(count)), ("random", [5]), ("none", [6])):
            expected = loaded.generate(seeds, psi=loaded.settings.psi, noise=noise)
            for seed, picture in zip(seeds, expected, strict=True):
                change = {"seed": seed}
                if loaded.generator.config.noise:
                    change |= {"noise": noise, "noise_seed": seed}
                if classes:
                    change["label"] = str(seed % classes)
                content = base64.b64decode(page.evaluate(SHOWN, change))
                with Image.open(io.BytesIO(content)) as image:
                    shown = np.array(image).astype(int)[..., :3]
                assert shown.shape[:2] == picture.shape[:2]
                assert np.abs(shown - picture).max() <= 1


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
