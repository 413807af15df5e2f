"""Films with sound: what is heard, what it moves, and the sound in the file."""

import importlib.util
import wave
from pathlib import Path

import commands
import numpy as np
import pytest
import tiny_generators
from commands import told
from tiny_generators import random_generator

from stylegan.files.loading import save_generator
from stylegan.video import Sound, features, read_sound, write_video
from stylegan.video.sound import FEATURES, RATE

pyav = pytest.mark.skipif(
    importlib.util.find_spec("av") is None,
    reason="PyAV is not installed: pip install 'stylegan[video]'",
)
CLICKS = (0.5, 1.0, 1.5)  # seconds


def clicks(seconds=2.0, rate=RATE):
    """Short bursts of noise in silence."""
    samples = np.zeros(round(seconds * rate), np.float32)
    burst = np.random.RandomState(0).uniform(-0.9, 0.9, rate // 100)
    for at in CLICKS:
        samples[round(at * rate) :][: len(burst)] = burst
    return samples


def tone(frequency, seconds=2.0, rate=RATE):
    return 0.5 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)


def heard(samples, fps=25, count=50):
    return features(Sound(Path("a.wav"), np.asarray(samples, np.float32)), fps, count)


def save(path, samples, rate=44_100):
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, len(samples), "NONE", ""))
        file.writeframes((32_767 * samples).astype("<i2").tobytes())
    return path


def streams(path):
    """Kind of each stream of a file, and seconds."""
    import av

    with av.open(str(path)) as container:
        return {s.type: float(s.duration * s.time_base) for s in container.streams}


def frames_of(path):
    import av

    with av.open(str(path)) as container:
        decoded = container.decode(video=0)
        return np.stack([f.to_ndarray(format="rgb24") for f in decoded]).astype(int)


# What is heard


def test_onsets_are_where_clicks_are_and_fade_by_half_in_012_seconds():
    found = heard(clicks(), fps=25)["onset"]
    assert found.max() == 1
    first = [int(25 * at) for at in CLICKS]  # frames 12, 25, 37
    assert found[:12].max() == 0
    for frame in first:
        assert max(found[frame : frame + 2]) > 0.7 and found[frame - 1] < 0.15
    assert found[28] / found[25] == pytest.approx(0.5, abs=0.06)  # 0.12 s later


