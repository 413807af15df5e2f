"""Every kind of image file gives the pixels that the policy of `read_image` promises."""

import io
import struct
import zlib

import numpy as np
import pytest
from helpers.pictures import encoded
from PIL import Image, ImageCms
from PIL import __version__ as PILLOW_VERSION

from stylegan.data.images import formats, is_image, read_header, read_image

# Files that Pillow cannot write: TIFF of any tags, color profiles, PNG of few bits, long metadata

ADOBE_RGB = {  # primaries in XYZ under D50, as its profile has them; gamma 2.2
    "r": (0.60974, 0.31111, 0.01947),
    "g": (0.20528, 0.62567, 0.06087),
    "b": (0.14919, 0.06322, 0.74457),
}
WHITE_D50 = (0.9642, 1.0, 0.8249)


def fixed(number):
    """A number of a profile: 16 bits before the point and 16 behind it."""
    return round(number * 65536) & 0xFFFFFFFF


def profile():
    """An ICC profile (version 2) of Adobe's primaries, each with the same curve."""
    curve = struct.pack(">4sIIHH", b"curv", 0, 1, round(2.2 * 256), 0)
    tags = {b"wtpt": xyz(WHITE_D50), b"cprt": b"text" + bytes(4) + b"CC0\0"}
    tags[b"desc"] = b"desc" + bytes(4) + struct.pack(">I", 5) + b"test\0" + bytes(79)
    for color, point in ADOBE_RGB.items():
        tags[f"{color}XYZ".encode()] = xyz(point)
        tags[f"{color}TRC".encode()] = curve
    at, table, body = 128 + 4 + 12 * len(tags), b"", b""
    for name, content in tags.items():
        table += struct.pack(">4sII", name, at + len(body), len(content))
        body += content + bytes(-len(content) % 4)
    size = at + len(body)
    head = struct.pack(">I4sI4s4s4s", size, bytes(4), 0x02100000, b"mntr", b"RGB ", b"XYZ ")
    head += struct.pack(">6H4s", 2026, 1, 1, 0, 0, 0, b"acsp") + bytes(28)
    head += struct.pack(">3I", *map(fixed, WHITE_D50)) + bytes(48)
    return head + struct.pack(">I", len(tags)) + table + body


def xyz(point):
    return struct.pack(">4sI3I", b"XYZ ", 0, *map(fixed, point))


def tiff(pixels, tags):
    """An uncompressed TIFF with the bytes of `pixels` and these tags: lists of 16-bit numbers."""
    strip = np.ascontiguousarray(pixels).tobytes()
    entries, outside = b"", b""
    start = 8 + len(strip)
    tags = {273: [8], 278: [0xFFFF], 279: [len(strip)], 259: [1], **tags}
    behind = start + 2 + 12 * len(tags) + 4
    for tag, numbers in sorted(tags.items()):
        value = struct.pack(f"<{len(numbers)}H", *numbers)
        if len(value) > 4:
            outside += value
            value = struct.pack("<I", behind + len(outside) - len(value))
        entries += struct.pack("<HHI", tag, 3, len(numbers)) + value.ljust(4, b"\0")
    head = struct.pack("<2sHI", b"II", 42, start)
    return head + strip + struct.pack("<H", len(tags)) + entries + bytes(4) + outside


def png(samples, bits, clear=None):
    """A PNG of `samples` (H, W) or (H, W, 3) with so many bits, where the color `clear` is
    transparent."""
    height, width = samples.shape[:2]
    kind = 0 if samples.ndim == 2 else 2
    if bits == 16:
        rows = [row.astype(">u2").tobytes() for row in samples]
    else:  # the bits of each sample, the highest first
        flags = np.unpackbits(samples.reshape(height, -1, 1).astype(np.uint8), axis=2)[..., -bits:]
        rows = [np.packbits(row).tobytes() for row in flags]
    lines = b"".join(b"\0" + row for row in rows)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))
    transparent = b""
    if clear is not None:
        transparent = chunk(b"tRNS", np.array(clear, ">u2").tobytes())
    body = chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + transparent + body


def chunk(kind, content):
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def with_chunk(png, kind, content):
    """The PNG with one more chunk behind its head."""
    return png[:33] + chunk(kind, content) + png[33:]


# What is read


