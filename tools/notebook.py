"""Runs docs/stylegan.ipynb from top to bottom and stores it with its outputs, pictures made small.

python tools/notebook.py                 # minutes; in a temporary folder
python tools/notebook.py executed.ipynb  # takes the outputs of a notebook that was run before
"""

import base64
import io
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from PIL import Image

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "stylegan.ipynb"
WIDTH = 480  # columns of stored pictures at most
QUALITY = 40  # of JPEG


def executed(folder: Path) -> Path:
    """The notebook with its outputs, run beside a link to this clone."""
    (folder / "clone").symlink_to(ROOT, target_is_directory=True)
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", str(NOTEBOOK)]
    options = [f"--output={folder / 'executed.ipynb'}", "--ExecutePreprocessor.timeout=3600"]
    subprocess.run([*command, *options], cwd=folder, check=True)
    return folder / "executed.ipynb"


def small(png: str) -> str:
    """A PNG in base64 as a small JPEG in base64."""
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    if image.width > WIDTH:
        image = image.resize((WIDTH, image.height * WIDTH // image.width), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, "jpeg", quality=QUALITY, optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def store(path: Path) -> None:
    """Write the outputs of `path` into the notebook; what is of a machine or moment stays out."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, 1):
        cell.execution_count = number
        cell.outputs = []
        text = ""
        for output in cells[cell.id].outputs:
            if output.output_type == "stream":
                text += output.text
                continue
            data = dict(output.data)
            if "image/png" in data:
                data["image/jpeg"] = small(data.pop("image/png"))
            count = {"execution_count": number} if output.output_type == "execute_result" else {}
            kind = output.output_type
            cell.outputs.append(nbformat.v4.new_output(kind, data, metadata={}, **count))
        if text:
            cell.outputs.insert(0, nbformat.v4.new_output("stream", name="stdout", text=text))
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        store(Path(sys.argv[1]) if sys.argv[1:] else executed(Path(work)))
