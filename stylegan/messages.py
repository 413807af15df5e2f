"""What files say, made fit for a message of one line."""

from collections.abc import Sequence


def readable(text: str, limit: int = 200) -> str:
    """`text`, if it is printable and short; else escaped or cut."""
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= limit else f"{text[:limit]}..."


def listed(problems: Sequence[str], most: int = 8) -> str:
    """The first `most` of some problems, and how many more there are."""
    more = len(problems) - most
    return "; ".join([*problems[:most], *([f"and {more} more"] if more > 0 else [])])
