"""Look at images before training: what is there, what can be used, what not and why."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stylegan.messages import aligned, count, listed, readable
from stylegan.schedule import MAX_RESOLUTION, resolutions

from .images import MODES, Crop, Fit, normalize
from .labels import Labels
from .prepare import SMALL, ProgressCallback, check_settings, decoded, too_small
from .sources import kinds_of, open_source
from .store import Skipped, Store, is_store

Size = tuple[int, int]  # width, height
MOST_NAMED, MOST_GROUPS = 12, 8  # files in one line; reasons
MOST_SEEN = 256  # pictures, evenly chosen, of which `chosen` looks at the colours


@dataclass
class Findings:
    """What a folder, zip or store holds."""

    path: Path
    kind: str  # folder | zip | store
    fit: Fit
    why_no_labels: str  # for a message, if there are none
    labels: Labels | None = None  # of the usable images; None if one has none
    skipped: list[Skipped] = field(default_factory=list)  # what cannot be used
    ignored: list[str] = field(default_factory=list)  # files that are not images
    notes: list[str] = field(default_factory=list)  # what a user should know, a sentence each
    offered: Counter[Size] = field(default_factory=Counter)  # sizes, upright, of all that is read
    sizes: Counter[Size] = field(default_factory=Counter)  # of the usable images among them
    modes: Counter[str] = field(default_factory=Counter)  # Pillow's names: RGB, L, P, ...

    @property
    def num_good(self) -> int:
        return self.sizes.total()

    @property
    def label_names(self) -> list[str]:
        """The classes, or the numbers of a vector, that a store of these images has."""
        return self.labels.names if self.labels else []

    def ends(self) -> list[str]:
        """The sizes that offer the lowest and the highest resolution, as `640x480`."""
        sizes = sorted(self.sizes, key=lambda size: (self.fit.native_size(*size), size))
        return [f"{width}x{height}" for width, height in (sizes[0], sizes[-1])] if sizes else []

    def reach(self) -> dict[int, int]:
        """Resolution -> number of images that are large enough for it, down to none."""
        sizes = [(self.fit.native_size(*size), n) for size, n in self.offered.items()]
        table = {r: sum(n for s, n in sizes if s >= r) for r in resolutions(MAX_RESOLUTION)}
        return {r: n for r, n in table.items() if n}

    def resolution(self) -> int | None:
        """The largest resolution that all images reach."""
        return max((r for r, n in self.reach().items() if n == self.offered.total()), default=None)

    def lines(self) -> list[str]:
        lines = [f"{self.kind} {readable(self.path)}: {count(self.num_good, 'usable image')}"]
        if self.sizes:
            lines.append(f"sizes: {' to '.join(self.ends())}, {len(self.sizes)} different")
            modes = (f"{n:,} {name}" for name, n in self.modes.most_common())
            lines.append(f"modes: {', '.join(modes)}")
        lines += self.labels.lines() if self.labels else []
        least = self.resolution() or 0
        rows = [(f"{r}x{r}", f"{n:,}") for r, n in self.reach().items() if r >= least]
        lines += aligned([("resolution", "images that reach it"), *rows]) if rows else []
        return lines + self.left_out_lines()

    def left_out_lines(self) -> list[str]:
        lines = [f"left out: {line}" for line in grouped(self.skipped)]
        if self.ignored:
            lines.append(f"ignored: {kinds_of(self.ignored)}")
        return lines + self.notes


def grouped(skipped: Sequence[Skipped]) -> list[str]:
    """Images that cannot be used, by reason: how many there are, and some of their names."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name, reason in skipped:
        small = reason.startswith(SMALL)
        groups[reason.partition(":")[0] if small else readable(reason)].append(readable(name))
    largest = sorted(groups.items(), key=lambda group: len(group[1]), reverse=True)
    lines = [
        f"{count(len(names), 'image')}: {reason}: {listed(names, MOST_NAMED, ', ')}"
        for reason, names in largest[:MOST_GROUPS]
    ]
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
    """What is in a folder, zip or store, and what `prepare` would leave out. Every image is decoded
    or compared with its hash; without `decode` only the heads of files are read, and damage behind
    them is not found."""
    check_settings(resolution, crop, channels, premultiply=False)
    if is_store(source):
        store = Store(source)
        if decode:
            store.verify()
        sizes = Counter({(store.resolution, store.resolution): store.num_images})
        findings = Findings(store.path, "store", Fit(), store.why_no_labels, skipped=store.skipped)
        findings.offered = findings.sizes = sizes
        findings.modes = Counter({MODES[store.channels]: store.num_images})
        if store.labels is not None:
            findings.labels = Labels(store.label_names, store.labels)
        return findings
    opened, fit = open_source(source, include=include), Fit.of(crop)
    labels, notes = opened.labels, opened.notes()  # the former may set `why_no_labels`
    findings = Findings(opened.path, opened.kind, fit, opened.why_no_labels, notes=notes)
    findings.skipped, findings.ignored = list(opened.unreadable), opened.ignored

    def look(name: str) -> tuple[Size, str]:
        if not decode:
            width, height, mode = opened.head(name)
            return (width, height), mode
        image = opened.picture(name)
        return normalize(image, channels=channels, name=name).size, image.mode

    usable: list[int] = []  # places of the images
    looks = decoded(look, opened.names, workers, progress)
    for i, (name, found) in enumerate(zip(opened.names, looks, strict=True)):
        if isinstance(found, Skipped):
            findings.skipped.append(found)
            continue
        size, mode = found
        findings.offered[size] += 1
        if fault := too_small(size, fit, resolution or 0):
            findings.skipped.append(Skipped(name, fault))
            continue
        findings.sizes[size] += 1
        findings.modes[mode] += 1
        usable.append(i)
    findings.labels = labels.of(usable) if labels and usable else None
    return findings


def chosen(data: str | Path, include: Sequence[str] = ()) -> tuple[int, str]:
    """The channels that pictures need: 4 if at least half of them have transparent pixels, 1 if all
    are gray, else 3; and a line that says so. A store has its own."""
    if is_store(data):
        channels = Store(data).channels
        return channels, f"channels: {MODES[channels]}, as the store has"
    source = open_source(data, include=include)

    def look(name: str) -> str:
        pixels = np.asarray(normalize(source.picture(name), channels=4, name=name))
        if pixels[..., 3].min() < 255:
            return "transparent"
        return "gray" if (pixels[..., :2] == pixels[..., 1:3]).all() else "coloured"

    some = source.names[:: -(-len(source.names) // MOST_SEEN)]
    kinds = Counter(kind for kind in decoded(look, some) if isinstance(kind, str))
    clear, gray, total = kinds["transparent"], kinds["gray"], kinds.total()
    channels = 3 if not total else 4 if 2 * clear >= total else 1 if gray == total else 3
    return channels, (
        f"channels: {MODES[channels]}: of {count(total, 'picture')} looked at, {clear} have "
        f"transparent pixels, {gray} are gray"
    )
