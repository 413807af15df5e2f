"""The recipe of the bundled data set: Noto Color Emoji as a folder of small square pictures."""

import io
import re
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from fontTools.ttLib import TTFont
from PIL import Image

EMOJI_TEST = Path("/usr/share/unicode/emoji/emoji-test.txt")
LICENSE = Path(__file__).with_name("emoji-LICENSE.txt")
NATIVE_SIZE = 136
VARIATION_SELECTOR = 0xFE0F  # "as a picture, please"; not written everywhere
JOINER = 0x200D
TAGS = range(0xE0020, 0xE007F)  # invisible ASCII that spells the region of a flag
CANCEL_TAG = 0xE007F

CodePoints = tuple[int, ...]

# The kind (sub-folder) of a sub-group of emoji-test.txt or, where that is not named, of its group.
KINDS = {
    "Smileys & Emotion": "smileys",
    "face-costume": "characters",
    "cat-face": "animals",
    "monkey-face": "animals",
    "heart": "symbols",
    "emotion": "symbols",
    "People & Body": "people",
    "person": "heads",
    "person-gesture": "portraits",
    "person-role": "portraits",
    "person-symbol": "symbols",
    "family": "couples",
    "hand-fingers-open": "body",
    "hand-fingers-partial": "body",
    "hand-single-finger": "body",
    "hand-fingers-closed": "body",
    "hands": "body",
    "hand-prop": "body",
    "body-parts": "body",
    "Component": "symbols",
    "Animals & Nature": "animals",
    "plant-flower": "plants",
    "plant-other": "plants",
    "Food & Drink": "food",
    "Travel & Places": "travel",
    "sky & weather": "sky",
    "time": "objects",
    "Activities": "activities",
    "Objects": "objects",
    "Symbols": "symbols",
    "Flags": "flags",
}
# Pictures of a kind whose names match the pattern look like another: kind -> (look, pattern).
EXCEPTIONS = {
    # no round yellow face: another colour (if only of the forehead), another outline, or a hat
    "smileys": (
        "characters",
        r"horns|skull|in clouds|cowboy|partying|exploding|melting|dotted"
        r"|nauseated|hot face|cold face|enraged|pouting|symbols on mouth"
        r"|fearful|anxious|screaming",
    ),
    "heads": ("portraits", r"hair|bald"),  # drawn with shoulders
    "people": ("portraits", r"\b(claus|angel|mage|vampire|elf|zombie|massage|haircut)\b"),
    "portraits": ("people", r"pregnant|deaf"),  # seen from the side
    "couples": ("symbols", r"^family"),  # black on grey
}


@dataclass(frozen=True)
class Emoji:
    """The entry of one emoji in Unicode's list."""

    name: str
    group: str
    subgroup: str


@dataclass(frozen=True)
class Picture:
    """One file of the data set."""

    kind: str
    stem: str
    listed: bool  # whether emoji-test.txt knows it
    image: Image.Image


def parse_emoji_test(text: str) -> dict[CodePoints, Emoji]:
    """Code points, without variation selectors, to names and groups, from emoji-test.txt."""
    emoji: dict[CodePoints, Emoji] = {}
    group = subgroup = ""
    for line in text.splitlines():
        if heading := re.fullmatch(r"# (group|subgroup): (.+)", line):
            if heading[1] == "group":
                group = heading[2]
            else:
                subgroup = heading[2]
        elif entry := re.fullmatch(r"([0-9A-F ]+?) *; [a-z-]+ *# \S+ E[0-9.]+ (.+)", line):
            points = tuple(int(point, 16) for point in entry[1].split())
            emoji.setdefault(without_selectors(points), Emoji(entry[2], group, subgroup))
    return emoji


def without_selectors(points: Iterable[int]) -> CodePoints:
    return tuple(point for point in points if point != VARIATION_SELECTOR)


def glyph_spellings(font: TTFont) -> dict[str, list[CodePoints]]:
    """The code points that show each glyph: from the font's cmap and its ligatures (GSUB)."""
    code_points = {glyph: point for point, glyph in font.getBestCmap().items()}
    spellings: dict[str, list[CodePoints]] = {
        glyph: [(point,)] for glyph, point in code_points.items()
    }
    for lookup in font["GSUB"].table.LookupList.Lookup:
        for table in lookup.SubTable if lookup.LookupType == 4 else ():
            for first, ligatures in table.ligatures.items():
                for ligature in ligatures:
                    parts = [code_points[glyph] for glyph in (first, *ligature.Component)]
                    spellings.setdefault(ligature.LigGlyph, []).append(without_selectors(parts))
    return spellings


def best_spelling(spellings: Iterable[CodePoints], emoji: Mapping[CodePoints, Emoji]) -> CodePoints:
    """The spelling to name a picture by.

    The font also spells ligatures backwards (for right-to-left text) and shares a picture between
    several emoji. An official one wins, the shortest name first ("Norway" before "Svalbard & Jan
    Mayen"); else one that does not begin with a sign ("runner, arrow" before "arrow, runner").
    """

    def cost(points: CodePoints) -> tuple[bool, bool, int, CodePoints]:
        entry, first = emoji.get(points), emoji.get(points[:1])
        begins_with_sign = first is not None and first.group == "Symbols"
        return entry is None, begins_with_sign, len(entry.name) if entry else 0, points

    return min(spellings, key=cost)


