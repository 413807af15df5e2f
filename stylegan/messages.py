"""What files say, made fit for a message of one line."""


def readable(text: str, limit: int = 200) -> str:
    """`text`, if it is printable and short; else escaped or cut."""
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= limit else f"{text[:limit]}..."
