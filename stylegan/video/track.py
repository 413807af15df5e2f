"""The sound of a file, decoded, and as a track of a film: through PyAV."""

import importlib.util
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from stylegan.messages import reason_of

RATE = 48_000  # samples per second in a film
OPTIONS = {"b": "192000", "flags": "+bitexact", "threads": "1"}


def check_pyav(what: str, otherwise: str = "") -> None:
    """ValueError unless PyAV is installed."""
    if importlib.util.find_spec("av") is None:
        raise ValueError(
            f'{what} needs PyAV: pip install ".[video]" in a clone, or '
            f"pip install 'stylegan[video]'{otherwise}"
        )


@contextmanager
def readable_sound(path: Path) -> Iterator[None]:
    """What FFmpeg says of a bad file becomes a ValueError of one sentence."""
    import av

    try:
        yield
    except av.error.FFmpegError as error:
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(f"there is no file {path}") from error
        raise ValueError(f"{path} cannot be read as sound: {reason_of(error)}") from error


def decoded(path: Path, rate: int, layout: str, seconds: float = math.inf) -> Iterator[np.ndarray]:
    """The first `seconds` of the sound, in parts float32 (channels, n), `rate` samples each."""
    import av

    left = math.inf if math.isinf(seconds) else round(seconds * rate)
    with readable_sound(path), av.open(str(path)) as container:
        if not container.streams.audio:
            raise ValueError(f"{path} has no sound; choose an audio file, or a film with sound")
        stream = container.streams.audio[0]
        if stream.codec_context is None:
            raise ValueError(f"{path} has sound of a codec that PyAV {av.__version__} cannot read")
        resampler = av.AudioResampler(format="fltp", layout=layout, rate=rate)
        for frame in itertools.chain(container.decode(stream), [None]):  # None empties it
            for part in resampler.resample(frame):
                samples = part.to_ndarray()
                yield samples[:, : int(min(left, samples.shape[1]))]
                left -= samples.shape[1]
                if left <= 0:
                    return


class Track:
    """The sound of a file, as AAC beside the pictures of a film that is being written."""

    def __init__(self, container: Any, path: Path, seconds: float) -> None:
        self.container, self.written = container, 0
        self.stream = container.add_stream("aac", rate=RATE, options=OPTIONS)
        self.stream.layout = "stereo"
        self.parts = decoded(path, RATE, "stereo", seconds)

    def write_until(self, seconds: float) -> None:
        """Write what is heard before then, so that players find sound and pictures together."""
        import av

        while self.written < seconds * RATE and (part := next(self.parts, None)) is not None:
            frame = av.AudioFrame.from_ndarray(part, format="fltp", layout="stereo")
            frame.sample_rate = RATE
            frame.pts, frame.time_base = self.written, Fraction(1, RATE)
            self.written += part.shape[1]
            self.container.mux(self.stream.encode(frame))

    def end(self) -> None:
        self.write_until(math.inf)
        self.container.mux(self.stream.encode(None))
