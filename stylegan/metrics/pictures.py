"""A folder, zip or store of pictures in the place of a generator: samples of other programs."""

import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from stylegan import sampling
from stylegan.data import Crop, Findings, Store, cached_store, check, is_store
from stylegan.data.images import Fit, is_image
from stylegan.data.sources import reasons_of
from stylegan.distributed import from_rank0
from stylegan.files.download import BUNDLED
from stylegan.files.formats import SHARED
from stylegan.messages import count, readable
from stylegan.metrics.subject import Given
from stylegan.run_folder import RunFolder
from stylegan.schedule import MAX_RESOLUTION, check_resolution, resolutions

PARTS = {"center": "middle square", "stretch": "squeezed", "tiles": "squares at random places"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Pictures(Given):
    """Pictures in the place of samples, in the order of their names; of fewer, evenly chosen."""

    pictures: Store
    resized: Mapping[str, str]  # pictures and reals: what was done to their sizes

    @classmethod
    def of(
        cls,
        source: Path,
        data: Path | None,
        *,
        resolution: int | None = None,
        tell: Callable[[str], None] = lambda text: None,
        preparing: Callable[[int, int], None] | None = None,
        active_only: bool = False,
        **options: Any,
    ) -> Self:
        """Those under `source`, to be compared with those under `data`: folders, zips or stores,
        read as training data is.

        Without a resolution all must be squares of one size, which training knows too; with one
        they are brought to it. ValueError for what cannot be compared.
        """
        given = {"pictures": source} | ({"real images": data} if data else {})
        stores = [Store(path) for path in reversed(given.values()) if is_store(path)]
        crop: Crop = stores[0].meta.crop if stores else "center"
        channels = stores[0].channels if stores else 3
        premultiply = bool(stores) and stores[0].meta.premultiplied
        found = {
            what: from_rank0(partial(check, path, crop=crop, decode=False))
            for what, path in given.items()
        }
        size = common_size(found, crop) if resolution is None else resolution
        check_resolution(size)
        resized = {what: resizing(findings, size, crop) for what, findings in found.items()}
        for what, how in resized.items():
            if how != "none":
                tell(f"resized: {what} from {how}")
        read = {}
        for what, path in given.items():
            read[what] = cached_store(
                path,
                resolution=size,
                crop=crop,
                channels=channels,
                premultiply=premultiply,
                tell=tell,
                progress=preparing,
            )
            if skipped := read[what].skipped:
                tell(f"left out: {len(skipped)} of the {what}: {reasons_of(skipped)}")
        return cls(
            name=f"pictures of {readable(source)}",
            pictures=read["pictures"],
            store=read.get("real images"),
            active=read["pictures"].active_rectangle if active_only else None,
            resolution=size,
            resized=resized,
            **{"batch": sampling.default_batch(size)} | options,
        )

    def fakes(self, num: int) -> Iterator[Tensor]:
        images = self.pictures.images(self.size)
        if num > len(images):
            raise ValueError(
                f"{count(num, 'picture')} were asked for, and there are {len(images):,}; ask for "
                "fewer, or leave the number out of the name to take all"
            )
        for indices in self.batches(num, "pictures"):
            rows = images[[i * len(images) // num for i in indices]]
            yield self.active_part(torch.from_numpy(self.pictures.pictures(rows)))

    def about_fakes(self) -> dict[str, Any]:
        return {
            **super().about_fakes(),
            "pictures": self.pictures.identity(self.size),
            "of": len(self.pictures),
            "left_out": len(self.pictures.skipped),
            "channels": self.pictures.channels,
            **{f"{what.replace(' ', '_')}_resized": how for what, how in self.resized.items()},
        }


def holds_pictures(source: str) -> bool:
    """Whether a source of `stylegan metrics` is pictures: a store, a zip that has an image, or a
    folder in which nothing has been trained or saved."""
    path = Path(source)
    if source in BUNDLED or not path.exists():
        return False
    if path.is_dir():
        run = RunFolder(path)
        saved = run.generators() or run.states() or (path / SHARED).is_file()
        return is_store(path) or not (RunFolder.at(path) or saved)
    if path.suffix.lower() == ".zip" or not zipfile.is_zipfile(path):
        return path.suffix.lower() == ".zip"
    with zipfile.ZipFile(path) as archive:
        return any(map(is_image, archive.namelist()))


def common_size(found: Mapping[str, Findings], crop: Crop) -> int:
    """The resolution that all images have. ValueError with what to pass if there is none."""
    for what, findings in found.items():
        if not findings.offered:
            reasons = reasons_of(findings.skipped)
            raise ValueError(
                f"none of the {what} of {readable(findings.path)} is usable: {reasons}"
            )
    sizes = {size for findings in found.values() for size in findings.offered}
    for resolution in resolutions(MAX_RESOLUTION):
        if sizes <= unchanged(resolution, crop):
            return resolution
    them = " and ".join(f"the {what} have {sizes_of(f)}" for what, f in found.items())
    reached = [findings.resolution() for findings in found.values()]
    least = min(resolution or 0 for resolution in reached)
    advice = f"; --resolution {least} brings all to {least}x{least}, as training does"
    raise ValueError(
        f"images are compared as squares of one size (4, 8, ... {MAX_RESOLUTION} pixels), and "
        f"{them}{advice if least else ''}"
    )


def unchanged(resolution: int, crop: Crop) -> set[tuple[int, int]]:
    """Sizes of images that `data.images.Fit` does not resample."""
    top, bottom, left, right = Fit.of(crop).rectangle(resolution)
    return {(resolution, resolution), (right - left, bottom - top)}


def sizes_of(findings: Findings) -> str:
    """`64x64`, or `48x64 to 512x512`."""
    ends = dict.fromkeys(f"{w}x{h}" for w, h in filter(None, (findings.smallest, findings.largest)))
    return " to ".join(ends)


def part(fit: Fit) -> str:
    """Which part of a picture is read, for a user."""
    across, down = fit.aspect
    return PARTS.get(fit.kind) or f"{across}:{down} middle with black bars"


def resizing(findings: Findings, resolution: int, crop: Crop) -> str:
    """What reading does to the sizes of the images, for a user and for a result."""
    if set(findings.offered) <= unchanged(resolution, crop):
        return "none"
    how = "2x2 averages" if findings.kind == "store" else f"{part(Fit.of(crop))}, Lanczos"
    return f"{sizes_of(findings)} to {resolution}x{resolution}, {how}"
