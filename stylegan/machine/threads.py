"""The waiting of OpenMP's threads for each other, decided before torch is imported."""

import os

import psutil

# libgomp's idle threads spin for milliseconds. Beside other programs the thread that they wait
# for has no core, so that all of them burn their share of time: two threads are then slower
# than one. A short spin costs narrow networks a quarter of their speed on an idle machine, so it
# is set only where others are at work.
CHOSEN_BY_USER = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
SHORT_SPIN = "1000"  # about 50 microseconds
BUSY = 0.5  # cores: at a barrier all threads wait for the one whose core is taken
MOMENT = 0.06  # seconds


def wait_briefly_if_busy() -> None:
    """Make OpenMP's threads sleep soon instead of spinning if other programs use the cores, unless
    the user has chosen how they wait. It has no effect once torch is imported."""
    if not any(name in os.environ for name in CHOSEN_BY_USER) and busy():
        os.environ["GOMP_SPINCOUNT"] = SHORT_SPIN


def busy() -> bool:
    """Return True if other programs use a core now; this one sleeps for a moment to see it."""
    try:
        used = psutil.cpu_percent(interval=MOMENT)
    except OSError:  # the system does not report it
        return False
    return used / 100 * (os.cpu_count() or 1) > BUSY
