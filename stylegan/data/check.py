"""Check images before training: which can be used, and why the others cannot."""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from stylegan.schedule import MAX_RESOLUTION, resolutions
from stylegan.utils.console import SILENT, Console
from stylegan.utils.text import align_columns, join_truncated, pluralize, sanitize

from .images import MODES, Fit, Preparation, normalize
from .labels import Labels
from .prepare import DEFAULT_PREPARATION, SMALL, decode_all, largest_level, too_small
from .sources import Source, kinds_of, open_source
from .store import Skipped, Store, identity_of, is_store

Size = tuple[int, int]  # width, height
MAX_NAMED = 12  # files named in a line
MAX_SEEN = 256  # images that `detect_channels` reads
NUMBER = re.compile(r"0x[0-9a-f]+|\d+")  # in a reason, ignored when reasons are grouped


@dataclass
class Findings:
    """What `check` found in a source or store."""

    path: Path
    kind: str  # "store", or the `kind` of a source
    fit: Fit
    why_no_labels: str  # for a message, if there are no labels
    labels: Labels | None = None  # of the usable images; None unless all have one
    skipped: list[Skipped] = field(default_factory=list)  # images that cannot be used
    ignored: list[str] = field(default_factory=list)  # files that are not images
    notes: list[str] = field(default_factory=list)  # for the user, a sentence each
    all_sizes: Counter[Size] = field(default_factory=Counter)  # of all readable images, upright
    sizes: Counter[Size] = field(default_factory=Counter)  # of the usable images
    modes: Counter[str] = field(default_factory=Counter)  # Pillow's names: RGB, L, P, ...
    # Hashes of the pixels, if checked at a resolution
    levels: list[str] = field(default_factory=list)

    @property
    def num_usable(self) -> int:
        return self.sizes.total()

    @property
    def label_names(self) -> list[str]:
        """Names of the classes, or of the numbers of a vector."""
        return self.labels.names if self.labels else []

    def training_hash(self, resolution: int, *, labels: bool) -> str:
        """`Store.training_hash` of a store of these images, checked at this resolution."""
        rows = self.labels.rows if labels and self.labels else None
        names = [name.encode("utf-8", "replace").decode() for name in self.label_names]  # as stored
        return identity_of(self.levels, rows, names)

    def ends(self) -> list[str]:
        """Sizes of the lowest and highest native resolution, such as `640x480`."""
        sizes = sorted(self.sizes, key=lambda size: (self.fit.native_size(*size), size))
        return [f"{width}x{height}" for width, height in (sizes[0], sizes[-1])] if sizes else []

    def counts_by_resolution(self) -> dict[int, int]:
        """Resolution -> number of images that are large enough for it, if any."""
        sizes = [(self.fit.native_size(*size), n) for size, n in self.all_sizes.items()]
        table = {r: sum(n for s, n in sizes if s >= r) for r in resolutions(MAX_RESOLUTION)}
        return {r: n for r, n in table.items() if n}

    def resolution(self) -> int | None:
        """Largest resolution for which all images are large enough."""
        return max(
            (r for r, n in self.counts_by_resolution().items() if n == self.all_sizes.total()),
            default=None,
        )

    def lines(self) -> list[str]:
        lines = [f"{self.kind} {self.path}: {pluralize(self.num_usable, 'usable image')}"]
        if self.sizes:
            lines.append(f"sizes: {' to '.join(self.ends())}, {len(self.sizes)} distinct")
            modes = (f"{n:,} {name}" for name, n in self.modes.most_common())
            lines.append(f"modes: {', '.join(modes)}")
        lines += self.labels.lines() if self.labels else []
        least = self.resolution() or 0
        rows = [
            (f"{r}x{r}", f"{n:,}") for r, n in self.counts_by_resolution().items() if r >= least
        ]
        lines += align_columns([("resolution", "images that reach it"), *rows]) if rows else []
        return lines + self.left_out_lines()

    def left_out_lines(self) -> list[str]:
        lines = [f"left out: {line}" for line in grouped(self.skipped)]
        if self.ignored:
            lines.append(f"ignored: {kinds_of(self.ignored)}")
        return lines + self.notes


