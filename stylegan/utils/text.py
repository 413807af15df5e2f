"""Formatting of untrusted text, errors, lists and times for one-line messages."""

import difflib
import importlib.util
import os
import re
import shlex
import subprocess
from collections.abc import Sequence


def sanitize(text: object, limit: int = 200) -> str:
    """Make untrusted text safe for a one-line message: escaped unless printable, cut at `limit`."""
    text = str(text)
    text = text if text.isprintable() and text else repr(text)
    return text if len(text) <= limit else f"{text[:limit]}..."


def escape_control_chars(line: str) -> str:
    """Escape unprintable characters, line breaks included."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def sanitize_message(text: str) -> str:
    """Escape a line; beyond 2,000 characters cut its middle, since the advice is at the end."""
    line = escape_control_chars(text)
    return line if len(line) <= 2000 else f"{line[:1400]} ... {line[-595:]}"


def join_truncated(texts: Sequence[str], most: int = 8, between: str = "; ") -> str:
    """Join the first `most` texts; "and N more" stands for the rest."""
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return between.join([*texts[:most], *more])


def pluralize(n: int, noun: str) -> str:
    """Number with a noun: `1 image`, `2 images`, `3 processes`."""
    ending = "" if n == 1 else "es" if noun.endswith("s") else "s"
    return f"{n:,} {noun}{ending}"


def duration(seconds: float) -> str:
    """Duration like `3d 04h`, `4h 05m`, `5m 06s` or `7s`."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if hours:
        return f"{days}d {h:02d}h" if days else f"{h}h {m:02d}m"
    return f"{m}m {s:02d}s" if minutes else f"{s}s"


def approximate_duration(seconds: float) -> str:
    """Estimated duration like `5 seconds`, `24 minutes`, `3 hours` or `5 days`."""
    minutes = seconds / 60
    hours = seconds / 3600
    days = seconds / 86_400
    if minutes < 1:
        return pluralize(max(round(seconds), 1), "second")
    if minutes < 90:
        return pluralize(round(minutes), "minute")
    return pluralize(round(hours), "hour") if hours < 36 else pluralize(round(days), "day")


def gib(size: float) -> str:
    """Number of bytes in GiB, as text."""
    return f"{size / 2**30:.2f} GiB"


def align_columns(rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> list[str]:
    """Lines of a table, right-aligned except for the columns (from 0) in `left`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = zip(row, widths, strict=True)
        return "  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(cells))

    return [line(row).rstrip() for row in rows]


def error_reason(error: BaseException, *, line: int | None = None, with_file: bool = False) -> str:
    """One-line message of an error.

    Without `with_file`, the path of an OSError is left out. With `line`, only that line of a long
    message is kept.
    """
    text = getattr(error, "strerror", None) or str(error)
    if with_file and isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.filename}: {text}"
    if isinstance(error, KeyError):
        text = f"{text} is missing"
    lines = text.strip().splitlines()
    if line is not None:
        lines = lines[line:][:1]
    return " ".join(" ".join(lines).split()) or type(error).__name__


def command_line(*words: object) -> str:
    """Join words to a line quoted for the shell (for cmd.exe only where there are spaces)."""
    join = shlex.join if os.name == "posix" else subprocess.list2cmdline
    return join(list(map(str, words)))


def require_module(module: str, *, packages: str, purpose: str) -> None:
    """Raise ValueError with an install command if a library is missing or broken."""
    if importlib.util.find_spec(module) is None:
        raise ValueError(f"{purpose} needs {module}: pip install {packages}")
    try:
        importlib.import_module(module)
    except (ImportError, OSError, RuntimeError) as error:  # torchvision built for another torch
        reason = f"{module}, which does not load ({error_reason(error)})"
        raise ValueError(f"{purpose} needs {reason}; reinstall {packages} together") from error


def parts_of(name: str) -> list[str]:
    return re.split("[./]", name)


def suggestion(name: str, known: Sequence[str]) -> str:
    """End of a message about an unknown `section.option` or `folder/name`.

    It names the known ones with the closest last part, else those of its section, or all."""
    *section, last = parts_of(name)
    ends = [parts_of(key)[-1] for key in known]
    near = difflib.get_close_matches(last, ends, n=1, cutoff=0.8)
    if not near:
        near = [*difflib.get_close_matches(last, ends), *(end for end in ends if last in end)]
    if candidates := [key for key, end in zip(known, ends, strict=True) if end in near]:
        most = 1 if len(set(near)) == 1 else 9
        nearest = difflib.get_close_matches(name, candidates, n=most, cutoff=0)
        return f"; did you mean {' or '.join(nearest)}?"
    alike = [key for key in known if parts_of(key)[:-1] == section]
    return f"; known: {', '.join(alike or known)}"
