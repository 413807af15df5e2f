"""Networks by the names that a configuration gives them: the paper's, and a user's own."""

from stylegan.networks.config import NetworkConfig
from stylegan.networks.discriminator import Discriminator
from stylegan.networks.generator import Generator
from stylegan.registry import Registry

GENERATORS = Registry[type[Generator]](
    "network.generator", "stylegan.networks.register_generator", {"stylegan": Generator}
)
DISCRIMINATORS = Registry[type[Discriminator]](
    "network.discriminator", "stylegan.networks.register_discriminator", {"stylegan": Discriminator}
)


def register_generator(name: str, network: type[Generator]) -> None:
    """Let `network.generator` of a configuration be `name`, for this process.

    `network` is made from a NetworkConfig alone. Training and tools call its parts: `mapping`,
    `broadcast` and `synthesis`, which it may replace, and `active_parameters`, which must yield
    every weight that is to be trained. Files of it are read where it is registered.
    """
    GENERATORS.add(name, network)


def register_discriminator(name: str, network: type[Discriminator]) -> None:
    """Let `network.discriminator` of a configuration be `name`, for this process.

    Its `forward` takes images of every size from 4x4 and `alpha`, as `Discriminator` does;
    `active_parameters` yields the weights that are to be trained at a resolution.
    """
    DISCRIMINATORS.add(name, network)


def make_generator(config: NetworkConfig) -> Generator:
    """A generator with random weights, of the class that the configuration names."""
    return GENERATORS[config.generator](config)


def make_discriminator(config: NetworkConfig) -> Discriminator:
    """A discriminator with random weights, of the class that the configuration names."""
    return DISCRIMINATORS[config.discriminator](config)


def check_class(generator: Generator) -> None:
    """ValueError for a class of a user's that the configuration does not name: it could not be
    made again from a file."""
    kinds = type(generator).__mro__[: type(generator).__mro__.index(Generator)]
    own = [kind for kind in kinds if kind.__module__.partition(".")[0] != "stylegan"]
    own = [kind for kind in own if issubclass(kind, Generator)]
    name = generator.config.generator
    if own and GENERATORS[name] is not own[0]:
        raise ValueError(
            f"the generator is a {own[0].__name__}, but its configuration names the generator "
            f"{name!r}; register the class (stylegan.networks.register_generator), and make the "
            "network from a NetworkConfig with its name, so that files of it can be read"
        )
