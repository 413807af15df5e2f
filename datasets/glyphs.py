"""The recipe of `glyphs64`: capital letters and digits of many typefaces, gray, by character."""

import hashlib
import io
import logging
import re
import shutil
import subprocess
import tarfile
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase, digits
from typing import NamedTuple

import click
import numpy as np
from fontTools.pens.recordingPen import RecordingPen
from fontTools.ttLib import TTCollection, TTFont
from PIL import Image, ImageDraw, ImageFont

CHARACTERS = digits + ascii_uppercase
FONT_ENDINGS = (".otf", ".ttc", ".ttf")
INSTALLED = ("/usr/share/fonts", "/usr/share/texmf/fonts", "/usr/share/texlive/texmf-dist/fonts")
DOCUMENTS = Path("/usr/share/doc")
LICENSES = "LICENSES.txt"

MEASURED = 256  # pixels per em at which a face is measured
SUPERSAMPLED = 4  # times: hinting then moves an outline by an eighth of a pixel at most
CAPITALS = 0.625  # height of capitals, of the side
MARGIN = 1 / 32  # of the side, that stays free at least
LEAST_SCALE = 0.6  # of the scale that the height of capitals asks for; else a face has no room
COARSE = 16  # pixels a side, at which pictures are compared

TWINS = 2  # pairs of characters that may be drawn alike: 0 and O, 1 and I
LEAST_READ = 30  # characters that a classifier must read, of 36
LEAST_FACES = 200  # for such a classifier
FEATURES, RIDGE, PARTS = 768, 10.0, 5  # of the classifier
NEAR = 0.06  # difference (1: white against black) below which two faces count as one
OF_FAMILY = 4  # faces at most
VARIANT = re.compile(
    r"(extra|ultra|semi|demi)?(thin|hairline|light|book|regular|medium|bold|black|heavy"
    r"|cond|condensed|narrow|compressed|expanded|wide|italic|oblique|slanted|display|text|caption"
    r"|caps|sc|osf|lf|tf)|extra|ultra|semi|demi|[0-9]+"
)
TOLD_EVERY = 500  # font files


class FontFile(NamedTuple):
    """A file of a package or folder."""

    package: str  # empty: of none
    name: str
    content: bytes


@dataclass(frozen=True, eq=False)
class Face:
    """One typeface in one style, and its 36 pictures."""

    package: str
    family: str
    style: str
    license: str  # what the font says itself
    pictures: np.ndarray = field(repr=False)  # uint8 (36, size, size), black on white

    @property
    def stem(self) -> str:
        return slug(f"{self.family} {self.style}")

    def rank(self) -> tuple[bool, bool, int, str, str]:
        """Sorts faces by which of two that look alike is kept: upright and regular before others,
        then the plainest name."""
        slanted = bool(re.search(r"ital|obli|slant", self.style, re.IGNORECASE))
        plain = bool(re.fullmatch(r"regular|book|roman|normal|medium|", self.style, re.IGNORECASE))
        return slanted, not plain, len(self.family), self.stem, self.package

    def coarse(self) -> np.ndarray:
        """Averages of the pictures, float32 (36, COARSE, COARSE): 0 is paper, 1 is ink."""
        step = self.pictures.shape[-1] // COARSE
        ink = 1 - self.pictures.astype(np.float32) / 255
        return ink.reshape(len(ink), COARSE, step, COARSE, step).mean(axis=(2, 4))


class LeftOut(Exception):
    """A face is of no use, for this reason."""


def slug(text: str) -> str:
    """Lower-case words of ASCII.

    >>> slug("DejaVu Sans Bold")
    'dejavu-sans-bold'
    """
    return "-".join(re.findall("[a-z0-9]+", text.lower())) or "unnamed"


# Fonts of packages and folders


