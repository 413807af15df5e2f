"""Images in databases: LMDB as LSUN's, Parquet and Arrow files as those of Hugging Face."""

import functools
import importlib
import json
import re
import threading
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from stylegan.messages import count, listed, readable, reason_of

from .images import is_image
from .labels import Labels, combined, of_classes
from .sources import MAX_FILE_BYTES, Source, first_folder, status_of

TABLES = (".parquet", ".arrow")
SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}.*")  # train-00000-of-00002
GROUPS_KEPT = 4  # parts of tables in memory
LABEL_NAMES = ("label", "labels", "class")  # of a column, unless the file names its kind


def needed(name: str, what: str) -> ModuleType:
    """A package that only these files need."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ValueError(
            f'{what} need the package {name.partition(".")[0]}; pip install "stylegan[databases]"'
        ) from None


class LMDBSource(Source):
    """Encoded images by their keys, as in the databases of LSUN."""

    kind = "LMDB database"

    def __init__(self, path: Path, files: Sequence[Path], include: Sequence[str] = ()) -> None:
        self.file = files[0]
        if len(files) > 1:
            several = listed([readable(file.relative_to(path)) for file in files], 3, ", ")
            raise ValueError(f"{readable(path)} holds several databases ({several}); give one")
        self.errors: Any = needed("lmdb", "LMDB databases").Error
        try:
            self.environment = environment(self.file)
            with self.environment.begin() as transaction:
                keys = [bytes(key) for key in transaction.cursor().iternext(values=False)]
        except self.errors as error:
            reason = readable(reason_of(error))
            raise ValueError(f"{readable(self.file)} is not a sound LMDB: {reason}") from error
        if b"length" in keys:
            raise ValueError(
                f"{readable(path)} has its images at several sizes, as rosinality's "
                "prepare_data.py writes them; give the images that it was made of"
            )
        self.keys = {named(key): key for key in keys}
        if len(self.keys) < len(keys):
            raise ValueError(f"{readable(path)} has keys that differ only in .webp at their end")
        super().__init__(path, self.keys, include)

    @staticmethod
    def files_of(near: Sequence[Path]) -> list[Path]:
        return [file for file in near if file.suffix == ".mdb" and file.name != "lock.mdb"]

    def read(self, name: str) -> bytes:
        try:
            with self.environment.begin(buffers=True) as transaction:
                value = transaction.get(self.keys[name])
                if len(value) > MAX_FILE_BYTES:
                    raise ValueError(f"{name}: larger than {MAX_FILE_BYTES} bytes")
                return bytes(value)
        except self.errors as error:
            raise ValueError(f"{name}: {readable(reason_of(error))}") from error

    def listing(self) -> Iterator[tuple[Any, ...]]:
        yield status_of(self.file)


def named(key: bytes) -> str:
    """LSUN's keys have no ending, and its images are WebP."""
    name = key.decode("utf-8", "surrogateescape")
    return name if is_image(name) else f"{name}.webp"


OPEN: "weakref.WeakValueDictionary[Path, Any]" = weakref.WeakValueDictionary()


def environment(file: Path) -> Any:
    """The open database; a process may open each only once."""
    place = file.resolve()
    if (opened := OPEN.get(place)) is None:
        lmdb = needed("lmdb", "LMDB databases")
        opened = lmdb.open(str(place), subdir=False, readonly=True, lock=False, readahead=False)
        OPEN[place] = opened
    return opened


