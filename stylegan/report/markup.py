"""HTML in which whatever comes from files is text and never markup."""

import base64
import html
import io
from collections.abc import Iterable

from PIL import Image

LOSSLESS_PIXELS = 2**17  # larger pictures are compressed with losses that are hard to see


class Html(str):
    """Text that is markup already."""


def escaped(value: object) -> Html:
    """Markup as it is, anything else as text; what UTF-8 cannot hold becomes a question mark."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(str(value).encode("utf-8", "replace").decode("utf-8")))


def joined(parts: Iterable[object], between: str = "") -> Html:
    return Html(between.join(escaped(part) for part in parts))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. A last `_` in the name of an attribute is dropped, inner ones become `-`."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
    )
    if name in ("img", "meta"):
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{joined(children)}</{name}>")


def table(heads: Iterable[object], rows: Iterable[Iterable[object]], **attributes: object) -> Html:
    """A table that scrolls sideways where it is too wide; the first cell of a row is its head."""
    lines = [tag("tr", *(tag("th", head, scope="col") for head in heads))]
    for first, *others in rows:
        cells = (tag("td", cell) for cell in others)
        lines.append(tag("tr", tag("th", first, scope="row"), *cells))
    return tag("div", tag("table", *lines, **attributes), class_="wide")


def picture(image: Image.Image, alt: str, **attributes: object) -> Html:
    """The picture itself, in the page: lossless if it is small."""
    file = io.BytesIO()
    small = image.width * image.height <= LOSSLESS_PIXELS
    if small:
        image.save(file, format="PNG", optimize=True)
    else:
        image.save(file, format="WEBP", quality=88)
    data = base64.b64encode(file.getvalue()).decode("ascii")
    source = f"data:image/{'png' if small else 'webp'};base64,{data}"
    size = {"width": image.width, "height": image.height}
    return tag("img", src=source, alt=alt, **size, **attributes)
