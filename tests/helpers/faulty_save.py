"""Saves over an old file, each with another fault, in processes of their own.

`python faulty_save.py FOLDER` prints JSON: the points of a save that nothing disturbs, and for each
fault what it left. One process forks all others, so that torch is imported once.
"""

import errno
import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

import torch
from injection import Fault, Injector

from stylegan.files import checkpoint
from stylegan.run_folder import RunFolder

FULL = 28  # exit code of a process whose disk is full


def save(folder, value):
    """Write the newest state, in more than one piece, and delete the older one."""
    weights = {f"w{i}": torch.full((50, 50), float(value)) for i in range(8)}
    payload = {name: weights for name in checkpoint.NETWORKS["state"]}
    run = RunFolder(folder)
    checkpoint.save(run.state_file(2), "state", payload)
    run.retain_states(2, 1)


def saved(folder):
    path = RunFolder(folder).state_file(2)
    return checkpoint.load(path)["generator"]["w7"].unique().tolist()


def leave(folder, fault):
    """What is there after zeros, ones with the fault in a forked process, and twos were saved."""
    run = RunFolder(folder)
    folder.mkdir()
    save(folder, 0)
    run.state_file(1).write_bytes(run.state_file(2).read_bytes())
    child = os.fork()
    if not child:
        Injector(replace(fault, folder=str(folder))).install()
        try:
            save(folder, 1)
        except OSError as error:
            os._exit(FULL if error.errno == errno.ENOSPC else 1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found = {"fault": asdict(fault), "exit_code": code, "value": saved(folder)}
    found["files"] = sorted(path.name for path in folder.iterdir())
    save(folder, 2)
    return found | {"later": saved(folder)}


def main(folder):
    record = folder / "points.txt"
    undisturbed = leave(folder / "undisturbed", Fault("", record=str(record)))
    points = record.read_text().splitlines()
    faults = []
    for point in sorted(set(points)):
        last = points.count(point)
        faults += [Fault("", kill_at=point, number=n) for n in sorted({1, (last + 1) // 2, last})]
    faults.append(Fault("", full=True))
    left = [undisturbed, *(leave(folder / str(i), fault) for i, fault in enumerate(faults))]
    print(json.dumps({"points": points, "left": left}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
