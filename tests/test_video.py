"""Films: what is in their frames, and what is in the files."""

import copy
import dataclasses
import importlib.util
import json
import math
import signal
import weakref

import commands
import numpy as np
import pytest
import tiny_generators
import torch
from commands import told
from PIL import Image, ImageSequence
from tiny_generators import random_generator
from torch.testing import assert_close

from stylegan import sampling
from stylegan.directions import read_edits
from stylegan.figures import StyleRange, of_seeds, style_ranges
from stylegan.files.keyframes import Keyframes, keyframes_text, read_keyframes
from stylegan.files.latents import write_latents
from stylegan.files.loading import LoadedGenerator, save_generator
from stylegan.ops import truncate
from stylegan.paths import places
from stylegan.video import (
    Stage,
    between,
    check_frame,
    check_length,
    check_video,
    filmed,
    loops_in_z,
    mixing_scene,
    noise_loop,
    truncation_scene,
    walk_in_w,
    walk_in_z,
    write_video,
)
from stylegan.video.encoding import durations

TINY = dataclasses.replace(tiny_generators.TINY, resolution=8)
PYAV = importlib.util.find_spec("av") is not None
mp4 = pytest.mark.skipif(not PYAV, reason="PyAV is not installed: pip install 'stylegan[video]'")
each_format = pytest.mark.parametrize("suffix", [pytest.param(".mp4", marks=mp4), ".gif", ".webp"])


@pytest.fixture(scope="module")
def loaded():
    return LoadedGenerator(random_generator(TINY), "memory", resolution=8)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


# Files


def smooth_frames(count, height=48, width=64):
    """A coloured wave that moves."""
    y, x = np.mgrid[:height, :width]
    for i in range(count):
        waves = [np.sin((x + a * y) / 20 + 2 * math.pi * i / count) for a in (0, 1, 2)]
        yield (127.5 + 100 * np.stack(waves, axis=2)).astype(np.uint8)


