"""A recipe: faces of people drawn from their attributes, as many as one likes."""

import csv
import io
import json
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image

DRAW = Path(__file__).with_name("people.mjs")
ATTRIBUTION = """\
Faces of the avatar style "Personas" by Draftbit (https://personas.draftbit.com/), drawn by the
npm package @dicebear/personas, cropped to the head. The drawings are licensed under CC BY 4.0:
https://creativecommons.org/licenses/by/4.0/
"""

# Attribute: its values, and how often each is drawn against the others (once, if not said).
# Attributes are drawn independently of each other.
TABLE = """
hair: long sideShave shortCombover curlyHighTop bobCut curly pigtails curlyBun buzzcut bobBangs bald
      balding bunUndercut fade beanie straightBun extraLong shortComboverChops mohawk
hairColor: black brown chestnut blond red pink blue silver
skinColor: skin1 skin2 skin3 skin4 skin5 skin6
eyes: open*7 happy*3 glasses*4 sunglasses*2 sleep*2 wink*2
nose: mediumRound*4 smallRound*4 wrinkles*2
mouth: smile*4 bigSmile*4 frown*2 surprise*2 smirk*2 lips*2
facialHair: none*18 beardMustache pyramid walrus goatee shadow soulPatch
body: squared rounded small checkered
clothingColor: azure teal violet green scarlet gold rose
"""
COLORS = {
    "black": "2f2740",
    "brown": "6c4545",
    "chestnut": "a5623f",
    "blond": "efc15c",
    "red": "e0553f",
    "pink": "ea7aa6",
    "blue": "5b7fd6",
    "silver": "dee1f5",
    "skin1": "f2c0ae",
    "skin2": "e5a07e",
    "skin3": "d78774",
    "skin4": "b16a5b",
    "skin5": "92594b",
    "skin6": "623d36",
    "azure": "456dff",
    "teal": "54d7c7",
    "violet": "7555ca",
    "green": "6dbb58",
    "scarlet": "e24553",
    "gold": "f3b63a",
    "rose": "f55d81",
}


def shares(table: str = TABLE) -> dict[str, dict[str, int]]:
    """Attribute -> value -> how often it is drawn against the others."""
    found: dict[str, dict[str, int]] = {}
    for word in table.split():
        if word.endswith(":"):
            values = found[word[:-1]] = {}
        else:
            value, _, times = word.partition("*")
            values[value] = int(times or 1)
    return found


SHARES = shares()


def person(number: int) -> dict[str, str]:
    """Attribute -> value of the person of this number; the same at every call."""
    random = np.random.RandomState(number)
    chosen = {}
    for attribute, times in SHARES.items():
        p = np.array([*times.values()]) / sum(times.values())
        chosen[attribute] = str(random.choice(list(times), p=p))
    return chosen


def drawing(attributes: dict[str, str]) -> dict[str, Any]:
    """The options that make the package draw this person and nobody else."""
    bearded = attributes["facialHair"] != "none"
    chosen = {
        name: [COLORS.get(value, value)]
        for name, value in attributes.items()
        if name != "facialHair" or bearded
    }
    return {"seed": "", "facialHairProbability": 100 * bearded, **chosen}


def draw(folder: Path, numbers: range, size: int, modules: Path) -> None:
    """Draw the people of these numbers into a new folder, with their attributes and the license.

    Raises ClickException if the drawing fails.
    """
    folder.mkdir(parents=True)
    people = {f"{number:06d}.png": person(number) for number in numbers}
    lines = "\n".join(json.dumps({"file": file, **drawing(p)}) for file, p in people.items())
    words = ["node", str(DRAW), str(modules.resolve()), str(folder), str(size)]
    try:
        subprocess.run(words, input=lines, text=True, check=True)
    except FileNotFoundError as error:
        raise click.ClickException("Node.js is needed: there is no program node") from error
    except subprocess.CalledProcessError as error:
        fault = f"node failed (see above); is `npm install` done in {modules}?"
        raise click.ClickException(fault) from error
    values = [(attribute, value) for attribute, times in SHARES.items() for value in times]
    with open(folder / "labels.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file", *(f"{attribute}={value}" for attribute, value in values)])
        for name, attributes in people.items():
            table.writerow([name, *(int(attributes[a] == v) for a, v in values)])
    (folder / "LICENSE.txt").write_text(ATTRIBUTION)


def pack(folder: Path, archive: Path) -> None:
    """Zip what `draw` made, its pictures as lossless WebP, half as large as PNG."""
    with zipfile.ZipFile(archive, "x", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(folder.iterdir()):
            name, data = path.name, path.read_bytes()
            if path.suffix == ".png":
                webp = io.BytesIO()
                Image.open(path).convert("RGB").save(
                    webp, "WEBP", lossless=True, quality=100, method=6
                )
                name, data = f"{path.stem}.webp", webp.getvalue()
            elif name == "labels.csv":
                data = data.replace(b".png,", b".webp,")
            how = zipfile.ZIP_DEFLATED if path.suffix != ".png" else zipfile.ZIP_STORED
            packed.writestr(zipfile.ZipInfo(name), data, how)


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--first", type=click.IntRange(0), default=0, help="Number of the first person.")
@click.option(
    "--count", type=click.IntRange(1), default=10_000, help="Number of people.", show_default=True
)
@click.option("--size", type=click.IntRange(8), default=64, help="Width and height in pixels.")
@click.option(
    "--modules",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="Folder in which `npm install` put the packages.",
)
def main(out: Path, first: int, count: int, size: int, modules: Path) -> None:
    """Draw people, with their attributes in labels.csv, into the new folder or .zip file OUT.

    \b
    npm install @dicebear/core @dicebear/personas @resvg/resvg-js
    python datasets/people.py people64/
    python datasets/people.py held-out64/ --first 20000 --count 2000
    """
    if out.exists():
        raise click.ClickException(f"{out} exists; choose another name")
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.absolute().parent) as scratch:
        folder = Path(scratch, "people")
        draw(folder, range(first, first + count), size, modules)
        if out.suffix == ".zip":
            pack(folder, Path(scratch, out.name))
            Path(scratch, out.name).rename(out)
        else:
            folder.rename(out)


if __name__ == "__main__":
    main()
