"""The documents of the repository, and the blocks of code in them."""

import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDERS = "benchmarks|configs|datasets|docs|examples|stylegan|tests|tools"
PAGES = [ROOT / "docs" / "stylegan.ipynb", ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES += sorted(page for folder in FOLDERS.split("|") for page in (ROOT / folder).rglob("*.md"))
MARK = r" *<!-- (not run|a minute)(?: \(([^)\n]+)\))?: ([^\n]+) -->\n"
BLOCK = re.compile(rf"^((?:{MARK})*) *```(\w*)\n(.*?)^ *```", flags=re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Mark:
    """A comment above a block says how a test runs it, and why not to the end.

    `<!-- not run: REASON -->`, or `<!-- not run (TEXT): REASON -->` for its lines with that text;
    `<!-- a minute ... -->` for what a Ctrl-C ends soon after it has begun.
    """

    how: str  # "not run" or "a minute"
    lines: str  # empty: the whole block
    reason: str


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text, and what is said about running it."""

    language: str
    text: str
    marks: tuple[Mark, ...] = ()

    def mark_of(self, line: str) -> Mark | None:
        return next((mark for mark in self.marks if mark.lines in line), None)


def text_of(page: Path) -> str:
    """The text of a page, or the cells of prose of a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return text


def blocks(page: Path) -> list[Block]:
    """Every block of code of a page."""
    found = []
    for match in BLOCK.finditer(text_of(page)):
        marks = tuple(Mark(*mark) for mark in re.findall(MARK, match[1]))
        found.append(Block(match[5], textwrap.dedent(match[6]), marks))
    return found
