"""Labels of images, classes or vectors, and the files that contain them."""

import csv
import io
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stylegan.utils.text import join_truncated, pluralize, sanitize

from .images import is_image

JSON = "dataset.json"  # next to the images, in the format of stylegan2-ada
CSV = "labels.csv"
MAX_VALUE = 1e30  # numbers of a label are smaller, so that float32 holds them and their sums
MAX_NUMBERS = 10  # that are classes, such as digits; more need two images each
NUMBER = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?", re.IGNORECASE)
MAX_LABEL_VALUES = 2**26  # in a file: FFHQ with 512 numbers for each image has 2**25.1
MAX_NAMED = 12  # labels named in a line
FEW_IMAGES = 50  # a label with fewer is warned of


def match_labels(
    names: Sequence[str],
    others: Sequence[str],
    vectors: tuple[bool | None, bool | None] = (None, None),
) -> list[int | None]:
    """Index of each label of `names` in `others`, by name; None where it is missing.

    By position if either side is unnamed. `vectors` says for each side whether its labels are
    vectors (None: unknown); these never match classes.
    """
    if names and others:
        found = {composed(name): i for i, name in enumerate(others)}
        found = {} if {*vectors} == {True, False} else found
        return [found.get(composed(name)) for name in names]
    return list(range(max(len(names), len(others))))


def describe_labels(names: Sequence[str], vectors: bool | None) -> str:
    """The first labels, and whether they are classes or vectors if known, for a message."""
    kind = {True: "vectors of ", False: "classes ", None: ""}[vectors]
    return kind + join_truncated([*map(sanitize, names)], 4, ", ")


class Labels(NamedTuple):
    """Labels of N images.

    `rows` holds a class index per image, int64 (N,), -1 for none; or a vector per image, float32
    (N, len(names)).
    """

    names: list[str]
    rows: np.ndarray

    @property
    def are_vectors(self) -> bool:
        return self.rows.ndim == 2

    def subset(self, images: Sequence[int]) -> "Labels | None":
        """Labels of some images, without unused classes. Returns None if an image has no class."""
        rows = self.rows[np.asarray(images, np.int64)]
        if self.are_vectors:
            return Labels(self.names, rows)
        present, rows = np.unique(rows, return_inverse=True)
        if -1 in present or not len(present):
            return None
        return Labels([self.names[i] for i in present], rows.astype(np.int64))

    def counts(self) -> dict[str, int]:
        """Name -> number of images that have this label, or a nonzero number; without zeros."""
        if self.are_vectors:
            have = np.count_nonzero(self.rows, axis=0)
        else:
            have = np.bincount(self.rows[self.rows >= 0], minlength=len(self.names))
        return {name: n for name, n in zip(self.names, have.tolist(), strict=True) if n}

    def lines(self) -> list[str]:
        """Lines with the number of images of each label, and a warning of rare labels."""
        counts = self.counts().items()
        named = [f"{n:,} {sanitize(name)}" for name, n in counts]
        rare = [f"{n} {sanitize(name)}" for name, n in counts if n < FEW_IMAGES]
        lines = [f"{pluralize(len(named), 'label')}: {join_truncated(named, MAX_NAMED, ', ')}"]
        if rare:
            few = f"labels with fewer than {FEW_IMAGES} images are learned poorly"
            lines.append(f"{few}: {join_truncated(rare, MAX_NAMED, ', ')}")
        return lines


def from_classes(classes: Sequence[str | None]) -> Labels:
    names = sorted({name for name in classes if name is not None})
    place = {name: i for i, name in enumerate(names)}
    return Labels(names, np.array([-1 if c is None else place[c] for c in classes], np.int64))


def from_vectors(vectors: np.ndarray, names: list[str] | None = None) -> Labels:
    """Labels from vectors (N, numbers): classes if all are one-hot."""
    names = [str(i) for i in range(vectors.shape[1])] if names is None else names
    one_hot = ((vectors == 0) | (vectors == 1)).all() and (vectors.sum(axis=1) == 1).all()
    return Labels(names, vectors.argmax(axis=1) if one_hot else vectors)


def read_labels(file: str, content: bytes, images: Sequence[str]) -> Labels:
    """Read the labels of `images`, relative names, from a label file; see datasets/README.md.

    Raises ValueError, in one line, unless each image has one and all are of the same kind.
    """
    try:
        check_count(content)
        pairs, names = (parse_json if file == JSON else parse_csv)(content)
        label_of = {composed(name): label for name, label in pairs}
        if len(label_of) < len(pairs):
            (twice, _), *_ = Counter(composed(name) for name, _ in pairs).most_common(1)
            raise ValueError(f"{twice} has two labels")
        if missing := [name for name in images if composed(name) not in label_of]:
            examples = join_truncated(list(map(sanitize, missing)), 3, ", ")
            there = f"; its first name is {pairs[0][0]}" if pairs else ""
            raise ValueError(
                f"{pluralize(len(missing), 'image')} without a label: {examples}{there}"
            )
        return build_labels({name: label_of[composed(name)] for name in images}, names)
    except (ValueError, RecursionError, csv.Error) as error:
        raise ValueError(f"the labels in {file} cannot be used: {error}") from error