def grouped(skipped: Sequence[Skipped]) -> list[str]:
    """Lines with skipped images by reason, where reasons that differ only in numbers are one."""
    groups: defaultdict[str, list[Skipped]] = defaultdict(list)
    for image in skipped:
        groups[NUMBER.sub("0", image.reason)].append(image)
    lines = []
    for images in sorted(groups.values(), key=len, reverse=True):
        first = images[0].reason
        reason = first.partition(":")[0] if first.startswith(SMALL) else first
        names = join_truncated([sanitize(image.name) for image in images], MAX_NAMED, ", ")
        lines.append(f"{pluralize(len(images), 'image')}: {reason}: {names}")
    return lines


def check(
    source: str | Path | Source,
    preparation: Preparation = DEFAULT_PREPARATION,
    *,
    decode: bool = True,
    workers: int | None = None,
    console: Console = SILENT,
) -> Findings:
    """Check a source or store, and list the images that `prepare` would skip.

    All images are decoded, and all files of a store hashed. With `decode=False`, only headers are
    read, which misses other damage.
    """
    if not isinstance(source, Source) and is_store(source):
        store = Store(source)
        return check_store(store, preparation.resolution, decode=decode, console=console)
    opened = open_source(source, include=preparation.include)

    def look(name: str) -> tuple[Size, str, np.ndarray | None]:
        if not decode:
            width, height, mode = opened.head(name)
            return (width, height), mode, None
        image = opened.image(name)
        mode = image.mode
        image = normalize(image, channels=preparation.channels, name=name)
        is_stored = preparation.resolution and not too_small(image.size, preparation)
        return image.size, mode, largest_level(image, preparation) if is_stored else None

    findings = Findings(opened.path, opened.kind, preparation.fit, opened.why_no_labels)
    findings.ignored = opened.ignored
    findings.notes = opened.notes()
    usable: list[int] = []  # indices into the names
    digest = hashlib.sha256()
    looks = decode_all(look, opened.names, workers, console, "checked")
    for i, (name, seen) in enumerate(zip(opened.names, looks, strict=True)):
        if isinstance(seen, Skipped):
            findings.skipped.append(seen)
            continue
        size, mode, pixels = seen
        findings.all_sizes[size] += 1
        if fault := too_small(size, preparation):
            findings.skipped.append(Skipped(name, fault))
            continue
        findings.sizes[size] += 1
        findings.modes[mode] += 1
        usable.append(i)
        if pixels is not None:
            digest.update(pixels.data)
    findings.levels = [digest.hexdigest()]
    labels = opened.labels
    findings.labels = labels.subset(usable) if labels and usable else None
    return findings


def check_store(
    store: Store, resolution: int | None, *, decode: bool, console: Console = SILENT
) -> Findings:
    if decode:
        store.verify(console=console)
    findings = Findings(store.path, "store", Fit(), store.why_no_labels, skipped=store.skipped)
    findings.sizes = Counter({(store.resolution, store.resolution): store.num_images})
    findings.all_sizes = findings.sizes
    findings.modes = Counter({MODES[store.channels]: store.num_images})
    findings.levels = store.identities(resolution or store.resolution)
    if store.labels is not None:
        findings.labels = Labels(store.label_names, store.labels)
    return findings


def detect_channels(data: str | Path | Source, include: Sequence[str] = ()) -> tuple[int, str]:
    """4 if at least half of the images have transparency, 1 if all are gray, else 3; and why."""
    if not isinstance(data, Source) and is_store(data):
        channels = Store(data).channels
        return channels, f"channels: {MODES[channels]}, as the store has"
    source = open_source(data, include=include)
    names = source.names[:: -(-len(source.names) // MAX_SEEN)]  # evenly spaced
    kinds = Counter(
        kind for kind in decode_all(partial(kind_of_colors, source), names) if isinstance(kind, str)
    )
    total = kinds.total()
    if not total:
        channels = 3
    elif 2 * kinds["transparent"] >= total:
        channels = 4
    else:
        channels = 1 if kinds["gray"] == total else 3
    return channels, (
        f"channels: {MODES[channels]}: of {pluralize(total, 'image')} read, "
        f"{kinds['transparent']} have transparent pixels, {kinds['gray']} are gray"
    )


def kind_of_colors(source: Source, name: str) -> str:
    """Whether an image is "transparent", "gray" or "colored"."""
    pixels = np.asarray(normalize(source.image(name), channels=4, name=name))
    if pixels[..., 3].min() < 255:
        return "transparent"
    return "gray" if (pixels[..., :2] == pixels[..., 1:3]).all() else "colored"