def rgb(planes, height):
    """Pixels of BT.709: the inverse of its defining equations."""
    y = (planes[:height].astype(float) - 16) / 219
    halves = planes[height:].reshape(2, height // 2, -1).repeat(2, axis=1).repeat(2, axis=2)
    blue, red = (halves.astype(float) - 128) / 224
    r, b = y + 1.5748 * red, y + 1.8556 * blue
    g = (y - 0.2126 * r - 0.0722 * b) / 0.7152
    return (255 * np.stack([r, g, b], axis=2)).round().clip(0, 255).astype(np.uint8)


def decoded(path):
    """Frames (n, H, W, 3), and milliseconds of each."""
    if path.suffix != ".mp4":
        with Image.open(path) as image:
            assert image.info["loop"] == 0
            shown = [(f.convert("RGB"), f.info["duration"]) for f in ImageSequence.Iterator(image)]
        return np.stack([frame for frame, _ in shown]), [time for _, time in shown]
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        times = [1000 / float(stream.average_rate)] * stream.frames
        frames = [rgb(f.to_ndarray(), f.height) for f in container.decode(stream)]
    return np.stack(frames), times


@each_format
def test_a_file_holds_its_frames_at_their_rate_and_is_the_same_again(tmp_path, suffix):
    path, again = tmp_path / f"deeper/film{suffix}", tmp_path / f"again{suffix}"
    for some in (path, again):
        write_video(some, smooth_frames(10), count=10, fps=20)
    assert path.read_bytes() == again.read_bytes()
    found, times = decoded(path)
    wanted = np.stack(list(smooth_frames(10)))
    assert found.shape == wanted.shape
    assert times == [50] * 10
    difference = np.abs(found.astype(int) - wanted)
    assert difference.mean() < (3 if suffix == ".webp" else 4)
    assert [path.name] == [p.name for p in path.parent.iterdir()]


@mp4
@pytest.mark.parametrize("colour", [(220, 30, 60), (20, 200, 40), (10, 30, 240), (255, 255, 255)])
def test_an_mp4_keeps_colours(tmp_path, colour):
    path = tmp_path / "film.mp4"
    write_video(path, iter([np.full((32, 32, 3), colour, np.uint8)] * 3), count=3, fps=25)
    assert np.abs(decoded(path)[0].astype(int) - colour).max() <= 3


@mp4
def test_an_mp4_is_h264_with_halved_colours_that_starts_at_once(tmp_path):
    import av

    path = tmp_path / "film.mp4"
    write_video(path, smooth_frames(3, 33, 41), count=3, fps=29.97)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        assert (context.name, context.pix_fmt) == ("h264", "yuv420p")
        assert (stream.width, stream.height, stream.frames) == (42, 34, 3)
        assert float(stream.average_rate) == pytest.approx(29.97, abs=1e-4)
        assert int(context.colorspace) == int(context.color_primaries) == 1  # BT.709
    content = path.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")


@each_format
def test_frames_are_not_kept(tmp_path, suffix):
    alive, most = weakref.WeakSet(), 0

    class Frame(np.ndarray):
        __hash__ = object.__hash__

    def frames():
        nonlocal most
        for pixels in smooth_frames(20):
            frame = pixels.view(Frame)
            alive.add(frame)
            most = max(most, len(alive))
            yield frame

    write_video(tmp_path / f"film{suffix}", frames(), count=20, fps=25)
    assert most <= 3


@each_format
@pytest.mark.parametrize("promised", [4, 6])
def test_another_number_of_frames_than_promised_leaves_no_file(tmp_path, suffix, promised):
    before = tmp_path / f"film{suffix}"
    before.write_bytes(b"old")
    with pytest.raises(ValueError, match=f"{promised} frames were promised"):
        write_video(before, smooth_frames(5), count=promised, fps=25)
    assert [p.name for p in tmp_path.iterdir()] == [before.name]
    assert before.read_bytes() == b"old"


def test_frames_of_two_sizes_are_refused(tmp_path):
    frames = iter([np.zeros((4, 4, 3), np.uint8), np.zeros((4, 6, 3), np.uint8)])
    with pytest.raises(ValueError, match=r"frames are uint8 \(4, 4, 3\), not uint8 \(4, 6, 3\)"):
        write_video(tmp_path / "film.webp", frames, count=2, fps=25)


def test_a_film_of_one_frame_is_a_picture(tmp_path):
    for suffix in (".gif", ".webp"):
        write_video(tmp_path / f"film{suffix}", smooth_frames(1), count=1, fps=25)
        with Image.open(tmp_path / f"film{suffix}") as image:
            assert getattr(image, "n_frames", 1) == 1


@pytest.mark.parametrize(
    ("fps", "unit", "expected"),
    [(25, 10, [40] * 6), (30, 10, [30, 40, 30, 30, 40, 30]), (30, 1, [33, 34, 33, 33, 34, 33])],
)
def test_durations_in_whole_units_keep_the_rate(fps, unit, expected):
    assert durations(6, fps, unit_ms=unit) == expected


@pytest.mark.parametrize(
    ("name", "fps", "message"),
    [
        ("film.avi", 25, r"it must end in \.mp4, \.gif, \.webp"),
        ("film.gif", 60, "to 50 frames per second, not 60"),
        ("film.webp", 0, "from 1/600 to 240 frames per second, not 0"),
        ("film.webp", 1e-5, "from 1/600 to 240"),
        ("film.gif", 0.001, "from 1/600 to 50"),
        ("film.mp4", 0.0001, "from 1/600 to 240"),
        ("film.webp", math.nan, "from 1/600 to 240"),
    ],
)
def test_films_that_cannot_be_are_refused(tmp_path, name, fps, message):
    with pytest.raises(ValueError, match=message):
        check_video(tmp_path / name, fps)


@pytest.mark.parametrize("name", [pytest.param("film.mp4", marks=mp4), "film.webp", "film.GIF"])
def test_the_slowest_film_can_be_written(tmp_path, name):
    frames = np.zeros((2, 16, 16, 3), np.uint8)
    frames[1] = 255
    write_video(tmp_path / name, iter(frames), count=2, fps=1 / 600)
    assert (tmp_path / name).stat().st_size > 0


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan, 1e300])
def test_a_film_of_an_impossible_length_is_refused(seconds):
    with pytest.raises(ValueError, match="more than 0 and at most 86400 seconds"):
        check_length(seconds)


