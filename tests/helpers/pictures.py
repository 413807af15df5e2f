"""Small pictures in folders and zips, good and bad ones."""

import base64
import io
import random
import zipfile

import numpy as np
from PIL import Image

from stylegan.data import prepare
from stylegan.data.prepare import DEFAULT_PREPARATION


def encoded(image, kind="PNG", **options):
    """The bytes of a picture, or of the pixels (H, W) or (H, W, C) of one."""
    file = io.BytesIO()
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    image.save(file, format=kind, **options)
    return file.getvalue()


def pixels_of(url):
    """Those of a picture in a data URL."""
    with Image.open(io.BytesIO(base64.b64decode(url.partition("base64,")[2]))) as image:
        return np.array(image)


def save_picture(path, pixels):
    """Write pixels into a file, in a folder that may have to be made; that folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path.parent


def colors(width=16, height=16, seed=0):
    """Random pixels."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def png(width=16, height=16, seed=0):
    return encoded(colors(width, height, seed))


def write_folder(path, files):
    names = list(files)
    random.Random(0).shuffle(names)  # the order of the file system shall not matter
    path.mkdir(parents=True, exist_ok=True)
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(files[name])
    return path


def heic(**picture):
    """A HEIC file; pillow-heif is among the extras for developers."""
    from pillow_heif import from_pillow

    return encoded(from_pillow(Image.fromarray(colors(**picture))), "HEIF")


def store_of(root, files, preparation=DEFAULT_PREPARATION, **options):
    """The store of a folder with these files."""
    return prepare(write_folder(root / "images", files), root / "store", preparation, **options)


def names_of(store):
    """Names of the images of a store in their source."""
    return (store.path / "names.txt").read_bytes().decode(errors="surrogateescape").split("\n")[:-1]


def assert_same_store(found, wanted):
    """The same pixels and labels, byte for byte."""
    files = sorted(path.name for path in wanted.path.glob("*.npy"))
    assert sorted(path.name for path in found.path.glob("*.npy")) == files
    for name in files:
        assert (found.path / name).read_bytes() == (wanted.path / name).read_bytes()
    assert found.label_names == wanted.label_names
    assert found.pixel_hash(wanted.resolution) == wanted.pixel_hash(wanted.resolution)


def archive(path, files, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as out:
        for name, content in files.items():
            out.writestr(name, content)
    return path


MIXED = {
    "b/2.PNG": png(seed=1),
    "b/10.jpg": png(seed=2),
    "a/deep/er/1.webp": png(seed=3),
    "c/3.tiff": png(seed=4),
    "a/notes.txt": b"text",
    "a/.hidden.png": png(),
    "__MACOSX/b/._2.png": b"resource fork",
    ".git/x.png": png(),
}
MIXED_NAMES = ["a/deep/er/1.webp", "b/10.jpg", "b/2.PNG", "c/3.tiff"]
BAD = {
    "0.png": png(),
    "1.png": b"text",
    "2.png": b"",
    "3.jpg": png()[:300],
    "4.png": png(12, 30),
    "5.png": png(seed=5),
}
