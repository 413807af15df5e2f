"""The repository as torch.hub sees it."""

import json
import runpy
import shutil

import numpy as np
import pytest
import torch
from helpers import ROOT
from helpers.commands import open_image, run_ok
from helpers.processes import printed
from helpers.tiny_generators import (
    LABELED,
    TINY,
    assert_same_weights,
    named_by_hash,
    random_generator,
)
from helpers.tiny_training import tiny_config
from torch.testing import assert_close

from stylegan.files import checkpoint
from stylegan.files.download import BUNDLED, bundled_file
from stylegan.files.formats.native import save_discriminator, save_generator
from stylegan.networks import Discriminator
from stylegan.training import TrainState

ENTRIES = ("generator", "discriminator", *BUNDLED)
# What a person does who has torch, NumPy and Pillow and nothing else, in some other folder.
SESSION = """
import ast, json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import torch
clone, weights = sys.argv[1:]
repository = "someone/stylegan:main"
cached = {{"skip_validation": True, "trust_repo": True}}
entries = torch.hub.list(repository, **cached)
found = {{"list": entries}}
found["help"] = {{name: torch.hub.help(repository, name, **cached) for name in entries}}
for name in ("faces64", "glyphs64"):
    torch.hub.load(clone, name, source="local")
    torch.hub.load(clone, name, pretrained=False, source="local")
z = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))
local = torch.hub.load(clone, "faces64", source="local")
remote = torch.hub.load(repository, "faces64", **cached)
chosen = torch.hub.load(clone, "generator", weights, source="local")
for name, G in {{"local": local, "remote": remote, "chosen": chosen}}.items():
    found[name] = G(z, psi=0.7, noise="const").flatten().tolist()
found["sample"] = chosen.sample([3, 4]).flatten().tolist()
device = str(local.generator.w_avg.device)
found["kinds"] = [isinstance(local, torch.nn.Module), device, local.training]
found["w"] = list(local.generator.mapping(z).shape)
network = local.generator
images = network.synthesis(network.broadcast(network.mapping(z)))
found["by parts"] = images.shape[1:] == (3, 16, 16)
D = torch.hub.load(clone, "discriminator", sys.argv[1] + "/critic.pt", source="local")
found["logits"] = list(D(local(z)).shape)
loaded = [m.__file__ for name, m in sys.modules.items() if name.startswith("stylegan.")]
statements = [s for file in loaded for s in ast.parse(open(file).read()).body]
names = [a.name for s in statements if isinstance(s, ast.Import) for a in s.names]
names += [s.module for s in statements if isinstance(s, ast.ImportFrom) and not s.level]
found["imports"] = sorted({{name.split(".")[0] for name in names}} - sys.stdlib_module_names)
print(json.dumps(found))
"""
ABSENT = (
    *("click", "tqdm", "tensorboard", "torchvision", "scipy"),
    *("safetensors", "huggingface_hub", "onnx", "onnxruntime", "sklearn", "matplotlib", "av"),
    *("torchmetrics", "torch_fidelity", "pandas", "requests"),
)


def entry(name, *args, **settings):
    return torch.hub.load(str(ROOT), name, *args, source="local", **settings)


@pytest.fixture(autouse=True)
def empty_torch_home(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))


@pytest.fixture(scope="module")
def generator():
    return random_generator()


@pytest.fixture(scope="module")
def clone(tmp_path_factory, generator):
    """A clone with small bundled weights, and the same in the cache of torch.hub."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "clone"
    ignored = shutil.ignore_patterns("__pycache__", "weights")
    shutil.copytree(ROOT / "stylegan", folder / "stylegan", ignore=ignored)
    weights = folder / "stylegan" / "weights"
    weights.mkdir(exist_ok=True)
    shutil.copy(ROOT / "hubconf.py", folder)
    for name in BUNDLED:
        save_generator(weights / "new.pt", generator)
        named_by_hash(weights / "new.pt", name)
    save_discriminator(folder / "critic.pt", Discriminator(TINY))
    shutil.copytree(folder, home / "torch" / "hub" / "someone_stylegan_main")
    return folder


@pytest.fixture(scope="module")
def found(clone, tmp_path_factory, generator):
    """The results of one session in a fresh interpreter."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    weights = elsewhere / "mine.pt"
    save_generator(weights, generator)
    session = ["-c", SESSION.format(absent=ABSENT), clone, weights]
    text = printed(elsewhere, *session, TORCH_HOME=str(clone.parent / "torch"), PYTHONPATH="")
    return json.loads(text.splitlines()[-1])