def deb_members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of the fonts and the copyright notice in a Debian package.

    It is an `ar` archive; the files are in its member data.tar.
    """
    with open(path, "rb") as file:
        if file.read(8) != b"!<arch>\n":
            raise click.ClickException(f"{path} is not a Debian package")
        while header := file.read(60):
            name, size = header[:16].decode("ascii").strip(" /"), int(header[48:58])
            if not name.startswith("data.tar"):
                file.seek(size + size % 2, io.SEEK_CUR)
                continue
            try:
                with tarfile.open(fileobj=file, mode="r|*") as archive:
                    for member in archive:
                        if member.isfile() and wanted_member(member.name):
                            content = archive.extractfile(member)
                            assert content is not None
                            yield member.name.removeprefix("./"), content.read()
            except tarfile.ReadError as error:
                raise click.ClickException(f"{path}: {name} cannot be read: {error}") from error
            return


def wanted_member(name: str) -> bool:
    return name.lower().endswith(FONT_ENDINGS) or bool(
        re.fullmatch(r"(\./)?usr/share/doc/[^/]+/copyright", name)
    )


def read_sources(sources: Sequence[Path], notices: dict[str, str]) -> Iterator[FontFile]:
    """All fonts of packages (.deb) and folders, each file once. The copyright notices of packages
    are added to `notices`."""
    seen: set[bytes] = set()
    for source in sources:
        for font in fonts_under(source, notices):
            digest = hashlib.sha256(font.content).digest()
            if digest not in seen:
                seen.add(digest)
                yield font


def fonts_under(source: Path, notices: dict[str, str]) -> Iterator[FontFile]:
    """The fonts of a package or font file, or of those in a folder."""
    inside = sorted(source.rglob("*")) if source.is_dir() else [source]
    files = [path for path in inside if path.suffix.lower() in FONT_ENDINGS]
    is_package = not files and not source.is_dir()
    packages = inside if is_package else [path for path in inside if path.suffix == ".deb"]
    for path in packages:
        package = path.name.partition("_")[0]
        for name, content in deb_members(path):
            if name.endswith("/copyright"):
                notices[package] = content.decode("utf-8", "replace")
            else:
                yield FontFile(package, name, content)
    owners = installed_packages(files)
    for path in files:
        package = owners.get(str(path), "")
        notice = DOCUMENTS / package / "copyright"
        if package and package not in notices and notice.is_file():
            notices[package] = notice.read_text(encoding="utf-8", errors="replace")
        if path.is_file():
            yield FontFile(package, str(path), path.read_bytes())


def installed_packages(paths: Sequence[Path]) -> dict[str, str]:
    """Path -> the Debian package that it was installed from, where there is one."""
    if not paths or not shutil.which("dpkg-query"):
        return {}
    found: dict[str, str] = {}
    for start in range(0, len(paths), 500):
        command = ["dpkg-query", "-S", *map(str, paths[start : start + 500])]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        for line in result.stdout.splitlines():
            package, _, path = line.partition(": ")
            found[path] = package.partition(",")[0].partition(":")[0]
    return found


# One face


def faces_of(file: FontFile, size: int) -> Iterator[Face | LeftOut]:
    """The faces of a font file, or why each is left out."""
    try:
        collection = file.content[:4] == b"ttcf"
        number = len(TTCollection(io.BytesIO(file.content), lazy=True).fonts) if collection else 1
        for index in range(number):
            try:
                yield face_of(file, index, size)
            except LeftOut as reason:
                yield reason
    except Exception as error:  # of damaged tables fontTools raises almost anything
        yield LeftOut(f"cannot be read ({type(error).__name__})")


def face_of(file: FontFile, index: int, size: int) -> Face:
    """The face of that number in a file. LeftOut if a rule says so."""
    tables = TTFont(io.BytesIO(file.content), fontNumber=index, lazy=True)
    if not (set(map(ord, CHARACTERS)) <= (tables.getBestCmap() or {}).keys()):
        raise LeftOut("lacks a capital letter or digit")
    check_curved(tables)
    names = {i: tables["name"].getDebugName(i) or "" for i in (0, 1, 2, 13, 14, 16, 17)}
    font = ImageFont.truetype(
        io.BytesIO(file.content), MEASURED, index, layout_engine=ImageFont.Layout.BASIC
    )
    pictures = rendered(font, size)
    check_distinct(pictures)
    return Face(
        file.package,
        " ".join((names[16] or names[1] or Path(file.name).stem).split()),
        " ".join((names[17] or names[2] or "Regular").split()),
        " ".join((names[13] or names[14] or names[0]).split())[:300],
        pictures,
    )


def rendered(font: ImageFont.FreeTypeFont, size: int) -> np.ndarray:
    """The 36 pictures of a face at one scale, on one baseline: uint8 (36, size, size).

    Capitals have a common height in all faces unless another character would not fit; each
    character is centered by its advance width, as it stands in a line of text.
    """
    boxes = np.array([font.getbbox(c, anchor="ls") for c in CHARACTERS])
    left, top, right, bottom = boxes.T
    if (right <= left).any() or (bottom <= top).any():
        raise LeftOut("has a character without ink")
    middle = np.array([font.getlength(c) for c in CHARACTERS]) / 2
    cap = float(np.median(-top[len(digits) :]))
    if cap <= 0:
        raise LeftOut("has capitals below the line")
    room = size * (0.5 - MARGIN)
    reach = (right - middle, middle - left, -top - cap / 2, bottom + cap / 2)
    usual = size * CAPITALS / cap
    scale = min(usual, room / max(float(side.max()) for side in reach))
    if scale < LEAST_SCALE * usual:
        raise LeftOut("has characters too large for its capitals")
    large = font.font_variant(size=MEASURED * scale * SUPERSAMPLED)
    side = size * SUPERSAMPLED
    line = side / 2 + cap * scale * SUPERSAMPLED / 2
    pictures = []
    for c in CHARACTERS:
        image = Image.new("L", (side, side), 255)
        start = side / 2 - large.getlength(c) / 2
        ImageDraw.Draw(image).text((start, line), c, fill=0, font=large, anchor="ls")
        pictures.append(np.asarray(image.reduce(SUPERSAMPLED)))
    return np.stack(pictures)


def check_distinct(pictures: np.ndarray) -> None:
    """LeftOut for boxes, or the same drawing for many characters."""
    if len({picture.tobytes() for picture in pictures}) < len(pictures) - TWINS:
        raise LeftOut("has the same drawing for several characters")


def check_curved(font: TTFont) -> None:
    """LeftOut for outlines of squares, as those of bitmap fonts are: without a slanted line."""
    glyphs, names = font.getGlyphSet(), font.getBestCmap()
    for character in "OSVX":
        pen = RecordingPen()
        glyphs[names[ord(character)]].draw(pen)
        here: tuple[float, float] = (0, 0)
        for action, points in pen.value:
            if action not in ("moveTo", "lineTo", "closePath", "endPath"):
                return
            if action == "lineTo" and here[0] != points[0][0] and here[1] != points[0][1]:
                return
            here = points[0] if points else here
    raise LeftOut("is made of squares, as bitmap fonts are")


# Many faces


def readable(faces: Sequence[Face]) -> np.ndarray:
    """How many of its 36 characters a classifier reads that has not seen the face's family: (n,).

    Least squares on random features of the coarse pictures, in five parts by family; 0 for O, 1 for
    I and the reverse count as read.
    """
    draws = np.random.default_rng(0)
    weights = draws.normal(size=(COARSE**2, FEATURES)).astype(np.float32) / 4
    shift = draws.uniform(-1, 1, FEATURES).astype(np.float32)
    mean = np.mean([face.coarse().mean(axis=0) for face in faces], axis=0).reshape(-1)

    def features(some: Sequence[Face]) -> np.ndarray:
        pixels = np.concatenate([face.coarse().reshape(len(CHARACTERS), -1) for face in some])
        pixels -= mean
        bent = np.maximum(pixels @ weights + shift, 0)
        return np.concatenate([bent, pixels, np.ones((len(pixels), 1), np.float32)], axis=1)

    part_of = np.array([zlib.crc32(base(face.family).encode()) % PARTS for face in faces])
    wanted = np.eye(len(CHARACTERS), dtype=np.float32)
    dim = FEATURES + COARSE**2 + 1
    products, targets = np.zeros((PARTS, dim, dim)), np.zeros((PARTS, dim, len(CHARACTERS)))
    for face, part in zip(faces, part_of, strict=True):
        rows = features([face])
        products[part] += rows.T @ rows
        targets[part] += rows.T @ wanted
    found = np.zeros(len(faces), np.int64)
    for part in range(PARTS):
        others = [i for i in range(PARTS) if i != part]
        solution = np.linalg.solve(
            products[others].sum(axis=0) + RIDGE * np.eye(dim), targets[others].sum(axis=0)
        ).astype(np.float32)
        for i in np.flatnonzero(part_of == part).tolist():
            read = (features([faces[i]]) @ solution).argmax(axis=1)
            pairs = zip(CHARACTERS, (CHARACTERS[j] for j in read), strict=True)
            found[i] = sum(a == b or {a, b} in ({"0", "O"}, {"1", "I"}) for a, b in pairs)
    return found


def base(family: str) -> str:
    """The name of a family without weights, widths and design sizes, which some put into it.

    >>> base("Latin Modern Mono Light Cond 10")
    'latin-modern-mono'
    """
    words = [re.sub(r"(?<=[a-z])\d+$", "", word) for word in slug(family).split("-")]
    return "-".join(w for w in words if not VARIANT.fullmatch(w)) or slug(family)


def distinct(faces: Sequence[Face]) -> tuple[list[Face], Counter[str]]:
    """Faces that differ from each other, and how many do not, by reason.

    In the order of `Face.rank`, a face stays if the root of the mean squared difference of its
    coarse pictures from those of every face before it is at least NEAR, and if its family has
    fewer than OF_FAMILY.
    """
    ordered = sorted(faces, key=Face.rank)
    values = len(CHARACTERS) * COARSE**2
    kept, rows = list[Face](), np.zeros((len(ordered), values), np.float32)
    families, out = Counter[str](), Counter[str]()
    for face in ordered:
        row = face.coarse().reshape(-1)
        if families[base(face.family)] >= OF_FAMILY:
            out[f"is more than {OF_FAMILY} of a family"] += 1
        elif kept and float(apart(rows[: len(kept)], row).min()) < values * NEAR**2:
            out["looks like another"] += 1
        else:
            rows[len(kept)] = row
            kept.append(face)
            families[base(face.family)] += 1
    return kept, out


def apart(rows: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Squared distances of many rows from one: (n, d) and (d,) -> (n,)."""
    squares: np.ndarray = np.einsum("nd,nd->n", rows, rows) - 2 * rows @ row + row @ row
    return squares