def noise(*shape, top=256, kind=np.uint8):
    return np.random.default_rng(0).integers(0, top, shape).astype(kind)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "WEBP"])
def test_read_image_keeps_every_value_of_lossless_formats(kind):
    colors = noise(5, 7, 3)
    options = {"lossless": True} if kind == "WEBP" else {}
    read = read_image(encoded(colors, kind, **options), name="a.jpg")
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, colors.transpose(2, 0, 1))


def transparent():
    image = Image.new("RGBA", (3, 1))
    image.putdata([(100, 100, 100, alpha) for alpha in (0, 102, 255)])  # 102 / 255 = 0.4
    return encoded(image)


def palette(transparency):
    image = Image.new("P", (3, 1))
    image.putpalette([10, 20, 30, 0, 0, 0, 70, 80, 90])
    image.putdata([0, 1, 2])
    return encoded(image, transparency=transparency)


GRAY, RGBA = noise(3, 4), noise(3, 3, 4)
OVER_WHITE = [[[255, 255 - 0.4 * 155, 100]]] * 3
LOOKED_UP = [[[10, 255, 70]], [[20, 255, 80]], [[30, 255, 90]]]


@pytest.mark.parametrize(("content", "channels", "expected"), [
    pytest.param(encoded(GRAY), 3, [GRAY] * 3, id="gray is replicated"),
    pytest.param(encoded(Image.new("RGB", (1, 1), "red")), 1, [[[76]]], id="luma, 0.299 * 255"),
    pytest.param(transparent(), 3, OVER_WHITE, id="RGBA over white"),
    pytest.param(encoded(RGBA), 4, RGBA.transpose(2, 0, 1), id="alpha is kept"),
    pytest.param(palette(1), 3, LOOKED_UP, id="palette with a transparent index"),
])  # fmt: skip
def test_read_image_converts_modes_to_the_requested_channels(content, channels, expected):
    np.testing.assert_array_equal(read_image(content, channels=channels), expected)


def test_read_image_scales_16_bit_gray_without_clipping():
    values = noise(6, 6, top=65536, kind=np.uint16)
    values[0, :3] = 0, 257, 65535
    read = read_image(encoded(values), channels=1)
    np.testing.assert_array_equal(read[0], np.rint(values / 257))


REFUSED = "the transparent color must have 8 bits; save it with 8, or with an alpha channel"


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_read_image_applies_or_rejects_the_transparent_gray_of_a_png(bits):
    top = 2**bits - 1
    levels = np.linspace(0, top, min(top + 1, 8)).round().astype(int)[None]
    for clear in levels[0]:
        content = png(levels, bits, clear)
        if bits in (1, 8):
            read = read_image(content, channels=4)
            np.testing.assert_array_equal(read[0], np.rint(levels * 255 / top))
            np.testing.assert_array_equal(read[3], np.where(levels == clear, 0, 255))
        else:
            with pytest.raises(ValueError, match=f"a.png: {REFUSED}"):
                read_image(content, name="a.png")
    if 1 < bits < 16:
        with pytest.raises(ValueError, match=REFUSED):  # higher bits do not count
            read_image(png(levels, bits, top + 1))


@pytest.mark.parametrize("bits", [8, 16])
def test_read_image_applies_or_rejects_the_transparent_color_of_a_png(bits):
    colors = noise(2, 3, 3).astype(int) * (2**bits - 1) // 255
    content = png(colors, bits, colors[1, 1])
    if bits == 16:
        with pytest.raises(ValueError, match=REFUSED):
            read_image(content)
        return
    expected = colors.transpose(2, 0, 1)
    expected[:, 1, 1] = 255  # white
    np.testing.assert_array_equal(read_image(content), expected)


