"""Look at a source before training: what is there, what can be read, what not."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stylegan.schedule import MAX_RESOLUTION

from .images import MODES, Crop, native_size, normalize, open_image, quiet_decoding
from .prepare import ProgressCallback, check_settings, check_size, ordered_map, unusable
from .sources import label_of, open_source
from .store import Skipped, Store, is_store

Size = tuple[int, int]  # width, height


@dataclass
class Report:
    """What a folder, zip or store holds."""

    path: Path
    kind: str  # folder | zip | store
    skipped: list[Skipped] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)  # files that are not images
    sizes: Counter[Size] = field(default_factory=Counter)  # of the good images, upright
    modes: Counter[str] = field(default_factory=Counter)  # Pillow's names: RGB, L, P, ...
    labels: Counter[str] = field(default_factory=Counter)  # good images per sub-folder
    crop: Crop = "center"

    @property
    def num_good(self) -> int:
        return self.sizes.total()

    @property
    def num_unlabelled(self) -> int:
        """Good images outside of any sub-folder."""
        return self.num_good - self.labels.total()

    @property
    def smallest(self) -> Size | None:
        """The size that offers the lowest resolution."""
        return min(self.sizes, key=self.offer, default=None)

    @property
    def largest(self) -> Size | None:
        """The size that offers the highest resolution."""
        return max(self.sizes, key=self.offer, default=None)

    @property
    def resolution(self) -> int | None:
        """The largest power of two, up to 1024, that every good image offers."""
        if self.smallest is None:
            return None
        offered = min(self.offer(self.smallest)[0], MAX_RESOLUTION)
        return 1 << (offered.bit_length() - 1)

    def offer(self, size: Size) -> tuple[int, Size]:
        return native_size(*size, self.crop), size


def check(
    source: str | Path,
    *,
    resolution: int | None = None,
    crop: Crop = "center",
    channels: int = 3,
    include: Sequence[str] = (),
    workers: int | None = None,
    progress: ProgressCallback | None = None,
) -> Report:
    """Decode everything and count. With a resolution, smaller images are skipped as `prepare` does.

    The pixels of a store are compared with their hashes.
    """
    check_settings(resolution, crop, channels)
    if is_store(source):
        return check_store(Store(source))
    opened = open_source(source, include=include)

    def look(name: str) -> tuple[Size, str] | Skipped:
        try:
            image = open_image(opened.read(name), name)
            mode = image.mode
            size = normalize(image, channels=channels, name=name).size
            check_size(*size, crop, resolution or 0)
        except (OSError, ValueError) as error:
            return unusable(name, error)
        return size, mode

    report = Report(opened.path, opened.kind, ignored=opened.ignored, crop=crop)
    with quiet_decoding():
        looks = ordered_map(look, opened.names, workers)
        for done, (name, found) in enumerate(zip(opened.names, looks, strict=True), 1):
            if isinstance(found, Skipped):
                report.skipped.append(found)
            else:
                size, mode = found
                report.sizes[size] += 1
                report.modes[mode] += 1
                report.labels.update(label for label in [label_of(name)] if label is not None)
            if progress is not None:
                progress(done, len(opened.names))
    return report


def check_store(store: Store) -> Report:
    """The report of a store whose pixels are what was written; else a ValueError."""
    store.verify()
    report = Report(store.path, "store", skipped=store.skipped)
    report.sizes[store.resolution, store.resolution] = store.num_images
    report.modes[MODES[store.channels]] = store.num_images
    if store.labels is not None:
        report.labels.update(store.label_names[i] for i in store.labels)
    return report
