"""Labels of images: the class of each, or the numbers of a vector; and the files that hold them."""

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stylegan.messages import count, listed, readable

from .images import is_image

JSON, CSV = "dataset.json", "labels.csv"  # beside the images; the former as of stylegan2-ada
MOST_LABELS = 2**20  # as many as a network may have
MOST = 1e30  # a number of a label is smaller: float32 and its sums can hold it
MOST_NAMED = 12  # labels in one line
FEW_IMAGES = 50  # a label of fewer is named before training


class Labels(NamedTuple):
    """What some images show: `rows` are the class of each, int64 (N,), by its place in `names`, -1
    for none; or a vector of each, float32 (N, len(names))."""

    names: list[str]
    rows: np.ndarray

    @property
    def vectors(self) -> bool:
        return self.rows.ndim == 2

    def of(self, images: Sequence[int]) -> "Labels | None":
        """Those of some of the images, without the classes that none of them has; None if an image
        has no class."""
        rows = self.rows[np.asarray(images, np.int64)]
        if self.vectors:
            return Labels(self.names, rows)
        present, rows = np.unique(rows, return_inverse=True)
        if present[:1].tolist() == [-1] or not len(present):
            return None
        return Labels([self.names[i] for i in present], rows.astype(np.int64))

    def kinds(self, image: int) -> list[str] | None:
        """The class of an image, or the names of what is not 0 in its vector; None: no class."""
        if self.vectors:
            return [self.names[i] for i in np.flatnonzero(self.rows[image])]
        return None if self.rows[image] < 0 else [self.names[self.rows[image]]]

    def counts(self) -> Counter[str]:
        """Name -> number of images that have it."""
        have = (
            np.count_nonzero(self.rows, axis=0)
            if self.vectors
            else np.bincount(self.rows[self.rows >= 0], minlength=len(self.names))
        )
        return Counter(dict(zip(self.names, have.tolist(), strict=True)))


def of_classes(classes: Sequence[str | None], names: Sequence[str] | None = None) -> Labels:
    """Labels of the class of each image; None: it has none."""
    order = sorted({one for one in classes if one is not None}) if names is None else list(names)
    place = {name: i for i, name in enumerate(order)}
    rows = [-1 if one is None else place[one] for one in classes]
    return Labels(order, np.array(rows, np.int64))


def of_vectors(vectors: np.ndarray, names: Sequence[str] | None = None) -> Labels:
    """Labels of vectors (N, numbers); of classes if in each a single 1 stands among zeros."""
    names = list(names) if names is not None else [str(i) for i in range(vectors.shape[1])]
    one_hot = ((vectors == 0) | (vectors == 1)).all() and (vectors.sum(axis=1) == 1).all()
    return Labels(names, vectors.argmax(axis=1)) if one_hot else Labels(names, vectors)


def lines_of(counts: Mapping[str, int], labels: Labels) -> list[str]:
    """How many images have each label, for a user, and what will not be learned well."""
    named = [f"{n:,} {readable(name)}" for name, n in counts.items()]
    rare = [f"{n} {readable(name)}" for name, n in counts.items() if n < FEW_IMAGES]
    lines = [f"{count(len(named), 'label')}: {listed(named, MOST_NAMED, ', ')}"]
    if rare:
        some = listed(rare, MOST_NAMED, ", ")
        lines.append(f"labels of fewer than {FEW_IMAGES} images are learned poorly: {some}")
    if labels.vectors and (blank := int((labels.rows == 0).all(axis=1).sum())):
        lines.append(
            f"{count(blank, 'image')} with zeros only: the discriminator weighs its logits by the "
            "label, so it learns nothing from such images"
        )
    return lines


def read_labels(file: str, content: bytes, images: Sequence[str]) -> Labels:
    """The labels of `images`, by their relative names, in a file of labels; see datasets/README.md.

    ValueError, in one line, for a file that does not say a label of the same kind for each.
    """
    try:
        found, names = (in_json if file == JSON else in_csv)(content)
        if missing := [name for name in images if name not in found]:
            some = listed(list(map(readable, missing)), 3, ", ")
            raise ValueError(f"{count(len(missing), 'image')} without a label in it: {some}")
        return combined({name: found[name] for name in images}, names)
    except (ValueError, RecursionError, csv.Error) as error:
        raise ValueError(f"the labels in {file} cannot be used: {readable(error, 300)}") from error


