"""The Hugging Face Hub's way of sharing a generator, in a local folder."""

import dataclasses
import json

import huggingface_hub
import numpy as np
import pytest
import safetensors.torch
import torch
from tiny_generators import TINY, assert_same_weights, random_generator
from torch.testing import assert_close

from stylegan.files.huggingface import Card, HubGenerator
from stylegan.files.loading import LoadedGenerator, load_source
from stylegan.networks import Generator

CARD = Card("cc-by-nc-4.0", "91 smileys", {"fid": 12.5, "kid": 0.004}, "More in our paper.")


@pytest.fixture
def source():
    said = {"resolution": 8, "alpha": 0.25, "psi": 0.5, "cutoff": None, "images_seen": 1200}
    return LoadedGenerator(random_generator(), "memory", **said)


def test_a_saved_folder_comes_back_with_every_number_and_all_that_is_told(source, tmp_path):
    shared = HubGenerator.of(source, CARD)
    shared.save_pretrained(tmp_path / "mine")
    with torch.no_grad():
        shared.w_avg.zero_()  # a copy: the source stays as it is
    before = torch.get_rng_state()
    back = HubGenerator.from_pretrained(tmp_path / "mine")
    assert torch.equal(before, torch.get_rng_state())
    assert_same_weights(back, source.generator)
    assert (back.config, back.training) == (TINY, False)
    for name in ("psi", "cutoff", "resolution", "alpha", "images_seen", "label_names"):
        assert getattr(back.loaded, name) == getattr(source, name)
    z = torch.randn(2, 8)
    assert_close(back(z, noise="const"), source.generator(z, noise="const"), rtol=0, atol=0)
    assert json.loads((tmp_path / "mine" / "config.json").read_text())["resolution"] == 16


def test_such_a_folder_is_a_source_like_any_other(source, tmp_path):
    HubGenerator.of(source, CARD).save_pretrained(tmp_path)
    loaded = load_source(tmp_path)
    assert (loaded.psi, loaded.cutoff, loaded.images_seen) == (0.5, None, 1200)
    assert_same_weights(loaded.generator, source.generator)


def test_the_card_tells_licence_and_metrics_to_the_hub_and_to_people(source, tmp_path):
    HubGenerator.of(source, CARD).save_pretrained(tmp_path)
    card = huggingface_hub.ModelCard.load(tmp_path / "README.md")
    assert (card.data.license, card.data.library_name) == ("cc-by-nc-4.0", "stylegan")
    found = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert found == {"fid": 12.5, "kid": 0.004}
    assert card.data.eval_results[0].dataset_name == "91 smileys"
    number = sum(p.numel() for p in source.generator.parameters())
    for said in (
        "| images | 8x8, 3 channels |",
        f"| parameters | {number:,} |",
        "| trained on | 91 smileys, 1,200 images seen |",
        "| licence of the weights | cc-by-nc-4.0 |",
        "| metric fid | 12.5 |",
        "G.sample(range(4))  # uint8 (4, 3, 8, 8)",
        "More in our paper.",
    ):
        assert said in card.text


@pytest.mark.parametrize("labels", [0, 2])
def test_the_code_of_the_card_makes_the_pictures_that_the_file_specifies(source, tmp_path, labels):
    network = Generator(dataclasses.replace(TINY, label_dim=labels)).eval()
    source = dataclasses.replace(source, generator=network)
    HubGenerator.of(source, CARD).save_pretrained(tmp_path)
    text = (tmp_path / "README.md").read_text()
    code = text.partition("```python\n")[2].partition("```")[0]
    found = {}
    exec(code.replace("THIS REPOSITORY OR A FOLDER", str(tmp_path)), found)
    label = torch.eye(2)[[0, 1, 0, 1]] if labels else None
    expected = np.stack(list(source.pictures(range(4), labels=label)))
    assert np.array_equal(found["pictures"].permute(0, 2, 3, 1), expected)


def test_a_card_without_metrics_is_valid_too(source, tmp_path):
    HubGenerator.of(source, Card("mit")).save_pretrained(tmp_path)
    card = huggingface_hub.ModelCard.load(tmp_path / "README.md")
    assert (card.data.license, card.data.eval_results) == ("mit", None)


def test_weights_without_a_licence_are_not_shared(source, tmp_path):
    network = HubGenerator.of(source)
    with pytest.raises(ValueError, match="under which licence"):
        network.save_pretrained(tmp_path / "mine")
    with pytest.raises(ValueError, match="under which licence"):
        network.push_to_hub("someone/mine")
    assert not list(tmp_path.iterdir())


def test_a_shared_folder_is_not_overwritten_unless_asked(source, tmp_path):
    (tmp_path / "README.md").write_text("precious")
    network = HubGenerator.of(source, CARD)
    with pytest.raises(ValueError, match=r"holds README\.md already"):
        network.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "precious"
    network.save_pretrained(tmp_path, overwrite=True)
    assert "cc-by-nc-4.0" in (tmp_path / "README.md").read_text()


def test_what_was_shared_before_is_replaced_unless_somebody_changed_it(source, tmp_path):
    network = HubGenerator.of(source, CARD)
    network.save_pretrained(tmp_path)
    network.card = dataclasses.replace(CARD, metrics={"fid": 7.25})
    network.save_pretrained(tmp_path)
    card = tmp_path / "README.md"
    assert "| metric fid | 7.25 |" in card.read_text()
    edited = card.read_text().replace("More in our paper.", "Mine.")
    card.write_text(edited)
    with pytest.raises(ValueError, match="not or not all as written by save_pretrained"):
        network.save_pretrained(tmp_path)
    assert card.read_text() == edited
    card.unlink()
    safetensors.torch.save_file({"theirs": torch.zeros(1)}, tmp_path / "model.safetensors")
    before = (tmp_path / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="not or not all as written by save_pretrained"):
        network.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_a_folder_without_weights_says_so(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"holds no model\.safetensors"):
        HubGenerator.from_pretrained(tmp_path)
