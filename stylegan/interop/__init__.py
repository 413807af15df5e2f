"""Weights of other programs -> our networks: the official ones, without TensorFlow, and those of
three in PyTorch.

Official networks are given as variables and settings, or as a `.pkl` file. Names and layouts are
in `correspondence.py`, the safe reading of the file in `pickles.py`; what the importers of the
others share is in `foreign.py`.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from stylegan.interop import genforce, huangzh13, rosinality
from stylegan.interop.accounts import Account, Imported, official_accounts
from stylegan.interop.correspondence import (
    DISCRIMINATOR_SETTINGS,
    GENERATOR_SETTINGS,
    MAPPING_SETTINGS,
    SYNTHESIS_SETTINGS,
    Match,
    config_from_official,
    discriminator_matches,
    fusion_from_official,
    generator_matches,
    mapping_matches,
    synthesis_matches,
)
from stylegan.interop.pickles import ForeignFileError, OfficialNetwork, read_networks
from stylegan.messages import readable
from stylegan.networks import (
    Discriminator,
    Generator,
    MappingNetwork,
    NetworkConfig,
    SynthesisNetwork,
)
from stylegan.schedule import resolutions

__all__ = [
    "Account",
    "Imported",
    "Snapshot",
    "centred",
    "discriminator_from_official",
    "generator_from_official",
    "import_official",
    "import_weights",
    "load_official",
    "mapping_from_official",
    "synthesis_from_official",
]

LAYOUTS = (rosinality, genforce, huangzh13)
NAMED_AT_MOST = 8  # variables in one message
N = TypeVar("N", bound=nn.Module)
Variables = Mapping[str, Any]  # official path, relative to its network -> array
Settings = Mapping[str, Any]  # official keyword arguments; official defaults where absent


def mapping_from_official(variables: Variables, settings: Settings) -> MappingNetwork:
    """`Dense0/weight`, ... -> mapping network; `dlatent_broadcast` is left to the caller."""
    config = config_from_official(settings, MAPPING_SETTINGS)
    return filled(lambda: MappingNetwork(config), mapping_matches(config), variables)


def synthesis_from_official(variables: Variables, settings: Settings) -> SynthesisNetwork:
    """`4x4/Conv/weight`, ... -> synthesis network."""
    config = config_from_official(settings, SYNTHESIS_SETTINGS)
    matches = synthesis_matches(config, fusion_from_official(settings))
    return filled(lambda: SynthesisNetwork(config), matches, variables)


def generator_from_official(variables: Variables, settings: Settings) -> Generator:
    """`G_synthesis/4x4/Conv/weight`, `G_mapping/Dense0/weight`, `dlatent_avg`, ... -> generator."""
    config = config_from_official(settings, GENERATOR_SETTINGS)
    matches = generator_matches(config, fusion_from_official(settings))
    return filled(lambda: Generator(config), matches, variables)


def discriminator_from_official(variables: Variables, settings: Settings) -> Discriminator:
    """`4x4/Conv/weight`, ... -> discriminator."""
    config = config_from_official(settings, DISCRIMINATOR_SETTINGS)
    return filled(lambda: Discriminator(config), discriminator_matches(config), variables)


def filled(make: Callable[[], N], matches: Iterable[Match], variables: Variables) -> N:
    """The network that `make` makes with the official variables as its state.

    It is float64 if any variable is, which is exact, and float32 otherwise.
    """
    arrays = {path: np.asarray(value) for path, value in variables.items()}
    arrays = {path: a for path, a in arrays.items() if path.split("/")[-1] != "lod"}
    try:
        with torch.device("meta"):  # shapes only: absurd settings fail before they cost memory
            shapes = {name: tuple(t.shape) for name, t in make().state_dict().items()}
    except (TypeError, RuntimeError, OverflowError) as error:
        raise ValueError("the settings ask for a network larger than any can be") from error
    table = list(matches)
    check_fit({m.path: m.official_shape(shapes[m.name]) for m in table}, arrays)
    exact = any(a.dtype == np.float64 for a in arrays.values())
    network = make().to(torch.float64 if exact else torch.float32)
    state = {m.name: m.from_official(arrays[m.path]) for m in table}
    dtype = np.float64 if exact else np.float32
    network.load_state_dict({n: torch.from_numpy(np.array(a, dtype)) for n, a in state.items()})
    return network


def check_fit(expected: dict[str, tuple[int, ...]], arrays: dict[str, np.ndarray]) -> None:
    """Raise one ValueError that names missing, surplus and misshapen variables."""
    problems = [f"{path} is missing" for path in expected if path not in arrays]
    for path, array in arrays.items():
        if path not in expected:
            problems.append(f"{readable(path)} is not a variable of this network")
        elif array.shape != expected[path]:
            problems.append(f"{path} has shape {array.shape} instead of {expected[path]}")
        elif array.dtype.kind not in "fiu":
            problems.append(f"{path} holds {array.dtype} instead of real numbers")
    if (more := len(problems) - NAMED_AT_MOST) > 0:
        problems[NAMED_AT_MOST:] = [f"and {more} more"]
    if problems:
        raise ValueError(
            f"the official variables do not fit the settings: {'; '.join(problems)}; give the "
            "settings with which the network was built, and variable paths relative to it"
        )


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The three networks of an official file, and what it tells about generating with them."""

    generator: Generator
    discriminator: Discriminator
    generator_ema: Generator  # the one to generate with
    psi: float  # 1.0 = no truncation
    cutoff: int | None  # layers truncated, None = all
    resolution: int  # that training had reached
    alpha: float  # how far that resolution had grown in
    active_rectangle: tuple[int, int, int, int] | None  # top, bottom, left, right; rest is padding
    settings: Settings  # with which the generator was built
    accounts: tuple[Account, ...]  # of generator_ema
    discriminator_accounts: tuple[Account, ...]