def in_json(content: bytes) -> tuple[dict[str, Any], list[str] | None]:
    """Image -> class number, class name or list of numbers; and the names of classes or numbers, if
    the file adds `label_names` to the format of stylegan2-ada."""
    read = json.loads(content)
    pairs = read.get("labels") if isinstance(read, dict) else None
    names = read.get("label_names") if isinstance(read, dict) else None
    if pairs is None:
        raise ValueError("it has none")
    if not (isinstance(pairs, list) and all(isinstance(p, list) and len(p) == 2 for p in pairs)):
        raise ValueError('"labels" is not a list of pairs [file, label]')
    strings = names is None or (isinstance(names, list) and all(isinstance(n, str) for n in names))
    if not strings or (names and len(set(names)) < len(names)):
        raise ValueError('"label_names" is not a list of different names')
    return unique((str(name).replace("\\", "/"), label) for name, label in pairs), names


def in_csv(content: bytes) -> tuple[dict[str, Any], list[str] | None]:
    """Image -> class name or list of numbers; and the names of numbers, by the first line unless
    that begins with an image."""
    lines = csv_lines(content)
    if not lines or len(lines[0]) < 2:
        raise ValueError("its lines are not `file,label` or `file,number,number,...`")
    head = None if is_image(lines[0][0]) else lines.pop(0)
    if wrong := [line for line in lines if len(line) != len(head or lines[0])]:
        raise ValueError(f"{len(wrong[0])} columns, not {len(head or lines[0])}: {wrong[0][0]}")
    several = len(lines[0]) > 2 if lines else False
    pairs = ((line[0].replace("\\", "/"), line[1:] if several else line[1]) for line in lines)
    return unique(pairs), head[1:] if head and several else None


def csv_lines(content: bytes) -> list[list[str]]:
    """The cells of each line that is not blank; commas, semicolons or tabs stand between them."""
    text = content.decode("utf-8-sig")
    between = next((one for one in ",;\t" if one in text.partition("\n")[0]), ",")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=between, strict=True)
    return [[cell.strip() for cell in row] for row in rows if any(map(str.strip, row))]


def unique(pairs: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, label in pairs:
        if name in found:
            raise ValueError(f"{name} has two labels")
        found[name] = label
    return found


def combined(found: Mapping[str, Any], names: list[str] | None) -> Labels:
    """Labels of one kind for all images, in their order."""
    values = list(found.values())
    for name in [*(names or []), *(value for value in values if isinstance(value, str))]:
        name.encode()  # a ValueError for what is not text
    for name, value in found.items():
        if type(value) not in (int, str, list) or type(value) is not type(values[0]) or value == "":
            raise ValueError(
                "a label is a class for all images or a list of numbers for all, not "
                f"{value!r:.40} as of {name}"
            )
    if isinstance(values[0], int):
        return numbered(values, names)
    if isinstance(values[0], list):
        return vectors_of(found, names)
    if any("=" in value for value in values):
        raise ValueError("a label is one class; give numbers in columns: file,smile,sad")
    return of_classes(values)


def numbered(numbers: Sequence[int], names: list[str] | None) -> Labels:
    """Classes by their numbers."""
    if names is None:
        if min(numbers) < 0 or max(numbers) >= MOST_LABELS:
            raise ValueError(f"class numbers are 0 to {MOST_LABELS - 1}, not {min(numbers)} to "
                             f"{max(numbers)}")  # fmt: skip
        present = sorted(set(numbers))
        return of_classes([str(number) for number in numbers], [str(one) for one in present])
    if wrong := [number for number in numbers if not 0 <= number < len(names)]:
        raise ValueError(f"class {wrong[0]} has no name: there are {len(names)}")
    return Labels(names, np.array(numbers, np.int64))


def weights(text: str) -> dict[str, float]:
    """`smile=0.7,sad=0.3` as numbers by name."""
    found = {}
    for part in text.split(","):
        name, _, number = part.rpartition("=")
        name = name.strip()
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not name or not abs(value) < MOST or name in found:  # NaN is not, either
            raise ValueError(f"{readable(part)!r} in {readable(text)!r}: labels with weights are "
                             "like smile=0.7,sad=0.3, each name once")  # fmt: skip
        found[name] = value
    return found


def vectors_of(found: Mapping[str, Any], names: list[str] | None) -> Labels:
    """A list of numbers for each image."""
    size = len(next(iter(found.values())))
    for name, value in found.items():
        if len(value) != size or not 0 < size <= MOST_LABELS:
            raise ValueError(f"{name} has {len(value)} numbers, the first image {size}")
        try:
            numbers = [math.nan if isinstance(one, bool) else float(one) for one in value]
        except (TypeError, ValueError, OverflowError):
            numbers = [math.nan]
        if not all(abs(number) < MOST for number in numbers):  # nor is NaN
            raise ValueError(f"{name} has {', '.join(map(str, value))}, not finite numbers")
    if names is None:
        names = [str(i) for i in range(size)]
    if len(names) != size or len(set(names)) < size:
        raise ValueError(f"{size} numbers of an image need {size} different names")
    return of_vectors(np.array([*map(list, found.values())], np.float32), names)
