"""Which program this is, for results."""

__version__ = "0.1.0"
