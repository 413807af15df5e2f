"""Blending: which layers come from where, refusals, history and the command."""

import dataclasses

import pytest
import torch
from helpers.commands import run_ok
from helpers.tiny_generators import TINY, loaded_of, random_generator
from torch.testing import assert_close

from stylegan import load_generator, sampling
from stylegan.blending import blend, resolution_of
from stylegan.config import DataConfig
from stylegan.files.formats.native import save_generator
from stylegan.files.formats.official import LICENSE as NVIDIA
from stylegan.utils.lineage import LineageEntry, sha256_of


def loaded(seed, config=TINY, **about):
    source = LineageEntry(f"{seed}.pt", sha256=f"{seed}")
    return loaded_of(random_generator(config, seed), **{"lineage": (source,)} | about)


@pytest.fixture
def files(tmp_path):
    """Two networks, the second of which began from the first."""
    a, b = tmp_path / "a.pt", tmp_path / "b.pt"
    save_generator(a, random_generator(seed=0), psi=0.6)
    began = LineageEntry("a.pt", sha256_of(a), NVIDIA, "generator 65 of 65")
    save_generator(b, random_generator(seed=1), lineage=(began,))
    return a, b


@pytest.mark.parametrize(
    ("first", "last", "taken"), [(8, None, {8, 16}), (4, 8, {4, 8}), (16, 16, {16})]
)
def test_blend_takes_the_chosen_resolutions_from_the_second(first, last, taken):
    a, b = loaded(0), loaded(1)
    found = blend(a, b, first=first, last=last).generator.state_dict()
    for name, ours in a.generator.state_dict().items():
        theirs = b.generator.state_dict()[name]
        assert torch.equal(found[name], theirs if resolution_of(name) in taken else ours), name


def test_blend_share_interpolates_and_keeps_both_parents():
    a, b = loaded(0), loaded(1)
    before = {name: t.clone() for name, t in a.generator.state_dict().items()}
    found = blend(a, b, first=8, share=0.25).generator.state_dict()
    name = "synthesis.blocks.8.conv1.weight"
    theirs = b.generator.state_dict()[name]
    assert_close(found[name], 0.75 * before[name] + 0.25 * theirs)
    assert torch.equal(found["mapping.layers.0.weight"], before["mapping.layers.0.weight"])
    assert all(torch.equal(t, before[n]) for n, t in a.generator.state_dict().items())


def test_blend_of_whole_networks_recomputes_w_avg():
    a, b = loaded(0), loaded(1)
    network = blend(a, b, share=0.5).generator
    weights = network.state_dict()
    for name in ("mapping.layers.1.weight", "synthesis.input.const"):
        assert_close(
            weights[name], (a.generator.state_dict()[name] + b.generator.state_dict()[name]) / 2
        )
    mean = sampling.sample_w(network, 10_000).mean(dim=0)
    assert_close(network.w_avg, mean, rtol=1e-4, atol=1e-5)
    for share, parent in ((0, a), (1, b)):
        same = blend(a, b, share=share).generator.state_dict()
        assert all(torch.equal(same[n], t) for n, t in parent.generator.state_dict().items())


def test_blend_rejects_networks_that_do_not_match():
    wide = dataclasses.replace(TINY, w_dim=4, max_channels=4)
    with pytest.raises(ValueError, match=r"w_dim 8 and 4, max_channels 8 and 4"):
        blend(loaded(0), loaded(1, wide), share=0.5)
    with pytest.raises(ValueError, match=r"resolution reached 16 and 8"):
        blend(loaded(0), loaded(1, resolution=8), first=8)
    with pytest.raises(ValueError, match=r"rectangle None and .*14"):
        blend(loaded(0), loaded(1, active_rectangle=[2, 14, 0, 16]), first=8)
    names = [{"label_names": ("a", "b")}, {"label_names": ("b", "c")}, {}]
    one, other, unnamed = (loaded(0, dataclasses.replace(TINY, label_dim=2), **n) for n in names)
    with pytest.raises(ValueError, match=r"labels \(a, b\) and \(b, c\)"):
        blend(one, other, share=0.5)
    blend(one, unnamed, share=0.5)
    classes = one.replace(trained_on=DataConfig(labels=True))
    vectors = one.replace(label_rows=torch.eye(2))
    with pytest.raises(ValueError, match=r"labels \(classes a, b\) and \(vectors of a, b\)"):
        blend(classes, vectors, share=0.5)
    blend(vectors, one, share=0.5)  # a file of before does not say which they are
    for first, last in ((5, None), (16, 8)):
        with pytest.raises(ValueError, match=f"{first} to .*, but the resolutions .* 4, 8, 16"):
            blend(loaded(0), loaded(1), first=first, last=last)


def test_blend_refuses_networks_of_unknown_origin(files):
    a, b = map(load_generator, files)
    with pytest.raises(ValueError, match="as_parent"):
        blend(b, a, share=0.5)


def test_blend_with_share_0_keeps_the_centers_of_the_first():
    centers = torch.ones(2, 8)
    a = loaded(0).with_settings(centers=centers)
    assert torch.equal(blend(a, loaded(1), share=0).settings.centers, centers)
    assert blend(a, loaded(1), share=0.5).settings.centers is None  # w means something else there


def test_blend_matches_labels_by_name():
    config = dataclasses.replace(TINY, label_dim=2)
    a = loaded(0, config, label_names=("a", "b"))
    turned = loaded(1, config, label_names=("b", "a"))
    embedding = blend(a, turned, share=1).generator.mapping.label_embedding
    assert torch.equal(embedding, turned.generator.mapping.label_embedding.flip(0))


def test_blend_command_writes_the_lineage_of_both_parents(files, tmp_path):
    a, b = files
    run_ok("blend", a, b, "--from", 8, "--until", 8, "--out", tmp_path / "c.pt")
    found = load_generator(tmp_path / "c.pt")
    assert (found.settings.psi, found.images_seen) == (0.6, None)
    assert [s.source for s in found.lineage] == ["a.pt", "b.pt"]
    assert found.lineage[1].copied == "layers 8 to 8, share 1"
    assert NVIDIA in run_ok("info", tmp_path / "c.pt")
    whole = blend(load_generator(a), load_generator(b), first=8, last=8).generator.state_dict()
    assert all(torch.equal(found.generator.state_dict()[n], t) for n, t in whole.items())
