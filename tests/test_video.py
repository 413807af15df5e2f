"""Films: what is in their frames, and what is in the files."""

import copy
import dataclasses
import functools
import importlib.util
import math

import av
import numpy as np
import pytest
import torch
from helpers.commands import stylegan
from helpers.films import decoded, each_format
from helpers.tiny_generators import TINY, loaded_of, random_generator
from PIL import Image
from torch.testing import assert_close

from stylegan import load_generator, sampling, video
from stylegan.figures import StyleRange, generate_images, of_latents, points_from_seeds
from stylegan.files.formats.native import save_generator, save_loaded
from stylegan.files.latents import write_latents
from stylegan.networks.edits import Edit, apply_edits
from stylegan.ops import truncate
from stylegan.sampling.curves import frame_positions, spherical, spline
from stylegan.utils.filesystem import ALLOW_OVERWRITE, KEEP_EXISTING
from stylegan.video.encoding import durations

SMALL = dataclasses.replace(TINY, resolution=8)


@pytest.fixture(scope="module")
def loaded():
    return loaded_of(random_generator(SMALL))


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def one(loaded, seed, **settings):
    (picture,) = loaded.generate([seed], **settings)
    return picture.astype(int)


def smooth_frames(count, height=48, width=64):
    """A colored wave that moves."""
    y, x = np.mgrid[:height, :width]
    for i in range(count):
        waves = [np.sin((x + a * y) / 20 + 2 * math.pi * i / count) for a in (0, 1, 2)]
        yield (127.5 + 100 * np.stack(waves, axis=2)).astype(np.uint8)


@each_format
def test_write_video_keeps_frames_and_rate_and_is_reproducible(tmp_path, suffix):
    path, again = tmp_path / f"deeper/film{suffix}", tmp_path / f"again{suffix}"
    for some in (path, again):
        video.write_video(some, smooth_frames(10), count=10, fps=20)
    assert path.read_bytes() == again.read_bytes()
    found, times = decoded(path)
    wanted = np.stack(list(smooth_frames(10)))
    assert found.shape == wanted.shape
    assert times == [50] * 10
    assert np.abs(found.astype(int) - wanted).mean() < (3 if suffix == ".webp" else 4)
    assert [path.name] == [p.name for p in path.parent.iterdir()]


def test_write_video_mp4_is_h264_yuv420p_with_moov_first(tmp_path):
    path = tmp_path / "film.mp4"
    video.write_video(path, smooth_frames(3, 33, 41), count=3, fps=29.97)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        assert (context.name, context.pix_fmt) == ("h264", "yuv420p")
        assert (stream.width, stream.height, stream.frames) == (42, 34, 3)
        assert float(stream.average_rate) == pytest.approx(29.97, abs=1e-4)
        assert int(context.colorspace) == int(context.color_primaries) == 1  # BT.709
    content = path.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")


def test_write_video_mp4_has_luma_from_16_to_235(tmp_path):
    """The levels that the file says it has; a reader that agrees with the writer proves less."""
    path = tmp_path / "film.mp4"
    frames = iter([np.zeros((32, 32, 3), np.uint8), np.full((32, 32, 3), 255, np.uint8)])
    video.write_video(path, frames, count=2, fps=20)
    with av.open(str(path)) as container:
        luma = [frame.to_ndarray()[:32, :32] for frame in container.decode(video=0)]
    assert [(plane.min(), plane.max()) for plane in luma] == [(16, 16), (235, 235)]


def test_write_video_without_ending_writes_or_completes_png_frames(tmp_path):
    folder = tmp_path / "deeper/frames"
    names = [f"{number:06d}.png" for number in range(3)]
    for there in (names, [*names, "mine.png"]):
        video.write_video(folder, smooth_frames(3), count=3, fps=240)
        assert sorted(path.name for path in folder.iterdir()) == there
        for name, wanted in zip(names, smooth_frames(3), strict=True):
            assert np.array_equal(np.asarray(Image.open(folder / name)), wanted)
        (folder / names[2]).rename(folder / "mine.png")  # as if interrupted


def test_write_video_replaces_other_frames_only_if_allowed(tmp_path):
    frames = list(smooth_frames(3))
    write = functools.partial(video.write_video, tmp_path, fps=25)
    write(iter(frames), count=3)
    (tmp_path / "mine.png").touch()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"000001\.png exists; pass --overwrite"):
        write(iter([frames[0], *frames]), count=4)
    for outputs in (KEEP_EXISTING, ALLOW_OVERWRITE):  # what is not replaced stays
        with pytest.raises(ValueError, match=r"has 000002\.png of a longer video; choose another"):
            write(iter(frames[1:]), count=2, outputs=outputs)
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}
    write(iter(frames[1:] + frames[:1]), count=3, outputs=ALLOW_OVERWRITE)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "000000.png")), frames[1])


