"""What the entry points of torch.hub give: networks of any source, bundled or officially published.

The pages about them are in `hubconf.py`.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from stylegan import sampling
from stylegan.files.interop import rectangle_in_name
from stylegan.files.loaded import Cutoff
from stylegan.files.loading import (
    LoadedGenerator,
    bundled_file,
    contents,
    hub_cache,
    load_file,
    load_source,
    located,
    naming,
    network_of,
)
from stylegan.networks import Discriminator, Generator, NetworkConfig, Noise
from stylegan.run_folder import RunFolder

Device = str | torch.device
CONVERTED = (".pt", ".safetensors")  # endings of what official files are converted to
PUBLISHED = "https://github.com/NVlabs/stylegan"
FOLDER = "https://drive.google.com/open?id=1MASQyN5m0voPcx7-9K0r5gObhvvPups7"  # as told there
ABSENT = """the weights of {entry} are not here; this program neither contains nor downloads them.
  published by   NVIDIA: {published}, "networks" on its Google Drive
                 ({folder})
  licence        CC BY-NC 4.0: not for commercial purposes, with credit to NVIDIA's paper
  file           {file}, about {megabytes:.0f} MB (three networks in float32)
  put it at      {place}
  or convert it  stylegan convert {file} {converted}
                 (python -m stylegan convert ... in a clone)
  or pass it     weights="path/to/{file}\""""


