"""The repository as torch.hub sees it."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from stylegan.loading import save_generator
from stylegan.networks import Generator, NetworkConfig

ROOT = Path(__file__).parent.parent
SNAPSHOT = ROOT / "tests" / "reference" / "official_snapshot.pkl"
TINY = NetworkConfig(
    resolution=32, z_dim=8, w_dim=8, mapping_layers=2, mapping_width=8, max_channels=8
)
# What a person does who has torch, NumPy and Pillow and nothing else, in some other folder.
SESSION = """
import json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import torch
clone, weights = sys.argv[1:]
cached = {{"skip_validation": True, "trust_repo": True}}
found = {{"list": torch.hub.list("someone/stylegan:main", **cached)}}
found["help"] = torch.hub.help("someone/stylegan:main", "emoji32", **cached)
z = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))
local = torch.hub.load(clone, "emoji32", source="local")
remote = torch.hub.load("someone/stylegan:main", "emoji32", **cached)
chosen = torch.hub.load(clone, "generator", weights, source="local")
for name, G in {{"local": local, "remote": remote, "chosen": chosen}}.items():
    found[name] = G(z, psi=0.7, noise="const").flatten().tolist()
untrained = torch.hub.load(clone, "emoji32", source="local", pretrained=False)
found["untrained"] = list(untrained(z).shape)
found["kinds"] = [type(local).__name__, str(local.w_avg.device), local.training]
found["w"] = list(local.mapping(z).shape)
found["by parts"] = local.synthesis(local.broadcast(local.mapping(z))).shape[1:] == (3, 32, 32)
from stylegan import sampling
found["picture"] = sampling.picture(next(sampling.generate(local, [5]))[0]).size
print(json.dumps(found))
"""
ABSENT = ("click", "pydantic", "pydantic_core", "tqdm", "tensorboard", "torchvision", "scipy")


@pytest.fixture(scope="module")
def generator():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return Generator(TINY)


@pytest.fixture(scope="module")
def clone(tmp_path_factory, generator):
    """A clone with small bundled weights, and the same in the cache of torch.hub."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "clone"
    ignored = shutil.ignore_patterns("__pycache__", "weights")
    shutil.copytree(ROOT / "stylegan", folder / "stylegan", ignore=ignored)
    shutil.copy(ROOT / "hubconf.py", folder)
    (folder / "stylegan" / "weights").mkdir()
    path = folder / "stylegan" / "weights" / "new.pt"
    save_generator(path, generator)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.rename(path.with_name(f"emoji32-{digest[:8]}.pt"))
    shutil.copytree(folder, home / "torch" / "hub" / "someone_stylegan_main")
    return folder


@pytest.fixture(scope="module")
def found(clone, tmp_path_factory, generator):
    """The results of one session in a fresh interpreter."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    weights = elsewhere / "mine.pt"
    save_generator(weights, generator)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"TORCH_HOME": str(clone.parent / "torch"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SESSION.format(absent=ABSENT), str(clone), str(weights)],
        cwd=elsewhere,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_entries_are_these_two_and_nothing_else(found):
    assert sorted(found["list"]) == ["emoji32", "generator"]


def test_help_is_a_page_with_usage_shapes_licence_and_source(found):
    for word in ("pretrained", "(N, 3, 32, 32)", "[-1, 1]", "Usage", "Licence", "arxiv.org"):
        assert word in found["help"]


def test_entries_give_a_generator_on_the_cpu_in_eval_mode(found):
    assert found["kinds"] == ["Generator", "cpu", False]


@pytest.mark.parametrize("route", ["local", "remote", "chosen"])
def test_each_route_gives_the_images_of_the_weights(found, generator, route):
    z = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = generator(z, psi=0.7, noise="const").flatten()
    assert_close(torch.tensor(found[route]), expected)


def test_the_parts_of_the_generator_can_be_called(found):
    assert found["w"] == [2, 8]
    assert found["by parts"]


def test_without_pretraining_the_network_has_the_same_sizes(found):
    assert found["untrained"] == [2, 3, 32, 32]


def test_pictures_need_pillow_only(found):
    assert found["picture"] == [32, 32]


def test_official_weights_come_through_the_door_too():
    generator = torch.hub.load(str(ROOT), "generator", weights=str(SNAPSHOT), source="local")
    assert generator.config.resolution == 32


def test_a_missing_file_is_an_error_of_the_library():
    with pytest.raises(FileNotFoundError, match="accepted are"):
        torch.hub.load(str(ROOT), "generator", "nowhere.pt", source="local")