@pytest.mark.parametrize(
    ("name", "largest"),
    [("film.webp", (16_383, 16_383)), ("film.gif", (65_535, 4096)), ("film.mp4", (8192, 4352))],
)
def test_frames_too_large_for_the_format_are_refused(tmp_path, name, largest):
    check_frame(tmp_path / name, largest)
    for larger in [(largest[0] + 1, largest[1]), (70_000, 1), (1, 70_000)]:
        with pytest.raises(ValueError, match=r"choose a smaller scale"):
            check_frame(tmp_path / name, larger)


@pytest.mark.parametrize("captions", [False, True])
@pytest.mark.parametrize(
    ("cells", "labels"), [(1, None), (1, ["one"]), (3, None), (3, list("abc"))]
)
def test_the_size_of_a_frame_is_known_before_it_is_drawn(cells, labels, captions):
    stage = Stage((6, 8), 2, 5, labels)
    frame = stage.frame(np.zeros((cells, 6, 8, 3), np.uint8), "caption" if captions else "")
    assert stage.frame_size(cells, captions=captions) == (frame.shape[1], frame.shape[0])


def test_without_pyav_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r'pip install "\.\[video\]".*\.gif and \.webp need nothing'
    ):
        check_video(tmp_path / "film.mp4", 25)
    check_video(tmp_path / "film.webp", 25)


# Scenes


def test_a_walk_in_w_passes_through_the_seeds_and_closes(loaded):
    ws = of_seeds(loaded, range(6)).ws
    knots = ws.unflatten(0, (2, 3)).transpose(0, 1)  # two walks through three points each
    for interpolation in ("spline", "linear"):
        scene = walk_in_w(knots, interpolation, closed=True)
        found = scene(numbers(0, 1, 2, 3))
        assert_close(found[:3].float(), knots)
        assert torch.equal(found[3], found[0])


def test_a_walk_in_z_passes_through_the_seeds_and_closes(loaded):
    points = of_seeds(loaded, range(6))
    scene = walk_in_z(loaded, points.z.unflatten(0, (2, 3)).transpose(0, 1), closed=True)
    found = scene(numbers(0, 1, 2, 3))
    assert_close(found[:3], points.ws.unflatten(0, (2, 3)).transpose(0, 1), atol=1e-5, rtol=1e-5)
    assert torch.equal(found[3], found[0])


def test_labels_stay_along_a_walk_in_z():
    config = dataclasses.replace(TINY, label_dim=2)
    conditional = LoadedGenerator(random_generator(config), "memory", resolution=8)
    label = torch.tensor([[0.0, 1.0]])
    points = of_seeds(conditional, [1, 2], label)
    scene = walk_in_z(conditional, points.z[:, None], label, closed=False)
    assert_close(scene(numbers(0, 1))[:, 0], points.ws, atol=1e-5, rtol=1e-5)


def test_in_a_mixing_morph_only_the_layers_of_the_range_move(loaded):
    ws, others = of_seeds(loaded, [0, 1]).ws, of_seeds(loaded, [5, 6, 7]).ws
    ranges = [StyleRange(range(2)), StyleRange(range(2, 4))]
    scene = mixing_scene(loaded, ws, others, ranges, "linear", closed=True)
    found = scene(numbers(0.5, 2, 3)).float()
    assert found.shape == (3, 4, 4, 8)  # seed 0 coarse, fine, seed 1 coarse, fine
    half = (others[0] + others[1]) / 2
    for cell, (own, moving) in enumerate((s, r) for s in range(2) for r in (slice(2), slice(2, 4))):
        still = slice(2, 4) if moving == slice(2) else slice(2)
        assert_close(found[:, cell, still], ws[own, still].expand(3, -1, -1))
        assert_close(found[0, cell, moving], half[moving])
        assert_close(found[1, cell, moving], others[2, moving])
        assert_close(found[2, cell, moving], others[0, moving])


def test_psi_goes_there_and_back():
    assert_close(
        between(numbers(0, 0.25, 0.5, 0.75, 1), 1, -1, closed=True), numbers(1, 0, -1, 0, 1)
    )
    assert_close(between(numbers(0, 0.25, 1), 1, -1, closed=False), numbers(1, 0.5, -1))


