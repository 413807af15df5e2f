"""How OpenMP's threads wait for each other, decided before torch is imported."""

import os
import time
from pathlib import Path

# libgomp's idle threads spin for milliseconds. Beside other programs the thread that they wait
# for has no core, so that all of them burn their share of time: two threads are then slower
# than one. A short spin costs narrow networks a quarter of their speed on an idle machine, so it
# is set only where others are at work.
CHOSEN_BY_USER = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
SHORT_SPIN = "1000"  # about 50 microseconds
BUSY = 0.5  # cores: at a barrier all threads wait for the one whose core is taken
STATISTICS = Path("/proc/stat")


def wait_briefly_if_busy() -> None:
    """Make OpenMP's threads sleep soon instead of spinning if other programs use the cores, unless
    the user has chosen how they wait. It has no effect once torch is imported."""
    if not any(name in os.environ for name in CHOSEN_BY_USER) and busy():
        os.environ["GOMP_SPINCOUNT"] = SHORT_SPIN


def busy() -> bool:
    """True if other programs use a core now; this one sleeps for a moment to see it."""
    try:
        before = core_times()
        time.sleep(0.06)
        idle, total = (b - a for a, b in zip(before, core_times(), strict=True))
    except OSError:  # the system does not report it
        return False
    return total > 0 and (1 - idle / total) * (os.cpu_count() or 1) > BUSY


def core_times() -> tuple[int, int]:
    """Idle time and all time of the cores since the machine started, in ticks."""
    _, *ticks = STATISTICS.read_text().partition("\n")[0].split()
    times = [int(tick) for tick in ticks[:8]]  # those of guests are in the first two, too
    return times[3] + times[4], sum(times)
