"""Starting from other weights: grown, in their sizes, shown as they were, frozen if asked for."""

import dataclasses

import pytest
import torch
from helpers.tiny_generators import random_generator
from helpers.tiny_training import QUIET, SHORT, merge, tiny_config, write_pictures

from stylegan import load_generator
from stylegan.cli.setup import Asked, Machine, resolve_setup
from stylegan.config import build_config, to_dict, to_toml
from stylegan.data import Preparation, cached_store
from stylegan.files import checkpoint
from stylegan.files.formats import own
from stylegan.files.loading import open_weights
from stylegan.lineage import to_toml as lineage_toml
from stylegan.run_folder import RunFolder
from stylegan.training import TrainState, start


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures of 32x32, prepared at 16x16, and a finished run of 8x8 and 16x16."""
    folder = tmp_path_factory.mktemp("transfer")
    write_pictures(folder / "pictures", size=32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STYLEGAN_CACHE", str(folder / "cache"))
        train(folder, "run", schedule=SHORT)
    return folder


def train(folder, name, *, resolution=16, init_from=None, **changes):
    """The state at the end of a run, and what was told."""
    lines = []
    config = tiny_config(**merge({"network": {"resolution": resolution}}, changes))
    store = cached_store(
        folder / "pictures",
        Preparation(resolution=resolution),
        cache_dir=folder / f"cache{resolution}",
    )
    out = folder / name
    return start(config, store, out, init_from=init_from, tell=lines.append, **QUIET), lines


def decided(folder, source, *overrides, config=None, run="none", width=None):
    options = {"width": width, "init_from": source and str(source)}
    name = config and str(config)
    asked = Asked(RunFolder(folder / run), name, folder / "pictures", overrides, options)
    return resolve_setup(asked, Machine("cpu"))


def sketch(path, **schedule):
    """A configuration file that leaves out where growing begins, unless given."""
    values = to_dict(tiny_config(schedule=SHORT))
    values["schedule"] = {"stable_kimg": 0.002, "fade_kimg": 0.004, "total_kimg": 0.02, **schedule}
    config = build_config(merge(values, {"network": {"resolution": 32}}))
    lines = to_toml(config).splitlines()
    kept = [x for x in lines if schedule or not x.startswith("initial_resolution")]
    path.write_text("\n".join(kept))
    return path


def test_a_run_begins_where_its_source_has_grown_to_and_says_so(folder):
    config = sketch(folder / "free.toml")
    found = decided(folder, folder / "run", config=config)
    assert found.config.schedule.initial_resolution == 16
    assert found.config.schedule.start == 16
    said = f"{folder / 'run'} has grown to 16x16; training starts at 16x16 "
    assert any(line.startswith(said) for line in found.lines)


def test_what_was_fading_in_fades_in_again(folder):
    generator = random_generator()
    fields = {"resolution": 16, "alpha": 0.5, "images_seen": 1}
    own.save_generator(folder / "fading.pt", generator, **fields)
    config = sketch(folder / "fades.toml")
    found = decided(folder, folder / "fading.pt", config=config)
    assert found.config.schedule.initial_resolution == 8


def test_without_a_configuration_the_sizes_are_those_of_the_source(folder):
    usual, found = decided(folder, None).config, decided(folder, "faces64").config
    theirs = load_generator("faces64").loaded.generator.config
    assert found.network == dataclasses.replace(theirs, resolution=32)
    assert found.schedule.initial_resolution == 32
    for name in ("style_mixing", "data", "augment"):
        assert getattr(found, name) == getattr(usual, name)
    assert found.r1_gamma == usual.r1_gamma[32] == 0.1  # nothing grows
    assert found.schedule.total_kimg == usual.schedule.total_kimg
    larger = decided(folder, "faces64", "network.resolution=128").config.network
    assert larger.channel_base == load_generator("faces64").loaded.generator.config.channel_base


def test_a_run_that_has_begun_keeps_where_it_began_without_its_source(folder):
    """`run2` has begun; its source is gone."""
    config = sketch(folder / "begun.toml")
    first = decided(folder, folder / "run", config=config).config
    out = folder / "run2"
    out.mkdir()
    lineage = open_weights(folder / "run", need="training").child_lineage()
    (out / "config.toml").write_text(to_toml(first) + lineage_toml(lineage))
    (out / "data.txt").write_text(f"{folder / 'pictures'}\n")
    for source in (None, folder / "gone"):
        assert decided(folder, source, config=config, run="run2").config == first
        assert decided(folder, source, run="run2").config == first


def test_frozen_blocks_stay_as_they_came_through_growth_and_a_resume(folder):
    out = folder / "freed"
    changes = {"freeze_d": 8, "schedule": SHORT}
    train(folder, "freed", init_from=folder / "run", **changes)
    for path in RunFolder(out).states()[1:]:
        path.unlink()
    state, _ = train(folder, "freed", **changes)  # from the middle of the fade
    given = checkpoint.load(RunFolder(folder / "run").states()[-1])
    for network in ("generator", "discriminator"):
        for name, value in getattr(state, network).named_parameters():
            large = any(f"{part}.{r}." in name for part in ("from_rgb", "blocks") for r in (8, 16))
            if large and network == "discriminator":
                assert torch.equal(value.cpu(), given[network][name]), name
    assert not torch.equal(
        state.discriminator.head.conv.weight, given["discriminator"]["head.conv.weight"]
    )


def test_a_trained_generator_waits_for_an_untrained_discriminator(folder):
    only = folder / "only.pt"
    own.save_generator(only, load_generator(folder / "run").loaded.generator, resolution=16)
    given = load_generator(only).state_dict()
    head = "head.conv.weight"
    for kimg, moves in ((SHORT["total_kimg"], False), (0.0, True)):
        run = f"warmed for {kimg} kimg"
        state, _ = train(folder, run, init_from=only, d_warmup_kimg=kimg, schedule=SHORT)
        trained = dict(state.generator.named_parameters())
        assert any(not torch.equal(p, given[name]) for name, p in trained.items()) is moves
        untrained = TrainState.create(state.config).discriminator.state_dict()[head]
        assert not torch.equal(state.discriminator.state_dict()[head], untrained)