def describe(points: CodePoints, emoji: Mapping[CodePoints, Emoji]) -> Emoji:
    """The official entry, or one made up from the longest beginning that has an official entry."""
    if points in emoji:
        return emoji[points]
    known = next((n for n in range(len(points), 0, -1) if points[:n] in emoji), 0)
    base = emoji.get(points[:known], Emoji("", "Symbols", "other-symbol"))
    if CANCEL_TAG in points:
        region = "".join(chr(point - TAGS.start + 0x20) for point in points if point in TAGS)
        return Emoji(f"flag: {region or 'unknown'}", base.group, base.subgroup)
    rest = [
        emoji[point,].name if (point,) in emoji else unicodedata.name(chr(point), "unnamed")
        for point in points[known:]
        if point != JOINER
    ]
    return Emoji(" ".join([base.name, *rest]).strip(), base.group, base.subgroup)


def kind_of(entry: Emoji) -> str:
    """The sub-folder of an emoji: by its group, corrected by what it looks like."""
    kind = KINDS.get(entry.subgroup) or KINDS.get(entry.group, "symbols")
    look, pattern = EXCEPTIONS.get(kind, (kind, ""))
    return look if re.search(pattern, entry.name, re.IGNORECASE) else kind


def file_stem(points: CodePoints, name: str) -> str:
    """Code points in hexadecimal, then the name in lower-case ASCII.

    >>> file_stem((0x1F1E8, 0x1F1EE), "flag: Côte d'Ivoire")
    '1f1e8_1f1ee-flag-cote-d-ivoire'
    """
    letters = [c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c)]
    words = re.findall("[a-z0-9]+", "".join(letters).lower())
    return "-".join(["_".join(f"{point:04x}" for point in points), *words])


def on_white_square(picture: Image.Image, size: int) -> Image.Image:
    """The whole picture, centred on a white square of `size` pixels, RGB.

    Blending comes before downscaling, so the hidden colour of transparent pixels cannot leak into
    the edges; the filter has no negative weights, so no ring surrounds the picture.
    """
    side = max(picture.size)
    square = Image.new("RGBA", (side, side), "white")
    offset = ((side - picture.width) // 2, (side - picture.height) // 2)
    square.alpha_composite(picture.convert("RGBA"), offset)
    return square.convert("RGB").resize((size, size), Image.Resampling.HAMMING)


def render(font: TTFont, emoji: Mapping[CodePoints, Emoji], size: int) -> list[Picture]:
    """Every distinct picture in the font once, sorted by kind and file name."""
    spellings = glyph_spellings(font)
    by_pixels: dict[bytes, tuple[Image.Image, list[CodePoints]]] = {}
    for glyph, bitmap in font["CBDT"].strikeData[0].items():
        image = on_white_square(Image.open(io.BytesIO(bitmap.imageData)), size)
        by_pixels.setdefault(image.tobytes(), (image, []))[1].extend(spellings[glyph])
    pictures = []
    for image, candidates in by_pixels.values():
        points = best_spelling(candidates, emoji)
        entry = describe(points, emoji)
        stem = file_stem(points, entry.name)
        pictures.append(Picture(kind_of(entry), stem, points in emoji, image))
    return sorted(pictures, key=lambda picture: (picture.kind, picture.stem))


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
    partial = path.with_name(f"{path.name}.partial")
    with zipfile.ZipFile(partial, "w") as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name)  # dated 1980-01-01
            info.create_system = 3  # Unix, also when made elsewhere
            info.external_attr = 0o100644 << 16  # a plain file
            archive.writestr(info, files[name])
    partial.replace(path)


def report(pictures: Sequence[Picture]) -> str:
    """Counts per kind, and how many of them Unicode's list does not name."""
    total = Counter(picture.kind for picture in pictures)
    unlisted = Counter(picture.kind for picture in pictures if not picture.listed)
    lines = [
        f"{kind:<12}{total[kind]:>5}"
        + (f"  ({unlisted[kind]} not in emoji-test.txt)" if unlisted[kind] else "")
        for kind in sorted(total)
    ]
    return "\n".join([*lines, f"{'all':<12}{total.total():>5}  ({unlisted.total()})"])


@click.command()
@click.argument("font", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder to make.")
@click.option(
    "--zip", "zip_path", type=click.Path(dir_okay=False, path_type=Path), help="Zip file to make."
)
@click.option(
    "--size",
    type=click.IntRange(4, NATIVE_SIZE),
    default=32,
    show_default=True,
    help=f"Side of the pictures in pixels; {NATIVE_SIZE} leaves them as they are.",
)
@click.option(
    "--emoji-test",
    type=click.Path(path_type=Path),
    default=EMOJI_TEST,
    show_default=True,
    help="Unicode's list of names and groups.",
)
def main(font: Path, out: Path | None, zip_path: Path | None, size: int, emoji_test: Path) -> None:
    """Render the colour bitmaps of FONT, NotoColorEmoji.ttf, one sub-folder per kind.

    \b
    apt-get install fonts-noto-color-emoji unicode-data
    python datasets/emoji.py /usr/share/fonts/truetype/noto/NotoColorEmoji.ttf --out emoji
    """
    if not out and not zip_path:
        raise click.UsageError("nothing to write; give --out DIR, --zip FILE, or both")
    if out and out.exists() and any(out.iterdir()):
        raise click.ClickException(f"{out} is not empty; remove it or name another folder")
    if not emoji_test.is_file():
        raise click.ClickException(
            f"no {emoji_test}; run `apt-get install unicode-data` or give --emoji-test"
        )
    opened = TTFont(font)
    if "CBDT" not in opened:
        raise click.ClickException(f"{font} has no colour bitmaps (no CBDT table)")
    pictures = render(opened, parse_emoji_test(emoji_test.read_text(encoding="utf-8")), size)
    files = {f"{p.kind}/{p.stem}.png": png_bytes(p.image) for p in pictures}
    files["LICENSE.txt"] = LICENSE.read_bytes()
    if out:
        write_folder(out, files)
    if zip_path:
        write_zip(zip_path, files)
    click.echo(report(pictures))


if __name__ == "__main__":
    main()
