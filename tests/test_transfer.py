"""Starting from other weights: grown, in their sizes, shown as they were, frozen if asked for."""

import copy
import dataclasses
from pathlib import Path

import pytest
import torch
from helpers.tiny_generators import assert_same_weights, loaded_of, random_generator
from helpers.tiny_training import SHORT, merge, tiny_config, train_tiny, write_pictures
from torch.testing import assert_close

from stylegan import load_generator
from stylegan.config import TrainConfig, build_config, parse_options, to_dict, to_toml
from stylegan.data import Preparation, cached_store
from stylegan.files import checkpoint
from stylegan.files.formats import native
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.files.weights import Weights
from stylegan.layers import EqualizedConv2d
from stylegan.networks import NetworkConfig
from stylegan.ops import downsample_to
from stylegan.planning import TrainRequest, plan
from stylegan.sampling import cyclic_one_hot, latents, map_latents
from stylegan.training import Share, TrainState, draw, meaning, train_step
from stylegan.training.costs import Machine
from stylegan.training.meaning import LUMA
from stylegan.training.refitting import solve
from stylegan.training.transfer import check_frozen, initialize_from
from stylegan.utils.lineage import to_toml as lineage_toml


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
    return train_tiny(config, store, folder / name, told=lines, init_from=init_from), lines


def decided(folder, source, *overrides, config=None, run="none", width=None):
    request = TrainRequest(
        folder / run,
        folder / "pictures",
        config and str(config),
        max_channels=width,
        options=parse_options(overrides),
        init_from=source,
    )
    return plan(request, Machine(torch.device("cpu")))


def sketch(path, **schedule):
    """A configuration file that leaves out where growing begins, unless given."""
    values = to_dict(tiny_config(schedule=SHORT))
    values["schedule"] = {"stable_kimg": 0.002, "fade_kimg": 0.004, "total_kimg": 0.02, **schedule}
    config = build_config(merge(values, {"network": {"resolution": 32}}))
    lines = to_toml(config).splitlines()
    kept = [x for x in lines if schedule or not x.startswith("initial_resolution")]
    path.write_text("\n".join(kept))
    return path


def test_init_from_starts_at_the_grown_resolution_of_its_source(folder):
    config = sketch(folder / "free.toml")
    found = decided(folder, folder / "run", config=config)
    assert found.config.schedule.initial_resolution == 16
    assert found.config.schedule.start_resolution == 16
    said = f"{folder / 'run'} has grown to 16x16; training starts at 16x16 "
    assert any(line.startswith(said) for line in found.lines)


def test_init_from_a_fading_source_repeats_the_fade_in(folder):
    generator = random_generator()
    fields = {"resolution": 16, "alpha": 0.5, "images_seen": 1}
    native.save_generator(folder / "fading.pt", generator, **fields)
    config = sketch(folder / "fades.toml")
    found = decided(folder, folder / "fading.pt", config=config)
    assert found.config.schedule.initial_resolution == 8
    (said,) = (line for line in found.lines if "has grown to" in line)
    assert said.endswith("training starts at 8x8")  # not that 8 is where it grows again


def test_init_from_without_config_uses_the_network_of_its_source(folder):
    usual, found = decided(folder, None).config, decided(folder, "faces64").config
    theirs = load_generator("faces64").generator.config
    assert found.network == dataclasses.replace(theirs, resolution=32)
    assert found.schedule.initial_resolution == 32
    for name in ("style_mixing", "data", "augment"):
        assert getattr(found, name) == getattr(usual, name)
    assert found.r1_gamma == usual.r1_gamma[32] == 0.1  # nothing grows
    assert found.schedule.total_kimg == usual.schedule.total_kimg
    larger = decided(folder, "faces64", "network.resolution=128").config.network
    assert larger.channel_base == load_generator("faces64").generator.config.channel_base


def test_resume_after_init_from_works_without_the_source(folder):
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


