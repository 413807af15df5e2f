"""The documents of the repository, and the blocks of code in them."""

import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from helpers import ROOT

FOLDERS = "benchmarks|configs|datasets|docs|examples|stylegan|tests|tools"
PAGES = [ROOT / "docs" / "stylegan.ipynb", ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES += sorted(page for folder in FOLDERS.split("|") for page in (ROOT / folder).rglob("*.md"))
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", flags=re.MULTILINE | re.DOTALL)
PROGRAMS = ("apt-get", "git", "mkdir", "npm", "pip", "pytest", "python", "sphinx-build", "stylegan")
PROGRAMS += ("torchrun", "unzip", ".ci/run", "ruff")
ASSIGNMENT = re.compile(r"[A-Z]+=")


@dataclass(frozen=True)
class Block:
    """A block of code: its language and its text."""

    language: str
    text: str

    def commands(self) -> list[str]:
        """The commands of a block for a shell, each with the assignments before it in the block;
        none of a diagram or of a whole script."""
        if self.language not in ("", "sh", "bash") or self.text.startswith("#!"):
            return []
        commands, assignments, open_line = [], "", ""
        for line in self.text.splitlines():
            open_line += line
            if open_line.endswith("\\") or open_line.count('"') % 2:
                open_line += "\n"
                continue
            if ASSIGNMENT.match(open_line):
                assignments += f"{open_line}\n"
            elif open_line.startswith(tuple(f"{program}" for program in PROGRAMS)):
                commands.append(assignments + open_line)
            open_line = ""
        return commands


def text_of(page: Path) -> str:
    """The text of a page, or the cells of prose of a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return text


def blocks(page: Path) -> list[Block]:
    """Every block of code of a page."""
    found = BLOCK.finditer(text_of(page))
    return [Block(match[1], textwrap.dedent(match[2])) for match in found]