def load_official(path: str | Path) -> Snapshot:
    """Read an official version 1 snapshot (G, D, Gs); nothing that the file names is executed.

    The configurations of generator and discriminator are one and the same where their settings
    agree. ValueError says what the file is if it is something else.
    """
    g, d, ema = read_networks(path)
    try:
        config, d_config = shared_configs(g, d)
        tables = [
            list(generator_matches(config, fusion_from_official(official.settings)))
            for official in (g, ema)
        ]
        networks = [
            filled(lambda: Generator(config), table, official.variables)
            for table, official in zip(tables, (g, ema), strict=True)
        ]
        judge = list(discriminator_matches(d_config))
        return Snapshot(
            networks[0],
            filled(lambda: Discriminator(d_config), judge, d.variables),
            networks[1],
            *truncation_defaults(ema.settings),
            *reached(ema.variables, config.resolution),
            rectangle_in_name(Path(path).name, config.resolution),
            ema.settings,
            tuple(official_accounts(tables[1], ema.variables)),
            tuple(official_accounts(judge, d.variables)),
        )
    except ValueError as error:
        raise ForeignFileError(f"{path}: {error}") from error


def import_official(path: str | Path) -> Imported:
    """As `load_official`, in the form that all importers share."""
    snapshot = load_official(path)
    settings = ", ".join(f"{name} {value}" for name, value in snapshot.settings.items())
    return Imported(
        "official snapshot",
        snapshot.generator_ema,
        snapshot.accounts,
        snapshot.psi,
        snapshot.cutoff,
        snapshot.resolution,
        snapshot.alpha,
        active_rectangle=snapshot.active_rectangle,
        trained=snapshot.generator,
        discriminator=snapshot.discriminator,
        discriminator_accounts=snapshot.discriminator_accounts,
        notes=(f"settings given: {readable(settings, 1000)}; the rest is as officially",),
    )


def import_weights(content: object) -> Imported:
    """The networks of a file of another PyTorch program, from its `content`, safely loaded.

    ValueError says what does not fit, or that no layout known here has such names; what it says
    goes on from the name of the file.
    """
    if isinstance(content, Mapping) and all(isinstance(name, str) for name in content):
        for layout in LAYOUTS:
            if layout.recognised(content):
                try:
                    return layout.read(content)
                except ValueError as error:
                    raise ValueError(f"looks like a {layout.LAYOUT}, but {error}") from error
    raise ValueError(
        "is a PyTorch file, but not a checkpoint of this project, nor of one of "
        + ", ".join(layout.LAYOUT.removeprefix("checkpoint of ") for layout in LAYOUTS)
    )


def reached(variables: Variables, full: int) -> tuple[int, float]:
    """Resolution and alpha of the level of detail of a generator; that of its synthesis follows."""
    lod = np.asarray(variables.get("lod", variables.get("G_synthesis/lod", 0)))
    if lod.size != 1 or not 0 <= lod.item() <= len(resolutions(full)) - 1:
        raise ValueError(f"lod is {readable(str(lod))}, which is no level of {full}x{full} images")
    level = float(lod.item())
    return full >> math.floor(level), 1 - level % 1


def rectangle_in_name(name: str, resolution: int) -> tuple[int, int, int, int] | None:
    """The part of the images that is no padding, as the names of published files tell.

    `karras2019stylegan-cars-512x384.pkl`: 512 wide, 384 high, in the middle of 512x512.
    """
    found = re.search(r"-(\d{1,5})x(\d{1,5})\.pkl$", name)
    if found is None:
        return None
    return centred(int(found[1]), int(found[2]), resolution)


def centred(width: int, height: int, resolution: int) -> tuple[int, int, int, int] | None:
    """top, bottom, left, right of a rectangle in the middle; None if it does not touch two
    opposite edges, or is everything."""
    if width == height or max(width, height) != resolution or min(width, height) < 1:
        return None
    top, left = (resolution - height) // 2, (resolution - width) // 2
    return top, top + height, left, left + width


def shared_configs(g: OfficialNetwork, d: OfficialNetwork) -> tuple[NetworkConfig, NetworkConfig]:
    """Configurations of generator and discriminator, equal if their common settings are."""
    config = config_from_official(g.settings, GENERATOR_SETTINGS)
    d_config = config_from_official(d.settings, DISCRIMINATOR_SETTINGS)
    own = {"deviation_group", "deviation_features"}
    common = {"blur", *DISCRIMINATOR_SETTINGS.values()} - own
    if any(getattr(config, field) != getattr(d_config, field) for field in common):
        return config, d_config
    both = dataclasses.replace(config, **{field: getattr(d_config, field) for field in own})
    return both, both


def truncation_defaults(settings: Settings) -> tuple[float, int | None]:
    """psi and cutoff in our terms: officially no psi, no cutoff or one <= 0 is no truncation."""
    psi = settings.get("truncation_psi", 0.7)
    cutoff = settings.get("truncation_cutoff", 8)
    for name, value in (("truncation_psi", psi), ("truncation_cutoff", cutoff)):
        if value is not None and not isinstance(value, (int, float)):
            raise ValueError(f"{name} must be a number or None, not {readable(repr(value))}")
    if psi is None or cutoff is None or cutoff <= 0:
        return 1.0, None
    return float(psi), int(cutoff)
