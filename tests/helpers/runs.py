"""What a run folder, or any folder, holds."""

import json
from pathlib import Path
from typing import Any


def contents(folder: Path) -> dict[Path, bytes | None]:
    """Every file with its bytes, and everything else with None."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def json_lines(text: str | Path) -> list[dict[str, Any]]:
    """The objects of a text, or of a file: one a line."""
    text = text.read_text() if isinstance(text, Path) else text
    return [json.loads(line) for line in text.splitlines()]


def log_of(run: Path, *events: str) -> list[dict[str, Any]]:
    """The lines of a run's log, all or those of some events."""
    lines = json_lines(run / "log.jsonl")
    return [line for line in lines if not events or line["event"] in events]
