"""The real images that a generator is compared with, prepared as for its training."""

from collections.abc import Callable
from pathlib import Path

from stylegan.data import Store, cached_store
from stylegan.files.loaded import LoadedGenerator
from stylegan.run_folder import RunFolder


def store_of(
    loaded: LoadedGenerator,
    run: RunFolder | None,
    data: Path | None = None,
    *,
    tell: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int], None] | None = None,
) -> Store | None:
    """`data`, or else what the run was trained on; None if nothing specifies it or it is gone."""
    known, config = (run.data(), run.config().data) if run else (None, None)
    path = data or known
    if path is None or (data is None and not path.exists()):
        if path is not None:
            tell(f"the run's images are no longer at {path}; pass --data")
        return None
    trained_on = known is not None and path.resolve() == known
    if config and config.include and not trained_on:
        tell(f"all of {path} is used, not only {', '.join(config.include)} as by the run")
    network = loaded.generator.config
    return cached_store(
        path,
        resolution=network.resolution,
        crop=config.crop if config else loaded.crop,
        channels=network.image_channels,
        premultiply=network.premultiplied,
        include=config.include if config and trained_on else (),
        progress=progress,
        tell=tell,
    )
