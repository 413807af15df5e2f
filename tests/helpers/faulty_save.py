"""Saves over an old file, each with another fault, in processes of their own.

`python faulty_save.py FOLDER` prints JSON: the points of a save that nothing disturbs, and for each
fault what it left. One process forks all others, so that torch is imported once.
"""

import errno
import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from injection import Fault, Point, Visitor, wrap_calls

from stylegan.files import checkpoint
from stylegan.run_folder import RunFolder

OLDER, NEWEST = "state-000000001.pt", "state-000000002.pt"
FULL = 28  # exit code of a process that was told that the disk is full


@dataclass
class Left:
    """What is there after a save with a fault, and after the next one without."""

    fault: Fault
    exit_code: int
    value: list[float]  # zeros are saved before, ones with the fault, twos afterwards
    files: list[str]
    later: list[float]


def save(folder: Path, value: int) -> None:
    """Write the newest state, in more than one piece, and delete the older one."""
    weights = {f"w{i}": torch.full((50, 50), float(value)) for i in range(8)}
    payload = {name: weights for name in checkpoint.NETWORKS["state"]}
    checkpoint.save(folder / NEWEST, "state", payload)
    RunFolder(folder).retain_states(2, 1)


def saved(folder: Path) -> list[float]:
    return checkpoint.load(folder / NEWEST)["generator"]["w7"].unique().tolist()


def save_with(fault: Fault) -> int:
    """The exit code of a forked process that saves ones."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    wrap_calls(Path(fault.folder), Visitor(fault))
    try:
        save(Path(fault.folder), 1)
    except OSError as error:
        os._exit(FULL if error.errno == errno.ENOSPC else 1)
    os._exit(0)


def leave(folder: Path, fault: Fault) -> Left:
    folder.mkdir()
    save(folder, 0)
    (folder / OLDER).write_bytes((folder / NEWEST).read_bytes())
    fault = replace(fault, folder=str(folder))
    code, value = save_with(fault), saved(folder)
    files = sorted(path.name for path in folder.iterdir())
    save(folder, 2)
    return Left(fault, code, value, files, saved(folder))


def main(folder: Path) -> None:
    record = folder / "points.jsonl"
    undisturbed = leave(folder / "undisturbed", Fault("", record=str(record)))
    points = [Point(**json.loads(line)) for line in record.read_text().splitlines()]
    faults = []
    for point in sorted(set(points)):
        last = points.count(point)
        faults += [Fault("", kill_at=point, number=n) for n in sorted({1, (last + 1) // 2, last})]
    faults.append(Fault("", full_while=str(folder)))
    results = [undisturbed, *(leave(folder / str(i), fault) for i, fault in enumerate(faults))]
    print(json.dumps({"points": list(map(asdict, points)), "left": list(map(asdict, results))}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
