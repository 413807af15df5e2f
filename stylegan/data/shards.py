"""Images in tars and Parquet files, which are read in place; data sets of the Hugging Face Hub."""

import functools
import io
import json
import re
import tarfile
import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

from stylegan.utils.filesystem import as_value_error, check_not_placeholder
from stylegan.utils.text import error_reason, join_truncated, pluralize, require_module, sanitize

from .images import image_errors
from .labels import Labels, build_labels, check_count
from .sources import MAX_FILE_BYTES, FileSource, hidden, only_folder, status_of, walk

MAX_ROW_GROUP = 2**31  # bytes of a column in memory
ROWS_AT_ONCE = 16  # read between two checks of the size
CONTENT = "image.bytes"  # path of a column
INTEGER = re.compile(r"[-+]?\d{1,18}", re.ASCII)
SHARD_NUMBER = re.compile(r"-(\d+-of-\d+.*)$")  # after the name of a split


class ShardSource(FileSource):
    """Images in one file, or in all files of a kind in a folder.

    `places` has the file of each image and two numbers that find it there, `faults` the reason why
    an image or a whole file cannot be used.
    """

    ending: ClassVar[str]

    def __init__(self, path: Path, include: Sequence[str] = ()) -> None:
        names = sorted(walk(path)) if path.is_dir() else []
        files = {name: path / name for name in names} or {path.name: path}
        self.shards = {n: file for n, file in files.items() if n.lower().endswith(self.ending)}
        self.places: dict[str, tuple[Path, int, int]] = {}
        self.faults: dict[str, str] = {}
        damaged: dict[str, str] = {}
        for shard, file in self.shards.items():
            try:
                check_not_placeholder(file)
                self.index(file, shard)
            except ValueError as error:
                damaged[shard] = error_reason(error).removeprefix(f"{file} ")
        if damaged and not self.places:
            shard, reason = next(iter(damaged.items()))
            raise ValueError(f"{self.shards[shard]} {reason}")
        super().__init__(path, self.places, include)
        self.names = sorted([*self.names, *damaged])
        self.faults |= damaged
        self.ignored += [name for name in files if name not in self.shards]

    @abstractmethod
    def index(self, file: Path, shard: str) -> None:
        """Fill `places` and `faults`. Raises ValueError, after what is intact, at damage."""

    @abstractmethod
    def content(self, file: Path, first: int, second: int) -> bytes: ...

    def open(self, name: str) -> IO[bytes]:
        with image_errors(name):
            if name in self.faults:
                raise ValueError(self.faults[name])
            return io.BytesIO(self.content(*self.places[name]))

    @abstractmethod
    def label_of(self, name: str) -> Any:
        """The label of an image, or None."""

    def read_labels(self) -> Labels:
        usable = [name for name in self.names if name not in self.faults]
        found = {name: self.label_of(name) for name in usable}
        missing = [name for name, label in found.items() if label is None]
        if self.label_files or len(missing) == len(found):
            return super().read_labels()
        if missing:
            examples = join_truncated(list(map(sanitize, missing)), 3, ", ")
            raise ValueError(f"{pluralize(len(missing), 'image')} without a label: {examples}")
        other = found[usable[0]]  # for what is left out
        return build_labels({name: found.get(name, other) for name in self.names}, None)

    def fingerprint_parts(self) -> Iterator[tuple[object, ...]]:
        for shard, file in self.shards.items():
            yield shard, *status_of(file)
        yield len(self.names), len(self.places)


class CappedFile(io.FileIO):
    """A file for `tarfile`, which reads as many bytes at a time as a header asks for."""

    def read(self, size: int | None = -1, /) -> bytes:
        fits = size is not None and 0 <= size <= MAX_FILE_BYTES
        return super().read(size if fits else MAX_FILE_BYTES)