def test_a_truncation_morph_is_truncation(loaded):
    ws = of_seeds(loaded, [0, 1]).ws
    half = dataclasses.replace(loaded, cutoff=2)
    found = truncation_scene(half, ws, (1, -1), closed=False)(numbers(0, 0.2, 1))
    for styles, psi in zip(found, (1, 0.6, -1), strict=True):
        assert_close(styles, truncate(ws, loaded.generator.w_avg, psi, 2))


@pytest.mark.parametrize("cells", [1, 3])
def test_what_is_filmed_are_the_pictures_of_the_styles(loaded, cells):
    knots = of_seeds(loaded, range(2 * cells)).ws.unflatten(0, (2, cells))
    scene = walk_in_w(knots, "linear", closed=True)
    found = np.stack(list(filmed(loaded, scene, places(40, 2, closed=True))))
    assert found.shape == (40, cells, 8, 8, 3)
    own = np.concatenate(list(sampling.generate(loaded.generator, range(cells))))
    assert np.abs(found[0].astype(int) - own).max() <= 1


def test_noise_flickers_only_if_random(loaded):
    scene = walk_in_w(of_seeds(loaded, [1, 1]).ws[:, None], "linear", closed=True)
    t = torch.linspace(0, 1, 35, dtype=torch.float64)
    constant, random = (list(filmed(loaded, scene, t, noise=n)) for n in ("const", "random"))
    assert np.abs(np.stack(constant).astype(int) - constant[0]).max() <= 1
    assert len({frame.tobytes() for frame in random}) == 35


def test_a_noise_loop_begins_at_its_seed_closes_and_stays_normal():
    z = noise_loop(7, 512, 3)(torch.linspace(0, 1, 41, dtype=torch.float64))
    assert_close(z[0].float(), sampling.latents([7], 512)[0])
    assert_close(z[-1], z[0])
    assert (z.std(dim=1) - 1).abs().max() < 0.15 and z.mean(dim=1).abs().max() < 0.2
    step = z.diff(dim=0).norm(dim=1)
    assert step.max() < 1.5 * step.min()  # no corner, and none where it closes


def test_each_seed_has_a_loop_and_its_class():
    config = dataclasses.replace(TINY, label_dim=2)
    conditional = LoadedGenerator(random_generator(config), "memory", resolution=8)
    labels = torch.eye(2)
    found = loops_in_z(conditional, [1, 2], 2, labels)(numbers(0, 0.5))
    assert_close(found[0], of_seeds(conditional, [1, 2], labels).ws)
    assert not torch.equal(found[0], found[1])


def test_keyframes_are_passed_at_their_times():
    ws = torch.randn(3, 4, 8)
    open_film = Keyframes(ws, [1.0, 3.0, 5.0], loop=False)
    assert open_film.places(9).tolist() == pytest.approx([0, 0.5, *(1 + i / 6 for i in range(7))])
    around = Keyframes(ws, [1.0, 3.0, 4.0]).places(8)
    assert around.tolist() == pytest.approx([0, 1, 4 / 3, 5 / 3, 2, 2.25, 2.5, 2.75])
    eased = Keyframes(ws, [1.0, 1.0, 1.0], loop=False, ease=True).places(9)
    slow = (1 - math.sqrt(0.5)) / 2
    assert eased.tolist() == pytest.approx(
        [0, slow, 0.5, 1 - slow, 1, 1 + slow, 1.5, 2 - slow, 2], abs=1e-9
    )


# Frames


def test_a_frame_of_one_picture_is_that_picture_enlarged():
    pixels = np.random.RandomState(0).randint(0, 256, (1, 8, 8, 3), np.uint8)
    frame = Stage.of((8, 8)).frame(pixels)
    assert frame.shape == (256, 256, 3)
    assert np.array_equal(frame[::32, ::32], pixels[0])
    assert Stage.of((512, 384), scale=1).frame(np.zeros((1, 512, 384, 1))).shape == (512, 384, 3)


