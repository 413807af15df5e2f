"""Directions in W found without examples.

"pca": the principal components of w over random latents (GANSpace, Harkonen et al. 2020).
"sefa": the directions that the style layers amplify most, in closed form from their weights (Shen
and Zhou 2021). "svm" directions are those of `learning`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from PIL.Image import Image
from torch import Tensor

from stylegan import sampling
from stylegan.figures import image_table
from stylegan.networks import Generator
from stylegan.networks.edits import Edit, check_layers
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.text import suggestion

Method = Literal["pca", "sefa", "svm"]
ALL_METHODS: tuple[Method, ...] = get_args(Method)
METHODS: tuple[Method, ...] = ("pca", "sefa")  # that need no examples
COUNT = 10
SAMPLES = 50_000
AMOUNTS = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)  # standard deviations, columns of a figure


@dataclass(frozen=True, eq=False)
class Directions:
    """Directions of one method, the most important first. Tensors are float32 on the CPU."""

    method: Method
    layers: range  # of ws, that are moved by default
    samples: int  # number of w that the deviations were measured on
    vectors: Tensor  # (K, w_dim), of unit length
    deviations: Tensor  # (K,) standard deviation of w along each: the unit of a move
    scores: Tensor  # (K,) pca: variance along each; sefa: |A v|^2 of styles A v; svm: accuracy
    names: Sequence[str]  # those of pca and sefa are numbers from 1

    def edit(self, name: str, strength: float = 1.0, layers: range | None = None) -> Edit:
        """The edit along a direction, by name or number from 1, in `layers` or the default ones."""
        names = list(self.names)
        if name in names:
            i = names.index(name)
        elif name.isdecimal() and 1 <= int(name) <= len(names):
            i = int(name) - 1
        else:
            number = f"; there are 1 to {len(names)}"
            known = suggestion(name, names) if self.method == "svm" else number
            raise ValueError(f"there is no direction {self.method}:{name}{known}")
        return Edit(self.deviations[i] * self.vectors[i], strength, layers or self.layers)


def spectrum(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Largest eigenvalues (count,) of a symmetric matrix (D, D), and their unit eigenvectors
    (count, D), with signs that make the largest component of each positive."""
    if not 1 <= count <= len(matrix):
        raise ValueError(f"the number of directions must be from 1 to {len(matrix)}, got {count}")
    eigenvalues, columns = torch.linalg.eigh(matrix)  # in ascending order
    vectors = columns.T.flip(0)[:count]
    largest = vectors.gather(1, vectors.abs().argmax(dim=1, keepdim=True))
    return eigenvalues.flip(0)[:count], vectors * largest.sign()


def covariance(w: Tensor, groups: int = 1) -> Tensor:
    """Covariance (D, D), float64 on the CPU, of w (N, D) about the means of its groups. Row i is in
    group i mod `groups`."""
    if len(w) < 2 * groups:
        raise ValueError(f"a covariance needs at least {2 * groups} samples, got {len(w)}")
    total = torch.zeros(w.shape[1], w.shape[1], dtype=torch.float64)
    for first in range(groups):
        rows = w[first::groups].cpu().double()  # not every GPU has float64
        rows = rows - rows.mean(dim=0)
        total += rows.T @ rows
    return total / len(w)


def covariance_of_w(generator: Generator, samples: int, label_rows: Tensor | None = None) -> Tensor:
    """Covariance (w_dim, w_dim) of w, float64, within classes or labels (K, label_dim)."""
    w = sampling.sample_w(generator, samples, label_rows)
    groups = generator.config.label_dim if label_rows is None else len(label_rows)
    return covariance(w, max(groups, 1))


def deviations_along(vectors: Tensor, covariance_: Tensor) -> Tensor:
    """Standard deviations (K,), float32, along unit vectors (K, D), given the covariance (D, D)."""
    vectors = vectors.double()
    return torch.einsum("kd,de,ke->k", vectors, covariance_, vectors).clamp_min(0).sqrt().float()


def style_matrix(generator: Generator, layers: range) -> Tensor:
    """The matrix, float64 (S, w_dim), that maps w to the styles of `layers`, without bias."""
    epilogues = generator.synthesis.epilogues(generator.config.resolution)
    affines = [epilogues[i].style.affine for i in layers]  # type: ignore[union-attr]
    return torch.cat([a.weight.detach().cpu().double() * a.weight_scale for a in affines])


def find_directions(
    generator: Generator,
    methods: Sequence[Method] = METHODS,
    *,
    count: int = COUNT,
    layers: range | None = None,
    samples: int = SAMPLES,
    label_rows: Tensor | None = None,
    resolution: int | None = None,
) -> list[Directions]:
    """Find directions by each of `methods`, within classes or the labels `label_rows`
    (K, label_dim). Edits move `layers` (default: those up to `resolution`, to which the network has
    grown), and "sefa" considers only their styles."""
    config = generator.config
    styles = config.num_ws(resolution)
    layers = check_layers(range(styles) if layers is None else layers, styles)
    if "sefa" in methods and not config.styles:
        raise ValueError("sefa needs style layers, and this network has none; use pca")
    of_w = covariance_of_w(generator, samples, label_rows)
    directions = []
    for method in methods:
        matrix = of_w
        if method == "sefa":  # eigenvectors of A^T A maximize |A v|^2: equation 6
            of_layers = style_matrix(generator, layers)
            matrix = of_layers.T @ of_layers
        eigenvalues, vectors = spectrum(matrix, count)
        numbers = vectors.float(), deviations_along(vectors, of_w), eigenvalues.float()
        names = [str(i + 1) for i in range(count)]
        directions.append(Directions(method, layers, samples, *numbers, names))
    return directions


def draw_directions(
    loaded: Pretrained, directions: Directions, *, seed: int = 0, labels: Tensor | None = None
) -> Image:
    """Draw a row for each direction, from -3 to 3 standard deviations. labels: (1, label_dim)."""
    rows = []
    for name in directions.names:
        moves = [[directions.edit(name, amount)] for amount in AMOUNTS]
        rows.append([next(loaded.generate([seed], labels=labels, edits=edits)) for edits in moves])
    return image_table(
        rows,
        columns=[f"{amount:+g}" if amount else "0" for amount in AMOUNTS],
        names=[f"{directions.method} {name}" for name in directions.names],
        title="standard deviations",
    )
