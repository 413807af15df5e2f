"""Attacks on every command: `python tools/attacks --help`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests" / "helpers"))

if __name__ == "__main__":
    from attacking import attacks

    attacks()
