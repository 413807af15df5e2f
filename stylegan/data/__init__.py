"""Data pipeline: source (folder, zip, tar, ...) -> store (NumPy pyramid) -> endless batches."""

from .cache import cached_store, default_cache_dir
from .check import Findings, check
from .images import Crop, Preparation, read_image
from .loader import batches, process_reals
from .prepare import prepare, prepare_images, pyramid
from .sources import Source, open_source
from .store import Skipped, Store, is_store