def chosen(faces: Sequence[Face]) -> tuple[list[Face], Counter[str]]:
    """The faces of the data set, and how many others there are, by reason."""
    out = Counter[str]()
    if len(faces) >= LEAST_FACES:
        read = readable(faces)
        out["cannot be read by a classifier"] = int((read < LEAST_READ).sum())
        faces = [face for face, n in zip(faces, read, strict=True) if n >= LEAST_READ]
    else:
        click.echo(f"{len(faces)} faces are too few to tell which can be read", err=True)
    kept, others = distinct(faces)
    return kept, out + others


# Files


def files_of(faces: Sequence[Face], notices: Mapping[str, str]) -> dict[str, bytes]:
    """Names and contents of the data set: a folder for each character, and the licenses."""
    files: dict[str, bytes] = {}
    names = Counter[str]()
    for face in faces:
        names[face.stem] += 1
        stem = face.stem if names[face.stem] == 1 else f"{face.stem}-{names[face.stem]}"
        for character, picture in zip(CHARACTERS, face.pictures, strict=True):
            files[f"{character}/{stem}.png"] = png_bytes(Image.fromarray(picture))
    files[LICENSES] = licenses(faces, notices).encode()
    return files


def licenses(faces: Sequence[Face], notices: Mapping[str, str]) -> str:
    """What each font says of its license, by package, and below the notices of the packages."""
    families: dict[str, dict[str, str]] = defaultdict(dict)
    for face in faces:
        families[face.package][face.family] = face.license
    lines = ["Pictures of characters of these fonts, drawn and scaled; no font is included.", ""]
    for package, members in sorted(families.items()):
        lines.append(f"== {package or 'no package'}")
        lines += [f"{name}: {text or 'says nothing'}" for name, text in sorted(members.items())]
        lines.append("")
    for package in sorted(families):
        if notice := notices.get(package):
            lines += [f"== copyright notice of {package}", "", notice.strip(), ""]
    return "\n".join(lines)


