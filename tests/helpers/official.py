"""Tiny official networks with random weights, as variables and as the objects of a snapshot."""

import pickle
import pickletools
import sys
import types

import numpy as np

from stylegan.files.formats.official_names import (
    DISCRIMINATOR_SETTINGS,
    GENERATOR_SETTINGS,
    config_from_official,
    official_matches,
)
from stylegan.networks import Discriminator, Generator

SETTINGS = {
    "resolution": 8,
    "fmap_max": 4,
    "latent_size": 6,
    "dlatent_size": 5,
    "mapping_fmaps": 7,
    "mapping_layers": 2,
}


def dumps(content, protocol=4):
    """A pickle in which arrays bear the names that NumPy 1 gave them, as in official files."""
    data = pickle.dumps(content, protocol)
    for old, new in (
        (b"\x8c\x16numpy._core.multiarray", b"\x8c\x15numpy.core.multiarray"),
        (b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"),
    ):
        data = data.replace(old, new)
    return pickletools.optimize(data)  # with frames of the new lengths


def official_variables(network, dtype=np.float32):
    """Random official variables that fit `network`, with no kernel rotated."""
    state, random = network.state_dict(), np.random.RandomState(0)
    matches = official_matches(state, lambda resolution: False)
    shapes = {m.path: m.shape_in_file(tuple(state[m.name].shape)) for m in matches}
    return {path: random.randn(*shape).astype(dtype) for path, shape in shapes.items()}


def generator_variables(dtype=np.float32, **settings):
    config = config_from_official(SETTINGS | settings, GENERATOR_SETTINGS)
    return official_variables(Generator(config), dtype)


def discriminator_variables(**settings):
    config = config_from_official(SETTINGS | settings, DISCRIMINATOR_SETTINGS)
    return official_variables(Discriminator(config))


def network_class(monkeypatch):
    """A class that pickles under the name of the official one, while the test lasts."""
    modules = {name: types.ModuleType(name) for name in ("dnnlib", "dnnlib.tflib")}
    modules["dnnlib.tflib.network"] = module = types.ModuleType("dnnlib.tflib.network")
    for name in modules:
        monkeypatch.setitem(sys.modules, name, modules[name])
    module.Network = type("Network", (), {"__module__": module.__name__})
    return module.Network


def official_network(cls, builder, settings, variables, components=None):
    network = cls()
    network.__dict__.update(
        version=3,
        name=builder,
        static_kwargs=settings,
        components=components or {},
        build_module_src="",
        build_func_name=builder,
        variables=list(variables.items()),
    )
    return network


def snapshot_objects(cls, settings=None, d_settings=None, extra=None, labels=0):
    """(G, D, Gs); `settings` and `extra` variables go into G, which is also Gs."""
    label = {"label_size": labels} if labels else {}
    settings = SETTINGS | label | (settings or {})
    variables = generator_variables(**label)
    parts = {}
    for part in ("synthesis", "mapping"):
        prefix = f"G_{part}/"
        inner = {k.removeprefix(prefix): v for k, v in variables.items() if k.startswith(prefix)}
        parts[part] = official_network(cls, f"G_{part}", settings, inner)
    own = {"lod": np.float32(0), "dlatent_avg": variables["dlatent_avg"], **(extra or {})}
    g = official_network(cls, "G_style", settings, own, parts)
    d_kwargs = {"resolution": 8, "fmap_max": 4, **label, **(d_settings or {})}
    return g, official_network(cls, "D_basic", d_kwargs, discriminator_variables(**label)), g
