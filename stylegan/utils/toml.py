"""Reading TOML, and formatting its values."""

import codecs
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from stylegan.utils.filesystem import attach_filename
from stylegan.utils.text import sanitize


def read_text(path: Path) -> str:
    """Read UTF-8, or the UTF-16 that `stylegan configs ... > mine.toml` in PowerShell 5 writes."""
    content = path.read_bytes()
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_utf16 else "utf-8-sig")


def read_toml(path: Path) -> dict[str, object]:
    try:
        with attach_filename(path):
            return tomllib.loads(read_text(path))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid TOML: {sanitize(error)}") from error


def parse_override(text: str) -> dict[str, object]:
    """Parse one `section.key=value` of the command line as TOML."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        raise ValueError(f"option {sanitize(repr(text))} is not of the form section.key=value")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{sanitize(repr(value))} in {sanitize(repr(text))} is not a TOML value; "
            f"text needs quotes: '{sanitize(name)}=\"{sanitize(value)}\"'"
        ) from error


def toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, str):  # TOML escapes like JSON, and DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