def test_read_image_converts_premultiplied_gray_and_lab():
    gray = noise(4, 4) // 2
    half = np.full((4, 4), 128, np.uint8)
    content = tiff(np.dstack([gray, half]), {256: [4], 257: [4], 258: [8, 8], 262: [1], 277: [2],
                                             338: [1]})  # fmt: skip  # multiplied by alpha
    alpha = 128 / 255
    over_white = gray / alpha * alpha + 255 * (1 - alpha)
    if int(PILLOW_VERSION.partition(".")[0]) < 13:  # which does not read such a file
        with pytest.raises(ValueError, match="unsupported"):
            read_image(content, channels=1)
    else:
        assert np.abs(read_image(content, channels=1)[0] - over_white).max() <= 1
    lab = tiff(np.full((4, 4, 3), (255, 0, 0), np.uint8), {256: [4], 257: [4], 258: [8] * 3,
                                                          262: [8], 277: [3]})  # fmt: skip
    for channels in (1, 3):
        assert read_image(lab, channels=channels).min() >= 254


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
def test_read_image_applies_exif_orientation(orientation):
    upright = noise(2, 3, 3)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.ascontiguousarray(UNDO[orientation](upright))
    content = encoded(stored, exif=exif)
    np.testing.assert_array_equal(read_image(content), upright.transpose(2, 0, 1))
    assert read_header(io.BytesIO(content)) == (3, 2, "RGB")


@pytest.mark.parametrize(("kind", "ending"), [("AVIF", ".avif"), ("HEIF", ".heic")])
def test_read_image_reads_heic_and_avif_upright(kind, ending):
    if kind not in formats():
        pytest.skip(f"{kind} cannot be read here")
    upright = np.zeros((64, 40, 3), np.uint8)
    upright[:32] = (255, 0, 0)
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = np.ascontiguousarray(UNDO[6](upright))
    content = encoded(stored, kind, exif=exif.tobytes(), quality=95)
    read = read_image(content).transpose(1, 2, 0).astype(int)
    assert np.abs(read - upright)[[10, 50]].max() <= 8  # away from the edge, as losses are
    assert read_header(io.BytesIO(content)) == (40, 64, "RGB")
    assert is_image(f"IMG_0001{ending.upper()}")


def bmp_claiming(width, height):
    content = bytearray(encoded(Image.new("RGB", (1, 1)), "BMP"))
    struct.pack_into("<ii", content, 18, width, height)
    return bytes(content)


