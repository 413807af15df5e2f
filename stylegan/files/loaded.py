"""A generator and what its file tells about it, whatever the file is."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from stylegan.messages import readable
from stylegan.networks import Generator
from stylegan.networks.config import check_alpha
from stylegan.ops import LARGEST_PSI
from stylegan.schedule import check_resolution

PSI, CUTOFF = 0.7, 8  # truncation of pictures unless the file says otherwise, as officially


@dataclass(frozen=True, eq=False)
class LoadedGenerator:
    """A generator in eval mode and what its file tells about it."""

    generator: Generator
    origin: str  # which file it came from, and of what kind that is
    _: KW_ONLY
    resolution: int  # that training had reached: layers beyond are untrained
    psi: float = PSI
    cutoff: int | None = CUTOFF  # layers truncated, None = all
    alpha: float = 1.0  # how far that resolution had grown in
    images_seen: int | None = None  # None: not told
    label_names: Sequence[str] = ()
    active_rectangle: Sequence[int] | None = None  # top, bottom, left, right; the rest is padding

    def __post_init__(self) -> None:
        """ValueError names what no file should tell."""
        config, names = self.generator.config, self.label_names
        for name in ("resolution", "cutoff", "images_seen"):
            value = getattr(self, name)
            optional = name != "resolution"
            if (type(value) is not int or value < 0) and not (optional and value is None):
                what = f"a whole number{' or None' if optional else ''}"
                raise ValueError(f"{name} must be {what}, not {shown(value)}")
        for name in ("psi", "alpha"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and abs(value) <= LARGEST_PSI):
                raise ValueError(f"{name} must be a finite number, not {shown(value)}")
        check_resolution(self.resolution, config.resolution)
        check_alpha(self.alpha)
        if not all(isinstance(name, str) for name in names):
            raise ValueError(f"label_names must be texts, not {shown(names)}")
        if len(names) not in (0, config.label_dim):
            raise ValueError(f"{len(names)} label_names are told for {config.label_dim} labels")
        if self.active_rectangle is not None:
            check_rectangle(self.active_rectangle)


def check_rectangle(edges: Sequence[int]) -> None:
    """ValueError unless these are edges in a square picture, whose padding is the same on opposite
    sides. They may be measured in one of another resolution."""
    whole = len(edges) == 4 and all(type(edge) is int for edge in edges)
    if whole:
        top, bottom, left, right = edges
        if 0 <= top < bottom and 0 <= left < right and top + bottom == left + right:
            return
    raise ValueError(
        "active_rectangle must be top, bottom, left, right of the middle of a square, not "
        + shown(edges)
    )


def shown(value: object) -> str:
    return readable(repr(value))
