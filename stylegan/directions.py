"""Directions in the space of w that change pictures in ways of their own, found without labels.

"pca": the principal components of w, which vary most over random latents (GANSpace, Harkonen et
al. 2020). "sefa": the directions that the style layers amplify most, in closed form from their
weights (Shen and Zhou 2021).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from stylegan import sampling
from stylegan.atomic import replacing
from stylegan.figures import chart
from stylegan.files.download import BUNDLED
from stylegan.files.formats.metadata import from_json
from stylegan.files.formats.npz import npz_arrays
from stylegan.files.latents import checked_numbers
from stylegan.files.loaded import LoadedGenerator
from stylegan.messages import readable
from stylegan.metrics.subject import weights_sha256
from stylegan.networks import Generator, NetworkConfig

Method = Literal["pca", "sefa"]
METHODS: tuple[Method, ...] = get_args(Method)
COUNT = 10
SAMPLES = 50_000
LATENTS_AT_ONCE = 4096
FORMAT, VERSION = "stylegan-directions", 1
AMOUNTS = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)  # standard deviations, columns of a figure


class Spectrum(NamedTuple):
    """The first eigenvectors of a symmetric matrix, of unit length, by falling eigenvalue."""

    eigenvalues: Tensor  # (K,)
    vectors: Tensor  # (K, D)


@dataclass(frozen=True, eq=False)
class Directions:
    """Directions of one method, the most important first; float32 on the CPU."""

    method: Method
    layers: range  # rows of ws that they are for
    samples: int  # latents that covariance and deviations were measured on
    vectors: Tensor  # (K, w_dim), of unit length
    eigenvalues: Tensor  # (K,): pca: variance of w along each; sefa: |A v|^2 of the styles A v
    deviations: Tensor  # (K,) standard deviation of w along each: the unit of a move


def spectrum(matrix: Tensor, count: int) -> Spectrum:
    """The `count` largest eigenvalues of a symmetric matrix (D, D) and their eigenvectors.

    A vector's largest number by magnitude is positive, so that its sign depends on nothing else.
    """
    if not 1 <= count <= len(matrix):
        raise ValueError(f"w has from 1 to {len(matrix)} directions, not {count}")
    eigenvalues, columns = torch.linalg.eigh(matrix)
    vectors = columns.T.flip(0)[:count]
    largest = vectors.gather(1, vectors.abs().argmax(dim=1, keepdim=True))
    return Spectrum(eigenvalues.flip(0)[:count], vectors * largest.sign())


def covariance(w: Tensor, groups: int = 1) -> Tensor:
    """Covariance (D, D) in float64 of the rows of w (N, D).

    Row i belongs to group i mod `groups`; what differs is measured from the mean of its group.
    """
    if len(w) < 2 * groups:
        raise ValueError(f"a covariance needs at least {2 * groups} samples, not {len(w)}")
    total = torch.zeros(w.shape[1], w.shape[1], dtype=torch.float64, device=w.device)
    for first in range(groups):
        rows = w[first::groups].double()
        rows = rows - rows.mean(dim=0)
        total += rows.T @ rows
    return total / len(w)


def closed_form_factors(styles: Tensor, count: int) -> Spectrum:
    """The orthogonal unit vectors v with the largest |A v|^2, for the matrix A (S, D) that turns w
    into styles: eigenvectors of A^T A. Equation 6 of Shen and Zhou."""
    return spectrum(styles.T @ styles, count)


def style_matrix(generator: Generator, layers: range) -> Tensor:
    """What turns w into the styles of `layers`, one under the other: float64 (S, w_dim)."""
    epilogues = generator.synthesis.noise_layers(generator.config.resolution)
    affines = [epilogues[i].style.affine for i in layers]  # type: ignore[union-attr]
    return torch.cat([a.weight.detach().double() * a.weight_scale for a in affines])


def deviations_along(vectors: Tensor, covariance_: Tensor) -> Tensor:
    """Standard deviation along unit vectors (K, D), given the covariance (D, D)."""
    return torch.einsum("kd,de,ke->k", vectors, covariance_, vectors).clamp_min(0).sqrt()


def check_layers(layers: range, config: NetworkConfig) -> range:
    """`layers` if they are some of the network's, in order, else a ValueError."""
    rows = range(config.num_styles())
    if not layers or layers.step != 1 or layers[0] not in rows or layers[-1] not in rows:
        found = f"{layers.start} to {layers.stop - 1}"
        raise ValueError(f"the network has layers 0 to {rows[-1]}; {found} is not a range of them")
    return layers


@torch.inference_mode()
def mapped_samples(generator: Generator, samples: int) -> Tensor:
    """w (samples, w_dim) of the seeds 0, 1, ...; with labels, the classes take turns."""
    config, average = generator.config, generator.w_avg
    rows = []
    for start in range(0, samples, LATENTS_AT_ONCE):
        seeds = range(start, min(start + LATENTS_AT_ONCE, samples))
        labels = None
        if config.label_dim:
            labels = torch.eye(config.label_dim)[[i % config.label_dim for i in seeds]].to(average)
        z = sampling.latents(seeds, config.z_dim).to(average)
        rows.append(generator.mapping(z, labels))
    return torch.cat(rows)