def truncated(kind):
    content = encoded(noise(64, 64, 3), kind)
    return content[: len(content) // 2]


def damaged_inside():
    content = bytearray(encoded(noise(64, 64), "TIFF", compression="tiff_lzw"))
    content[100:1100] = bytes(1000)
    return bytes(content)


@pytest.mark.parametrize(("content", "cause"), [
    (b"", "empty"),
    (b"this is text", "not a PNG, JPEG, WEBP, BMP, TIFF"),
    (truncated("JPEG"), "truncated"),
    (bmp_claiming(12_000, 12_000), "12000x12000"),
    (encoded(noise(4, 4).astype(np.float32), "TIFF"), "32-bit"),
    (tiff(noise(4, 4, 4), {256: [4], 257: [4], 258: [16] * 2, 262: [1], 277: [2], 338: [2]}),
     "a damaged or unsupported one"),
    (b"II*\0" + bytes(12), "a damaged or unsupported one"),
    (damaged_inside(), "damaged, or a rare compression"),
])  # fmt: skip
def test_read_image_names_files_that_it_cannot_decode(content, cause):
    with pytest.raises(ValueError, match=r"broken\.png: ") as caught:
        read_image(content, name="broken.png")
    assert cause in str(caught.value)


def test_read_image_converts_icc_profiles_to_srgb():
    image = Image.new("RGB", (4, 4), (200, 100, 60))
    for kind in ("PNG", "JPEG", "TIFF", "WEBP"):
        options = {"quality": 100} if kind in ("JPEG", "WEBP") else {}
        read = read_image(encoded(image, kind, icc_profile=profile(), **options))
        expected = np.array([227, 100, 55])  # as viewers show them
        assert np.abs(read.transpose(1, 2, 0).astype(int) - expected).max() <= 3, kind
    clear = Image.new("RGBA", (2, 1), (200, 100, 60, 99))
    read = read_image(encoded(clear, icc_profile=profile()), channels=4)
    assert read[3].tolist() == [[99, 99]]
    assert abs(int(read[0, 0, 0]) - 227) <= 1
    indexed = image.convert("P", palette=Image.Palette.ADAPTIVE)
    assert abs(int(read_image(encoded(indexed, icc_profile=profile()))[0, 0, 0]) - 227) <= 1


def test_read_image_ignores_srgb_and_damaged_icc_profiles():
    pixels = noise(5, 7, 3)
    image = Image.fromarray(pixels)
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for unused in (srgb, profile()[:200], b"no profile"):
        read = read_image(encoded(image, icc_profile=unused))
        np.testing.assert_array_equal(read, pixels.transpose(2, 0, 1))
    gray = read_image(encoded(GRAY, icc_profile=profile()), channels=1)
    np.testing.assert_array_equal(gray[0], GRAY)  # a profile of colors on gray pixels


PAIR = np.array([[0, 65535]], "<u2")
GRAY_PAIR = {256: [2], 257: [1], 262: [1], 277: [1]}
PALETTE = np.zeros((3, 256), int)
PALETTE[:, 1] = 10, 20, 250
INDICES = np.array([[0, 1]], np.uint8)
INDEXED = GRAY_PAIR | {258: [8], 262: [3]}


def planes(channels, kind):
    """Two pixels whose channels lie one behind the other, and the tags that say so."""
    pixels = np.arange(2 * channels).reshape(channels, 1, 2).astype(kind)
    size = pixels[0].nbytes
    return pixels, GRAY_PAIR | {
        258: [8 * pixels.itemsize] * channels,
        262: [2 if channels == 3 else 5],
        277: [channels],
        284: [2],
        273: [8 + size * i for i in range(channels)],
        279: [size] * channels,
    }


@pytest.mark.parametrize(("pixels", "tags", "found"), [
    (PAIR, GRAY_PAIR | {258: [16]}, [[[0, 255]]] * 3),
    (PAIR, GRAY_PAIR | {258: [16], 262: [0]}, "misreads"),
    (INDICES, INDEXED | {320: (PALETTE * 256).ravel()}, [[[0, 10]], [[0, 20]], [[0, 250]]]),
    (INDICES, INDEXED | {320: PALETTE.ravel()}, "misreads"),
    (*planes(3, np.uint8), [[[0, 1]], [[2, 3]], [[4, 5]]]),
    (*planes(3, "<u2"), "misreads"),
    (*planes(4, "<u2"), "misreads"),
    (np.zeros(2, np.int8), GRAY_PAIR | {258: [8], 339: [2]}, "misreads"),
    (np.zeros(3, np.uint8), GRAY_PAIR | {258: [12]}, "misreads"),
])  # fmt: skip
def test_read_image_rejects_tiff_that_pillow_would_misread(pixels, tags, found):
    content = tiff(pixels, tags)
    if isinstance(found, str):
        with pytest.raises(ValueError, match=rf"a\.tif: .*{found}"):
            read_image(content, name="a.tif")
    else:
        assert read_image(content).tolist() == found


def test_read_image_ignores_bad_metadata_around_intact_pixels():
    pixels = noise(5, 7, 3)
    png = encoded(pixels)
    for content in (
        png[:-12] + chunk(b"fcTL", bytes(26)) + png[-12:],  # of an animation that is not there
        encoded(pixels, exif=b"this is not EXIF"),
        encoded(pixels, "WEBP", exif=b"this is not EXIF", lossless=True),
    ):
        np.testing.assert_array_equal(read_image(content), pixels.transpose(2, 0, 1))
        assert read_header(io.BytesIO(content)) == (7, 5, "RGB")


def test_read_image_names_files_whose_metadata_pillow_rejects():
    png, text = encoded(noise(5, 7, 3)), b"Comment\0\0" + zlib.compress(bytes(2**21))
    for content in (
        with_chunk(png, b"zTXt", text),
        with_chunk(png, b"iCCP", text),
        png[:-12] + chunk(b"zTXt", text) + png[-12:],  # behind the pixels
    ):
        with pytest.raises(ValueError, match=r"a\.png: Decompressed data too large"):
            read_image(content, name="a.png")
    wrong = with_chunk(png, b"tEXt", b"Comment\0a").replace(b"Comment\0a", b"Comment\0b")
    with pytest.raises(ValueError, match=r"a\.png: .*, or a damaged or unsupported one"):
        read_image(wrong, name="a.png")


def test_is_image_recognizes_extensions_of_readable_formats():
    for name in ("a.jfif", "A.JPE", "b.HEIC", "c.hif", "d.apng", "e.dib", "f.TIF", "g.mpo"):
        assert is_image(name) == (name != "e.dib"), name
