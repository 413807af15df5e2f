"""The settings by which pictures become a store: preparing, caching and checking share them."""

from dataclasses import dataclass

from stylegan.schedule import check_resolution

from .images import MODES, Crop, Fit


@dataclass(frozen=True)
class Preparation:
    """Size, form and channels of the squares of a store; checked when it is made."""

    resolution: int | None = None  # None: the largest that the first usable picture offers
    crop: Crop = "center"
    channels: int = 3
    premultiplied: bool = False  # colors are multiplied by alpha, so that averages are right
    include: tuple[str, ...] = ()  # first-level sub-folders to use; none: all

    def __post_init__(self) -> None:
        if self.resolution is not None:
            check_resolution(self.resolution)
        Fit.of(self.crop)
        if self.channels not in MODES:
            raise ValueError(f"images have 1, 3 or 4 channels, not {self.channels}")
        if self.premultiplied and self.channels != 4:
            raise ValueError(
                f"images of {self.channels} channels have no alpha to multiply colors by"
            )

    @property
    def fit(self) -> Fit:
        return Fit.of(self.crop)

    def key(self) -> list[object]:
        """Return the part of a cached store's name that does not depend on the files."""
        shape: list[object] = [self.resolution, self.crop, self.channels]
        return [*shape, "premultiplied"] if self.premultiplied else shape
