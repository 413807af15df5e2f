"""Where weights came from is never lost: runs, files of every format, cards and `info`."""

import dataclasses
import hashlib

import pytest
from helpers.reference import SNAPSHOT
from helpers.runs import log_of
from helpers.tiny_generators import loaded_of, random_generator
from helpers.tiny_training import QUIET, SHORT, tiny_config, train_tiny, write_pictures

from stylegan import load_generator
from stylegan.cli.files import facts_of
from stylegan.config import load_config
from stylegan.data import Preparation, cached_store
from stylegan.files import checkpoint
from stylegan.files.formats import native
from stylegan.files.formats.official import LICENSE as NVIDIA
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.training import start
from stylegan.utils.lineage import LineageEntry, license_of, public_address, to_dicts
from stylegan.utils.toml import read_toml

OFFICIAL = LineageEntry(SNAPSHOT.name, hashlib.sha256(SNAPSHOT.read_bytes()).hexdigest(), NVIDIA)
MINE = LineageEntry("mine/state-000000012.pt", "0" * 64)


def trained(store, out, source, lines=None, **changes):
    """A run of a few steps from `source`."""
    config = tiny_config(schedule=SHORT, **changes)
    return train_tiny(config, store, out, told=lines, init_from=source)


@pytest.fixture(scope="module")
def tuned(store, tmp_path_factory):
    """A run from random weights, and one from it."""
    folder = tmp_path_factory.mktemp("chain")
    trained(store, folder / "first", None)
    trained(store, folder / "second", folder / "first")
    return folder


def test_lineage_is_stored_in_every_file_of_a_run(tuned):
    out = tuned / "second"
    source = tuned / "first" / "state-000000012.pt"
    state = checkpoint.load(out / "state-000000012.pt")
    (entry,) = state["lineage"]
    assert entry["source"] == "first/state-000000012.pt"  # and no folder above
    assert entry["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    sizes = {name: len(state[name]) for name in ("generator", "discriminator", "generator_ema")}
    assert entry["copied"] == ", ".join(f"{name} {n} of {n}" for name, n in sizes.items())
    assert entry["license"] == "unknown"
    assert checkpoint.load(out / "generator-000000012.pt")["lineage"] == [entry]
    assert read_toml(out / "config.toml")["lineage"] == [entry]
    assert log_of(out)[0]["lineage"] == [entry]
    assert to_dicts(RunFolder(out).lineage()) == [entry]
    assert checkpoint.load(tuned / "first" / "state-000000012.pt")["lineage"] == []


def test_lineage_in_config_toml_keeps_it_loadable_and_resumable(tuned, store):
    out = tuned / "second"
    stored = load_config(out / "config.toml")
    before = RunFolder(out).lineage()
    assert start(stored, store, out, **QUIET).lineage == before == RunFolder(out).lineage()


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_lineage_survives_every_generator_format(tmp_path, ending):
    path = tmp_path / f"g{ending}"
    write = native.save_loaded if ending == ".pt" else native.save_safetensors
    write(path, loaded_of(random_generator(), lineage=(OFFICIAL, MINE)))
    assert load_generator(path).lineage == (OFFICIAL, MINE)
    facts = facts_of(str(path))
    assert facts["license"] == NVIDIA
    assert f"{SNAPSHOT.name} (SHA-256 {OFFICIAL.sha256[:16]}" in facts["weights from"]
    assert facts["weights from"].index(SNAPSHOT.name) < facts["weights from"].index("mine/")


def test_lineage_keeps_the_official_license_through_training(store, tmp_path):
    assert open_weights(SNAPSHOT).lineage == (OFFICIAL,)
    native.save_loaded(tmp_path / "ffhq.pt", load_generator(SNAPSHOT))
    critic = tmp_path / "critic.pt"
    native.save_discriminator(critic, open_weights(SNAPSHOT).discriminator, (OFFICIAL,))
    assert facts_of(str(critic))["license"] == NVIDIA
    network = dataclasses.asdict(open_weights(SNAPSHOT).generator.config)
    write_pictures(tmp_path / "larger", size=network["resolution"])
    larger = cached_store(
        tmp_path / "larger",
        Preparation(resolution=network["resolution"]),
        cache_dir=tmp_path / "cache",
    )
    lines = []
    trained(larger, tmp_path / "run", tmp_path / "ffhq.pt", lines, network=network)
    (said,) = [line for line in lines if NVIDIA in line]
    assert said.startswith("license: ")
    assert "not for commercial purposes" in said
    chain = load_generator(tmp_path / "run").lineage
    assert chain[0] == OFFICIAL
    assert (chain[1].source, chain[1].license) == ("ffhq.pt", NVIDIA)


def test_lineage_of_bundled_weights_has_name_and_license():
    (bundled,) = open_weights("faces64").child_lineage()
    assert (bundled.source, bundled.license) == ("faces64", "MIT")
    assert load_generator("faces64").lineage == (bundled,)
    assert facts_of("faces64")["license"] == "MIT"


def test_license_of_a_chain_is_the_strictest_known_license():
    assert license_of((OFFICIAL, MINE)) == license_of((MINE, OFFICIAL)) == NVIDIA
    assert license_of((LineageEntry("faces64", "0", "MIT"),)) == "MIT"
    assert license_of((LineageEntry("faces64", "0", "MIT"), MINE)) == "unknown"


def test_public_address_drops_credentials_and_query():
    address = "https://me:word@example.org/a/ffhq.pt?token=1#sha256=12345678"
    assert public_address(address) == "https://example.org/a/ffhq.pt"


def test_start_needs_init_from_again_if_no_state_was_saved(tuned, store, tmp_path):
    out = RunFolder(tmp_path / "run")
    config = tiny_config(schedule=SHORT)
    out.create(config, store.origin, (), (MINE,))
    with pytest.raises(ValueError, match=r"was to start from mine/state.* pass --init-from again"):
        start(config, store, out.path, **QUIET)
    state = start(config, store, out.path, init_from=tuned / "first", **QUIET)
    assert [source.source for source in state.lineage] == ["first/state-000000012.pt"]
    assert out.lineage() == state.lineage