def test_a_frame_of_several_has_them_in_rows_at_the_scale():
    pixels = np.arange(6, dtype=np.uint8)[:, None, None, None].repeat(8, 1).repeat(8, 2)
    frame = Stage.of((8, 8), 3, scale=5).frame(pixels)
    assert frame.shape == (2 * 44 + 4, 3 * 44 + 4, 3)
    assert frame[24::44, 24::44, 0].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_coarse_pictures_are_shown_as_large_as_fine_ones():
    stage = Stage.of((16, 16), scale=2)
    assert stage.frame(np.zeros((1, 4, 4, 3), np.uint8)).shape == (32, 32, 3)


def test_captions_do_not_change_the_size_of_a_frame():
    stage = Stage.of((8, 8), scale=8)
    pixels = np.zeros((1, 8, 8, 3), np.uint8)
    sizes = {stage.frame(pixels, caption).shape for caption in ("psi 1", "psi -1.00", "x" * 50)}
    assert len(sizes) == 1
    assert (stage.frame(pixels, "psi 1")[64:] < 100).any()


# The command


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "mine.pt"
    save_generator(path, random_generator(TINY))
    return path


def film(out, *arguments):
    options = ["--fps", 10, "--scale", 12, "--device", "cpu"]
    assert f"{out}, " in told("video", *arguments, *options, "--out", out)
    return decoded(out)[0].astype(int)


def refused(*arguments, **options):
    return commands.refused("video", *arguments, "--device", "cpu", **options)


def still(loaded, seed, **settings):
    (picture,) = sampling.generate(loaded.generator, [seed], **settings)
    return picture[0].repeat(12, axis=0).repeat(12, axis=1)


@pytest.mark.parametrize(
    "options",
    [[], ["--interpolation", "linear"], ["--space", "z"], ["--no-loop"]],
    ids=["spline", "linear", "z", "open"],
)
def test_a_walk_begins_at_the_first_seed_and_passes_the_others(loaded, source, tmp_path, options):
    frames = film(tmp_path / "a.webp", "walk", source, "--seeds", "5-8", "--seconds", 2, *options)
    assert frames.shape == (20, 96, 96, 3)
    assert np.abs(frames[0] - still(loaded, 5)).mean() < 8  # lossy
    if options == ["--no-loop"]:
        assert np.abs(frames[-1] - still(loaded, 8)).mean() < 8
    else:
        assert np.abs(frames[10] - still(loaded, 7)).mean() < 8


def test_a_grid_of_walks_has_one_for_each_part_of_the_seeds(loaded, source, tmp_path):
    frames = film(tmp_path / "a.webp", "walk", source, "--grid", "2x1", "--seconds", 1)
    assert frames.shape == (10, 104, 204, 3)
    assert np.abs(frames[0][4:100, 4:100] - still(loaded, 0)).mean() < 8
    assert np.abs(frames[0][4:100, 104:200] - still(loaded, 4)).mean() < 8


@each_format
@pytest.mark.parametrize("there", [False, True])
def test_ctrl_c_while_filming_ends_at_the_next_picture_and_leaves_what_there_was(
    source, tmp_path, monkeypatch, suffix, there
):
    path, made = tmp_path / f"film{suffix}", []
    before = sampling.generate

    def interrupted(*arguments, **options):
        made.append(1)
        if len(made) == 3:
            signal.raise_signal(signal.SIGINT)
        return before(*arguments, **options)

    if there:
        path.write_bytes(b"an older film")
    monkeypatch.setattr(sampling, "generate", interrupted)
    options = ["--seconds", 60, "--scale", 1, "--overwrite", "--device", "cpu", "--out", path]
    result = commands.stylegan("video", "walk", source, *options)
    assert result.exit_code == 130 and result.stderr.splitlines()[-1] == "ended"
    assert len(made) == 3
    files = [(file.name, file.read_bytes()) for file in tmp_path.iterdir() if file != source]
    assert files == ([(path.name, b"an older film")] if there else [])


@mp4
def test_the_same_command_writes_the_same_bytes(source, tmp_path):
    paths = [tmp_path / f"{name}.mp4" for name in "ab"]
    for path in paths:
        film(path, "walk", source, "--seconds", 1, "--noise", "random")
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_mixing_morph_has_a_row_for_each_seed_and_a_column_for_each_range(source, tmp_path):
    options = ["--seeds", "0,1", "--columns", "3,4", "--seconds", 1]
    frames = film(tmp_path / "a.webp", "mixing", source, *options)
    assert frames.shape[2] == len(style_ranges(8)) * 100 + 4
    assert 2 * 100 < frames.shape[1] < 2 * 130


