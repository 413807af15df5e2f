"""Every kind of image file gives the pixels that the policy of `read_image` promises."""

import io
import struct

import numpy as np
import pytest
from PIL import Image

from stylegan.data.images import formats, head, is_image, read_image


def saved(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def noise(*shape, top=256, kind=np.uint8):
    return np.random.default_rng(0).integers(0, top, shape).astype(kind)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "WEBP"])
def test_lossless_formats_keep_every_value_under_any_name(kind):
    colours = noise(5, 7, 3)
    options = {"lossless": True} if kind == "WEBP" else {}
    read = read_image(saved(Image.fromarray(colours), kind, **options), name="a.jpg")
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, colours.transpose(2, 0, 1))


def transparent():
    image = Image.new("RGBA", (3, 1))
    image.putdata([(100, 100, 100, alpha) for alpha in (0, 102, 255)])  # 102 / 255 = 0.4
    return saved(image)


def palette(transparency):
    image = Image.new("P", (3, 1))
    image.putpalette([10, 20, 30, 0, 0, 0, 70, 80, 90])
    image.putdata([0, 1, 2])
    return saved(image, transparency=transparency)


GRAY, RGBA = noise(3, 4), noise(3, 3, 4)
OVER_WHITE = [[[255, 255 - 0.4 * 155, 100]]] * 3
LOOKED_UP = [[[10, 255, 70]], [[20, 255, 80]], [[30, 255, 90]]]


@pytest.mark.parametrize(("content", "channels", "expected"), [
    pytest.param(saved(Image.fromarray(GRAY)), 3, [GRAY] * 3, id="gray is replicated"),
    pytest.param(saved(Image.new("RGB", (1, 1), "red")), 1, [[[76]]], id="luma, 0.299 * 255"),
    pytest.param(transparent(), 3, OVER_WHITE, id="RGBA over white"),
    pytest.param(saved(Image.fromarray(RGBA)), 4, RGBA.transpose(2, 0, 1), id="alpha is kept"),
    pytest.param(palette(1), 3, LOOKED_UP, id="palette with a transparent index"),
])  # fmt: skip
def test_modes_become_the_channels_asked_for(content, channels, expected):
    np.testing.assert_array_equal(read_image(content, channels=channels), expected)


def test_sixteen_bit_gray_is_scaled_not_clipped():
    values = noise(6, 6, top=65536, kind=np.uint16)
    values[0, :3] = 0, 257, 65535
    read = read_image(saved(Image.fromarray(values)), channels=1)
    np.testing.assert_array_equal(read[0], np.rint(values / 257))


UNDO = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.swapaxes(0, 1),
    6: lambda upright: np.rot90(upright, 1),
    7: lambda upright: upright[::-1, ::-1].swapaxes(0, 1),
    8: lambda upright: np.rot90(upright, -1),
}


@pytest.mark.parametrize("orientation", UNDO)
def test_exif_orientation_is_applied(orientation):
    upright = noise(2, 3, 3)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.ascontiguousarray(UNDO[orientation](upright))
    content = saved(Image.fromarray(stored), exif=exif)
    np.testing.assert_array_equal(read_image(content), upright.transpose(2, 0, 1))
    assert head(io.BytesIO(content)) == (3, 2, "RGB")


@pytest.mark.parametrize(("kind", "ending"), [("AVIF", ".avif"), ("HEIF", ".heic")])
def test_formats_of_phones_are_read_upright(kind, ending):
    if kind not in formats():
        pytest.skip(f"{kind} cannot be read here")
    upright = np.zeros((64, 40, 3), np.uint8)
    upright[:32] = (255, 0, 0)
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = np.ascontiguousarray(UNDO[6](upright))
    content = saved(Image.fromarray(stored), kind, exif=exif.tobytes(), quality=95)
    read = read_image(content).transpose(1, 2, 0).astype(int)
    assert np.abs(read - upright)[[10, 50]].max() <= 8  # away from the edge, as losses are
    assert head(io.BytesIO(content)) == (40, 64, "RGB")
    assert is_image(f"IMG_0001{ending.upper()}")


def bmp_claiming(width, height):
    content = bytearray(saved(Image.new("RGB", (1, 1)), "BMP"))
    struct.pack_into("<ii", content, 18, width, height)
    return bytes(content)


def truncated(kind):
    content = saved(Image.fromarray(noise(64, 64, 3)), kind)
    return content[: len(content) // 2]


@pytest.mark.parametrize(("content", "cause"), [
    (b"", "empty"),
    (b"this is text", "not a PNG, JPEG, WEBP, BMP, TIFF"),
    (truncated("JPEG"), "truncated"),
    (bmp_claiming(12_000, 12_000), "12000x12000"),
    (saved(Image.fromarray(noise(4, 4).astype(np.float32)), "TIFF"), "32-bit"),
])  # fmt: skip
def test_what_cannot_be_decoded_is_an_error_with_its_name(content, cause):
    with pytest.raises(ValueError, match=r"broken\.png: ") as caught:
        read_image(content, name="broken.png")
    assert cause in str(caught.value)
