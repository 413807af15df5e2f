"""Writes docs/options.md from the comments of the configuration's dataclasses."""

from pathlib import Path

from stylegan.cli.configs import options_page

(Path(__file__).parents[1] / "docs" / "options.md").write_text(options_page(), encoding="utf-8")
