"""Checkpoints of other PyTorch programs, told apart by the names in them."""

from collections.abc import Mapping

from stylegan.files.interop import genforce, huangzh13, rosinality
from stylegan.files.interop.accounts import Snapshot

LAYOUTS = (rosinality, genforce, huangzh13)


def import_weights(content: object) -> Snapshot:
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
