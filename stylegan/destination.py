"""May this be written? Asked before any work is done, so that neither files nor hours are lost."""

from collections.abc import Iterable
from pathlib import Path


def check_file(path: Path, *, overwrite: bool, endings: Iterable[str] = ()) -> None:
    """ValueError unless a file may be written to `path`: it is not a folder, device or pipe, no
    file is where a folder must be, it is new unless `overwrite`, and it ends in one of `endings`,
    if there are any.
    """
    known = list(endings)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file to write")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file; give another name")
    if known and path.suffix.lower() not in known:
        raise ValueError(f"{path} does not name a format: it must end in {', '.join(known)}")
    check_folder(path.parent)
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists; pass --overwrite or choose another name")


def name_of(path: Path) -> str:
    """What is made of a file may have its name, without the ending; of `...png` that is not `..`,
    the folder above."""
    return path.stem if path.stem.strip(".") else path.name


def check_folder(folder: Path, *, empty: bool = False) -> None:
    """ValueError unless files may be written into `folder`, which may exist, and is `empty` if it
    must be."""
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise ValueError(f"{path} is a file; choose another folder")
    if empty and folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"the folder {folder} is not empty; choose another folder")