def test_a_truncation_morph_begins_at_the_first_psi(loaded, source, tmp_path):
    options = ["--seeds", "3", "--psis", "0.5,-0.5", "--seconds", 1]
    frames = film(tmp_path / "a.webp", "truncation", source, *options)
    first, middle = (still(loaded, 3, psi=psi, cutoff=None) for psi in (0.5, -0.5))
    assert np.abs(frames[0][:96] - first).mean() < 8
    assert np.abs(frames[5][:96] - middle).mean() < 8


def test_an_edit_film_goes_from_one_strength_to_the_other_and_back(loaded, source, tmp_path):
    options = ["--seeds", 3, "--edit", "pca:1=+2@0-1", "--seconds", 1, "--strengths", "-1,0.5"]
    frames = film(tmp_path / "a.webp", "edit", source, *options)
    for frame, strength in ((frames[0], -2), (frames[5], 1)):
        edits = read_edits([f"pca:1={strength}@0-1"], loaded, source)
        (picture,) = loaded.pictures([3], edits=edits)
        assert np.abs(frame[:96] - picture.repeat(12, axis=0).repeat(12, axis=1)).mean() < 8


def test_a_loop_begins_at_the_seed(loaded, source, tmp_path):
    frames = film(tmp_path / "a.webp", "loop", source, "--seeds", 5, "--seconds", 1)
    assert np.abs(frames[0] - still(loaded, 5)).mean() < 8
    assert np.abs(frames[5] - frames[0]).mean() > 1


def test_saved_keyframes_are_filmed(loaded, source, tmp_path):
    ws = loaded.truncated(of_seeds(loaded, [5, 6]).ws)
    path = tmp_path / "k.json"
    path.write_text(keyframes_text(Keyframes(ws, [1.0, 0.5]), loaded))
    frames = film(tmp_path / "a.webp", "keyframes", source, path)
    assert len(frames) == 15
    for frame, seed in ((0, 5), (10, 6)):
        assert np.abs(frames[frame] - still(loaded, seed)).mean() < 8
    tuned = copy.deepcopy(loaded.generator)
    with torch.no_grad():
        next(tuned.synthesis.parameters()).add_(0.1)
    of_tuned = dataclasses.replace(loaded, generator=tuned)
    assert_close(read_keyframes(path, of_tuned).ws, ws, rtol=0, atol=0)
    options = ["--no-loop", "--ease", "--seconds", 2]
    frames = film(tmp_path / "b.webp", "keyframes", source, path, *options)
    assert np.abs(frames[-1] - still(loaded, 6)).mean() < 8  # equal frames are one in a .webp


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "does not hold keyframes of version 1"),
        ({"generator_sha256": "0", "mapping_sha256": "0"}, "has keyframes of other weights"),
        ({"keyframes": []}, "from 2 to 1000 keyframes, not 0"),
        ({"keyframes": [{"seconds": 1}] * 2}, "'styles' is missing"),
        ({"keyframes": [{"seconds": 1, "styles": "AAAA"}] * 2}, "keyframe 0 is of another network"),
        ({"keyframes": [{"seconds": 1, "styles": 5}] * 2}, "keyframe 0 must be base64"),
        ({"loop": 1}, "loop and ease true or false"),
        ({"seconds": -1}, "more than 0 and at most 86400 seconds, not -1"),
    ],
)
def test_damaged_keyframes_are_refused(loaded, source, tmp_path, change, message):
    ws = torch.zeros(2, loaded.generator.config.num_styles(), loaded.generator.config.w_dim)
    about = json.loads(keyframes_text(Keyframes(ws, [1.0, 1.0]), loaded))
    for entry in about["keyframes"]:
        entry["seconds"] = change.get("seconds", 1)
    path = tmp_path / "k.json"
    path.write_text(json.dumps(about | change))
    found = refused("keyframes", source, path, "--out", tmp_path / "a.webp")
    assert message in found and len(found.splitlines()) == 1


