"""One page about a run, `report.html`: without a server, a program or anything from outside."""

from .drawings import Captioned, Drawings, drawings_of, truncation_sweep
from .page import is_unchanged, write_report
