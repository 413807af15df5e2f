"""Film files: which of them can be written here, and their frames."""

import numpy as np
import pytest
from PIL import Image, ImageSequence

each_format = pytest.mark.parametrize("suffix", [".mp4", ".gif", ".webp"])


def decoded(path):
    """Frames (n, H, W, 3), and milliseconds of each."""
    if path.suffix != ".mp4":
        with Image.open(path) as image:
            assert image.info["loop"] == 0
            shown = [(f.convert("RGB"), f.info["duration"]) for f in ImageSequence.Iterator(image)]
        return np.stack([frame for frame, _ in shown]), [time for _, time in shown]
    import av
    from av.video.reformatter import ColorRange, Colorspace

    # Before PyAV 17, `to_ndarray` alone takes every frame for BT.601, whatever the file says.
    levels = {"src_color_range": ColorRange.MPEG, "dst_color_range": ColorRange.JPEG}
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        times = [1000 / float(stream.average_rate)] * stream.frames
        frames = [
            frame.reformat(format="rgb24", src_colorspace=Colorspace.ITU709, **levels).to_ndarray()
            for frame in container.decode(stream)
        ]
    return np.stack(frames), times
