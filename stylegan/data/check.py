"""Look at images before training: what is there, what can be used, what not and why."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stylegan.messages import aligned, count, listed, readable
from stylegan.schedule import MAX_RESOLUTION, resolutions

from .images import MODES, Crop, Fit, normalize, open_image, quiet_decoding
from .labels import Labels, lines_of
from .prepare import SMALL, ProgressCallback, check_settings, check_size, ordered_map, unusable
from .sources import kinds_of, open_source
from .store import Skipped, Store, is_store

Size = tuple[int, int]  # width, height
MOST_NAMED, MOST_GROUPS = 12, 8  # files in one line; reasons


@dataclass
class Findings:
    """What a folder, zip or store holds."""

    path: Path
    kind: str  # folder | zip | store
    crop: Crop = "center"
    why_no_labels: str = ""  # for a message, if there are none
    skipped: list[Skipped] = field(default_factory=list)  # what cannot be used
    ignored: list[str] = field(default_factory=list)  # files that are not images
    notes: list[str] = field(default_factory=list)  # what a user should know, a sentence each
    offered: Counter[Size] = field(default_factory=Counter)  # sizes, upright, of all that is read
    sizes: Counter[Size] = field(default_factory=Counter)  # of the usable images among them
    modes: Counter[str] = field(default_factory=Counter)  # Pillow's names: RGB, L, P, ...
    labels: Counter[str] = field(default_factory=Counter)  # usable images that have each
    num_unlabelled: int = 0  # usable images without a class
    # those of all images, with the names in their order
    all_labels: Labels | None = field(default=None, compare=False)

    @property
    def num_good(self) -> int:
        """Number of images that can be used."""
        return self.sizes.total()

    @property
    def label_names(self) -> list[str]:
        """The classes, or the numbers of a vector, that a store of these images has."""
        if self.all_labels is None or self.num_unlabelled:
            return []
        names = self.all_labels.names
        return names if self.all_labels.vectors else [name for name in names if self.labels[name]]

    @property
    def vectors(self) -> bool:
        """Whether the labels are vectors, not classes."""
        return self.all_labels is not None and self.all_labels.vectors

    @property
    def smallest(self) -> Size | None:
        """The size that offers the lowest resolution."""
        return min(self.sizes, key=self.offer, default=None)

    @property
    def largest(self) -> Size | None:
        """The size that offers the highest resolution."""
        return max(self.sizes, key=self.offer, default=None)

    def offer(self, size: Size) -> tuple[int, Size]:
        return Fit.of(self.crop).native_size(*size), size

    def reach(self) -> dict[int, int]:
        """Resolution -> number of images that are large enough for it, down to none."""
        sizes = [(self.offer(size)[0], n) for size, n in self.offered.items()]
        table = {r: sum(n for s, n in sizes if s >= r) for r in resolutions(MAX_RESOLUTION)}
        return {r: n for r, n in table.items() if n}

    def resolution(self) -> int | None:
        """The largest resolution that all images reach."""
        return max((r for r, n in self.reach().items() if n == self.offered.total()), default=None)

    def add(self, i: int, name: str, size: Size, mode: str, resolution: int) -> None:
        """An image that can be read, of place `i`; it is used if it is as large as the
        resolution."""
        self.offered[size] += 1
        try:
            check_size(*size, self.crop, resolution)
        except ValueError as error:
            self.skipped.append(unusable(name, error))
        else:
            self.sizes[size] += 1
            self.modes[mode] += 1
            kinds = None if self.all_labels is None else self.all_labels.kinds(i)
            self.labels.update(kinds or [])
            self.num_unlabelled += kinds is None

    def lines(self) -> list[str]:
        """All of it, for a user."""
        lines = [f"{self.kind} {readable(self.path)}: {count(self.num_good, 'usable image')}"]
        if self.smallest and self.largest:
            sizes = [f"{width}x{height}" for width, height in (self.smallest, self.largest)]
            lines.append(f"sizes: {sizes[0]} to {sizes[1]}, {len(self.sizes)} different")
        if self.modes:
            modes = (f"{n:,} {name}" for name, n in self.modes.most_common())
            lines.append(f"modes: {', '.join(modes)}")
        if self.labels and self.all_labels is not None:
            order = self.label_names or sorted(self.labels)
            lines += lines_of({name: self.labels[name] for name in order}, self.all_labels)
            if self.num_unlabelled:
                lines.append(
                    f"not in a sub-folder: {self.num_unlabelled:,}, so there are no labels"
                )
        return lines + self.reach_lines() + self.left_out_lines()

    def reach_lines(self) -> list[str]:
        """The table of resolutions, from the largest one that all images reach on."""
        table = self.reach()
        kept = {r: n for r, n in table.items() if r >= (self.resolution() or 0)}
        if not kept:
            return []
        rows = [(f"{r}x{r}", f"{n:,}") for r, n in kept.items()]
        return aligned([("resolution", "images that reach it"), *rows])

    def left_out_lines(self) -> list[str]:
        """What is not used, and why."""
        lines = [f"left out: {line}" for line in grouped(self.skipped)]
        if self.ignored:
            lines.append(f"ignored: {kinds_of(self.ignored)}")
        return lines + self.notes


def grouped(skipped: Sequence[Skipped]) -> list[str]:
    """Images that cannot be used, by reason: how many there are, and some of their names."""
    groups: defaultdict[str, list[Skipped]] = defaultdict(list)
    for one in skipped:
        groups[re.sub(r"\d+", "0", one.reason)].append(one)
    lines = []
    for group in sorted(groups.values(), key=len, reverse=True)[:MOST_GROUPS]:
        reason, most = f": {readable(group[0].reason)}", MOST_NAMED
        if group[0].reason.startswith(SMALL):
            sizes = (one.reason.rpartition(" ")[2] for one in group)
            largest = max(sizes, key=lambda size: math.prod(map(int, size.split("x"))))
            least = group[0].reason.removeprefix(SMALL).partition(":")[0].strip()
            reason, most = f" smaller than {least}x{least} (largest {largest})", 3
        names = listed([readable(one.name) for one in group], most, ", ")
        lines.append(f"{count(len(group), 'image')}{reason}: {names}")
    if len(groups) > MOST_GROUPS:
        lines.append(f"and images for {len(groups) - MOST_GROUPS} other reasons")
    return lines


def check(
    source: str | Path,
    *,
    resolution: int | None = None,
    crop: Crop = "center",
    channels: int = 3,
    include: Sequence[str] = (),
    decode: bool = True,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
) -> Findings:
    """What is in a folder, zip or store, and what `prepare` would leave out. Nothing is written.

    Every image is decoded and the pixels of a store are compared with their hashes. Without
    `decode` only the heads of the files are read, which takes a fraction of a millisecond each and
    does not find damage behind them.
    """
    check_settings(resolution, crop, channels)
    if is_store(source):
        return check_store(Store(source), verify=decode)
    opened = open_source(source, include=include)

    def look(name: str) -> tuple[Size, str] | Skipped:
        try:
            if not decode:
                width, height, mode = opened.head(name)
                return (width, height), mode
            image = open_image(opened.read(name), name)
            return normalize(image, channels=channels, name=name).size, image.mode
        except (OSError, ValueError) as error:
            return unusable(name, error)

    findings = Findings(opened.path, opened.kind, crop, opened.why_no_labels())
    findings.skipped, findings.ignored = list(opened.unreadable), opened.ignored
    findings.notes, findings.all_labels = opened.notes(), opened.labels
    with quiet_decoding():
        looks = ordered_map(look, opened.names, workers)
        for done, (name, found) in enumerate(zip(opened.names, looks, strict=True), 1):
            if isinstance(found, Skipped):
                findings.skipped.append(found)
            else:
                findings.add(done - 1, name, *found, resolution or 0)
            if progress is not None:
                progress(done, len(opened.names))
    return findings


def check_store(store: Store, *, verify: bool) -> Findings:
    """The findings of a store; ValueError if its pixels are not what was written."""
    if verify:
        store.verify()
    findings = Findings(store.path, "store", why_no_labels=store.why_no_labels)
    findings.skipped = store.skipped
    size = (store.resolution, store.resolution)
    findings.offered[size] = findings.sizes[size] = store.num_images
    findings.modes[MODES[store.channels]] = store.num_images
    if store.labelled is not None:
        findings.all_labels, findings.labels = store.labelled, store.labelled.counts()
    return findings