class TarSource(ShardSource):
    """Tars of a folder, or of WebDataset: labels are in `key.cls` or `key.json`."""

    kind = "set of tars"
    ending = ".tar"

    def __init__(self, path: Path, include: Sequence[str] = ()) -> None:
        super().__init__(path, include)
        keys = {key_of(name) for name in self.names}
        labels = {n for n in self.ignored if n.endswith((".cls", ".json")) and key_of(n) in keys}
        self.ignored = [name for name in self.ignored if name not in labels]

    def index(self, file: Path, shard: str) -> None:
        size = file.stat().st_size
        for info in members(file):
            parts = [part for part in info.name.split("/") if part not in ("", ".")]
            if not parts or info.isdir() or any(map(hidden, parts)):
                continue
            name = "/".join(parts)
            if name in self.places and self.places[name][0] != file:  # shards may number alike
                name = "/".join([*parts[:-1], shard.replace("/", "-"), parts[-1]])
            fault = fault_of(info, size)
            if name in self.places:
                fault = f"more than one file of this name in {shard}"
            if fault:
                self.faults[name] = fault
            self.places[name] = file, info.offset_data, info.size

    def content(self, file: Path, first: int, second: int) -> bytes:
        with open(file, "rb") as opened:
            opened.seek(first)
            return opened.read(second)

    def label_of(self, name: str) -> Any:
        for ending in (".cls", ".json"):
            file = key_of(name) + ending
            if file in self.places and self.places[file][0] == self.places[name][0]:
                with as_value_error(file, "holds no label"):
                    content = self.read(file)
                    check_count(content)
                    text = content.decode().strip()
                    if ending == ".cls":
                        return int(text) if INTEGER.fullmatch(text) else text
                    read = json.loads(text)
                    return read.get("label") if isinstance(read, dict) else read
        return None


def members(path: Path) -> Iterator[tarfile.TarInfo]:
    """Headers of a tar. Raises ValueError at damage, which `tarfile` may take for the end."""
    with (
        as_value_error(path, "is damaged, truncated or compressed"),
        CappedFile(path) as file,
        tarfile.open(fileobj=file, mode="r:") as tar,
    ):
        end = -1
        while (info := tar.next()) is not None:
            if tar.offset <= end:
                raise ValueError(f"the header at byte {info.offset} points back")
            end = tar.offset
            tar.members = []  # type: ignore[attr-defined]  # a kilobyte each
            yield info
        file.seek(tar.offset)
        rest = file.read(2**16)
        if len(rest) < tarfile.BLOCKSIZE or any(rest):
            raise ValueError(f"no valid end at byte {tar.offset}")


def fault_of(info: tarfile.TarInfo, size: int) -> str:
    """Why a member of a tar of `size` bytes cannot be read, or ""."""
    if not info.isreg() or info.issparse():
        return "not a regular file"
    if ".." in info.name.split("/"):
        return "the name is outside of the tar"
    if info.size > MAX_FILE_BYTES:
        return f"file must be at most {MAX_FILE_BYTES} bytes, got {info.size}"
    return "" if 0 <= info.size <= size - info.offset_data else "truncated"


def key_of(name: str) -> str:
    """What the files of a sample share: the name up to its first dot."""
    folder, slash, file = name.rpartition("/")
    return folder + slash + file.partition(".")[0]


class ParquetSource(ShardSource):
    """Parquet as on the Hugging Face Hub: a column `image`, whose rows have `bytes`, and labels.

    Images are named by file and row; the split in the name of a file becomes a sub-folder.
    """

    kind = "set of Parquet files"
    ending = ".parquet"

    def __init__(self, path: Path, include: Sequence[str] = ()) -> None:
        require_module("pyarrow", packages="pyarrow", purpose="reading Parquet")
        self.column = functools.lru_cache(maxsize=2)(images_of)
        self.labels_in = functools.cache(labels_of)
        self.lock = threading.Lock()
        super().__init__(path, include)

    def index(self, file: Path, shard: str) -> None:
        within = shard.removeprefix(only_folder(list(self.shards)))[: -len(self.ending)]
        prefix = SHARD_NUMBER.sub(r"/\1", within)
        rows = [(group, i) for group, number in enumerate(row_counts(file)) for i in range(number)]
        for number, (group, i) in enumerate(rows):
            self.places[f"{prefix}-{number:09}.png"] = file, group, i

    def content(self, file: Path, first: int, second: int) -> bytes:
        with self.lock:  # all threads need the same row group
            column = self.column(file, first)
        if isinstance(column, str):
            raise ValueError(column)
        image = column[second].as_py()
        if not image or not image["bytes"]:
            raise ValueError("a row without an image")
        content: bytes = image["bytes"]
        return content

    def label_of(self, name: str) -> Any:
        file, group, i = self.places[name]
        return self.labels_in(file)[group][i]


