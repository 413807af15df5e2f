"""Image folders, zips or stores to measure instead of a generator: samples of other programs."""

import dataclasses
import tarfile
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from stylegan import sampling
from stylegan.data import Findings, Preparation, Store, check, is_store
from stylegan.data.images import is_image
from stylegan.data.sources import summarize_skipped
from stylegan.files.download import BUNDLED
from stylegan.files.formats import SHARED
from stylegan.files.run_folder import RunFolder
from stylegan.metrics.comparison import CPU, DEFAULTS, Comparison, Conditions, StoreImages, prepared
from stylegan.schedule import MAX_RESOLUTION, resolutions
from stylegan.utils.console import SILENT, Console
from stylegan.utils.distributed import run_on_rank0
from stylegan.utils.text import join_truncated, pluralize


def open_images(
    source: Path,
    data: Path | None,
    conditions: Conditions = DEFAULTS,
    *,
    device: torch.device = CPU,
    console: Console = SILENT,
) -> Comparison:
    """Open the images of `source` as samples, and those of `data` as reals. Both are folders, zips
    or stores, read as training data is. Images must be squares of one size unless `conditions` have
    a resolution, to which they are resized."""
    folders = {"pictures": source} | ({"real images": data} if data else {})
    preparation = Preparation()
    for path in filter(is_store, folders.values()):  # the store of the reals takes precedence
        meta = Store(path).meta
        preparation = Preparation(
            crop=meta.crop, channels=meta.channels, premultiplied=meta.premultiplied
        )
    found = [usable(path, preparation) for path in folders.values()]
    resolution = conditions.resolution or common_size(found)
    preparation = dataclasses.replace(preparation, resolution=resolution)
    stores = {role: prepared(path, preparation, role, console) for role, path in folders.items()}
    images = stores["pictures"]
    samples = StoreImages(
        store=images,
        resolution=resolution,
        seed=conditions.seed,
        device=device,
        name=f"pictures of {source}",
        details={
            "pictures": images.pixel_hash(resolution),
            "of": len(images),
            "left_out": len(images.skipped),
            "channels": images.channels,
            "resized": any(set(f.all_sizes) != {(resolution, resolution)} for f in found),
        },
    )
    reals = conditions.reals(stores["real images"], resolution) if data is not None else None
    batch = conditions.batch or sampling.default_batch(resolution)
    return Comparison(samples, reals, batch=batch, console=console)


def holds_images(source: str) -> bool:
    """Whether a source of `stylegan metrics` is a store, a zip with an image, a tar, Parquet,
    `hf:...`, or a folder without a run or saved weights."""
    if source.startswith("hf:"):
        return True
    path = Path(source)
    if source in BUNDLED or not (path.is_file() or path.is_dir()):
        return False
    if path.is_dir():
        run = RunFolder(path)
        saved = run.generators() or run.states() or (path / SHARED).is_file()
        return is_store(path) or not (RunFolder.of(path) or saved)
    ending = path.suffix.lower()
    if ending in (".parquet", ".zip"):
        return True
    if ending == ".tar":  # `mine.pth.tar` is a zip
        return tarfile.is_tarfile(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return any(map(is_image, archive.namelist()))
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):  # not one, or damaged
        return False


def usable(path: Path, preparation: Preparation) -> Findings:
    """Findings about the images of `path`. Raises ValueError if none of them is usable."""
    findings = run_on_rank0(partial(check, path, preparation, decode=False))
    if not findings.num_usable:
        why = summarize_skipped(findings.skipped)
        raise ValueError(f"none of the images of {path} is usable: {why}")
    return findings


def common_size(found: Sequence[Findings]) -> int:
    """The resolution of all images. Raises ValueError if they are not squares of one size."""
    sizes = {size for findings in found for size in findings.all_sizes}
    for resolution in resolutions(MAX_RESOLUTION):
        if sizes == {(resolution, resolution)}:
            return resolution
    names = join_truncated([f"{width}x{height}" for width, height in sorted(sizes)], 4, ", ")
    for_all = min(findings.resolution() or 0 for findings in found)
    larger = min(MAX_RESOLUTION, 2 * for_all or 4)
    left_out = sum(f.all_sizes.total() - f.counts_by_resolution().get(larger, 0) for f in found)
    ways = [f"--resolution {larger} leaves out {pluralize(left_out, 'smaller image')}"]
    if for_all:
        ways.insert(0, f"--resolution {for_all} brings all to one size, as training does")
    raise ValueError(
        f"images are compared as squares of one size (4, 8, ... {MAX_RESOLUTION} pixels), and "
        f"there are sizes {names}; {join_truncated(ways[: 2 if left_out else 1])}"
    )