class TableSource(Source):
    """Images in a column of Parquet or Arrow files, labels in another.

    Names are `SPLIT/NUMBER.png`, so `include` chooses splits; it also takes `image=COLUMN` and
    `label=COLUMN`, where a file does not say, or has several.
    """

    kind = "table"

    def __init__(self, path: Path, files: Sequence[Path], include: Sequence[str] = ()) -> None:
        chosen = dict(one.split("=", 1) for one in include if one.startswith(("image=", "label=")))
        splits = [one for one in include if one.partition("=")[0] not in chosen]
        arrow = needed("pyarrow", "Parquet and Arrow files")
        self.files, self.lock = list(files), threading.Lock()
        self.part = functools.lru_cache(GROUPS_KEPT)(self.read_part)
        names = list[str]()
        self.starts, self.parts = list[int](), list[tuple[Path, int]]()  # first row; file, group
        try:
            schema = schema_of(files[0])
            self.image = image_column(schema, chosen.get("image"))
            self.candidates = label_columns(schema, chosen.get("label"))
            self.label = self.candidates[0] if len(self.candidates) == 1 else None
            for file in files:
                if not {self.image, *filter(None, [self.label])} <= {*schema_of(file).names}:
                    raise ValueError("its columns are not those of the first file")
                for group, rows in enumerate(rows_of(file)):
                    self.starts.append(len(names))
                    self.parts.append((file, group))
                    split = split_of(file)
                    names += [f"{split}/{i:09}.png" for i in range(len(names), len(names) + rows)]
        except (arrow.ArrowException, OSError, ValueError) as error:
            raise ValueError(f"{readable(path)}: {readable(reason_of(error))}") from error
        super().__init__(path, names, splits)

    @staticmethod
    def files_of(near: Sequence[Path]) -> list[Path]:
        tables = [file for file in near if file.suffix in TABLES]
        return [file for file in tables if not file.name.startswith("cache-")]  # of `datasets`

    def read_part(self, number: int, column: str) -> Any:
        file, group = self.parts[number]
        return column_of(file, group, column)

    def read(self, name: str) -> bytes:
        row = int(name.rpartition("/")[2].removesuffix(".png"))
        number = bisect_right(self.starts, row) - 1
        with self.lock:
            value = self.part(number, self.image)[row - self.starts[number]].as_py()
        content = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(content, bytes):
            raise ValueError(f"{name}: its image is not in the file")
        return content

    def read_labels(self) -> Labels:
        if len(self.candidates) > 1:
            several = ", ".join(map(readable, self.candidates))
            raise ValueError(f"several columns hold classes ({several}); choose one with "
                             "--include label=COLUMN")  # fmt: skip
        if self.label is None:
            return of_classes([None] * len(self.names))
        noted = features_of(schema_of(self.files[0])).get(self.label, {}).get("names")
        names = list(map(str, noted)) if isinstance(noted, list) else None
        values: list[Any] = []
        for file, group in self.parts:
            values += column_of(file, group, self.label).to_pylist()
        rows = [int(name.rpartition("/")[2].removesuffix(".png")) for name in self.names]
        try:
            return combined({n: values[i] for n, i in zip(self.names, rows, strict=True)}, names)
        except ValueError as error:
            raise ValueError(f"the labels in column {self.label} cannot be used: {error}") from None

    def notes(self) -> list[str]:
        label = f", labels of column {self.label}" if self.label else ""
        splits = sorted({str(first_folder(name)) for name in self.names})
        lines = [f"images of column {self.image}{label if self.labels else ''}"]
        if self.labels is None:
            lines.append(f"no labels: {self.label_fault}")
        if len(splits) > 1:
            some = listed([readable(split) for split in splits], 4, ", ")
            lines.append(f"{count(len(splits), 'split')} together ({some}); --include takes some")
        return lines

    def listing(self) -> Iterator[tuple[Any, ...]]:
        yield self.image, self.label, len(self.names)
        for file in self.files:
            yield str(file.relative_to(self.path.parent)), *status_of(file)


def split_of(file: Path) -> str:
    """`train` of `data/train-00000-of-00002.parquet` and of `train/data-00000-of-00001.arrow`."""
    found = SHARD.fullmatch(file.name)
    name = found[1] if found else file.stem
    return file.parent.name if name == "data" else name


def parquet(file: Path) -> Any:
    return needed("pyarrow.parquet", "Parquet files").ParquetFile(file)


def stream(file: Path) -> Any:
    """The table of an Arrow file, mapped into memory: a stream, as of `datasets`, or a file."""
    arrow, ipc = needed("pyarrow", "Arrow files"), needed("pyarrow.ipc", "Arrow files")
    try:
        return ipc.open_stream(arrow.memory_map(str(file))).read_all()
    except arrow.ArrowInvalid:
        return ipc.open_file(arrow.memory_map(str(file))).read_all()


def schema_of(file: Path) -> Any:
    return parquet(file).schema_arrow if file.suffix == ".parquet" else stream(file).schema


def rows_of(file: Path) -> list[int]:
    """The rows of each part that is read at once."""
    if file.suffix == ".parquet":
        meta = parquet(file).metadata
        return [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
    return [stream(file).num_rows]


def column_of(file: Path, group: int, column: str) -> Any:
    if file.suffix == ".parquet":
        return parquet(file).read_row_group(group, columns=[column]).column(column)
    return stream(file).column(column)


def features_of(schema: Any) -> dict[str, Any]:
    """What `datasets` notes about the columns, by their names."""
    try:
        noted = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {k: v for k, v in noted.items() if isinstance(v, dict)}
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


def image_column(schema: Any, asked: str | None) -> str:
    """The column of encoded images: bytes, or bytes with a path."""
    types = needed("pyarrow.types", "Parquet and Arrow files")

    def holds(kind: Any) -> bool:
        if types.is_struct(kind):
            return any(kind.field(i).name == "bytes" for i in range(kind.num_fields))
        return bool(types.is_binary(kind) or types.is_large_binary(kind))

    found = [field.name for field in schema if holds(field.type)]
    known = ", ".join(map(readable, schema.names))
    if asked is not None:
        if asked not in found:
            raise ValueError(f"the column {asked} does not hold images; columns: {known}")
        return asked
    named = [name for name in found if name in ("image", "img")]
    if len(named or found) != 1:
        what = "several columns hold" if found else "no column holds"
        raise ValueError(f"{what} images; choose one with --include image=COLUMN of {known}")
    return (named or found)[0]


def label_columns(schema: Any, asked: str | None) -> list[str]:
    """The column of labels, none, or several that may be meant."""
    if asked is not None and asked not in schema.names:
        known = ", ".join(map(readable, schema.names))
        raise ValueError(f"there is no column {asked} for labels; columns: {known}")
    noted = features_of(schema)
    classes = [n for n in schema.names if noted.get(n, {}).get("_type") == "ClassLabel"]
    return [asked] if asked else classes or [n for n in LABEL_NAMES if n in schema.names][:1]
