"""What the commands that measure share: tools, notes and progress on stderr."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stylegan.cli.common import progress_bar
from stylegan.cli.terminal import note

if TYPE_CHECKING:
    from stylegan.data import Store
    from stylegan.files.loaded import LoadedGenerator
    from stylegan.metrics import Tools
    from stylegan.run_folder import RunFolder


def measuring_tools(weights: Path | None = None, classifiers: tuple[Path, ...] = ()) -> "Tools":
    """Tools with the cache of this user."""
    from stylegan.data import default_cache_dir
    from stylegan.metrics import Tools

    return Tools(default_cache_dir() / "metrics", weights, classifiers, tell=note)


def image_bars() -> Callable[[str, int, int], None]:
    """Show a bar on stderr for every pass over images, of the first process's part."""
    bars, current = ExitStack(), ""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(bars.close)  # before an error is printed
    show: Callable[[int, int], None]

    def progress(what: str, done: int, total: int) -> None:
        nonlocal current, show
        if what != current:
            bars.close()
            current, show = what, bars.enter_context(progress_bar("img", what))
        show(done, total)
        if done >= total:
            bars.close()
            current = ""

    return progress


def open_store(
    data: Path | None, run: "RunFolder | None", loaded: "LoadedGenerator"
) -> "Store | None":
    """`metrics.reals.store_of` with a bar."""
    from stylegan.metrics.reals import store_of

    with progress_bar("img") as progress:
        return store_of(loaded, run, data, tell=note, progress=progress)
