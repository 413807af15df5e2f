"""A folder, zip or store of pictures in place of a generator: samples of other programs."""

import dataclasses
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from stylegan import sampling
from stylegan.data import Preparation, Store, cached_store, check, is_store
from stylegan.data.images import is_image
from stylegan.data.sources import reasons_of
from stylegan.distributed import from_rank0
from stylegan.files.download import BUNDLED
from stylegan.files.formats import SHARED
from stylegan.messages import count, readable
from stylegan.metrics.sources import FixedImages
from stylegan.run_folder import RunFolder
from stylegan.schedule import MAX_RESOLUTION, resolutions


@dataclass(frozen=True, eq=False, kw_only=True)
class Pictures(FixedImages):
    """Pictures in place of samples, in the order of their names."""

    pictures: Store
    resized: bool  # whether any of the pictures or reals had another size

    @classmethod
    def of(
        cls,
        source: Path,
        data: Path | None,
        *,
        resolution: int | None = None,
        tell: Callable[[str], None] = lambda text: None,
        preparing: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> Self:
        """Those under `source`, to be compared with those under `data`: folders, zips or stores,
        read as training data is. Without a resolution all must be squares of one size; with one
        they are brought to it."""
        given = {"pictures": source} | ({"real images": data} if data else {})
        preparation = Preparation()
        for path in filter(is_store, given.values()):  # a store of reals decides
            meta = Store(path).meta
            preparation = Preparation(
                crop=meta.crop, channels=meta.channels, premultiplied=meta.premultiplied
            )
        sizes = set().union(*(sizes_of(path, preparation) for path in given.values()))
        size = common_size(sizes) if resolution is None else resolution
        preparation = dataclasses.replace(preparation, resolution=size)
        stores = {}
        for what, path in given.items():
            stores[what] = store = cached_store(path, preparation, tell=tell, progress=preparing)
            if store.skipped:
                tell(f"left out: {len(store.skipped)} of the {what}: {reasons_of(store.skipped)}")
        return cls(
            name=f"pictures of {readable(source)}",
            pictures=stores["pictures"],
            store=stores.get("real images"),
            resolution=size,
            resized=sizes != {(size, size)},
            **{"batch": sampling.default_batch(size)} | options,
        )

    def fakes(self, num: int) -> Iterator[Tensor]:
        """The first `num` pictures, or if there are more, as many from the whole folder."""
        images = self.pictures.images(self.size)
        if num > len(images):
            raise ValueError(
                f"{count(num, 'picture')} were asked for, and there are {len(images):,}; ask for "
                "fewer, or leave the number out of the name to take all"
            )
        for indices in self.batches(num, "pictures"):
            rows = images[[i * len(images) // num for i in indices]]
            yield torch.from_numpy(self.pictures.pictures(rows))

    def about(self) -> dict[str, dict[str, Any]]:
        about = super().about()
        about["fakes"] |= {
            "pictures": self.pictures.identity(self.size),
            "of": len(self.pictures),
            "left_out": len(self.pictures.skipped),
            "channels": self.pictures.channels,
            "resized": self.resized,
        }
        return about


def holds_pictures(source: str) -> bool:
    """Whether a source of `stylegan metrics` is pictures: a store, a zip that has an image, or a
    folder without a run or saved weights."""
    path = Path(source)
    if source in BUNDLED or not path.exists():
        return False
    if path.is_dir():
        run = RunFolder(path)
        saved = run.generators() or run.states() or (path / SHARED).is_file()
        return is_store(path) or not (RunFolder.of(path) or saved)
    if path.suffix.lower() == ".zip" or not zipfile.is_zipfile(path):
        return path.suffix.lower() == ".zip"
    with zipfile.ZipFile(path) as archive:
        return any(map(is_image, archive.namelist()))


def sizes_of(path: Path, preparation: Preparation) -> set[tuple[int, int]]:
    """The widths and heights of the images; ValueError if there are none."""
    findings = from_rank0(partial(check, path, preparation, decode=False))
    if not findings.offered:
        why = reasons_of(findings.skipped)
        raise ValueError(f"none of the images of {readable(path)} is usable: {why}")
    return set(findings.offered)


def common_size(sizes: set[tuple[int, int]]) -> int:
    """The resolution that all images have; ValueError if they differ."""
    for resolution in resolutions(MAX_RESOLUTION):
        if sizes == {(resolution, resolution)}:
            return resolution
    names = ", ".join(f"{width}x{height}" for width, height in sorted(sizes)[:4])
    raise ValueError(
        f"images are compared as squares of one size (4, 8, ... {MAX_RESOLUTION} pixels), and "
        f"there are sizes {names}; --resolution brings all images to one size, as training does"
    )