def test_keyframes_have_styles_so_a_class_does_not_apply(loaded, source, tmp_path):
    path = tmp_path / "k.json"
    path.write_text(keyframes_text(Keyframes(torch.zeros(2, 4, 8), [1.0, 1.0]), loaded))
    options = ["--class", 0, "--out", tmp_path / "a.webp"]
    assert "--class does not apply" in refused("keyframes", source, path, *options, exit_code=2)


def test_a_timelapse_shows_the_nearest_file_of_each_moment(tmp_path):
    for images, resolution in ((1_000, 4), (5_000, 8), (6_000, 8)):
        path = tmp_path / "run" / f"generator-{images:09d}.pt"
        path.parent.mkdir(exist_ok=True)
        generator = random_generator(TINY)
        generator.w_avg.fill_(images / 1000)
        save_generator(path, generator, images_seen=images, resolution=resolution)
    run_folder = tmp_path / "run"
    out = tmp_path / "a.webp"
    options = ["--seeds", 1, "--psi", 0, "--fps", 10, "--seconds", 1, "--out", out]
    told("video", "timelapse", run_folder, *options, "--device", "cpu")
    frames, times = decoded(out)
    assert times == [400, 500, 100]  # 1000, 1556, 2111, 2667 images; 3222, ... 5444; 6000
    assert len(frames) == 3
    assert frames.shape[2] == 256


def test_latents_are_walked_through(loaded, source, tmp_path):
    saved = tmp_path / "w.npz"
    write_latents(saved, of_seeds(loaded, [5, 6]).ws)
    frames = film(tmp_path / "a.webp", "walk", source, "--latents", saved, "--seconds", 1)
    assert np.abs(frames[5] - still(loaded, 6, psi=1.0)).mean() < 8
    in_z = ["walk", source, "--latents", saved, "--space", "z", "--out", tmp_path / "b.webp"]
    assert "walked through in w" in refused(*in_z, exit_code=2)


def test_what_exists_is_refused_before_any_work(tmp_path, source):
    out = tmp_path / "a.webp"
    out.write_bytes(b"mine")
    assert f"{out} exists; pass --overwrite" in refused("walk", "gone.pt", "--out", out)
    folder = tmp_path / "b.webp"
    folder.mkdir()
    assert "exists" in refused("walk", source, "--overwrite", "--out", folder)
    film(out, "walk", source, "--seconds", 1, "--overwrite")


@pytest.mark.parametrize(
    ("options", "message", "exit_code"),
    [
        (["walk", "--seeds", "1"], "1 seed for 1 walk: each needs", 1),
        (["mixing", "--columns", "10"], "--columns needs at least 2 seeds", 1),
        (["walk", "--seconds", "inf"], "inf is not a number from 0.001", 2),
        (["walk", "--seconds", "1e6"], "at most 86400 seconds", 1),
        (["walk", "--scale", "100000000"], "frames of 800000000x800000000 pixels", 1),
        (["mixing", "--scale", "9000"], "pixels a side", 1),
        (["truncation", "--scale", "9000"], "pixels a side", 1),
        (["walk", "--psi", "nan"], "nan is not a number from", 2),
        (["walk", "--seeds", "0-4", "--grid", "2x1"], "5 seeds for 2 walks: each needs", 1),
        (["walk", "--grid", "3"], "3 is not a grid like 3x2, columns by rows", 2),
        (["walk", "--grid", "100x100"], "100x100 is not a grid", 2),
        (["walk", "--space", "z", "--interpolation", "linear"], "is for walks in w", 2),
        (["truncation", "--psis", "1,0,-1"], "two numbers, not 3", 2),
        (["edit", "--edit", "pca:1", "--strengths", "1"], "two numbers, not 1", 2),
        (["edit"], "pass --edit", 2),
        (["mixing", "--layers", "3-4"], "at 8x8 there are layers 0-3", 1),
        (["timelapse"], "of a run folder, but", 1),
    ],
)
def test_films_of_nothing_are_refused(source, tmp_path, options, message, exit_code):
    kind, *rest = options
    out = tmp_path / "a.webp"
    assert message in refused(kind, source, *rest, "--out", out, exit_code=exit_code)
    assert not out.exists()
