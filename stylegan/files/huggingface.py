"""Folders for the Hugging Face Hub: `model.safetensors` and a model card."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stylegan.files.formats import SHARED
from stylegan.files.formats.native import save_safetensors
from stylegan.files.formats.official import LICENSE
from stylegan.files.run_folder import RunFolder
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.filesystem import KEEP_EXISTING, OutputWriter
from stylegan.utils.lineage import describe_lineage, license_of
from stylegan.utils.text import require_module, sanitize

README = "README.md"  # the model card
NONCOMMERCIAL = "cc-by-nc-4.0"  # NVIDIA's license, by the Hub's identifier
TEXT = """# StyleGAN generator

A generator of [StyleGAN, version 1](https://arxiv.org/abs/1812.04948), in PyTorch.

| | |
|---|---|
{rows}

```python
from stylegan import load_generator

G = load_generator("THIS FOLDER")
images = G.sample(range(4))  # uint8 {shape}
```

{text}
"""


@dataclass(frozen=True)
class Card:
    """What a model card says beyond the file of weights."""

    license: str = ""  # of the weights, by the Hub's identifier; "" = NVIDIA's, if inherited
    data: str = "not specified"  # training data, in a few words
    metrics: Mapping[str, float] = field(default_factory=dict)  # by name
    text: str = ""  # appended, in Markdown


def is_for_the_hub(path: Path) -> bool:
    """Whether a destination is a folder: it exists as one, or has no extension."""
    return path.is_dir() or not path.suffix


def save_folder(
    loaded: Pretrained,
    out: Path,
    card: Card,
    *,
    outputs: OutputWriter = KEEP_EXISTING,
    sources: Iterable[Path] = (),
) -> None:
    """Write a folder to upload, which every command accepts; none of the `sources` is replaced."""
    outputs.check(out / SHARED, out / README, sources=sources)
    if RunFolder.of(out):
        raise ValueError(f"{out} is a run folder; choose another folder")
    require_module(
        "huggingface_hub",
        packages="huggingface-hub safetensors",
        purpose="writing a folder for the Hub",
    )
    text = model_card(loaded, card)
    save_safetensors(out / SHARED, loaded, outputs=outputs)
    outputs.text(out / README, text)


def model_card(loaded: Pretrained, card: Card) -> str:
    from huggingface_hub import ModelCardData

    is_nvidias = license_of(loaded.lineage) == LICENSE
    license = card.license or (NONCOMMERCIAL if is_nvidias else "")
    if is_nvidias and not license.startswith("cc-by-nc"):
        raise ValueError(
            f"license must be {NONCOMMERCIAL}, as the weights come from NVIDIA's, got {license}"
        )
    if not license:
        raise ValueError(
            "the model card needs the license of the weights; pass --license, such as mit"
        )
    data = ModelCardData(
        license=license,
        library_name="stylegan",
        pipeline_tag="unconditional-image-generation",
        tags=["stylegan", "gan"],
    )
    channels = loaded.generator.config.image_channels
    rows = {
        "images": f"{loaded.resolution}x{loaded.resolution}, {channels} channels",
        "trained on": sanitize(card.data),
        "license of the weights": sanitize(license),
    }
    if loaded.images_seen is not None:
        rows["trained on"] += f", {loaded.images_seen:,} images seen"
    if loaded.lineage:
        rows["weights from"] = "; then ".join(describe_lineage(loaded.lineage))
    rows |= {f"metric {name}": f"{value:g}" for name, value in card.metrics.items()}
    height, width = loaded.image_size()
    text = TEXT.format(
        rows="\n".join(f"| {name} | {value} |" for name, value in rows.items()),
        shape=f"(4, {channels}, {height}, {width})",
        text=card.text,
    )
    return f"---\n{data.to_yaml()}\n---\n{text}"
