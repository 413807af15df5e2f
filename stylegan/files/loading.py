"""From whatever names weights (run folder, file, address, bundled name) to the networks."""

import difflib
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from stylegan.files.download import BUNDLED, bundled_file, downloaded
from stylegan.files.formats import SHARED, read_weights
from stylegan.files.run_folder import RunFolder
from stylegan.files.weights import Weights
from stylegan.machine.disk import errors_name, without_links
from stylegan.machine.lineage import public_address
from stylegan.machine.messages import listed
from stylegan.networks import NetworkConfig, make_generator
from stylegan.sampling.pretrained import Pretrained

ACCEPTED = (
    "a run folder, a file of weights (stylegan generate --help lists the kinds), an https address "
    f"with #sha256=..., or a bundled name ({', '.join(BUNDLED)})"
)
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")  # OWNER/NAME
Device = str | torch.device
# The reason to open weights: a generator to make pictures with, all networks that there are to go
# on training from, or a discriminator.
Need = Literal["pictures", "training", "discriminator"]


def load_generator(path_or_url: str | Path, *, map_location: Device = "cpu") -> Pretrained:
    """Open the generator of what `open_weights` takes, in eval mode and frozen: gradients reach z
    and w, and weights after `requires_grad_()`."""
    loaded = open_weights(path_or_url, map_location=map_location).require_loaded()
    return loaded.requires_grad_(requires_grad=False)


def untrained_generator(config: NetworkConfig, *, map_location: Device = "cpu") -> Pretrained:
    """Return a network with random weights, as `load_generator` does one of a file."""
    generator = make_generator(config).eval().to(map_location)
    return Pretrained(generator, origin="random weights").requires_grad_(requires_grad=False)


def open_weights(
    source: str | Path, *, need: Need | None = "pictures", map_location: Device = "cpu"
) -> Weights:
    """Open the networks of what is `ACCEPTED`. A bundled name comes before a path (write ./faces64
    for a folder called that). Nothing in a file is ever executed.

    Of a folder the newest file is taken that can be read and has what is needed: generator files
    before states for "pictures", and states, which hold all networks, before those for "training"
    or a "discriminator". None: whatever the file holds. ValueError if none can be used.
    """
    place = located(source)
    unusable: list[OSError | ValueError] = []
    for file in files_of(place, states_first=need in ("training", "discriminator")):
        try:
            with errors_name(file):
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
        left_out = tuple(map(str, unusable))
        if loaded is not None and left_out:
            reasons = listed([f"not used: {reason}" for reason in left_out], 3)
            loaded = loaded.but(origin=f"{loaded.origin}; {reasons}")
        return replace(weights, loaded=loaded, source=str(source), left_out=left_out)
    raise unusable[0]


def located(source: str | Path) -> Path:
    """Return the file or folder that `source` stands for, downloaded if it is an address."""
    if source in BUNDLED:
        return bundled_file(str(source))
    if "://" in str(source):
        return downloaded(str(source))
    path = Path(source)
    if not path.exists():
        if path.is_symlink():
            raise FileNotFoundError(f"{path} is a link to what is not there")
        beside = list(BUNDLED) if path.parent == Path() else []
        with suppress(OSError):
            beside += [neighbor.name for neighbor in path.parent.iterdir()]
        near = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.8)
        hint = f"accepted are {ACCEPTED}"
        if HUB_NAME.fullmatch(str(source)) and not path.parent.exists():
            hint = f"if the Hub has it, hf download {source} --local-dir {path.name} gets it"
        if near:
            hint = f"did you mean {path.with_name(near[0])}?"
        raise FileNotFoundError(f"there is no {path}; {hint}")
    return path


def files_of(path: Path, *, states_first: bool) -> list[Path]:
    """Return the file `path`, or the files of weights in a folder, in the order in which to try
    them: generators before states unless `states_first`, each from the newest on."""
    if not path.is_dir():
        return [path]
    run = RunFolder(path)
    states = run.states()[::-1]
    generators = run.generators()[::-1]
    files = [*states, *generators] if states_first else [*generators, *states]
    if (path / SHARED).is_file():
        files.append(path / SHARED)
    if not files:
        raise FileNotFoundError(
            f"the folder {path} holds neither generator-*.pt nor state-*.pt nor {SHARED}, "
            "so it is not a run that has saved anything; name another folder, or a file"
        )
    return files


def check_there(source: str | Path) -> None:
    """Raise FileNotFoundError if a source has no file of weights; none is read, nor an address
    asked."""
    if "://" not in str(source):
        files_of(located(source), states_first=False)


def name_in_lineage(source: str | Path, file: Path) -> str:
    """Return the name of a source's `file` in a lineage: its bundled name, its address, or its
    name, for a file of a run with that of the folder; not where the folder lies."""
    if source in BUNDLED:
        return str(source)
    if "://" in str(source):
        return public_address(str(source))
    place = without_links(file)
    if Path(source).is_dir() or RunFolder.of(place):
        return f"{place.parent.name}/{file.name}"
    return file.name