def test_freeze_d_from_keeps_blocks_through_growth_and_resume(folder):
    out = folder / "freed"
    changes = {"freeze_d_from": 8, "schedule": SHORT}
    train(folder, "freed", init_from=folder / "run", **changes)
    for path in RunFolder(out).states()[1:]:
        path.unlink()
    state, _ = train(folder, "freed", **changes)  # from the middle of the fade
    given = checkpoint.load(RunFolder(folder / "run").states()[-1])
    for network in ("generator", "discriminator"):
        for name, value in getattr(state, network).named_parameters():
            large = name.startswith(("blocks.8.", "blocks.16."))
            if large and network == "discriminator":
                assert torch.equal(value.cpu(), given[network][name]), name
    for name in ("head.conv.weight", "from_rgb.16.conv.weight"):
        assert not torch.equal(state.discriminator.state_dict()[name], given["discriminator"][name])


def test_freeze_d_from_refuses_untrained_blocks(folder):
    alone = folder / "alone.pt"
    native.save_generator(alone, load_generator(folder / "run").generator, resolution=16)
    narrow = {"network": {"max_channels": 4}}
    for source, changes, found in (
        (None, {}, "there is none without --init-from"),
        (alone, {}, f"{alone} holds none"),
        (folder / "run", {"resolution": 32}, f"{folder / 'run'} holds none"),
        (folder / "run", narrow, f"{folder / 'run'} holds none"),
    ):
        with pytest.raises(
            ValueError, match=f"freeze_d_from .*, but {found}; pass -o freeze_d_from=0"
        ):
            train(folder, "refused", init_from=source, freeze_d_from=8, **changes)
    of_none = decided(folder, None, "freeze_d_from=8", "network.resolution=16")  # may be looked at
    for act in (of_none.train, lambda: decided(folder, str(alone), "freeze_d_from=8")):
        with pytest.raises(ValueError, match=r"freeze_d_from needs a discriminator"):
            act()
    fits = TrainConfig(
        freeze_d_from=64, network=NetworkConfig(64, max_channels=128, channel_base=2048)
    )
    check_frozen(fits, open_weights("faces64"))  # 32x32 and 64x64 have as many channels
    with pytest.raises(ValueError, match=r"freeze_d_from needs a discriminator"):
        check_frozen(dataclasses.replace(fits, freeze_d_from=16), open_weights("faces64"))


def test_d_only_kimg_trains_the_discriminator_alone_first(folder):
    only = folder / "only.pt"
    native.save_generator(only, load_generator(folder / "run").generator, resolution=16)
    given = load_generator(only).generator.state_dict()
    head = "head.conv.weight"
    schedule = SHORT | {"initial_resolution": 16}
    store = cached_store(folder / "pictures", Preparation(resolution=16))
    for kimg, moves in ((0.008, False), (0.0, True)):
        lines, out = [], folder / f"warmed for {kimg} kimg"
        config = tiny_config(d_only_kimg=kimg, schedule=schedule)
        state = train_tiny(config, store, out, stop_at=8, told=lines, init_from=only)
        said = "the discriminator trains alone for the first 0.008 kimg (d_only_kimg)"
        assert (said in lines) is (kimg > 0)
        trained = dict(state.generator.named_parameters())
        assert any(not torch.equal(p, given[name]) for name, p in trained.items()) is moves
        untrained = TrainState.create(state.config).discriminator.state_dict()[head]
        assert not torch.equal(state.discriminator.state_dict()[head], untrained)


def test_resume_refuses_a_state_with_another_init_from(folder):
    """Its configuration and images are the same."""
    other = folder / "other.pt"
    native.save_generator(other, load_generator(folder / "run").generator, resolution=16)
    states = {}
    for name, source in (("from a run", folder / "run"), ("from other", other), ("of none", None)):
        train(folder, name, init_from=source, schedule=SHORT)
        states[name] = RunFolder(folder / name).states()[-1].read_bytes()
    for name in states:
        for stranger in states.keys() - {name}:
            RunFolder(folder / name).states()[-1].write_bytes(states[stranger])
            with pytest.raises(ValueError, match="its run started from other weights"):
                train(folder, name, schedule=SHORT)