@each_format
def test_write_video_keeps_the_old_file_if_the_frame_count_is_wrong(tmp_path, suffix):
    before = tmp_path / f"film{suffix}"
    before.write_bytes(b"old")
    for promised in (4, 6):
        with pytest.raises(ValueError, match=f"{promised} frames"):
            video.write_video(
                before, smooth_frames(5), count=promised, fps=25, outputs=ALLOW_OVERWRITE
            )
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"old"]


@pytest.mark.parametrize(
    ("fps", "unit", "expected"),
    [(25, 10, [40] * 6), (30, 10, [30, 40, 30, 30, 40, 30]), (30, 1, [33, 34, 33, 33, 34, 33])],
)
def test_durations_in_whole_units_keep_the_rate(fps, unit, expected):
    assert durations(6, fps, unit_ms=unit) == expected


def test_check_rate_without_pyav_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"\.gif and \.webp need nothing more.*pip install av$"):
        video.check_clip(tmp_path / "film.mp4", 25, ALLOW_OVERWRITE)
    video.check_clip(tmp_path / "film.webp", 25, ALLOW_OVERWRITE)


def test_spline_and_walk_in_z_pass_through_the_seeds_and_close(loaded):
    points = points_from_seeds(loaded, range(6))
    knots = points.ws.unflatten(0, (2, 3)).transpose(0, 1)
    curves = [spherical(z, closed=True) for z in points.z.split(3)]
    for walk in (spline(knots, closed=True), video.walk_in_z(loaded, curves)):  # two each
        found = walk(numbers(0, 1, 2, 3))
        assert_close(found[:3].float(), knots, atol=1e-5, rtol=1e-5)
        assert_close(found[3], found[0], atol=1e-5, rtol=1e-5)


def test_mixing_walk_moves_only_the_layers_of_its_range(loaded):
    ws, others = points_from_seeds(loaded, [0, 1]).ws, points_from_seeds(loaded, [5, 6, 7]).ws
    ranges = [StyleRange(range(2)), StyleRange(range(2, 4))]
    walk = video.mixing_walk(loaded, ws, others, ranges, closed=True)
    found = walk(numbers(0, 2, 3)).float()
    assert found.shape == (3, 4, 4, 8)  # seed 0 coarse, fine, seed 1 coarse, fine
    for cell, (own, moving) in enumerate((s, r) for s in range(2) for r in (slice(2), slice(2, 4))):
        still = slice(2, 4) if moving == slice(2) else slice(2)
        assert_close(found[:, cell, still], ws[own, still].expand(3, -1, -1))
        for row, point in zip(found, (0, 2, 0), strict=True):
            assert_close(row[cell, moving], others[point, moving])


def test_with_truncated_keeps_a_walk_smooth_where_the_nearest_center_changes(loaded):
    centered = loaded.with_settings(psi=0.5, centers=4 * torch.eye(8))
    ws = points_from_seeds(loaded, range(4)).ws
    truncated, (knots,) = video.with_truncated(centered, ws)
    assert torch.equal(knots, centered.settings.truncate_and_edit(ws, loaded.generator.w_avg))
    at = numbers(*np.linspace(0, 4, 400))
    shown = [
        made.settings.truncate_and_edit(spline(of, closed=True)(at).float(), loaded.generator.w_avg)
        for made, of in ((centered, ws), (truncated, knots))
    ]
    jumps, steps = (of.diff(dim=0).abs().max() for of in shown)
    assert 10 * steps < jumps
    same, (unchanged,) = video.with_truncated(loaded, ws)
    assert same is loaded and unchanged is ws


def test_between_goes_there_and_back_if_closed():
    assert_close(video.between(1, -1, 4, closed=True), numbers(1, 0, -1, 0))
    assert_close(video.between(1, -1, 5, closed=False), numbers(1, 0.5, 0, -0.5, -1))


def test_noise_loop_starts_at_its_seed_closes_and_stays_normal():
    z = video.noise_loop(7, 512, 3)(torch.linspace(0, 1, 41, dtype=torch.float64))
    assert_close(z[0].float(), sampling.latents([7], 512)[0])
    assert_close(z[-1], z[0])
    assert (z.std(dim=1) - 1).abs().max() < 0.15 and z.mean(dim=1).abs().max() < 0.2
    step = z.diff(dim=0).norm(dim=1)
    assert step.max() < 1.5 * step.min()  # no corner, and none where it closes


def test_make_clip_frames_are_the_images_along_the_walk(loaded):
    knots = points_from_seeds(loaded, range(6)).ws.unflatten(0, (2, 3))
    walk = spline(knots, closed=True)
    found = np.stack(
        [
            shown
            for shown, _ in video.make_clip(
                loaded, walk, frame_positions(40, 2, closed=True)
            ).frames
        ]
    )
    assert found.shape == (40, 3, 8, 8, 3)
    own = np.concatenate(list(sampling.generate(loaded.generator, range(3))))
    assert np.abs(found[0].astype(int) - own).max() <= 1