def test_hubconf_dependencies_name_every_import(found):
    dependencies = runpy.run_path(ROOT / "hubconf.py")["dependencies"]
    with_others = {"stylegan", "pydantic_core"}
    assert set(found["imports"]) - with_others == set(dependencies)


@pytest.mark.parametrize("name", ENTRIES)
def test_hubconf_help_has_usage_and_license(found, name):
    page = found["help"][name]
    words = ("map_location", "Returns", "Usage:", f'"{name}"', "License:")
    assert [word for word in words if word not in page] == []
    assert "{" not in page.split("\n")[0]


def test_hubconf_entries_need_only_torch_numpy_and_pillow(found, generator):
    assert sorted(found["list"]) == sorted(ENTRIES)
    assert found["kinds"] == [True, "cpu", False]
    z = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = generator(z, psi=0.7, noise="const").flatten()
    for route in ("local", "remote", "chosen"):
        assert_close(torch.tensor(found[route]), expected, rtol=0, atol=1e-4)
    assert (found["w"], found["by parts"], found["logits"]) == ([2, 8], True, [2])
    assert len(found["sample"]) == 2 * 3 * 16 * 16


@pytest.mark.parametrize(("name", "shape"), [("faces64", (3, 64, 64)), ("glyphs64", (1, 64, 64))])
def test_bundled_networks_sample_images_of_their_size(name, shape):
    assert bundled_file(name).stat().st_size <= 8 * 2**20
    pictures = entry(name).sample(range(4))
    assert (pictures.shape, pictures.dtype) == ((4, *shape), torch.uint8)
    assert pictures.float().std() > 10
    assert not torch.equal(pictures[0], pictures[1])
    assert entry(name, pretrained=False).config == entry(name).config


def saved_picture(path):
    return torch.from_numpy(np.array(open_image(path).convert("RGB"))).permute(2, 0, 1)


@pytest.mark.parametrize(
    ("said", "options", "arguments"),
    [
        ({}, [], {}),
        ({"psi": 0.4, "cutoff": 2, "resolution": 8, "alpha": 0.25}, [], {}),
        ({"active_rectangle": [2, 14, 0, 16]}, ["--noise", "random"], {"noise": "random"}),
    ],
)
def test_sample_equals_the_images_that_generate_writes(tmp_path, said, options, arguments):
    path = tmp_path / "mine.pt"
    save_generator(path, random_generator(), **said)
    command = ["generate", path, "--seeds", "3,40000", "--device", "cpu", *options]
    run_ok(*command, "--out", tmp_path / "out")
    expected = [saved_picture(tmp_path / "out" / f"seed{n}.png") for n in ("0003", "40000")]
    pictures = entry("generator", path).sample([3, 40000], **arguments)
    assert torch.equal(pictures, torch.stack(expected))
    assert pictures.shape[2:] == (
        (12, 16) if "active_rectangle" in said else (said.get("resolution", 16),) * 2
    )


def test_sample_takes_labels_of_a_conditional_generator(tmp_path):
    path = tmp_path / "mine.pt"
    save_generator(path, random_generator(LABELED), label_names=("cat", "dog", "hen"))
    G = entry("generator", path)
    assert list(G.label_names) == ["cat", "dog", "hen"]
    dog = torch.eye(3)[1:2]
    assert not torch.equal(G.sample([0], labels=dog), G.sample([0], labels=torch.eye(3)[:1]))
    for wrong, found in (([1], "got list"), (dog[0], r"got \(3,\)")):
        with pytest.raises(ValueError, match=rf"labels must have shape \(2, 3\), {found}"):
            G.sample([0, 1], labels=wrong)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with two states, and the newer one's networks."""
    folder = tmp_path_factory.mktemp("run")
    for images_seen in (4, 8):
        state = TrainState.create(tiny_config())
        state.discriminator.head.out.bias.data.fill_(images_seen)
        checkpoint.save(folder / f"state-{images_seen:09}.pt", "state", state.to_payload())
    save_generator(folder / "generator-000000012.pt", state.generator_ema)
    return folder, state


@pytest.mark.parametrize("name", ["", "state-000000008.pt"])
def test_hubconf_discriminator_loads_a_run_or_state(run, name):
    folder, state = run
    D = entry("discriminator", folder / name)
    assert_same_weights(D, state.discriminator)
    assert (D.training, D.config) == (False, state.discriminator.config)
    assert D(torch.zeros(4, 3, 8, 8), alpha=0.5).shape == (4,)


def test_hubconf_discriminator_rejects_sources_without_one(tmp_path, run):
    save_generator(tmp_path / "mine.pt", random_generator())
    for source in (tmp_path / "mine.pt", "glyphs64"):
        with pytest.raises(ValueError, match="holds no discriminator"):
            entry("discriminator", source)
