"""`stylegan edits`: edits that have names, beside their generator."""

from pathlib import Path

import click

from stylegan.cli import values
from stylegan.cli.common import Command, use_device
from stylegan.cli.options import CLASS, DEVICE, EDIT, OVERWRITE, SOURCE, edits_of, path_option
from stylegan.cli.terminal import say
from stylegan.destination import check_file


@click.command(cls=Command)
@SOURCE
@click.option("--save", "name", metavar="NAME", help="Save what --edit says under this name.")
@EDIT
@click.option("--remove", metavar="NAME", help="Remove a saved edit.")
@path_option("--out", "File, .json.  [default: where SOURCE's saved edits are looked for]")
@click.option("--seed", type=values.SEED, default=0, help="Seed of the picture that is edited.")
@CLASS
@DEVICE
@OVERWRITE
def edits(
    source: str,
    name: str | None,
    edits: tuple[str, ...],
    remove: str | None,
    out: Path | None,
    seed: int,
    class_name: str | None,
    device: str,
    overwrite: bool,
) -> None:
    """List the saved edits of SOURCE, save one, or remove one.

    A saved edit has the name that `--edit` of every command takes, with a strength if it is not
    1. The file holds the directions themselves; the picture beside it shows each edit on a seed.

    \b
    stylegan edits emoji32 --save open --edit pca:2=+2@0-3 --edit sefa:1=-1
    stylegan edits emoji32
    stylegan generate emoji32 --edit open=0.5 --out opened/
    """
    from stylegan.directions import SavedEdit, edits_path, load_edits, with_edit, write_edits
    from stylegan.files.loading import load_source

    if (name is None) == bool(edits) or (name and remove):
        raise click.UsageError("--save NAME goes with one --edit or more, and without --remove")
    path = out or edits_path(source)
    check_file(path, overwrite=True, endings=[".json"])
    if not path.exists():
        check_file(path.with_suffix(".png"), overwrite=overwrite)
    loaded = load_source(source, map_location=use_device(device))
    if name is not None:
        new = SavedEdit(edits, edits_of(source, loaded, edits))
        saved = with_edit(path, name, new, loaded, overwrite=overwrite)
    elif not path.exists():
        raise FileNotFoundError(f"no edits are saved in {path}; --save NAME --edit ... adds one")
    else:
        saved = load_edits(path, loaded)
    if remove is not None and saved.pop(remove, None) is None:
        raise ValueError(f"{path} has no edit {remove}; there are {', '.join(saved)}")
    if name is not None or remove is not None:
        labels = loaded.label(class_name or "0") if loaded.generator.config.label_dim else None
        write_edits(path, saved, loaded, seed=seed, labels=labels)
    for called, edit in saved.items():
        say(f"{called}: {' '.join(edit.made_of)}")
    say(f"{path}, {path.with_suffix('.png')}" if saved else f"{path} is empty and was removed")