def open_parquet(path: Path) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(path, page_checksum_verification=True)


def row_counts(path: Path) -> list[int]:
    """Number of rows of each row group. Raises ValueError if there is no column of images."""
    with as_value_error(path, "cannot be read"), open_parquet(path) as file:
        columns = [file.schema.column(i).path for i in range(len(file.schema))]
        if CONTENT not in columns:
            names = join_truncated(list(map(sanitize, columns)), 8, ", ")
            raise ValueError(f"expected a column image with bytes ({CONTENT}), got {names}")
        counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        size = path.stat().st_size
        if min(counts, default=0) < 0 or sum(counts) > size:
            raise ValueError(f"{sum(counts)} rows do not fit into {size} bytes")
        return counts


def images_of(path: Path, group: int) -> Any:
    """Column `image` of a row group, or the reason, to be cached as well, why it cannot be used."""
    try:
        with as_value_error(path, "cannot be read"), open_parquet(path) as file:
            column = column_of(file, group, CONTENT)
            column.validate(full=True)
            return column
    except ValueError as error:
        return str(error)  # the error itself would keep what was read


def column_of(file: Any, group: int, path: str) -> Any:
    """Read one column of a row group that is not empty. Raises ValueError above `MAX_ROW_GROUP`
    bytes in memory, where values that the file has once take their size in each row."""
    import pyarrow

    too_large = (
        f"a row group must have at most {MAX_ROW_GROUP} bytes; write it again with a smaller "
        "row_group_size"
    )
    if not 0 <= file.metadata.row_group(group).total_byte_size <= MAX_ROW_GROUP:
        raise ValueError(too_large)
    size, batches = 0, []
    options = {"row_groups": [group], "columns": [path], "use_threads": False}
    for batch in file.iter_batches(ROWS_AT_ONCE, **options):
        batches.append(batch)
        size += batch.nbytes
        if size > MAX_ROW_GROUP:
            raise ValueError(too_large)
    return pyarrow.Table.from_batches(batches).column(0)


def labels_of(path: Path) -> list[list[Any]]:
    """Labels of each row group: names if the schema has those of the classes; None for none."""
    with as_value_error(path, "has no valid labels"), open_parquet(path) as file:
        schema = file.schema_arrow
        name = next((name for name in ("label", "labels") if name in schema.names), None)
        counts = row_counts(path)
        if name is None:
            return [[None] * count for count in counts]
        described = json.loads((schema.metadata or {}).get(b"huggingface", "{}"))
        classes = described.get("info", {}).get("features", {}).get(name, {}).get("names")
        labels = [
            column_of(file, i, name).to_pylist() if count else [] for i, count in enumerate(counts)
        ]
        if classes is None:
            return labels
        named: dict[Any, Any] = {None: None, -1: None}  # -1 stands for no label
        named |= enumerate(classes)
        return [[named[label] for label in group] for group in labels]


def fetch_from_hub(name: str) -> Path:
    """The folder of `hf:owner/name[@revision]`, fetched unless it is cached."""
    require_module("huggingface_hub", packages="huggingface-hub", purpose="fetching from the Hub")
    from huggingface_hub import snapshot_download

    repository, _, revision = name.removeprefix("hf:").partition("@")
    with as_value_error(name, "cannot be fetched"):
        return Path(snapshot_download(repository, repo_type="dataset", revision=revision or None))