@pytest.mark.parametrize(("frequency", "band"), [(100, "low"), (1000, "mid"), (6000, "high")])
def test_a_tone_is_loud_in_its_band_alone_and_begins_once(frequency, band):
    # an edge would be heard in all bands
    fade = np.sin(np.clip(np.arange(2 * RATE) / RATE * 10, 0, np.pi / 2)) ** 2
    samples = tone(frequency) * fade * fade[::-1]
    found = heard(np.r_[np.zeros(RATE // 2), samples], count=60)
    assert found[f"loudness-{band}"][20:].min() > 0.9 and found["loudness"][20:].min() > 0.9
    others = {"low", "mid", "high"} - {band}
    assert max(found[f"loudness-{other}"].max() for other in others) == 0
    assert found[f"onset-{band}"].argmax() in (12, 13) and found[f"onset-{band}"][30:].max() < 0.1


def test_half_the_amplitude_is_heard_as_two_thirds_as_loud():
    samples = tone(1000) * np.r_[np.ones(RATE), np.full(RATE, 0.5)]
    assert heard(samples)["loudness"][45] == pytest.approx(0.25**0.3, abs=0.01)


@pytest.mark.parametrize(("fps", "count"), [(0.5, 1), (25, 50), (240, 480)])
def test_there_is_a_value_for_each_frame(fps, count):
    found = heard(clicks(), fps, count)
    assert list(found) == FEATURES
    assert all(len(x) == count and x.min() >= 0 and x.max() <= 1 for x in found.values())


# Files


@pyav
def test_a_file_is_read_as_one_channel_of_its_length(tmp_path):
    sound = read_sound(save(tmp_path / "a.wav", tone(440, 1.5, 44_100)))
    assert sound.seconds == pytest.approx(1.5, abs=0.001)
    assert (
        np.abs(sound.samples[100:-100] - tone(440, 1.5)[100 : len(sound.samples) - 100]).max()
        < 0.01
    )


@pyav
def test_bad_sounds_are_refused_in_one_sentence(tmp_path):
    (tmp_path / "text.wav").write_text("no sound")
    frames = iter(np.zeros((2, 16, 16, 3), np.uint8))
    write_video(tmp_path / "film.mp4", frames, count=2, fps=25)
    unknown = bytearray(save(tmp_path / "unknown.wav", tone(440)).read_bytes())
    unknown[20:22] = b"\x99\x99"  # the format
    (tmp_path / "unknown.wav").write_bytes(unknown)
    save(tmp_path / "silent.wav", np.zeros(1000))
    for name, message in {
        "gone.wav": "there is no file",
        "text.wav": "cannot be read as sound: Invalid data",
        "film.mp4": "has no sound; choose an audio file",
        "unknown.wav": "of a codec that PyAV .* cannot read",
        "silent.wav": "is silent; choose a file",
    }.items():
        with pytest.raises((ValueError, OSError), match=message):
            read_sound(tmp_path / name)


# Films


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "mine.pt"
    save_generator(path, random_generator(tiny_generators.TINY))
    return path


@pyav
def test_a_film_with_sound_lasts_as_long_as_it_and_moves_at_its_onsets(source, tmp_path):
    sound = save(tmp_path / "clicks.wav", clicks(2.0, 44_100))
    common = ["--psi", 0, "--device", "cpu", "--fps", 25]
    react = ["--audio", sound, "--react", "onset:pca:1=+5"]
    paths = [tmp_path / f"{name}.mp4" for name in "ab"]
    for path in paths:
        told("video", "walk", source, *common, *react, "--out", path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert streams(paths[0]) == {"video": 2.0, "audio": pytest.approx(2.0, abs=0.001)}
    frames = frames_of(paths[0])
    assert len(frames) == 50
    moved = np.abs(np.diff(frames, axis=0)).mean(axis=(1, 2, 3))  # from frame i to i + 1
    at_onsets = [moved[f - 1 : f + 1].max() for f in (12, 25, 37)]  # seconds 0.48, 1, 1.48
    assert min(at_onsets) > 3 * moved[:10].max() + 1 and min(at_onsets) > 2 * np.median(moved)
    written, given = (read_sound(path).samples[: 2 * RATE - 50] for path in (paths[0], sound))
    assert np.corrcoef(written, given)[0, 1] > 0.99  # so it is not late by one sample either


@pyav
def test_seconds_cut_the_sound(source, tmp_path):
    sound = save(tmp_path / "clicks.wav", clicks(2.0, 44_100))
    out = tmp_path / "a.mp4"
    options = ["--audio", sound, "--seconds", 1, "--fps", 10, "--scale", 1, "--out", out]
    told("video", "truncation", source, "--seeds", 1, *options, "--device", "cpu")
    assert streams(out) == {"video": 1.0, "audio": pytest.approx(1.0, abs=0.001)}


@pyav
@pytest.mark.parametrize(
    ("options", "message", "exit_code"),
    [
        (["--react", "onset:pca:1"], "pass --audio FILE", 2),
        (["--audio", "SOUND", "--react", "onset"], "onset is not like onset-low:pca:1=+3", 2),
        (["--audio", "SOUND", "--react", "bass:pca:1"], "bass is not heard in sounds; known", 1),
        (["--audio", "SOUND", "--react", "onset:pca:99"], "pca:99", 1),
        (["--audio", "SOUND", "--react", "loudness-high:pca:1"], "has no loudness-high", 1),
        (["--audio", "SOUND", "--seconds", 5], "lasts 2.0 s, so the film cannot last 5 s", 1),
        (["--audio", "SOUND", "--seconds", -1], "-1 is not a number from 0.001", 2),
        (["--audio", "gone.wav"], "there is no file gone.wav", 1),
        (["--audio", "SOUND", "--out", "a.webp"], "films with sound end in .mp4", 1),
    ],
)
def test_sound_that_cannot_be_is_refused(source, tmp_path, options, message, exit_code):
    sound = save(tmp_path / "low.wav", tone(100, 2.0, 44_100))
    options = [sound if option == "SOUND" else option for option in options]
    out = [] if "--out" in options else ["--out", tmp_path / "a.mp4"]
    words = ["video", "walk", source, *options, *out, "--device", "cpu"]
    assert message in commands.refused(*words, exit_code=exit_code)
    assert not (tmp_path / "a.mp4").exists()
