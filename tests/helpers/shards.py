"""Tars, Parquet files and a cache of the Hugging Face Hub."""

import io
import json
import tarfile


def tar(path, files):
    """Write a tar; a value that is no bytes is a `tarfile.TarInfo`, such as a link."""
    pairs = files.items() if isinstance(files, dict) else files
    with tarfile.open(path, "w") as out:
        for name, content in pairs:
            if isinstance(content, tarfile.TarInfo):
                out.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                out.addfile(info, io.BytesIO(content))
    return path


def link(name, kind=tarfile.SYMTYPE, target="/etc/passwd"):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


def write_parquet(path, images, *, classes=None, group=2, **columns):
    """Write Parquet as `datasets` does: `classes` are the names of `label`."""
    import pyarrow
    from pyarrow import parquet

    rows = [
        None if image is None else {"bytes": image, "path": f"{i}.png"}
        for i, image in enumerate(images)
    ]
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    table = pyarrow.table({"image": pyarrow.array(rows, kind), **columns})
    if classes:
        features = {"image": {"_type": "Image"}, "label": {"names": classes}}
        described = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": described})
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path, row_group_size=group)
    return path


def cached_data_set(cache, name, files):
    """A data set `owner/name` as if it were fetched into a cache before; its snapshot."""
    folder = cache / f"datasets--{name.replace('/', '--')}"
    commit = "1" * 40
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    snapshot = folder / "snapshots" / commit
    for number, (file, write) in enumerate(files.items()):
        blob = folder / "blobs" / str(number)
        blob.parent.mkdir(exist_ok=True)
        write(blob)
        (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / file).symlink_to(blob)
    return snapshot
