"""Text of files, errors and lists, made fit for a message of one line."""

from collections.abc import Sequence


def readable(text: str, limit: int = 200) -> str:
    """`text`, if it is printable and short; else escaped or cut."""
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= limit else f"{text[:limit]}..."


def listed(texts: Sequence[str], most: int = 8, between: str = "; ") -> str:
    """The first `most` of some texts, and the number of the others."""
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return between.join([*texts[:most], *more])


def reason_of(error: Exception) -> str:
    """The message of an error; of the operating system's, the part without the file."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
