"""The way back: a store as a zip of images, for other programs."""

import io
import json
import zipfile
from pathlib import Path

from stylegan.atomic import replacing
from stylegan.destination import check_file

from .images import from_array
from .labels import JSON
from .prepare import ProgressCallback
from .store import Store

IN_A_FOLDER = 1000  # images, as in the data sets of stylegan2-ada
OLD = (1980, 1, 1, 0, 0, 0)  # the time of all entries, so that the same store gives the same zip


def export(
    store: Store,
    out: str | Path,
    *,
    resolution: int | None = None,
    overwrite: bool = False,
    progress: ProgressCallback = lambda done, total: None,
) -> None:
    """Write all images as PNG, and their labels, to a zip in the layout of stylegan2-ada:
    `00000/img00000000.png` and `dataset.json` with class numbers or vectors. The names of the
    labels stand beside them, for `open_source`. `out` appears only when complete."""
    out = Path(out)
    if out.suffix.lower() != ".zip":
        raise ValueError(f"{out} is not the name of a zip (.zip)")
    images = store.images(resolution or store.resolution)  # raises now if there are none
    names = [f"{i // IN_A_FOLDER:05}/img{i:08}.png" for i in range(len(store))]
    labels = None if store.labels is None else list(zip(names, store.labels.tolist(), strict=True))
    check_file(out, overwrite=overwrite)
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as opened, zipfile.ZipFile(opened, "w") as archive:
        for i, name in enumerate(names):
            file = io.BytesIO()
            image = from_array(store.pictures(images[i]).transpose(1, 2, 0))
            image.save(file, "PNG", compress_level=1)
            archive.writestr(zipfile.ZipInfo(name, OLD), file.getvalue())
            progress(i + 1, len(names))
        said = {"labels": labels} | ({"label_names": store.label_names} if labels else {})
        archive.writestr(zipfile.ZipInfo(JSON, OLD), json.dumps(said))
