"""The command that writes pictures."""

import dataclasses
import runpy
import sys

import numpy as np
import pytest
import torch
from helpers import ROOT
from helpers.commands import generated, open_image, pixels, run_fails, run_ok, stylegan
from helpers.processes import run_python
from helpers.tiny_generators import LABELED, TINY, loaded_of, random_generator
from PIL import Image
from torch.testing import assert_close

from stylegan import figures, load_generator
from stylegan.blending import blend
from stylegan.files.formats.native import save_generator
from stylegan.ops import downsample_to
from stylegan.sampling import latents, sample_w, to_uint8
from stylegan.sampling.centers import find_centers
from stylegan.utils.filesystem import ALLOW_OVERWRITE
from stylegan.utils.lineage import LineageEntry

CPU = ["--device", "cpu"]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def made(seed, **options):
    """The picture that the library makes of a seed."""
    with torch.no_grad():
        images = random_generator()(latents([seed], 8), noise="const", **options)
    return to_uint8(images)[0]


def test_generate_writes_seeds_and_a_grid_reproducibly(source, out):
    options = ["--seeds", "0-2,10000", "--noise", "random"]
    first = generated(source, out, *options)
    names = ["grid.png", "seed0000.png", "seed0001.png", "seed0002.png", "seed10000.png"]
    assert list(first) == names
    printed = run_ok("generate", source, *options, "--out", out, *CPU)  # on top of itself
    assert printed == f"4 images and their grid in {out}, from the generator file {source}\n"
    assert first == {path.name: path.read_bytes() for path in out.iterdir()}


def test_generate_uses_the_truncation_of_the_file_by_default(tmp_path, out):
    path = tmp_path / "own.pt"
    save_generator(path, random_generator(), psi=0.0, cutoff=None)

    def difference(*options):
        generated(path, out, "--seeds", "1,2", *options)
        return np.abs(pixels(out / "seed0001.png") - pixels(out / "seed0002.png")).max()

    assert difference() <= 1
    assert difference("--psi", 1, "--overwrite") > 1
    assert difference("--psi", 0, "--cutoff", 2, "--overwrite") > 1
    assert difference("--psi", 0, "--cutoff", "all", "--overwrite") <= 1


@pytest.mark.parametrize("ending", ["png", "webp", "jpg"])
def test_format_option_keeps_pixels_in_png_and_webp_and_nearly_in_jpg(source, out, ending):
    generated(source, out, "--seeds", 3, "--format", ending)
    difference = np.abs(pixels(out / f"seed0003.{ending}") - made(3, psi=0.7, cutoff=8))
    assert difference.max() == 0 if ending != "jpg" else difference.mean() < 10


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (4, "RGBA")])
def test_generate_writes_gray_and_transparent_images(tmp_path, out, channels, mode):
    path = tmp_path / "mine.pt"
    save_generator(path, random_generator(dataclasses.replace(TINY, image_channels=channels)))
    generated(path, out, "--seeds", "1,2")
    assert open_image(out / "seed0001.png").mode == mode
    assert open_image(out / "grid.png").mode == "RGB"


def test_format_option_rejects_jpg_with_alpha_and_webp_keeps_it(tmp_path, out):
    path = tmp_path / "mine.pt"
    save_generator(path, random_generator(dataclasses.replace(TINY, image_channels=4)))
    failed = stylegan("generate", path, "--format", "jpg", "--out", out, *CPU)
    assert failed.exit_code == 1
    assert "cannot write mode RGBA as JPEG" in failed.output
    assert not out.exists()
    colors = np.arange(8 * 8 * 4, dtype=np.uint8).reshape(8, 8, 4)
    colors[..., 3] = 0
    figures.save_image(tmp_path / "x.webp", Image.fromarray(colors))
    assert np.array_equal(pixels(tmp_path / "x.webp"), colors)


def test_generate_uses_the_current_stage_of_a_growing_run(tmp_path, out):
    path = tmp_path / "generator-000000100.pt"
    save_generator(path, random_generator(), resolution=8, alpha=0.25)
    generated(tmp_path, out, "--seeds", "1")
    stage = {"psi": 0.7, "cutoff": 8, "resolution": 8, "alpha": 0.25}
    assert np.array_equal(pixels(out / "seed0001.png"), made(1, **stage))
    larger = stylegan("generate", path, "--seeds", "2", "--resolution", 16, "--out", out, *CPU)
    assert open_image(out / "seed0002.png").size == (16, 16)
    assert "trained up to 8x8" in larger.stderr


