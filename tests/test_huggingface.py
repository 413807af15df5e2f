"""The Hugging Face Hub's way of sharing a generator, in a local folder."""

import dataclasses

import huggingface_hub
import numpy as np
import pytest
import torch
from helpers.tiny_generators import TINY, loaded_of, random_generator

from stylegan.files.huggingface import save_folder
from stylegan.networks import Generator


@pytest.fixture
def source():
    said = {"resolution": 8, "alpha": 0.25, "psi": 0.5, "cutoff": None, "images_seen": 1200}
    return loaded_of(random_generator(), **said)


def test_save_folder_card_shows_license_and_data(source, tmp_path):
    save_folder(source, tmp_path, license_name="cc-by-nc-4.0", trained_on="91 smileys | hearts")
    card = huggingface_hub.ModelCard.load(tmp_path / "README.md")
    assert (card.data.license, card.data.library_name) == ("cc-by-nc-4.0", "stylegan")
    for said in (
        "| images | 8x8, 3 channels |",
        "| trained on | 91 smileys &#124; hearts, 1,200 images seen |",
        "| license of the weights | cc-by-nc-4.0 |",
        "G.sample(range(4))  # uint8 (4, 3, 8, 8)",
    ):
        assert said in card.text


@pytest.mark.parametrize("labels", [0, 2])
def test_save_folder_card_code_generates_the_same_images(source, tmp_path, labels):
    network = Generator(dataclasses.replace(TINY, label_dim=labels)).eval()
    source = source.replace(generator=network)
    save_folder(source, tmp_path, license_name="mit")
    text = (tmp_path / "README.md").read_text()
    code = text.partition("```python\n")[2].partition("```")[0]
    found = {}
    exec(code.replace("THIS FOLDER", str(tmp_path)), found)
    label = torch.eye(2)[[0, 1, 0, 1]] if labels else None
    expected = np.stack(list(source.generate(range(4), labels=label)))
    assert np.array_equal(found["images"].permute(0, 2, 3, 1), expected)