def find_directions(
    generator: Generator,
    methods: Sequence[Method] = METHODS,
    *,
    count: int = COUNT,
    layers: range | None = None,
    samples: int = SAMPLES,
) -> list[Directions]:
    """Directions of a generator, by each of the methods.

    `layers` (default: all) are the rows of ws that moves reach, and for "sefa" the layers whose
    styles count. In a network with labels, what differs between classes is left out.
    """
    config = generator.config
    layers = check_layers(range(config.num_styles()) if layers is None else layers, config)
    if "sefa" in methods and not config.styles:
        raise ValueError("the network has no style layers, so only pca finds directions in it")
    spread = covariance(mapped_samples(generator, samples), max(config.label_dim, 1)).cpu()
    found = []
    for method in methods:
        if method == "pca":
            eigenvalues, vectors = spectrum(spread, count)
        else:
            eigenvalues, vectors = closed_form_factors(style_matrix(generator, layers).cpu(), count)
        numbers = vectors, eigenvalues, deviations_along(vectors, spread)
        found.append(Directions(method, layers, samples, *(x.float() for x in numbers)))
    return found


def moved(ws: Tensor, directions: Directions, amounts: Sequence[float]) -> Tensor:
    """ws (N, num_styles, w_dim), moved by `amounts` standard deviations along the directions.

    Missing amounts are 0. Only the directions' layers change.
    """
    if len(amounts) > len(directions.vectors):
        raise ValueError(f"{len(amounts)} amounts for {len(directions.vectors)} directions")
    steps = directions.deviations[: len(amounts)] * torch.tensor(amounts)
    move = (steps @ directions.vectors[: len(amounts)]).to(ws)
    result = ws.clone()
    result[:, directions.layers.start : directions.layers.stop] += move
    return result


def draw_directions(
    loaded: LoadedGenerator,
    directions: Directions,
    *,
    seed: int = 0,
    psi: float | None = None,
    labels: Tensor | None = None,
    amounts: Sequence[float] = AMOUNTS,
) -> Image:
    """A row for each direction: the picture of a seed, moved by `amounts` standard deviations.

    `psi` truncates before the move; None: as the file of the generator says. `labels` (1,
    label_dim) are for a network that has labels.
    """
    z = sampling.latents([seed], loaded.generator.config.z_dim)
    ws = loaded.truncated(loaded.styles(z, labels), psi=psi)
    moves = [[0.0] * i + [amount] for i in range(len(directions.vectors)) for amount in amounts]
    pictures = loaded.pictures(
        [seed] * len(moves),
        ws=torch.cat([moved(ws, directions, move) for move in moves]),
        psi=1,
    )
    return chart(
        list(zip(*[pictures] * len(amounts), strict=True)),
        columns=[f"{amount:+g}" if amount else "0" for amount in amounts],
        names=[f"{directions.method} {i + 1}" for i in range(len(directions.vectors))],
        title="standard deviations",
    )


def default_path(source: str | Path) -> Path:
    """The file of the directions of a source: in a run folder, beside a file, or, of a bundled
    name or an address, in the current folder."""
    path = Path(source)
    if path.is_dir() and str(source) not in BUNDLED:
        return path / "directions.npz"
    if path.is_file() and str(source) not in BUNDLED:
        return path.with_suffix(".directions.npz")
    return Path(f"{PurePosixPath(str(source).partition('#')[0]).stem}.directions.npz")


def save_directions(path: Path, found: Sequence[Directions], generator: Generator) -> None:
    """Write directions as arrays and JSON, with the SHA-256 of the generator's weights.

    `path` is at every moment absent, the old file or the new one.
    """
    about = {
        "format": FORMAT,
        "version": VERSION,
        "generator_sha256": weights_sha256(generator),
        "methods": {
            d.method: {"layers": [d.layers.start, d.layers.stop], "samples": d.samples}
            for d in found
        },
    }
    arrays = {"meta": np.array(json.dumps(about))}
    for d in found:
        for name in ("vectors", "eigenvalues", "deviations"):
            arrays[f"{d.method}_{name}"] = getattr(d, name).numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def load_directions(path: Path, generator: Generator) -> list[Directions]:
    """What `save_directions` wrote for this generator.

    ValueError if the file is another one, damaged, or was made for other weights. Nothing in it is
    executed.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} with directions")
    arrays = npz_arrays(path)
    about = from_json(str(arrays.get("meta", "{}")), path, "meta")
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        raise ValueError(
            f"{path} does not hold directions of version {VERSION}; stylegan directions makes them"
        )
    if about.get("generator_sha256") != weights_sha256(generator):
        raise ValueError(
            f"{path} has directions of other weights; stylegan directions makes those of this "
            "generator"
        )
    try:
        return [
            directions_of(method, entry, arrays, generator.config)
            for method, entry in about["methods"].items()
        ]
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} is damaged: {readable(reason, 1000)}") from error


def directions_of(
    method: Any, entry: Mapping[str, Any], arrays: Mapping[str, np.ndarray], config: NetworkConfig
) -> Directions:
    """The directions of one method of a file."""
    if method not in METHODS:
        raise ValueError(f"unknown method {readable(repr(method))}")
    vectors, eigenvalues, deviations = (
        checked_numbers(name, arrays[name])
        for name in (f"{method}_{part}" for part in ("vectors", "eigenvalues", "deviations"))
    )
    count = len(vectors)
    if vectors.shape != (count, config.w_dim) or {eigenvalues.shape, deviations.shape} != {
        (count,)
    }:
        raise ValueError(f"{count} directions {method} do not fit w of {config.w_dim} numbers")
    layers = check_layers(range(*map(int, entry["layers"])), config)
    return Directions(method, layers, int(entry["samples"]), vectors, eigenvalues, deviations)
