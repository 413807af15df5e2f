"""Tensors of a foreign file -> ours: how their layouts differ, and that none is missing or left."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from stylegan.messages import listed, readable

N = TypeVar("N", bound=nn.Module)
Shape = tuple[int, ...]

FUSED_FROM = 128  # pixels: officially enlarged to from here on by a transposed convolution


@dataclass(frozen=True)
class Match:
    """One of our tensors, the tensor of a file that holds it, and the difference between them."""

    name: str
    path: str
    axes: tuple[int, ...] = ()  # ours is the file's transposed so; () = as it is
    rotated: bool = False  # ... and then turned by 180 degrees in its last two axes
    factor: float = 1.0  # ... and multiplied
    change: Callable[[Tensor], Tensor] | None = None  # applied after axes and rotation
    shape: Shape = ()  # in the file, where `change` makes another of it

    def to_ours(self, theirs: Tensor) -> Tensor:
        ours = theirs.permute(self.axes) if self.axes else theirs
        ours = ours.flip(-2, -1) if self.rotated else ours
        ours = self.change(ours) if self.change else ours
        return ours if self.factor == 1 else ours.double() * self.factor

    def shape_in_file(self, ours: Shape) -> Shape:
        """What the shape of the tensor in the file must be for ours to have the shape `ours`."""
        back = [self.axes.index(i) for i in range(len(self.axes))]
        return self.shape or tuple(ours[i] for i in back) or ours


def filled(
    make: Callable[[], N],
    matches: Iterable[Match],
    tensors: Mapping[str, Tensor],
    unused: Collection[str] = (),
) -> N:
    """The network that `make` makes, with the `tensors` of a file, in eval mode.

    It is float64 if any of them is, which is exact, and float32 otherwise. `unused` are names of
    tensors that have no match. Those of ours without one are 0. ValueError names what is missing,
    surplus or of another shape.
    """
    table = list(matches)
    with torch.device("meta"):  # shapes only: absurd sizes fail before they cost memory
        network = make()
    shapes = {name: tuple(t.shape) for name, t in network.state_dict().items()}
    wanted = {match.path: match.shape_in_file(shapes[match.name]) for match in table}
    check_fit(wanted, tensors, unused)
    exact = any(tensors[match.path].dtype == torch.float64 for match in table)
    dtype = torch.float64 if exact else torch.float32
    state = {name: torch.zeros(shape, dtype=dtype) for name, shape in shapes.items()}
    for match in table:
        state[match.name].copy_(match.to_ours(tensors[match.path]))
    network.load_state_dict(state, assign=True)
    return network.eval()


def check_fit(
    wanted: Mapping[str, Shape], tensors: Mapping[str, Tensor], unused: Collection[str]
) -> None:
    """Raise one ValueError that names missing, surplus and misshapen tensors of a file."""
    problems = [f"{path} is missing" for path in wanted if path not in tensors]
    for path, tensor in tensors.items():
        found = tuple(tensor.shape)
        if path in wanted and found != wanted[path]:
            problems.append(f"{path} has shape {found} instead of {wanted[path]}")
        elif path not in wanted and path not in unused:
            problems.append(f"{readable(path)} is not a variable of this network")
    if problems:
        raise ValueError(f"the variables do not fit the network: {listed(problems)}")
