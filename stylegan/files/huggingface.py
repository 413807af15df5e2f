"""A folder for the Hugging Face Hub: `model.safetensors`, as exported, and a model card."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

try:
    from huggingface_hub import ModelCard, ModelCardData
except ImportError as error:
    raise ImportError('this needs huggingface_hub: pip install -e ".[export]"') from error

from stylegan.disk import write_text
from stylegan.files.formats import SHARED
from stylegan.files.formats.own import save_safetensors
from stylegan.files.loaded import LoadedGenerator
from stylegan.lineage import NVIDIA, described, licence_of
from stylegan.messages import readable

README = "README.md"
NONCOMMERCIAL = "cc-by-nc-4.0"  # NVIDIA's licence, as the Hub writes it
TEXT = """# StyleGAN generator

A generator of [StyleGAN, version 1](https://arxiv.org/abs/1812.04948), in PyTorch.

| | |
|---|---|
{rows}

```python
import torch
from stylegan import load_generator

G = load_generator("THIS FOLDER")
pictures = G.sample(range(4){labels})  # uint8 {shape}
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


def save_folder(loaded: LoadedGenerator, out: Path, card: Card, *, overwrite: bool = False) -> None:
    """Write a folder that can be uploaded, and that every command takes as a source."""
    text = str(model_card(loaded, card))
    there = [name for name in (SHARED, README) if (out / name).exists()]
    if there and not overwrite:
        what = f"{out} holds {', '.join(there)} already"
        raise ValueError(f"{what}; choose another folder or pass overwrite=True")
    out.mkdir(parents=True, exist_ok=True)
    save_safetensors(out / SHARED, loaded)
    write_text(out / README, text)


def model_card(loaded: LoadedGenerator, card: Card) -> ModelCard:
    """The licence as the Hub reads it, NVIDIA's if the weights began from theirs, and all else."""
    nvidia = licence_of(loaded.lineage) == NVIDIA
    licence = card.licence or (NONCOMMERCIAL if nvidia else "")
    if nvidia and not licence.startswith("cc-by-nc"):
        what = f"these weights began from NVIDIA's, whose licence goes with them: {NONCOMMERCIAL}"
        raise ValueError(f"{what}, so the card cannot say {readable(licence)}")
    if not licence:
        what = "a model card says under which licence the weights are"
        raise ValueError(f'{what}: pass Card("mit", ...)')
    data = ModelCardData(
        license=licence,
        library_name="stylegan",
        pipeline_tag="unconditional-image-generation",
        tags=["stylegan", "gan"],
    )
    channels, labels = loaded.generator.config.image_channels, loaded.generator.config.label_dim
    seen, sources = loaded.images_seen, described(loaded.lineage)
    rows = {
        "images": f"{loaded.resolution}x{loaded.resolution}, {channels} channels",
        "trained on": card.data + ("" if seen is None else f", {seen:,} images seen"),
        "licence of the weights": licence,
        **({"weights from": "; then ".join(sources)} if sources else {}),
        **{f"metric {name}": f"{value:g}" for name, value in card.metrics.items()},
    }
    height, width = loaded.picture_size()
    text = TEXT.format(
        rows="\n".join(f"| {name} | {value} |" for name, value in rows.items()),
        labels=f", labels=torch.eye({labels})[[0, 1 % {labels}] * 2]" if labels else "",
        shape=f"(4, {channels}, {height}, {width})",
        text=card.text,
    )
    return ModelCard(f"---\n{data.to_yaml()}\n---\n{text}")
