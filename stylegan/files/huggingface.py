"""Generators on the Hugging Face Hub, or in a folder like those there.

Shared are `model.safetensors`, as `stylegan export` writes it, `config.json` for those who look,
and a model card. The first alone is read.
"""

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

try:
    from huggingface_hub import HfApi, ModelCard, ModelCardData, hf_hub_download
except ImportError as error:
    raise ImportError('this needs huggingface_hub: pip install -e ".[export]"') from error

from stylegan.disk import write_text
from stylegan.files.formats import SHARED
from stylegan.files.formats.safetensors import save_safetensors
from stylegan.files.loaded import LoadedGenerator
from stylegan.lineage import NVIDIA, described, licence_of
from stylegan.messages import readable

TASK = "unconditional-image-generation"
PAPER = "https://arxiv.org/abs/1812.04948"
CONFIG, README = "config.json", "README.md"
NONCOMMERCIAL = "cc-by-nc-4.0"  # NVIDIA's licence, as the Hub writes it
TEXT = """# StyleGAN generator

A generator of [StyleGAN, version 1]({paper}), in PyTorch.

| | |
|---|---|
{rows}

```python
import torch
from stylegan import load_generator
from stylegan.files.huggingface import shared_file

G = load_generator(shared_file("THIS REPOSITORY OR A FOLDER"))
pictures = G.sample(range(4){labels})  # uint8 (4, {channels}, {height}, {width})
```

{text}
"""


@dataclass(frozen=True)
class Card:
    """What the model card says and the file of weights does not."""

    licence: str = ""  # of the weights, as the Hub writes it: "mit"; "" = NVIDIA's, if it is theirs
    data: str = "not specified"  # what it was trained on, in a word or two
    metrics: Mapping[str, float] = field(default_factory=dict)  # by name
    text: str = ""  # anything more, in Markdown


def save_folder(
    loaded: LoadedGenerator, folder: Path, card: Card, *, overwrite: bool = False
) -> None:
    """Write a folder that can be uploaded, and that every command takes as a source."""
    licence = licence_for(card, loaded)
    there = [name for name in (SHARED, CONFIG, README) if (folder / name).exists()]
    if there and not overwrite:
        raise ValueError(
            f"{folder} holds {', '.join(there)} already; choose another folder or pass "
            "overwrite=True"
        )
    folder.mkdir(parents=True, exist_ok=True)
    save_safetensors(folder / SHARED, loaded)
    config = json.dumps(dataclasses.asdict(loaded.generator.config))
    write_text(folder / CONFIG, f"{config}\n")
    write_text(folder / README, str(model_card(loaded, card, licence)))


def push_to_hub(loaded: LoadedGenerator, repository: str, card: Card, **settings: Any) -> str:
    """Upload such a folder as `repository` ("me/mine"), which is made if it does not exist; returns
    its address. `settings` are those of HfApi.create_repo, for instance private=True."""
    api = HfApi()
    with tempfile.TemporaryDirectory() as folder:
        save_folder(loaded, Path(folder), card)
        address = api.create_repo(repository, exist_ok=True, **settings)
        api.upload_folder(repo_id=repository, folder_path=folder)
    return str(address)


def shared_file(source: str | Path, **settings: Any) -> Path:
    """The weights in a folder or a repository of the Hub, for `load_generator`; `settings` are
    those of hf_hub_download."""
    folder = Path(source)
    if not folder.is_dir():
        return Path(hf_hub_download(str(source), SHARED, **settings))
    if not (folder / SHARED).is_file():
        raise FileNotFoundError(f"the folder {folder} holds no {SHARED}")
    return folder / SHARED


def licence_for(card: Card, loaded: LoadedGenerator) -> str:
    """The licence of the card, or NVIDIA's if the weights began from theirs. ValueError for another
    than that, and for none."""
    if licence_of(loaded.lineage) != NVIDIA:
        if not card.licence:
            raise ValueError(
                'a model card says under which licence the weights are: pass Card("mit", ...)'
            )
        return card.licence
    licence = card.licence or NONCOMMERCIAL
    if not licence.startswith(NONCOMMERCIAL[:8]):
        raise ValueError(
            "these weights began from NVIDIA's, whose licence goes with them: it is "
            f"{NONCOMMERCIAL}, so the card cannot say {readable(licence)}"
        )
    return licence


def model_card(loaded: LoadedGenerator, card: Card, licence: str) -> ModelCard:
    """The licence as the Hub reads it, and all else for people."""
    data = ModelCardData(
        license=licence, library_name="stylegan", pipeline_tag=TASK, tags=["stylegan", "gan"]
    )
    config, seen = loaded.generator.config, loaded.images_seen
    sources = described(loaded.lineage)
    rows = {
        "images": f"{loaded.resolution}x{loaded.resolution}, {config.image_channels} channels",
        "trained on": card.data + ("" if seen is None else f", {seen:,} images seen"),
        "licence of the weights": licence,
        **({"weights from": "; then ".join(sources)} if sources else {}),
        **{f"metric {name}": f"{value:g}" for name, value in card.metrics.items()},
    }
    labels, (height, width) = config.label_dim, loaded.picture_size()
    text = TEXT.format(
        paper=PAPER,
        rows="\n".join(f"| {name} | {value} |" for name, value in rows.items()),
        labels=f", labels=torch.eye({labels})[[0, 1 % {labels}] * 2]" if labels else "",
        channels=config.image_channels,
        height=height,
        width=width,
        text=card.text,
    )
    return ModelCard(f"---\n{data.to_yaml()}\n---\n{text}")
