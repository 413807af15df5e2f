"""What the entry points of torch.hub give: networks of any source, bundled or officially published.

The pages about them are in `hubconf.py`.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch

from stylegan.files.download import bundled_file, hub_cache
from stylegan.files.formats.official import rectangle_in_name
from stylegan.files.loaded import LoadedGenerator, SeededGenerator
from stylegan.files.loading import load_file, load_source
from stylegan.networks import Discriminator, Generator, NetworkConfig

Device = str | torch.device
CONVERTED = (".pt", ".safetensors")  # endings of what official files are converted to
PUBLISHED = "https://github.com/NVlabs/stylegan"
FOLDER = "https://drive.google.com/open?id=1MASQyN5m0voPcx7-9K0r5gObhvvPups7"  # as given there
ABSENT = """the weights of {entry} are not here; this program neither contains nor downloads them.
  published by   NVIDIA: {published}, "networks" on its Google Drive
                 ({folder})
  licence        CC BY-NC 4.0: not for commercial purposes, with credit to NVIDIA's paper
  file           {file}, about {megabytes:.0f} MB (three networks in float32)
  put it at      {place}
  or convert it  stylegan convert {file} {converted}
                 (python -m stylegan convert ... in a clone)
  or pass it     weights="path/to/{file}\""""


def untrained(config: NetworkConfig, rectangle: Sequence[int] | None = None) -> SeededGenerator:
    """A generator with random weights, in eval mode."""
    network = SeededGenerator(config)
    network.described |= {"origin": "random weights", "active_rectangle": rectangle}
    return network.eval()


def load_bundled(
    name: str, *, pretrained: bool = True, map_location: Device = "cpu"
) -> SeededGenerator:
    """A generator that ships with the package, or one of its sizes with random weights."""
    loaded = load_file(bundled_file(name))
    network = SeededGenerator.of(loaded) if pretrained else untrained(loaded.generator.config)
    return network.to(map_location)


# Officially published networks


@dataclasses.dataclass(frozen=True)
class Published:
    """A generator that NVIDIA has published: the average one (Gs) of a snapshot."""

    file: str
    config: NetworkConfig

    @property
    def active_rectangle(self) -> Sequence[int] | None:
        """top, bottom, left, right of what is not padding; None: everything."""
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
    of_critic = {"deviation_group", "deviation_features"}  # of the discriminator alone
    wanted = dataclasses.asdict(published.config)
    differences = [
        f"{name} {getattr(found, name)}, not {value}"
        for name, value in wanted.items()
        if name not in of_critic and getattr(found, name) != value
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
