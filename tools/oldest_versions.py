"""Writes the oldest versions that `pyproject.toml` allows, as constraints for pip.

    python tools/oldest_versions.py >oldest.txt && pip install -c oldest.txt -e ".[dev]"

`.ci/run oldest` does so in a fresh virtual environment, and runs the default tests.
"""

import itertools
import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[.*\])?>=([0-9.]+)(?:,.*)?")


def oldest_versions(text: str) -> dict[str, str]:
    """The lowest version of each library in the text of a `pyproject.toml`, where it states one."""
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"].values()
    required = itertools.chain(project["dependencies"], *extras)
    matches = map(REQUIREMENT.fullmatch, required)
    return {match[1]: match[2] for match in matches if match}


if __name__ == "__main__":
    for name, version in oldest_versions(PROJECT.read_text(encoding="utf-8")).items():
        print(f"{name}=={version}")
