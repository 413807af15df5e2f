"""Writes docs/options.md from the comments of the configuration's dataclasses."""

from pathlib import Path

from stylegan.cli.configs import KIMG, options
from stylegan.machine.toml import toml_value

FILE = Path(__file__).parents[1] / "docs" / "options.md"
PAGE = f"""# Options

`python tools/options.py` writes this page from the comments in the code. `train` changes an option
with `-o KEY=VALUE` (TOML: text in quotes), some also by [an option of its own](training.md). The
defaults are the paper's; `stylegan configs NAME` shows all values of a configuration. Tables by
resolution hold from an entry up to the next: `{{ 4 = 128, 32 = 64 }}`; a plain number holds
everywhere. Units are in brackets; {KIMG}.
"""


def options_page() -> str:
    """docs/options.md."""
    lines = [PAGE]
    section = None
    for option in options():
        place = option.name.rpartition(".")[0]
        if place != section:
            section = place
            title = f"`[{section}]`" if section else "The run"
            lines += [f"\n## {title}\n\n| option | default | meaning |\n|---|---|---|\n"]
        lines.append(f"| `{option.name}` | `{toml_value(option.default)}` | {option.meaning} |\n")
    return "".join(lines)


if __name__ == "__main__":
    FILE.write_text(options_page(), encoding="utf-8")