def check_count(content: bytes) -> None:
    """Raise ValueError for more than `MAX_LABEL_VALUES`, before objects are made of them."""
    count = sum(map(content.count, b",;\t[{"))
    if count > MAX_LABEL_VALUES:
        raise ValueError(f"up to {count:,} values, at most {MAX_LABEL_VALUES:,} are read")


def composed(name: str) -> str:
    """File name with forward slashes and composed letters, which macOS decomposes."""
    return unicodedata.normalize("NFC", name.replace("\\", "/"))


def parse_json(content: bytes) -> tuple[list[tuple[str, Any]], list[str] | None]:
    """Pairs of image and class number, class name or list of numbers; and names of the labels.

    The latter are `label_names`, our addition to the format of stylegan2-ada, or None.
    """
    read = json.loads(content)
    try:
        pairs = [(str(name), label) for name, label in read["labels"]]
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError('expected "labels": [[file, label], ...]') from error
    names = read.get("label_names")
    if names is None:
        return pairs, None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"label_names must be a list of strings, got {sanitize(names, 60)}")
    return pairs, names


def parse_csv(content: bytes) -> tuple[list[tuple[str, Any]], list[str] | None]:
    """The same from a CSV, whose first line is a header unless it starts with an image."""
    lines = csv_lines(content)
    if not lines or len(lines[0]) < 2:
        raise ValueError("lines must be `file,label` or `file,number,number,...`")
    columns = len(lines[0])
    head = None if is_image(lines[0][0]) else lines.pop(0)
    if wrong := [line for line in lines if len(line) != columns]:
        raise ValueError(f"expected {columns} columns, got {len(wrong[0])}: {wrong[0][0]}")
    if columns == 2:
        return [(name, label) for name, label in lines], None
    return [(name, numbers) for name, *numbers in lines], head[1:] if head else None


def csv_lines(content: bytes) -> list[list[str]]:
    """Cells of the lines that are not blank, separated by commas, semicolons or tabs."""
    text = content.decode("utf-8-sig")
    first_line = text.partition("\n")[0]
    separator = next((character for character in ",;\t" if character in first_line), ",")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    return [[cell.strip() for cell in row] for row in rows if any(map(str.strip, row))]


def build_labels(labels: Mapping[str, Any], names: list[str] | None) -> Labels:
    """Labels from those of all images, in their order, which must be of one kind."""
    values = list(labels.values())
    if names and len(set(names)) < len(names):
        raise ValueError("label names must be unique")
    numbers = {str(value) for value in values if names is None and NUMBER.fullmatch(str(value))}
    if len(numbers) > max(MAX_NUMBERS, len(values) / 2):
        raise ValueError(
            f"{len(numbers)} different numbers of {pluralize(len(values), 'image')} are no "
            f'classes; for vectors write {JSON}: {{"labels": [["a.png", [0.3]], ...]}}'
        )
    if all(type(value) is int for value in values):
        present = sorted(set(values))
        if names is None:
            return Labels(list(map(str, present)), np.searchsorted(present, values))
        if wrong := [number for number in present if not 0 <= number < len(names)]:
            raise ValueError(f"class {wrong[0]} has no name: label_names has {len(names)}")
        return Labels(names, np.array(values, np.int64))
    if all(isinstance(value, str) and value for value in values):
        if names is not None:
            raise ValueError("label_names needs class numbers or vectors, got class names")
        return from_classes(values)
    if not all(isinstance(value, list) for value in values):
        raise ValueError("labels must be classes of all images, or lists of numbers of all")
    size = len(values[0])
    if not size:
        raise ValueError("labels must have at least one number")
    for name, value in labels.items():
        if len(value) != size:
            raise ValueError(f"{name} has {len(value)} numbers, but the first image has {size}")
    if names is not None and len(names) != size:
        raise ValueError(f"label_names must have {size} names, one per number, got {len(names)}")
    try:
        rows = np.array(values, float)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"expected numbers: {error}") from error
    for name, row in zip(labels, rows, strict=True):
        if row.ndim > 1 or not (np.abs(row) < MAX_VALUE).all():  # also NaN
            got = ", ".join(map(str, labels[name]))
            raise ValueError(f"numbers of {name} must be finite, got {got}")
    return from_vectors(rows.astype(np.float32), names)


def parse_label_weights(text: str) -> dict[str, float]:
    """Parse `smile=0.7,sad=0.3`: name -> weight."""
    pairs = [part.rpartition("=") for part in text.split(",")]
    try:
        weighted = {name.strip(): float(number) for name, _, number in pairs}
    except ValueError:
        weighted = {}
    fits = "" not in weighted and all(abs(number) < MAX_VALUE for number in weighted.values())
    if len(weighted) < len(pairs) or not fits:  # also NaN
        raise ValueError(
            f"weighted labels must look like smile=0.7,sad=0.3, each name once, got {text!r}"
        )
    return weighted
