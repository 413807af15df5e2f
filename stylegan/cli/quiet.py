"""Imported before anything else of the commands: from here on Ctrl-C is quiet."""

import sys
from types import TracebackType


def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """`sys.excepthook`: an interrupt while modules are imported is no fault to report."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


if sys.excepthook is sys.__excepthook__:
    sys.excepthook = report