def test_d_only_kimg_leaves_generator_ema_unchanged():
    """A source's average and its generator differ: without an update, one must not go to the
    other."""
    config = tiny_config(d_only_kimg=0.004, ema_half_life_kimg=0.001, schedule=SHORT)
    state = TrainState.create(config)
    with torch.no_grad():
        for weight in state.generator_ema.parameters():
            weight.add_(1)
    given = copy.deepcopy(state.generator_ema.state_dict())
    stage = state.stage
    share = Share.of_process(state.device, torch.float32)
    reals = torch.zeros(stage.batch_size, 3, stage.resolution, stage.resolution)
    moved = []
    for _ in range(2):
        train_step(state, reals, None, stage, draw(config, state.images_seen, stage, None, share))
        now = state.generator_ema.state_dict()
        moved.append([name for name in given if not torch.equal(now[name], given[name])])
    assert not moved[0]
    assert "w_avg" in moved[1]
    assert len(moved[1]) > 10


def pictures_of(state, resolution, *, network="generator_ema"):
    """Images (64, 3, resolution, resolution) that no layer was fitted to."""
    generator = getattr(state, network).requires_grad_(False)
    w = map_latents(generator, latents(range(1000, 1064), generator.config.z_dim))
    ws = generator.broadcast(w)
    return generator.synthesis(ws, resolution=resolution, noise="const")


@pytest.mark.parametrize("resolution", [8, 16])
def test_initialize_from_a_larger_source_refits_the_rgb_layers(folder, resolution):
    """Where it grows again, too. Nothing but the RGB layers that are trained there differs."""
    weights = open_weights(folder / "run", need="training")
    grown = TrainState.create(tiny_config(schedule=SHORT))
    smaller = TrainState.create(tiny_config(network={"resolution": resolution}, schedule=SHORT))
    given = {name: network.state_dict() for name, network in weights.networks().items()}
    stale = {name: {k: v.clone() for k, v in tensors.items()} for name, tensors in given.items()}
    for name, tensors in stale.items():
        getattr(grown, name).load_state_dict(tensors)
    lines = initialize_from(smaller, weights)
    assert [line.split(" was ")[0] for line in lines[:2]] == ["to_rgb of 8x8", "from_rgb of 8x8"]
    for name in ("generator", "generator_ema"):
        wanted = downsample_to(pictures_of(grown, 16, network=name), 8)
        shown = pictures_of(smaller, 8, network=name)
        stored = pictures_of(grown, 8, network=name)
        assert (shown - wanted).square().mean() < 0.5 * (stored - wanted).square().mean()
    fitted = {f"{layer}.8" for layer in ("synthesis.to_rgb", "from_rgb")}
    for name, tensors in stale.items():
        now = getattr(smaller, name).state_dict()
        for part in tensors.keys() & now.keys():
            layer = part.removesuffix(".weight").removesuffix(".bias").removesuffix(".conv")
            assert torch.equal(now[part], tensors[part]) is (layer not in fitted), part


def test_initialize_from_needs_weights_that_no_other_training_took(folder):
    weights = open_weights(folder / "run", need="training")
    initialize_from(TrainState.create(tiny_config()), weights)
    with pytest.raises(ValueError, match="went into another training; open them again"):
        initialize_from(TrainState.create(tiny_config()), weights)


def test_solve_finds_a_layer_that_gives_the_wanted_output():
    layer = EqualizedConv2d(5, 3, 1)
    wanted = EqualizedConv2d(5, 3, 1).requires_grad_(False)
    wanted.bias.normal_()
    given = torch.randn(2, 5, 4, 4)
    with torch.no_grad():
        before, now = solve(layer, given, wanted(given))
    assert now < 1e-6 < before
    assert_same_weights(layer, wanted, atol=1e-5)


