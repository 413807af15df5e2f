"""What is heard in a sound: how loud it is and where notes begin, in bands of frequency."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stylegan.messages import readable
from stylegan.video.encoding import check_length
from stylegan.video.track import check_pyav, decoded

RATE = 22_050  # samples per second that are measured: frequencies up to 11 kHz
WINDOW, HOP = 1024, 256  # samples: a spectrum every 12 ms, of 46 ms
BANDS = {"": (20, RATE / 2), "-low": (20, 250), "-mid": (250, 4000), "-high": (4000, RATE / 2)}
FEATURES = [f"{kind}{band}" for kind in ("loudness", "onset") for band in BANDS]  # by column
LOUDNESS = 0.3  # exponent of power: how loud it is heard (Stevens 1955)
COMPRESSION = 100.0  # of magnitudes, before the rise of one spectrum over the last is measured
AROUND = RATE // HOP  # spectra: onsets are what rises more than the mean of one second
HALF_LIFE = 0.12  # seconds: how fast what a sound has moved comes back
SILENCE = 1e-4  # of full scale, -80 dB
FAINT = 1e-6  # power of a band against that of all, -60 dB: it is not heard


@dataclass(frozen=True, eq=False)
class Sound:
    """The sound of a file: one channel, float32 samples at 22,050 per second."""

    path: Path
    samples: np.ndarray  # (n,)

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE


def read_sound(path: Path) -> Sound:
    """The first sound of an audio or video file. ValueError without one, for a codec that is
    unknown, a damaged file, and silence."""
    check_pyav("reading sound")
    parts = [part[0] for part in decoded(path, RATE, "mono")]
    sound = Sound(path, np.concatenate(parts) if parts else np.zeros(0, np.float32))
    if not np.isfinite(sound.samples).all():
        raise ValueError(f"{path} is damaged: samples of its sound are not finite")
    if np.abs(sound.samples).max(initial=0) < SILENCE:
        raise ValueError(f"{path} is silent; choose a file with something to hear")
    check_length(sound.seconds)
    return sound


def features(sound: Sound, fps: float, count: int) -> dict[str, np.ndarray]:
    """Every feature by name at `count` frames: float64 (count,) from 0 to 1, its largest value.

    `loudness` is the power in a band as it is heard, `onset` how much more of it there is than
    just before, so where notes and beats begin. Both rise at once and come back with a half-life
    of 0.12 s. All 0 where a band is not heard.
    """
    samples = sound.samples[: HOP * math.ceil(count / fps * RATE / HOP)]
    power, rises = measured(samples / max(np.abs(samples).max(), SILENCE))
    rises[:, 0] = rises[:, 1:].mean(axis=1)  # each band counts alike, though low ones are narrow
    heard = power.max(axis=0) > FAINT * power.max()
    loud = (power / np.maximum(power.max(axis=0), 1e-30)) ** LOUDNESS
    onsets = np.maximum(rises - moving_mean(rises, AROUND), 0)
    onsets = onsets / np.maximum(onsets.max(axis=0), 1e-30)
    columns = released(np.hstack([loud * heard, onsets * heard]))
    first = np.minimum(np.arange(count) / fps * RATE / HOP, len(columns) - 1).astype(int)
    seen = np.maximum.reduceat(columns, first, axis=0)
    return dict(zip(FEATURES, seen.T, strict=True))


def measured(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Power (n, bands) in windows that end every `HOP` samples, and the mean rise of the
    compressed magnitudes since the last one."""
    frequencies = np.fft.rfftfreq(WINDOW, 1 / RATE)
    bins = [(frequencies >= low) & (frequencies < high) for low, high in BANDS.values()]
    shape = np.hanning(WINDOW + 1)[:-1].astype(np.float32)
    padded = np.pad(samples, (WINDOW - HOP, -len(samples) % HOP))
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    before = np.zeros((1, len(frequencies)))
    powers, rises = [], []
    for start in range(0, len(windows), 4096):
        spectra = np.fft.rfft(windows[start : start + 4096] * shape, axis=1)
        magnitudes = np.abs(spectra) / (0.5 * shape.sum())  # 1 for a sine of full scale
        levels = np.log1p(COMPRESSION * magnitudes)
        rise = np.maximum(np.diff(levels, axis=0, prepend=before), 0)
        powers.append(np.stack([np.square(magnitudes[:, b]).sum(axis=1) for b in bins], axis=1))
        rises.append(np.stack([rise[:, b].mean(axis=1) for b in bins], axis=1))
        before = levels[-1:]
    return np.concatenate(powers), np.concatenate(rises)


def moving_mean(x: np.ndarray, size: int) -> np.ndarray:
    """The mean of `size` rows around each row of x (n, columns), of fewer at the ends."""
    sums = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0)])
    first = np.maximum(np.arange(len(x)) - size // 2, 0)
    last = np.minimum(np.arange(len(x)) + size // 2 + 1, len(x))
    return (sums[last] - sums[first]) / (last - first)[:, None]


def released(x: np.ndarray) -> np.ndarray:
    """x (n, columns) that rises at once and falls no faster than by the half-life."""
    kept = 0.5 ** (HOP / RATE / HALF_LIFE)
    held = x.copy()
    for now, before in zip(held[1:], held, strict=False):
        np.maximum(now, kept * before, out=now)
    return held


def feature(sound: Sound, name: str, fps: float, count: int) -> np.ndarray:
    """One of the features: see `features`. ValueError if it is unknown or never heard."""
    if name not in FEATURES:
        raise ValueError(
            f"{readable(name, 40)} is not heard in sounds; known: {', '.join(FEATURES)}"
        )
    found = features(sound, fps, count)[name]
    if not found.any():
        raise ValueError(f"{sound.path} has no {name}: nothing is heard there; choose another")
    return found
