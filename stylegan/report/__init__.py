"""One page about a run, `report.html`, self-contained and without scripts."""

from .images import Captioned, Drawings, drawings_of, truncation_sweep
from .page import is_unchanged, write_report
