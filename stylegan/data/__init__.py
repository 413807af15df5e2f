"""Reading code: source (folder, zip, ...) -> store (pyramid of NumPy files) -> endless batches."""

from .cache import cached_store as cached_store
from .cache import default_cache_dir as default_cache_dir
from .check import Findings as Findings
from .check import check as check
from .images import Crop as Crop
from .images import read_image as read_image
from .loader import Batch as Batch
from .loader import batches as batches
from .loader import process_reals as process_reals
from .prepare import prepare as prepare
from .prepare import prepare_images as prepare_images
from .prepare import pyramid as pyramid
from .sources import open_source as open_source
from .store import Skipped as Skipped
from .store import Store as Store
from .store import is_store as is_store