def source_of(network, seed=5, **description):
    """A grown source with all three networks, none of whose parts is without effect."""
    trained = TrainState.create(tiny_config(network=network, seed=seed))
    networks = trained.generator, trained.discriminator, trained.generator_ema
    for parameter in (p for network in networks for p in network.parameters()):
        scale = float(parameter.data.abs().max()) or 1.0
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1 * scale)
    for generator in networks[::2]:
        generator.w_avg.normal_()
    loaded = loaded_of(trained.generator_ema, **description)
    return Weights(Path("m.pt"), "memory", loaded, trained.generator, trained.discriminator)


def begun(weights, network, names=(), vectors=None, **data):
    """A run of other options, from copies of the weights: its state, and what was told."""
    config = tiny_config(network=network, schedule=SHORT | {"initial_resolution": 16}, data=data)
    state = TrainState.create(config)
    return state, initialize_from(state, copy.deepcopy(weights), names, vectors)


def test_initialize_from_copies_label_weights_by_name():
    """A source of labels b, a, x, for a run of a, b, c, d."""
    weights = source_of({"label_dim": 3}, label_names=("b", "a", "x"))
    state, lines = begun(weights, {"label_dim": 4}, ("a", "b", "c", "d"))
    assert "labels are copied from those of the same name in m.pt; reinitialized: c, d" in lines
    untouched, embedding = TrainState.create(state.config), ["mapping.label_embedding"]
    for network, names in (
        ("generator", embedding),
        ("generator_ema", embedding),
        ("discriminator", ["head.out.weight", "head.out.bias"]),
    ):
        given = weights.networks()[network].state_dict()
        for name in names:
            now = getattr(state, network).state_dict()[name]
            assert torch.equal(now[:2], given[name][[1, 0]])
            assert torch.equal(now[2:], getattr(untouched, network).state_dict()[name][2:])


def test_initialize_from_does_not_count_weights_of_new_labels():
    """As many labels, of other names: their rows have the same shapes."""
    weights = source_of({"label_dim": 2}, label_names=("x", "y"))
    state, lines = begun(weights, {"label_dim": 2}, ("a", "b"))
    for network, rows in (("generator_ema", 2), ("discriminator", 2)):
        every = len(getattr(state, network).state_dict())  # w_avg is measured anew
        assert f"{network}: {every - rows} of {every} tensors copied from m.pt" in lines
    assert "  not copied: head.out.weight belongs to labels that this run lacks" in lines
    own_rows = TrainState.create(state.config).discriminator.head.out.weight
    assert torch.equal(state.discriminator.head.out.weight, own_rows)


@pytest.mark.parametrize("vectors", [True, False, None])
def test_initialize_from_does_not_mix_label_vectors_and_classes(vectors):
    about = {"label_names": ("a", "b"), "label_rows": torch.eye(2)}
    weights = source_of({"label_dim": 2}, **about)
    state, lines = begun(weights, {"label_dim": 2}, ("a", "b"), vectors)
    assert ("m.pt has none of the labels: all are reinitialized" in lines) == (vectors is False)
    fresh = TrainState.create(state.config).generator if vectors is False else weights.generator
    expected = fresh.mapping.label_embedding
    assert torch.equal(state.generator.mapping.label_embedding, expected)


def images_of(generator, label=None):
    z = latents(range(8), generator.config.z_dim)
    labels = None if label is None else label.expand(8, -1)
    with torch.no_grad():
        return generator(z, labels, noise="const")


