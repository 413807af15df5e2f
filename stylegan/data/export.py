"""The way back: a store as a folder or zip of images, for other programs."""

import contextlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from stylegan.atomic import replacing
from stylegan.destination import check_file, check_folder

from .images import from_array
from .labels import JSON
from .prepare import ProgressCallback, atomic_folder
from .store import Store

IN_A_FOLDER = 1000  # images, as in the data sets of stylegan2-ada
OLD = (1980, 1, 1, 0, 0, 0)  # the time of all entries, so that the same store gives the same zip
Write = Callable[[str, bytes], None]


def export(
    store: Store,
    out: str | Path,
    *,
    resolution: int | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> None:
    """Write all images as PNG, and their labels, to a new folder or to a zip (`.zip`) in the layout
    of stylegan2-ada: `00000/img00000000.png` and `dataset.json` with class numbers or vectors. The
    names of the labels stand beside them, for `open_source`. `out` appears only when complete."""
    out, resolution = Path(out), resolution or store.resolution
    images = store.images(resolution)  # raises now if there are none
    names = [f"{i // IN_A_FOLDER:05}/img{i:08}.png" for i in range(len(store))]
    with zipped(out, overwrite) if out.suffix.lower() == ".zip" else in_folder(out) as write:
        for i, name in enumerate(names):
            file = io.BytesIO()
            from_array(store.pictures(images[i]).transpose(1, 2, 0)).save(
                file, "PNG", compress_level=1
            )
            write(name, file.getvalue())
            if progress is not None:
                progress(i + 1, len(names))
        write(JSON, labels_of(store, names).encode())


def labels_of(store: Store, names: list[str]) -> str:
    """`dataset.json`: null where there are no labels."""
    if store.labels is None:
        return json.dumps({"labels": None})
    pairs = [list(pair) for pair in zip(names, store.labels.tolist(), strict=True)]
    return json.dumps({"labels": pairs, "label_names": store.label_names})


@contextlib.contextmanager
def zipped(out: Path, overwrite: bool) -> Iterator[Write]:
    check_file(out, overwrite=overwrite)
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as file, zipfile.ZipFile(file, "w") as archive:
        yield lambda name, content: archive.writestr(zipfile.ZipInfo(name, OLD), content)


@contextlib.contextmanager
def in_folder(out: Path) -> Iterator[Write]:
    check_folder(out, empty=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(out) as folder:

        def write(name: str, content: bytes) -> None:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)

        yield write
