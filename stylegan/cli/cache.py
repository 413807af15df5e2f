"""`stylegan cache`: what is kept between calls, because making it again takes time."""

import time
from pathlib import Path

import click

from stylegan.cli.common import Command, say
from stylegan.messages import aligned, count, readable, suggestion


@click.command(cls=Command)
@click.argument("names", nargs=-1)
@click.option("--clear", is_flag=True, help="Remove what would be listed.")
@click.option(
    "--older",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="List or remove only what was not used for so many days.",
)
def cache(names: tuple[str, ...], clear: bool, older: float | None) -> None:
    """List the stores that `train --data FOLDER` has made and keeps, or remove some.

    They can be made again. They lie in the folder that the environment variable STYLEGAN_CACHE
    names, or else below the user's cache; nothing else there is listed or removed. NAMES are those
    of the list; without any, all.

    \b
    stylegan cache
    stylegan cache --clear photos-256-0f3a5c7d9e1b2468
    stylegan cache --clear --older 30
    """
    from stylegan.data import default_cache_dir
    from stylegan.data.cache import cached_stores
    from stylegan.data.prepare import mib
    from stylegan.data.store import remove_files

    folder = default_cache_dir()
    stores = {store.path.name: store for store in cached_stores(folder)}
    for name in names:
        if name not in stores:
            raise ValueError(
                f"{readable(name)} is not in {readable(folder)}{suggestion(name, list(stores))}"
            )
    latest = time.time() - (older or 0) * 24 * 60 * 60
    chosen = [stores[name] for name in names or stores if stores[name].last_used <= latest]
    total = f"{count(len(chosen), 'store')}, {mib(sum(store.size_bytes for store in chosen))}"
    if clear:
        for store in chosen:
            remove_files(store.path)
        say(f"removed {total}, from {readable(folder)}")
        return
    rows = [("name", "images", "px", "size", "last used", "source")]
    for store in chosen:
        meta = store.meta
        numbers = (f"{meta.num_images:,}", f"{meta.resolution}") if meta else ("damaged", "")
        used = time.strftime("%Y-%m-%d", time.localtime(store.last_used))
        source = readable(store.source) + ("" if Path(store.source).exists() else " (gone)")
        rows.append((store.path.name, *numbers, mib(store.size_bytes), used, source))
    say(f"{readable(folder)}: {total}", *(aligned(rows, left=[0, 5]) if chosen else []))
