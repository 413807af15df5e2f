"""Write frames to a file, .mp4 by PyAV, .gif and .webp by Pillow, or to a folder of .png."""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image

from stylegan.figures import save_image
from stylegan.utils.console import SILENT, Console
from stylegan.utils.filesystem import KEEP_EXISTING, OutputWriter
from stylegan.utils.text import require_module

# Maximum frames per second, by ending. Viewers show .gif frames shorter than 1/50 s for 1/10 s.
FORMATS = {".mp4": 240, ".gif": 50, ".webp": 240}
# Constant quality. One thread, because the bytes depend on the number of threads. No macroblock
# tree, because with it one of ten videos of the same small frames had other bytes.
X264_OPTIONS = {"crf": "16", "preset": "medium", "threads": "1", "x264-params": "mbtree=0"}
BT709 = 1  # primaries, transfer and matrix, in FFmpeg's numbers
LIMITED = 1  # range, in FFmpeg's numbers: levels from 16 on


def check_clip(path: Path, fps: float, outputs: OutputWriter) -> None:
    """Raise ValueError if a video cannot be written to `path`, or not at `fps`.

    Without an ending, `path` is a folder of frames, in which equal frames may exist."""
    ending = path.suffix.lower()
    if not ending:
        outputs.check(path / "000000.png", exist_ok=True)
        return
    outputs.check(path, endings=FORMATS)
    most = FORMATS[ending]
    if not 0 < fps <= most:
        raise ValueError(f"fps of {ending} must be above 0 and at most {most}, got {fps:g}")
    if ending == ".mp4":
        purpose = "writing .mp4 (.gif and .webp need nothing more)"
        require_module("av", packages="av", purpose=purpose)


def write_video(
    path: Path,
    frames: Iterator[np.ndarray],
    *,
    count: int,
    fps: float,
    outputs: OutputWriter = KEEP_EXISTING,
    console: Console = SILENT,
) -> None:
    """Write `count` frames uint8 (H, W, 3) of equal size to a video at `path`, as they come.

    A `path` without an ending is a folder for 000000.png and so on. Existing frames of equal
    content are kept; whether others are replaced is decided by `outputs`.

    One frame is kept in memory; Pillow also accumulates a .gif at one byte per pixel, a .webp
    compressed. Equal frames result in equal bytes. Frames of an .mp4 with odd width or height are
    padded by a column or row, as H.264 requires.

    Raises ValueError if `frames` yields fewer or more than `count`, FileExistsError if a file that
    `outputs` keeps has appeared in the meantime.
    """
    check_clip(path, fps, outputs)

    def checked() -> Iterator[np.ndarray]:
        made = 0
        for made, pixels in enumerate(frames, start=1):
            if made > count:
                break
            yield pixels
            console.progress("", made, count)
        if made != count:
            raise ValueError(f"expected {count} frames, got {made}")

    promised = checked()
    if not path.suffix:
        numbered = path.glob("[0-9]" * 6 + ".png")
        if longer := [frame.name for frame in numbered if int(frame.stem) >= count]:
            raise ValueError(f"{path} has {min(longer)} of a longer video; choose another folder")
        for number, pixels in enumerate(promised):
            save_image(path / f"{number:06d}.png", Image.fromarray(pixels), outputs=outputs)
        return
    with outputs.file(path) as file:
        if path.suffix.lower() == ".mp4":
            write_h264(file.name, promised, fps)
        else:
            write_animation(file, promised, count, fps, path.suffix.lower())
        next(promised, None)  # raises if there are more


def write_h264(name: str, frames: Iterator[np.ndarray], fps: float) -> None:
    """Write an .mp4 that every player supports: 8-bit H.264, 4:2:0 chroma, BT.709."""
    import av
    from av.video.reformatter import ColorRange, Colorspace, Interpolation

    rate = Fraction(fps).limit_denominator(1001)
    flags = {"movflags": "+faststart", "fflags": "+bitexact"}
    with av.open(name, "w", format="mp4", options=flags) as container:
        stream = container.add_stream("libx264", rate=rate, options=X264_OPTIONS)
        stream.pix_fmt = "yuv420p"
        context = stream.codec_context
        context.color_primaries = context.color_trc = context.colorspace = BT709
        context.color_range = LIMITED
        for number, pixels in enumerate(frames):
            odd = [(0, pixels.shape[0] % 2), (0, pixels.shape[1] % 2), (0, 0)]
            rgb = av.VideoFrame.from_ndarray(np.pad(pixels, odd, mode="edge"), format="rgb24")
            frame = rgb.reformat(
                format="yuv420p",
                dst_colorspace=Colorspace.ITU709,
                dst_color_range=ColorRange.MPEG,
                interpolation=Interpolation.AREA,
            )
            if number == 0:
                stream.width = frame.width
                stream.height = frame.height
            frame.pts = number
            frame.time_base = 1 / rate
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def durations(count: int, fps: float, *, unit_ms: int) -> list[int]:
    """Milliseconds of each frame, multiples of `unit_ms` that do not accumulate rounding errors."""
    times = [round(1000 * i / fps / unit_ms) * unit_ms for i in range(count + 1)]
    return [end - start for start, end in itertools.pairwise(times)]


def write_animation(
    file: IO[bytes], frames: Iterator[np.ndarray], count: int, fps: float, suffix: str
) -> None:
    """Write an animation that repeats forever; each frame of a .gif has 256 colors."""
    images = map(Image.fromarray, frames)
    first = next(images)
    is_gif = suffix == ".gif"
    times = durations(count, fps, unit_ms=10 if is_gif else 1)
    settings: dict[str, object] = {"save_all": True, "duration": times, "loop": 0}
    if is_gif:
        first.save(file, "GIF", append_images=images, **settings)
    else:
        rest = [FrameStream(images, count - 1)]
        first.save(file, "WEBP", append_images=rest, quality=80, method=4, **settings)


class FrameStream:
    """Present an iterator of images as one multi-frame image.

    Given separate images, Pillow's WebP writer would hold all of them in memory."""

    def __init__(self, images: Iterator[Image.Image], n_frames: int) -> None:
        self.images = images
        self.n_frames = n_frames
        self.image: Image.Image | None = None

    def seek(self, _: int) -> None:
        """Advance to the next frame; Pillow seeks each one once, in order."""
        self.image = next(self.images)

    def __getattr__(self, name: str) -> object:
        return getattr(self.image, name)