def test_truncation_clip_shows_each_psi(loaded):
    half = loaded.with_settings(cutoff=2)
    made = video.truncation_clip(half, points_from_seeds(half, [3, 4]), numbers(1, 0.6, -0.001, -1))
    frames, captions = zip(*made.frames, strict=True)
    assert captions == ("psi 1.00", "psi 0.60", "psi 0.00", "psi -1.00")
    ws = truncate(points_from_seeds(half, [4]).ws, half.generator.w_avg, 0.6, 2)
    (wanted,) = loaded.generate(ws=ws, psi=1)
    assert np.abs(frames[1][1].astype(int) - wanted).max() <= 1


def test_clips_of_latents_show_their_noise_maps(loaded, tmp_path):
    points = points_from_seeds(loaded, [3, 4])
    maps = [torch.randn(2, 1, r, r) for r in (4, 4, 8, 8)]
    write_latents(tmp_path / "l.npz", points.ws, maps)
    stored = of_latents(loaded, tmp_path / "l.npz")
    shown = generate_images(loaded.with_settings(psi=1), stored)
    assert not np.array_equal(shown, generate_images(loaded.with_settings(psi=1), points))
    clip = video.truncation_clip(loaded, stored, numbers(1, 0.5, 1))
    frames = [images for images, _ in clip.frames]
    assert all(np.array_equal(images, shown) for images in (frames[0], frames[2]))
    save_loaded(tmp_path / "g.pt", loaded)
    walk = ["video", "walk", tmp_path / "g.pt", "--seconds", 0.1, "--out", tmp_path / "w.webp"]
    assert "are not used" in stylegan(*walk, "--latents", tmp_path / "l.npz").stderr


def test_points_of_latents_are_on_the_device_of_the_network(loaded, tmp_path):
    write_latents(tmp_path / "l.npz", points_from_seeds(loaded, [3, 4]).ws)
    elsewhere = copy.deepcopy(loaded)
    elsewhere.generator.w_avg = elsewhere.generator.w_avg.to("meta")
    assert of_latents(elsewhere, tmp_path / "l.npz").ws.is_meta


def test_edit_clip_moves_truncated_ws_by_each_strength(loaded):
    edits = {"a": Edit(torch.randn(8), 2.0, range(2)), "b": Edit(torch.randn(8))}
    made = video.edit_clip(loaded, points_from_seeds(loaded, [3]), edits, numbers(-1, 0.5))
    shown, captions = zip(*made.frames, strict=True)
    assert captions == ("-1.00 x a b", "+0.50 x a b")
    for picture, strength in zip(shown, (-1, 0.5), strict=True):
        moves = [dataclasses.replace(e, strength=strength * e.strength) for e in edits.values()]
        assert np.abs(picture[0] - one(loaded, 3, edits=moves)).max() <= 1
    ws = apply_edits(
        truncate(points_from_seeds(loaded, [3]).ws, loaded.generator.w_avg, 0.7, 8), moves
    )
    assert np.abs(one(loaded, 3, edits=moves) - next(loaded.generate(ws=ws, psi=1))).max() <= 1


def test_timelapse_clip_shows_the_nearest_file_of_each_moment(tmp_path):
    files = []
    for images, resolution in ((1_000, 4), (5_000, 8), (6_000, 8)):
        files.append(tmp_path / f"generator-{images:09d}.pt")
        save_generator(
            files[-1], random_generator(SMALL), images_seen=images, resolution=resolution
        )
    made = video.timelapse_clip(
        files, lambda file: load_generator(file), lambda loaded: points_from_seeds(loaded, [1]), 10
    )
    shown, captions = zip(*made.frames, strict=True)
    kimg = ["1"] * 4 + ["5"] * 5 + ["6"]  # 1000, 1556, 2111, 2667 images; 3222, ... 5444; 6000
    assert [caption.split()[0] for caption in captions] == kimg
    assert [picture.shape[1] for picture in shown] == [4] * 4 + [8] * 6
    assert made.resolution == (8, 8)


def test_frame_layout_of_one_image_enlarges_it(loaded):
    made = video.make_clip(loaded, lambda t: points_from_seeds(loaded, [0]).ws[None], numbers(0))
    (frame,) = made.arrange()
    assert frame.shape == (256, 256, 3)
    assert np.abs(frame[::32, ::32] - one(loaded, 0)).max() <= 1

    def laid_out(cells, resolution, scale, columns=1):
        frames = iter([(np.zeros((cells, *resolution, 1), np.uint8), "")])
        return next(video.Clip(frames, 1, resolution, columns).arrange(scale))

    assert laid_out(1, (512, 384), 1).shape == (512, 384, 3)
    with pytest.raises(ValueError, match="frames of 16000x24000 pixels are too large"):
        laid_out(6, (8, 8), 1000, columns=2)
    coarse = video.Clip(iter([(np.zeros((1, 4, 4, 3), np.uint8), "")]), 1, (16, 16))
    assert next(coarse.arrange(2)).shape == (32, 32, 3)
