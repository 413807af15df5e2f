"""The notebook: a clean file, and a run from top to bottom."""

import base64
import io
import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
from helpers import ROOT
from helpers.processes import printed
from PIL import Image

NOTEBOOK = ROOT / "docs" / "stylegan.ipynb"
SMALL = {
    "TRAINING_KIMG": 0.4,
    "PROJECTION_STEPS": 4,
    "MAPPED_LATENTS": 200,
    "WALK_FRAMES": 8,
    "MEASURED_IMAGES": 64,
}
PICTURES = {  # of each cell, as it is meant to show them
    "samples-code": 1,
    "truncation-code": 1,
    "mixing-code": 1,
    "noise-code": 2,
    "directions-code": 2,
    "projection-code": 1,
    "training-code": 2,
    "export-code": 1,
}


def notebook():
    return nbformat.read(NOTEBOOK, as_version=nbformat.NO_CONVERT)


def cells_of(kind):
    return [cell for cell in notebook().cells if cell.cell_type == kind]


def small_notebook(path):
    """Written to `path`: the notebook with less to compute."""
    found = notebook()
    (parameters,) = (c for c in found.cells if "parameters" in c.metadata.get("tags", ()))
    assert set(re.findall(r"^([A-Z_]+) =", parameters.source, re.MULTILINE)) == set(SMALL)
    parameters.source = "\n".join(f"{name} = {value}" for name, value in SMALL.items())
    nbformat.write(found, path)


def execute(path):
    """The notebook `path`, run by nbconvert in its folder; what programs leave goes beside that."""
    places = ("TMPDIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")
    places += ("JUPYTER_DATA_DIR", "STYLEGAN_CACHE", "TORCH_HOME")
    folder, beside = path.parent, path.parent.parent
    own = {name: str(beside / name.lower()) for name in places}
    for place in own.values():
        Path(place).mkdir()
    own["JUPYTER_PLATFORM_DIRS"] = "1"
    out = beside / "executed.ipynb"
    command = ["-m", "nbconvert", "--to", "notebook", "--execute", str(path)]
    command += ["--output", str(out), "--ExecutePreprocessor.timeout=1200"]
    printed(folder, *command, **own)
    return nbformat.read(out, as_version=nbformat.NO_CONVERT)


def pictures_in(cell):
    """The PNG outputs as arrays."""
    shown = [o.data["image/png"] for o in cell.outputs if "image/png" in o.get("data", {})]
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(png)))) for png in shown]


def text_of(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def test_notebook_is_stored_with_outputs_and_without_local_paths():
    found = notebook()
    nbformat.validate(found)
    assert NOTEBOOK.stat().st_size < 500_000
    assert set(found.metadata) == {"kernelspec", "language_info"}
    assert set(found.metadata.language_info) == {"name"}
    code = cells_of("code")
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    shown = {cell.id: sum("image/jpeg" in o.get("data", {}) for o in cell.outputs) for cell in code}
    assert {name: number for name, number in shown.items() if number} == PICTURES
    assert all(set(cell.metadata) <= {"tags"} for cell in found.cells)
    paths = re.compile(r"(?<![\w.:/<])/[a-z]+/|\b[A-Z]:\\|file://")
    texts = [cell.source for cell in found.cells] + [text_of(cell) for cell in code]
    assert not [text for text in texts if paths.search(text)]


@pytest.mark.slow
def test_notebook_runs_from_top_to_bottom(tmp_path):
    folder = tmp_path / "session"
    folder.mkdir()
    (folder / "clone").symlink_to(ROOT, target_is_directory=True)  # as in Colab
    small_notebook(folder / "small.ipynb")
    cells = {cell.id: cell for cell in execute(folder / "small.ipynb").cells}
    outputs = [output for cell in cells.values() for output in cell.get("outputs", ())]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    for name, number in PICTURES.items():
        shown = pictures_in(cells[name])
        assert len(shown) == number, name
        assert all(picture.std() > 10 for picture in shown), name
    (page,) = (o.data["text/html"] for o in cells["walk-code"].outputs)
    film = Image.open(io.BytesIO(base64.b64decode(re.search(r"base64,([^\"]+)", page)[1])))
    assert (film.format, film.n_frames, film.size) == ("WEBP", SMALL["WALK_FRAMES"], (256, 256))
    assert "448 images, 32 px" in text_of(cells["training-code"])  # the end of the last four steps
    assert "the same pictures: True" in text_of(cells["export-code"])
    assert {path.name for path in folder.iterdir()} == {"clone", "small.ipynb"}
