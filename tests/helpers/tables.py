"""The tables to which scripts add parts of their own."""

from collections.abc import Iterator
from contextlib import contextmanager

from stylegan.losses import DISCRIMINATOR_LOSSES, GENERATOR_LOSSES
from stylegan.metrics import METRICS
from stylegan.networks import DISCRIMINATORS, GENERATORS


@contextmanager
def kept_tables() -> Iterator[None]:
    """What a script adds inside is gone afterwards."""
    tables = (DISCRIMINATOR_LOSSES, DISCRIMINATORS, GENERATOR_LOSSES, GENERATORS, METRICS)
    before = [dict(table) for table in tables]
    try:
        yield
    finally:
        for table, entries in zip(tables, before, strict=True):
            table.clear()
            table.update(entries)
