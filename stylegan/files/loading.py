"""From a run folder, file, address or bundled name to its networks."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from stylegan.files.download import BUNDLED, bundled_file, fetch
from stylegan.files.formats import SHARED, read_weights
from stylegan.files.run_folder import RunFolder, images_seen_in_name
from stylegan.files.weights import Weights
from stylegan.networks import NetworkConfig, make_generator
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.filesystem import attach_filename, not_found
from stylegan.utils.lineage import public_address
from stylegan.utils.text import join_truncated

ACCEPTED = (
    "a run folder, a file of weights (stylegan generate --help lists the kinds), an https address "
    f"with #sha256=..., or a bundled name ({', '.join(BUNDLED)})"
)
HUB_NAME = re.compile(r"(?!runs/)[\w-][\w.-]*/[\w-][\w.-]*")  # OWNER/NAME, unlike a usual --out
Device = str | torch.device
# What to open weights for: to generate images, to initialize training from all networks there are,
# or for the discriminator.
Need = Literal["pictures", "training", "discriminator"]


def load_generator(path_or_url: str | Path, *, map_location: Device = "cpu") -> Pretrained:
    """Load a generator in eval mode, its weights frozen; gradients still reach z and w.

    Accepts whatever `open_weights` does. `sample`, `generate` and `forward` follow the settings in
    the file, except that psi is 1 in `forward` unless it is given.
    """
    loaded = open_weights(path_or_url, map_location=map_location).require_loaded()
    return loaded.requires_grad_(requires_grad=False)


def untrained_generator(config: NetworkConfig, *, map_location: Device = "cpu") -> Pretrained:
    """Generator with random weights, in eval mode and frozen like one of `load_generator`."""
    generator = make_generator(config).eval().to(map_location)
    return Pretrained(generator, origin="random weights").requires_grad_(requires_grad=False)


def open_weights(
    source: str | Path, *, need: Need | None = "pictures", map_location: Device = "cpu"
) -> Weights:
    """Load the networks of a source (see `ACCEPTED`). Nothing in a file is ever executed.

    A bundled name takes precedence over a path (write ./faces64 for a folder of that name). In a
    folder, the newest usable file counts, the generator file before the state of the same image;
    "training" and "discriminator" try states, which contain all networks, first; with `need` None,
    whatever the file contains. Raises ValueError or OSError if none can be used.
    """
    place = resolve_source(source)
    unusable: list[OSError | ValueError] = []
    for file in candidate_files(place, states_first=need in ("training", "discriminator")):
        try:
            with attach_filename(file):
                weights = read_weights(file, name=name_in_lineage(source, file))
            if need == "discriminator":
                weights.require_discriminator()
            elif need is not None:
                weights.require_loaded()
        except (OSError, ValueError) as error:
            unusable.append(error)
            continue
        for network in weights.networks().values():
            network.to(map_location)
        loaded = weights.loaded
        skipped_files = tuple(map(str, unusable))
        if loaded is not None and skipped_files:
            reasons = join_truncated([f"not used: {reason}" for reason in skipped_files], 3)
            loaded = loaded.replace(origin=f"{loaded.origin}; {reasons}")
        return replace(weights, loaded=loaded, source=str(source), skipped_files=skipped_files)
    raise unusable[0]


def resolve_source(source: str | Path) -> Path:
    """Resolve `source` to a file or folder; an address is downloaded."""
    if source in BUNDLED:
        return bundled_file(str(source))
    if "://" in str(source):
        return fetch(str(source))
    path = Path(source)
    if not path.exists():
        advice = f"accepted are {ACCEPTED}"
        if HUB_NAME.fullmatch(str(source)) and not path.parent.exists():
            advice = (
                f"if it is on the Hub, run hf download {source} --local-dir {path.name}, after "
                "pip install huggingface-hub"
            )
        known = BUNDLED if path.parent == Path() else ()
        raise FileNotFoundError(not_found(path, advice, known=known))
    return path


def candidate_files(path: Path, *, states_first: bool) -> list[Path]:
    """Files of weights at `path`, newest first; with `states_first`, states before generators."""
    if not path.is_dir():
        return [path]
    run = RunFolder(path)
    states, generators = run.states()[::-1], run.generators()[::-1]
    if states_first:
        files = [*states, *generators]
    else:  # a training that was stopped may have no generator of its newest state
        files = sorted([*generators, *states], key=images_seen_in_name, reverse=True)  # stable
    if (path / SHARED).is_file():
        files.append(path / SHARED)
    if not files:
        raise FileNotFoundError(
            f"the folder {path} holds neither generator-*.pt nor state-*.pt nor {SHARED}; pass a "
            "run that has saved something, or a file"
        )
    return files


def check_there(source: str | Path) -> None:
    """Raise FileNotFoundError if a source has no file of weights; addresses are not requested."""
    if "://" not in str(source):
        candidate_files(resolve_source(source), states_first=False)


def name_in_lineage(source: str | Path, file: Path) -> str:
    """Bundled name, address, or name (of a run: FOLDER/NAME) of a source's `file` in lineages."""
    if source in BUNDLED:
        return str(source)
    if "://" in str(source):
        return public_address(str(source))
    place = file.resolve()
    if Path(source).is_dir() or RunFolder.of(place):
        return f"{place.parent.name}/{file.name}"
    return file.name
