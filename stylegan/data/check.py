"""Look at a source before training: what is there, what can be read, what not."""

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stylegan.schedule import MAX_RESOLUTION

from .images import Crop, native_size, normalize, open_image, quiet_decoding
from .prepare import Progress, default_workers, ordered_map, reason_of, too_small, validate_settings
from .sources import Source, label_of, open_source
from .store import Skipped, Store, is_store

Size = tuple[int, int]  # width, height


@dataclass
class Report:
    """What a folder, zip or store holds."""

    path: Path
    kind: str  # folder | zip | store
    num_good: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)  # files that are not images
    sizes: Counter[Size] = field(default_factory=Counter)  # of the good images, upright
    modes: Counter[str] = field(default_factory=Counter)  # Pillow's names: RGB, L, P, ...
    labels: Counter[str] = field(default_factory=Counter)  # images per sub-folder
    num_unlabelled: int = 0  # good images outside of any sub-folder
    crop: Crop = "center"

    @property
    def smallest(self) -> Size | None:
        """The size that offers the lowest resolution."""
        return min(self.sizes, key=self._offer, default=None)

    @property
    def largest(self) -> Size | None:
        """The size that offers the highest resolution."""
        return max(self.sizes, key=self._offer, default=None)

    @property
    def resolution(self) -> int | None:
        """The largest power of two, up to 1024, that every good image offers."""
        if self.smallest is None:
            return None
        offered = min(self._offer(self.smallest)[0], MAX_RESOLUTION)
        return 1 << (offered.bit_length() - 1)

    def _offer(self, size: Size) -> tuple[int, Size]:
        return native_size(size[0], size[1], self.crop), size


def check(
    source: str | Path,
    *,
    resolution: int | None = None,
    crop: Crop = "center",
    channels: int = 3,
    include: Sequence[str] = (),
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Decode everything and count. With a resolution, smaller images are skipped as `prepare` does.

    Of a store, the pixels are compared with their hashes.
    """
    validate_settings(resolution, crop, channels)
    if is_store(source):
        return _check_store(Store(source))
    opened = open_source(source, include=include)
    report = Report(opened.path, opened.kind, ignored=opened.ignored, crop=crop)
    look = functools.partial(_look, opened, resolution, crop, channels)
    with quiet_decoding():
        looks = ordered_map(look, opened.names, workers or default_workers())
        for done, (name, found) in enumerate(zip(opened.names, looks, strict=True), 1):
            if isinstance(found, Skipped):
                report.skipped.append(found)
            else:
                _count(report, name, *found)
            if progress is not None:
                progress(done, len(opened.names))
    return report


def _look(
    source: Source, resolution: int | None, crop: Crop, channels: int, name: str
) -> tuple[Size, str] | Skipped:
    try:
        image = open_image(source.read(name), name)
        mode = image.mode
        size = normalize(image, channels=channels, name=name).size
    except (OSError, ValueError) as error:
        return Skipped(name, reason_of(name, error))
    reason = too_small(*size, crop, resolution) if resolution else None
    return Skipped(name, reason) if reason else (size, mode)


def _count(report: Report, name: str, size: Size, mode: str) -> None:
    report.num_good += 1
    report.sizes[size] += 1
    report.modes[mode] += 1
    label = label_of(name)
    if label is None:
        report.num_unlabelled += 1
    else:
        report.labels[label] += 1


def _check_store(store: Store) -> Report:
    store.verify()
    number = store.num_images
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[store.channels]
    report = Report(store.path, "store", num_good=number, skipped=store.skipped)
    report.sizes[store.resolution, store.resolution] = number
    report.modes[mode] = number
    if store.labels is None:
        report.num_unlabelled = number
    else:
        report.labels.update(store.label_names[i] for i in store.labels)
    return report
