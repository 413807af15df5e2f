"""Lineage of weights: the files that a network was initialized from, with hash and license."""

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field

from stylegan.utils.text import sanitize
from stylegan.utils.toml import toml_value
from stylegan.utils.validation import validate

NONCOMMERCIAL = "CC BY-NC"  # prefix of licenses that apply to networks trained from the weights
UNKNOWN = "unknown"
SECTION = "lineage"  # of a run's config.toml, next to the options
Text = Annotated[str, Field(max_length=4096)]


@dataclass(frozen=True)
class LineageEntry:
    """A file of weights that a network was initialized from."""

    source: Text  # a bundled name, an address, or the names of folder and file
    sha256: Text  # of the file
    license: Text = UNKNOWN  # of the weights
    copied: Text = ""  # number of tensors copied by each network; "" = the whole file


Lineage = Sequence[LineageEntry]  # oldest first, each initialized from those before it
StoredLineage = Annotated[tuple[LineageEntry, ...], Field(max_length=1000)]  # in a file


def lineage_entry(path: Path, license_name: str = UNKNOWN, *, name: str = "") -> LineageEntry:
    """Entry of a file, named without the folders that contain it."""
    text = os.fsencode(name or path.name).decode(errors="backslashreplace")
    return LineageEntry(text, sha256_of(path), license_name)


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def public_address(url: str) -> str:
    """Strip user, query and fragment, which may contain secrets, from an address."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def license_of(lineage: Lineage) -> str:
    """License of weights with this lineage; a non-commercial license wins."""
    licenses = [source.license for source in lineage]
    for license_name in licenses:
        if license_name.startswith(NONCOMMERCIAL):
            return license_name
    if not licenses or UNKNOWN in licenses:
        return UNKNOWN
    return "; ".join(dict.fromkeys(licenses))


def describe_lineage(lineage: Lineage) -> list[str]:
    """One line per source, oldest first."""
    return [
        f"{sanitize(s.source)} (SHA-256 {sanitize(s.sha256[:16])}..., license "
        f"{sanitize(s.license)}{'; ' if s.copied else ''}{sanitize(s.copied) if s.copied else ''})"
        for s in lineage
    ]


def to_dicts(lineage: Lineage) -> list[dict[str, str]]:
    return [dataclasses.asdict(source) for source in lineage]


def from_dicts(values: object) -> tuple[LineageEntry, ...]:
    """Inverse of `to_dicts`. Raises ValueError for invalid values."""
    return validate(StoredLineage, values, SECTION)


def to_toml(lineage: Lineage) -> str:
    """Sections for config.toml, which are not options."""
    lines = []
    for source in to_dicts(lineage):
        lines += ["", f"[[{SECTION}]]", *(f"{k} = {toml_value(v)}" for k, v in source.items())]
    return "".join(f"{line}\n" for line in lines)