def distance_of_average(generator):
    """How far `w_avg` is from the mean of w, in root mean squares of that of w."""
    config = generator.config
    labels = cyclic_one_hot(range(2000), config.label_dim)
    with torch.no_grad():
        w = map_latents(generator, torch.randn(2000, config.z_dim), labels)
    mean = w.mean(dim=0)
    return (generator.w_avg - mean).norm() / (w - mean).square().sum(dim=1).mean().sqrt()


def over_white(images):
    """Premultiplied RGBA -> RGB, in [-1, 1]."""
    return images[:, :3] + 1 - images[:, 3:]


RGBA = {"image_channels": 4, "premultiplied": True}


def gray(images):
    return (images * images.new_tensor(LUMA).view(3, 1, 1)).sum(dim=1, keepdim=True)


def same(images):
    return images.expand(-1, 3, -1, -1)


def opaque(images):
    return torch.cat([images, torch.ones_like(images[:, :1])], dim=1)


@pytest.mark.parametrize(
    ("theirs", "ours", "as_ours", "as_theirs"),
    [
        (3, 1, gray, same),
        (1, 3, same, gray),
        (3, 4, opaque, over_white),
        (4, 3, over_white, opaque),
        (1, 4, lambda x: opaque(same(x)), lambda x: gray(over_white(x))),
        (4, 1, lambda x: gray(over_white(x)), lambda x: opaque(same(x))),
    ],
)
@pytest.mark.parametrize("equalized", [True, False])
def test_init_from_converts_image_channels(theirs, ours, as_ours, as_theirs, equalized):
    """A picture is the source's, and judged as the source judges it; the other way round, gray is
    repeated and alpha is 1."""
    options = {n: RGBA if n == 4 else {"image_channels": n} for n in (theirs, ours)}
    weights = source_of(options[theirs])
    state, lines = begun(weights, options[ours] | {"equalized": equalized})
    said = f"network.image_channels {theirs} -> {ours}"
    assert any(line.startswith("converted") and said in line for line in lines)
    for name, trained in weights.networks().items():
        network = getattr(state, name)
        n = len(network.state_dict())
        assert f"{name}: {n} of {n} tensors copied from m.pt" in lines
        if name != "discriminator":
            assert_close(images_of(network), as_ours(images_of(trained)), rtol=0, atol=5e-5)
            continue
        images = torch.rand(4, ours, 16, 16) * 2 - 1
        with torch.no_grad():
            assert_close(network(images), trained(as_theirs(images)), rtol=0, atol=5e-5)


def test_init_from_rgba_that_is_not_premultiplied_drops_alpha():
    weights = source_of({"image_channels": 4})
    state, _ = begun(weights, {})
    shown = images_of(weights.generator)[:, :3]
    assert_close(images_of(state.generator), shown, rtol=0, atol=5e-5)


@pytest.mark.parametrize("theirs", [RGBA, {"image_channels": 4}])
def test_init_from_rgba_with_another_premultiplied_is_refused(theirs):
    ours = {"image_channels": 4, "premultiplied": not theirs.get("premultiplied", False)}
    with pytest.raises(ValueError, match=r"network.premultiplied .* -> .*keep its value by -o"):
        begun(source_of(theirs), ours)
    begun(source_of(theirs), theirs)


@pytest.mark.parametrize(
    "changed", [{"mapping_lr_multiplier": 1.0}, {"equalized": False}, {"noise": True}]
)
def test_init_from_converts_scales_to_the_same_function(changed):
    """mapping_lr_multiplier and equalized; without any change every bit is the same."""
    weights = source_of({})
    state, _ = begun(weights, changed)
    w = [map_latents(g, latents(range(8), 5)) for g in (weights.generator, state.generator)]
    assert_close(*w, rtol=1e-5, atol=1e-6)
    assert torch.equal(state.generator.w_avg, weights.generator.w_avg)
    assert_close(images_of(state.generator), images_of(weights.generator), rtol=0, atol=5e-5)
    images = torch.rand(4, 3, 16, 16)
    logits = [d(images) for d in (weights.discriminator, state.discriminator)]
    assert_close(*logits, rtol=0, atol=5e-5)
    if changed == {"noise": True}:  # as it is
        for name, trained in weights.networks().items():
            assert_same_weights(getattr(state, name), trained)


