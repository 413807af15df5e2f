"""Reading TOML, and formatting its values."""

import codecs
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from stylegan.utils.filesystem import attach_filename
from stylegan.utils.text import sanitize


def read_toml(path: Path) -> dict[str, object]:
    try:
        with attach_filename(path):
            content = path.read_bytes()
            # `stylegan configs ... > mine.toml` in Windows PowerShell 5 writes UTF-16
            is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            return tomllib.loads(content.decode("utf-16" if is_utf16 else "utf-8-sig"))
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
