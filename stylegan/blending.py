"""Networks made of two: layers of one and the rest of another, or weights between both.

Pinkney and Adler 2020. It works where one was trained on from the other, or both from a third:
then a number means the same in both.
"""

import copy
import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from stylegan import sampling
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.loading import load_with_file
from stylegan.lineage import Lineage, Source, licence_of, sha256_of, source_of
from stylegan.messages import listed
from stylegan.networks import Generator
from stylegan.run_folder import RunFolder
from stylegan.schedule import resolutions

LAYER = re.compile(r"synthesis\.(?:(input)|(?:blocks|to_rgb)\.(\d+))\..+")
SAMPLES = 10_000  # latents of a new average


@dataclass(frozen=True, eq=False)
class Parent:
    """A generator that is blended, and the file that it is in."""

    loaded: LoadedGenerator
    file: Path
    name: str = ""  # of its file, for the history

    @classmethod
    def of(cls, source: str, device: str | torch.device = "cpu") -> "Parent":
        loaded, file = load_with_file(source, map_location=device)
        inside = Path(source).is_dir()
        return cls(loaded, file, f"{file.parent.name}/{file.name}" if inside else file.name)

    def history(self) -> list[Source]:
        """Where its weights came from, its own file last."""
        lineage = list(self.loaded.lineage)
        own = source_of(self.file, licence_of(lineage), name=self.name)
        return lineage if own.sha256 in [s.sha256 for s in lineage] else [*lineage, own]


def related(a: Parent, b: Parent) -> bool:
    """Whether one began from the other, or both from the same file, by what they record."""
    hashes = [{source.sha256 for source in parent.history()} for parent in (a, b)]
    if hashes[0] & hashes[1]:
        return True
    pairs = ((a, b), (b, a))
    return any(is_of_run(s, one.file) for one, other in pairs for s in other.loaded.lineage)


def is_of_run(source: Source, file: Path) -> bool:
    """Whether it is a file of the same run, such as the state beside a generator."""
    run = RunFolder(file.parent)
    files = {path.name: path for path in [*run.generators(), *run.states()]}
    beside = files.get(source.source.rpartition("/")[2])
    return file.name in files and beside is not None and sha256_of(beside) == source.sha256


def check_alike(a: LoadedGenerator, b: LoadedGenerator) -> None:
    """ValueError unless the networks have the same shapes and have grown as far."""
    ours, theirs = (dataclasses.asdict(one.generator.config) for one in (a, b))
    different = [
        f"{name} {ours[name]} and {theirs[name]}" for name in ours if ours[name] != theirs[name]
    ]
    if different:
        raise ValueError(
            f"networks of different shapes cannot be blended: {listed(different, 4, ', ')}"
        )
    if (a.resolution, a.alpha) != (b.resolution, b.alpha):
        raise ValueError(
            f"training has reached {a.resolution}x{a.resolution} (alpha {a.alpha:g}) in the one, "
            f"{b.resolution}x{b.resolution} (alpha {b.alpha:g}) in the other; blend networks that "
            "have grown as far"
        )


def resolution_of(name: str) -> int | None:
    """The resolution whose block a weight belongs to; None for the mapping network."""
    found = LAYER.fullmatch(name)
    return None if found is None else 4 if found[1] else int(found[2])


@torch.no_grad()
def blended(
    a: LoadedGenerator,
    b: LoadedGenerator,
    *,
    first: int | None = None,
    last: int | None = None,
    share: float = 1.0,
) -> Generator:
    """The network of `a`, whose layers from resolution `first` to `last` (None: the finest) are
    `share` of those of `b`. Without `first` it is the whole network, mapping included; a new
    mapping gets its own average w.
    """
    check_alike(a, b)
    known = resolutions(a.generator.config.resolution)
    for side in (first, last):
        if side is not None and side not in known:
            raise ValueError(
                f"the network has the resolutions {', '.join(map(str, known))}, not {side}"
            )
    if first is None and last is not None:
        raise ValueError("the last resolution of layers needs a first one")
    if first is not None and last is not None and last < first:
        raise ValueError(f"the layers from {first} end at {last}, before they begin")
    if not 0 <= share <= 1:
        raise ValueError(f"a share is a number from 0 to 1, not {share}")
    ours, theirs = a.generator.state_dict(), b.generator.state_dict()
    strange = [
        n for n in ours if resolution_of(n) is None and not n.startswith(("mapping", "w_avg"))
    ]
    if first is not None and strange:
        raise ValueError(
            f"this network is of your own making, with layers of no known resolution "
            f"({listed(strange, 3, ', ')}); blend it as a whole"
        )

    def taken(name: str) -> bool:
        side = resolution_of(name)
        return first is None or (side is not None and first <= side <= (last or known[-1]))

    def between(name: str) -> Tensor:
        if not taken(name) or share == 0:
            return ours[name]
        other = theirs[name].to(ours[name])
        if share == 1 or not other.is_floating_point():
            return other
        return torch.lerp(ours[name], other, share)

    network = copy.deepcopy(a.generator)
    network.load_state_dict({name: between(name) for name in ours})
    if first is None and 0 < share < 1:
        network.w_avg.copy_(sampling.mapped_samples(network, SAMPLES).double().mean(dim=0))
    return network.eval()


def blend(
    a: Parent,
    b: Parent,
    *,
    first: int | None = None,
    last: int | None = None,
    share: float = 1.0,
) -> LoadedGenerator:
    """The blended network, with all that the file of `a` says, and the history of both."""
    network = blended(a.loaded, b.loaded, first=first, last=last, share=share)
    what = "all layers" if first is None else f"layers {first} to {last or 'the finest'}"
    return dataclasses.replace(
        a.loaded,
        generator=network,
        origin=f"blend of {a.loaded.origin} and {b.loaded.origin}",
        images_seen=None,
        centers=None if first is None else a.loaded.centers,
        lineage=history(a, b, f"{what}, share {share:g}"),
    )


def history(a: Parent, b: Parent, copied: str) -> Lineage:
    """What both came from, once each; then `b`, of which `copied` was taken."""
    merged = {source.sha256: source for source in [*a.history(), *b.history()]}
    own = dataclasses.replace(b.history()[-1], copied=copied)
    merged.pop(own.sha256)
    return (*merged.values(), own)