class SeededGenerator(Generator):
    """A generator that knows what its file tells, and makes the picture that a seed names."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__(config)
        self.told: dict[str, Any] = {"origin": "memory", "resolution": config.resolution}

    @classmethod
    def of(cls, loaded: LoadedGenerator) -> Self:
        """A copy of a loaded generator, in eval mode."""
        with torch.random.fork_rng(devices=[]):  # the initial weights are drawn, then overwritten
            network = cls(loaded.generator.config)
        network.to(loaded.generator.w_avg)
        network.load_state_dict(loaded.generator.state_dict())
        fields = {field.name for field in dataclasses.fields(loaded)} - {"generator"}
        network.told = {name: getattr(loaded, name) for name in fields}
        return network.eval()

    @property
    def loaded(self) -> LoadedGenerator:
        """This network with what its file told, for `stylegan.files.export` and others."""
        return LoadedGenerator(self, **self.told)

    def sample(
        self,
        seeds: Sequence[int],
        psi: float | None = None,
        *,
        cutoff: Cutoff = None,
        labels: Tensor | None = None,
        noise: Noise = "const",
        batch: int | None = None,
    ) -> Tensor:
        """The pictures that `stylegan generate` writes for these seeds: uint8 (N, C, H, W), on the
        CPU, made where the network is, without gradients.

        Truncation (`psi`, and `cutoff` layers of it or "all") is what the file says unless given,
        else 0.7 and 8. `labels` (N or 1, label_dim) exactly when the network has labels. `noise`
        "random" draws each image's from its own seed. A network that is still growing is shown as
        far as it has grown; padding is cut off, so that pictures of cars are 384 high, 512 wide.
        `batch` images are made at once.
        """
        sampling.check_seeds(seeds)
        if not len(seeds):
            raise ValueError("there are no seeds, so there is nothing to make")
        pictures = self.loaded.pictures(
            seeds, psi=psi, cutoff=cutoff, labels=labels, noise=noise, batch=batch
        )
        return torch.from_numpy(np.stack(list(pictures))).permute(0, 3, 1, 2).contiguous()


def untrained(config: NetworkConfig, rectangle: Sequence[int] | None = None) -> SeededGenerator:
    """A generator with random weights, in eval mode."""
    network = SeededGenerator(config)
    network.told |= {"origin": "random weights", "active_rectangle": rectangle}
    return network.eval()


def load_seeded(source: str | Path, *, map_location: Device = "cpu") -> SeededGenerator:
    """The generator that `source` names; see `loading.load_source` for what it may be."""
    return SeededGenerator.of(load_source(source)).to(map_location)


def load_bundled(
    name: str, *, pretrained: bool = True, map_location: Device = "cpu"
) -> SeededGenerator:
    """A generator that ships with the package, or one of its sizes with random weights."""
    loaded = load_file(bundled_file(name))
    network = SeededGenerator.of(loaded) if pretrained else untrained(loaded.generator.config)
    return network.to(map_location)


# Discriminators


def load_discriminator(source: str | Path, *, map_location: Device = "cpu") -> Discriminator:
    """The discriminator of a run (of its newest state), a state file, a file that
    `stylegan convert --discriminator` wrote, an official snapshot or a genforce checkpoint; or of
    an https address of one of these. In eval mode. ValueError if there is none.
    """
    path = located(source)
    if path.is_dir():
        states = RunFolder(path).states()
        if not states:
            raise FileNotFoundError(
                f"the folder {path} holds no state-*.pt, which alone keeps the discriminator "
                "of a run"
            )
        path = states[-1]
    found = contents(path)
    network = of_payload(found, path) if isinstance(found, dict) else found.discriminator
    if network is None:
        raise ValueError(
            f"{path} holds no discriminator; those that do: state-*.pt of a run, what `stylegan "
            "convert --discriminator` writes, official .pkl, .pth of genforce's training"
        )
    return network.eval().to(map_location)


def of_payload(payload: dict[str, Any], path: Path) -> Discriminator | None:
    """The discriminator of one of our files, if it is of a kind that has one."""
    kind = payload["kind"]
    with naming(kind, path):
        if kind == "state":
            return network_of(Discriminator, payload["config"]["network"], payload["discriminator"])
        if kind == "discriminator":
            return network_of(Discriminator, payload["config"], payload["weights"])
    return None


# Officially published networks


@dataclasses.dataclass(frozen=True)
class Published:
    """A generator that NVIDIA has published: the average one (Gs) of a snapshot."""

    file: str
    config: NetworkConfig

    @property
    def active_rectangle(self) -> Sequence[int] | None:
        """top, bottom, left, right of what is no padding; None: nothing is."""
        return rectangle_in_name(self.file, self.config.resolution)

    @property
    def num_bytes(self) -> int:
        """Size of the numbers in the file: generator, discriminator, average generator."""
        with torch.device("meta"):
            networks = Generator(self.config), Discriminator(self.config)
        sizes = [sum(t.numel() for t in network.state_dict().values()) for network in networks]
        return 4 * (2 * sizes[0] + sizes[1])

    def places(self) -> list[Path]:
        """Where it is looked for: converted, which loads faster, then as published."""
        official = hub_cache() / self.file
        return [*(official.with_suffix(ending) for ending in CONVERTED), official]


OFFICIAL = {
    "ffhq1024": Published("karras2019stylegan-ffhq-1024x1024.pkl", NetworkConfig(1024)),
    "celebahq1024": Published("karras2019stylegan-celebahq-1024x1024.pkl", NetworkConfig(1024)),
    "bedrooms256": Published("karras2019stylegan-bedrooms-256x256.pkl", NetworkConfig(256)),
    "cars512": Published("karras2019stylegan-cars-512x384.pkl", NetworkConfig(512)),
    "cats256": Published("karras2019stylegan-cats-256x256.pkl", NetworkConfig(256)),
}


def load_published(
    entry: str,
    weights: str | Path | None = None,
    *,
    pretrained: bool = True,
    map_location: Device = "cpu",
) -> SeededGenerator:
    """A published generator, from `weights` or the cache of torch.hub; one of its sizes with random
    weights unless `pretrained`. ValueError if `weights` are of another network."""
    published = OFFICIAL[entry]
    if not pretrained:
        if weights is not None:
            raise ValueError(f"{entry}: weights={weights} contradicts pretrained=False; drop one")
        return untrained(published.config, published.active_rectangle).to(map_location)
    source = cached(entry) if weights is None else weights
    loaded = load_source(source)
    check_published(entry, source, loaded)
    rectangle = loaded.active_rectangle or published.active_rectangle
    loaded = dataclasses.replace(loaded, active_rectangle=rectangle)
    return SeededGenerator.of(loaded).to(map_location)


def cached(entry: str) -> Path:
    """The file of a published network in the cache; FileNotFoundError says where to get it."""
    published = OFFICIAL[entry]
    places = published.places()
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(
        ABSENT.format(
            entry=entry,
            published=PUBLISHED,
            folder=FOLDER,
            file=published.file,
            megabytes=published.num_bytes / 1e6,
            place=places[-1],
            converted=places[0],
        )
    )


def check_published(entry: str, source: str | Path, loaded: LoadedGenerator) -> None:
    """ValueError unless this is, by its sizes and its name, the network of the entry."""
    published, found = OFFICIAL[entry], loaded.generator.config
    judged = {"deviation_group", "deviation_features"}  # of the discriminator alone
    wanted = dataclasses.asdict(published.config)
    differences = [
        f"{name} {getattr(found, name)}, not {value}"
        for name, value in wanted.items()
        if name not in judged and getattr(found, name) != value
    ]
    if differences:
        raise ValueError(
            f"{entry} takes the network of {published.file}, but the {loaded.origin} holds another "
            f"one: {'; '.join(differences)}; the entry `generator` takes any"
        )
    stem = Path(source).stem
    of_name = [name for name, other in OFFICIAL.items() if Path(other.file).stem == stem]
    if of_name and entry not in of_name:
        raise ValueError(f"{source} is, by its name, of the entry {of_name[0]}, not of {entry}")