def test_resolution_option_averages_images_of_the_trained_resolution(tmp_path, out):
    """The layers that once showed 8x8 are trained no more: nothing may depend on them."""
    path = tmp_path / "mine.pt"
    generator = random_generator()
    save_generator(path, generator)
    options = ["--seeds", "1", "--noise", "random", "--resolution", "8"]
    generated(path, out, *options)
    with torch.no_grad():
        generator.synthesis.to_rgb["8"].weight.mul_(100)
    save_generator(tmp_path / "stale.pt", generator)
    generated(tmp_path / "stale.pt", tmp_path / "stale", *options)
    picture = pixels(out / "seed0001.png")
    assert np.array_equal(picture, pixels(tmp_path / "stale" / "seed0001.png"))
    generated(path, tmp_path / "large", "--seeds", "1", "--noise", "random")
    large = pixels(tmp_path / "large" / "seed0001.png").astype(float)
    inside = np.abs(large - 127.5).max(axis=2) < 127  # not cut off at black or white
    squares = large.reshape(8, 2, 8, 2, 3).mean(axis=(1, 3))
    kept = inside.reshape(8, 2, 8, 2).all(axis=(1, 3))
    assert kept.sum() > 10
    assert np.abs(squares - picture)[kept].max() <= 1


def test_pretrained_averages_images_below_its_resolution(tmp_path):
    path = tmp_path / "mine.pt"
    save_generator(path, random_generator(), alpha=0.5)
    generator = load_generator(path)
    z = latents([1, 2], 8)
    with torch.no_grad():
        large = generator(z, noise="const")
        assert_close(
            generator.with_settings(resolution=8)(z, noise="const"), downsample_to(large, 8)
        )
    small = generator.with_settings(resolution=4, psi=1)
    assert (small.resolution, small.settings.alpha, small.grown_resolution) == (4, 0.5, 8)
    (picture,) = small.generate([1])
    assert np.array_equal(picture, to_uint8(downsample_to(large[:1], 4))[0])
    assert small.description()["resolution"] == 16
    assert small.settings.override(resolution=16).synthesis_resolution == 16


def test_psi_stored_as_an_integer_equals_the_same_float(tmp_path):
    pictures = []
    for psi in (10**29, 1e29):
        save_generator(tmp_path / "mine.pt", random_generator(), outputs=ALLOW_OVERWRITE)
        payload = torch.load(tmp_path / "mine.pt", weights_only=True)
        torch.save(payload | {"psi": psi}, tmp_path / "mine.pt")
        pictures.append(load_generator(tmp_path / "mine.pt").sample([1]))
    assert torch.equal(*pictures)


def test_label_rows_are_used_when_labels_are_not_classes(tmp_path):
    """In pictures, centers and blends; the file keeps them."""
    rows = torch.tensor([[0.5, 2.0, -1.0], [0.25, 0.0, 3.0]])
    path = tmp_path / "mine.pt"
    save_generator(path, random_generator(LABELED), label_rows=rows.tolist())
    loaded = load_generator(path)
    assert torch.equal(loaded.label_rows, rows)
    assert torch.equal(loaded.labels_of([4, 5, 7]), rows[[0, 1, 1]])
    mean = torch.cat(
        [loaded.map_to_ws(latents([i], 8), rows[i % 2][None])[:, 0] for i in range(64)]
    )
    w = sample_w(loaded.generator, 64, loaded.label_rows)
    assert_close(w, mean)
    (center,) = find_centers(loaded.generator, 1, label_rows=rows)
    assert_close(center, sample_w(loaded.generator, 10_000, rows).mean(dim=0))
    with pytest.raises(ValueError, match="numbers, not classes"):
        find_centers(loaded.generator, "class", label_rows=rows)
    with pytest.raises(ValueError, match=r"as in --class 0=0\.5,1=2,2=-1; known"):
        loaded.label(None)
    with pytest.raises(ValueError, match="numbers, not classes; choose some by --classes"):
        figures.classes(loaded, [0])
    parent = loaded.replace(lineage=(LineageEntry("m.pt", "0"),))
    average = blend(loaded, parent, share=0.5).generator.w_avg
    assert_close(average, center)
    with pytest.raises(ValueError, match="label_rows"):
        save_generator(path, random_generator(LABELED), label_rows=[[1.0]])


