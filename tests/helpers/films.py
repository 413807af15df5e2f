"""Film files: which of them can be written here, and their frames."""

import importlib.util

import numpy as np
import pytest
from PIL import Image, ImageSequence

mp4 = pytest.mark.skipif(
    importlib.util.find_spec("av") is None,
    reason="PyAV is not installed: pip install -e '.[video]'",
)
each_format = pytest.mark.parametrize("suffix", [pytest.param(".mp4", marks=mp4), ".gif", ".webp"])


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
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    return np.stack(frames), times