@pytest.mark.parametrize(
    "changed",
    [
        {"mapping_layers": 1},
        {"mapping_layers": 3},
        {"mapping_width": 9},
        {"z_dim": 6},
        {"normalize_latents": False},
        {"mapping_activation": "relu"},
    ],
)
def test_init_from_copies_a_mapping_entirely_or_not_at_all(changed):
    weights = source_of({})
    state, lines = begun(weights, changed)
    untouched = TrainState.create(state.config)
    for name in ("generator", "generator_ema"):
        generator = getattr(state, name)
        assert_same_weights(generator.mapping, getattr(untouched, name).mapping)
        assert_same_weights(generator.synthesis, getattr(weights, name).synthesis)
        assert distance_of_average(generator) < 0.1
    assert "  not copied: w_avg is measured again, since the mapping differs" in lines
    assert any("belongs to another mapping, reinitialized as a whole" in line for line in lines)


@pytest.mark.parametrize(
    ("theirs", "known", "names", "is_measured"),
    [
        (2, ("a", "b"), ("a", "b"), False),
        (2, ("a", "b"), ("b", "a"), True),
        (2, ("a", "b"), ("a", "c"), True),
        (2, (), ("a", "b"), False),  # in order
        (3, (), ("a", "b"), True),
        (0, (), ("a", "b"), False),  # without an effect at first
    ],
)
def test_init_from_measures_w_avg_where_labels_differ(theirs, known, names, is_measured):
    weights = source_of({"label_dim": theirs}, label_names=known)
    state, _ = begun(weights, {"label_dim": 2}, names, labels=True)
    kept = torch.equal(state.generator.w_avg, weights.generator.w_avg)
    assert kept is not is_measured
    if is_measured:
        assert distance_of_average(state.generator) < 0.1


@pytest.mark.parametrize("normalized", [True, False])
def test_init_from_an_unlabeled_source_ignores_new_labels_at_first(normalized):
    options = {"normalize_latents": normalized}
    weights = source_of(options)
    state, _ = begun(weights, options | {"label_dim": 2}, ("a", "b"), labels=True)
    given = images_of(weights.generator)
    for label in torch.eye(2):
        assert_close(images_of(state.generator, label), given, rtol=0, atol=5e-5)
    z = torch.randn(4, state.config.network.z_dim)
    state.generator.mapping(z, torch.eye(2).repeat(2, 1)).square().sum().backward()
    assert state.generator.mapping.label_embedding.grad.any(dim=1).all()  # they are learned


def test_init_from_a_labeled_source_reinitializes_the_mapping_of_an_unlabeled_run():
    with_labels = source_of({"label_dim": 2})
    state, _ = begun(with_labels, {})
    assert_same_weights(state.generator.mapping, TrainState.create(state.config).generator.mapping)


def test_network_config_fields_all_have_a_meaning_for_init_from():
    """One that is added goes into a table of `meaning`, or here, where names and shapes tell."""
    shapes = {
        "resolution", "label_dim", "channel_base", "channel_decay", "max_channels",
        "constant_input", "noise", "deviation_group", "deviation_features",
    }  # fmt: skip
    alike = {"generator", "discriminator"}  # a user's own
    tables = {*meaning.CONVERTED, *meaning.OF_MAPPING, *meaning.OF_LAYERS, "premultiplied"}
    assert {f.name for f in dataclasses.fields(NetworkConfig)} == shapes | alike | tables
    for name in meaning.OF_LAYERS:
        if name != "activation":
            changed = {name: not getattr(NetworkConfig(), name)}
            with pytest.raises(ValueError, match=f"network.{name} .* would compute something else"):
                begun(source_of({}), changed)