def test_class_option_mixes_several_classes_by_weight(tmp_path, out):
    path, generator = tmp_path / "kinds.pt", random_generator(LABELED)
    save_generator(path, generator, label_names=["smile", "sad", "calm"], psi=1.0)
    run_ok("generate", path, "--seeds", 3, "--class", "smile=0.7, 1=0.3", "--out", out, *CPU)
    with torch.no_grad():
        image = generator(latents([3], 8), torch.tensor([[0.7, 0.3, 0.0]]), noise="const")
    assert np.array_equal(pixels(out / "seed0003.png"), to_uint8(image)[0])
    message = run_fails("generate", path, "--class", "smile=0.7,sda=0.3", "--out", out, *CPU)
    assert "no class 'sda'; did you mean sad?" in message


@pytest.mark.parametrize(
    "text", ["smile=0.7,smile=0.3", "smile=1,=0", "smile=much", "smile=inf", "smile=nan"]
)
def test_label_refuses_malformed_weights(text):
    network = loaded_of(random_generator(LABELED), label_names=("smile", "sad", "calm"))
    with pytest.raises(ValueError, match="each name once"):
        network.label(text)


def test_label_takes_names_with_an_equals_sign_and_numbers_without_names():
    network = random_generator(LABELED)
    named = loaded_of(network, label_names=("smile=1", "sad", "calm"))
    assert named.label("smile=1").tolist() == [[1, 0, 0]]
    unnamed = loaded_of(network, label_rows=torch.tensor([[0.5, 2, -1]]))
    assert unnamed.label("2").tolist() == [[0, 0, 1]]
    with pytest.raises(ValueError, match="there is no class '3'; known: 0 to 2"):
        unnamed.label("3")
    with pytest.raises(ValueError, match=r"as in --class 0=0\.5,1=2,2=-1;"):
        unnamed.label(None)


def test_generate_without_class_alternates_classes_by_seed(tmp_path, out):
    path = tmp_path / "mine.pt"
    save_generator(path, random_generator(LABELED), label_names=["cat", "dog\n", "hen"])
    given = ["generate", path, "--no-grid", *CPU]
    result = stylegan(*given, "--seeds", "2-4", "--out", out)
    said = "classes alternate, as no --class is given: seed 0 is cat, seed 1 is 'dog\\n'"
    assert said in result.stderr
    several = load_generator(path).sample(torch.arange(2, 5))
    assert torch.equal(several[2:], load_generator(path).sample([4]))
    for seed, name in ((3, "cat"), (4, "dog\n")):
        run_ok(*given, "--seeds", seed, "--class", name, "--out", out / name[:3])
        written = out / name[:3] / f"seed{seed:04d}.png"
        assert (out / written.name).read_bytes() == written.read_bytes()
        assert np.array_equal(several[seed - 2].permute(1, 2, 0), pixels(written))


def test_class_option_warns_that_saved_w_does_not_change(tmp_path, out):
    path = tmp_path / "mine.pt"
    save_generator(path, random_generator(LABELED))
    for kind, says in (("w", True), ("z", False)):
        np.savez(tmp_path / "l.npz", **{kind: np.ones((1, 8), np.float32)})
        latents = ["--latents", tmp_path / "l.npz", "--out", out / kind, *CPU]
        result = stylegan("generate", path, "--class", 1, *latents)
        assert ("--class has no effect" in result.stderr) == says


def test_generate_script_and_module_are_the_same_command(tmp_path, monkeypatch, capsys):
    done = run_python(ROOT, "generate.py", tmp_path / "gone.pt")
    monkeypatch.setattr(sys, "argv", ["stylegan", "generate", str(tmp_path / "gone.pt")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("stylegan", run_name="__main__")
    assert (done.returncode, done.stderr) == (ended.value.code, capsys.readouterr().err)
    assert ended.value.code == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith(
        f"Error: there is no file or folder {tmp_path / 'gone.pt'}; accept"
    )
    (tmp_path / "gone2.pt").touch()
    with pytest.raises(FileNotFoundError, match=r"gone\.pt \(did you mean .*gone2\.pt\?"):
        load_generator(tmp_path / "gone.pt")


def test_load_generator_suggests_bundled_names_in_unreadable_folders(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pathlib.Path.iterdir", refuse)
    with pytest.raises(FileNotFoundError, match=r"faces46 \(did you mean faces64\?"):
        load_generator("faces46")
    with pytest.raises(FileNotFoundError, match="faces46; accepted are"):
        load_generator(tmp_path / "faces46")