def report(faces: Sequence[Face], out: Counter[str]) -> str:
    """How much there is, and what was left out by which rule."""
    families = len({base(face.family) for face in faces})
    packages = len({face.package for face in faces})
    lines = [
        f"{len(faces) * len(CHARACTERS):,} pictures: {len(faces):,} faces of {families:,} families "
        f"from {packages:,} packages"
    ]
    return "\n".join(lines + [f"left out: {n:,}: {reason}" for reason, n in out.most_common() if n])


def png_bytes(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def write_folder(root: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def write_zip(path: Path, files: Mapping[str, bytes]) -> None:
    """A zip file whose bytes depend on nothing but `files`; stored, as PNG files do not shrink."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with zipfile.ZipFile(partial, "w") as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name)  # dated 1980-01-01
            archive.writestr(info, files[name])
    partial.replace(path)


@click.command()
@click.argument("sources", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder to make.")
@click.option(
    "--zip", "zip_path", type=click.Path(dir_okay=False, path_type=Path), help="Zip file to make."
)
@click.option(
    "--size",
    type=click.Choice(["16", "32", "64", "128", "256"]),
    default="64",
    show_default=True,
    help="Side of the pictures in pixels.",
)
def main(sources: tuple[Path, ...], out: Path | None, zip_path: Path | None, size: str) -> None:
    """Render 0-9 and A-Z of the fonts in SOURCES, one sub-folder per character.

    SOURCES are Debian packages (.deb), folders of them, or folders of fonts; by default the fonts
    that are installed.

    \b
    python datasets/glyphs.py packages/ --zip glyphs64.zip
    """
    if not out and not zip_path:
        raise click.UsageError("nothing to write; give --out DIR, --zip FILE, or both")
    if out and out.exists() and any(out.iterdir()):
        raise click.ClickException(f"{out} is not empty; remove it or name another folder")
    if zip_path and zip_path.exists():
        raise click.ClickException(f"{zip_path} exists; remove it or name another file")
    logging.getLogger("fontTools").setLevel(logging.ERROR)  # remarks on odd tables
    given = sources or tuple(Path(name) for name in INSTALLED if Path(name).is_dir())
    notices: dict[str, str] = {}
    faces, left_out = list[Face](), Counter[str]()
    for number, file in enumerate(read_sources(given, notices), 1):
        for face in faces_of(file, int(size)):
            if isinstance(face, LeftOut):
                left_out[str(face)] += 1
            else:
                faces.append(face)
        if number % TOLD_EVERY == 0:
            click.echo(f"{number:,} font files, {len(faces):,} faces so far", err=True)
    if not faces:
        where = ", ".join(map(str, given)) or "the installed fonts"
        raise click.ClickException(f"no font with capital letters and digits in {where}")
    kept, others = chosen(faces)
    files = files_of(kept, notices)
    if out:
        write_folder(out, files)
    if zip_path:
        write_zip(zip_path, files)
    click.echo(report(kept, left_out + others))


if __name__ == "__main__":
    main()
