"""Folders for the Hugging Face Hub: `model.safetensors` and a model card."""

import json
from collections.abc import Iterable
from pathlib import Path

from stylegan.files.formats import SHARED
from stylegan.files.formats.native import save_safetensors
from stylegan.files.formats.official import LICENSE
from stylegan.files.run_folder import RunFolder
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.filesystem import KEEP_EXISTING, OutputWriter
from stylegan.utils.lineage import describe_lineage, license_of
from stylegan.utils.text import sanitize

README = "README.md"  # the model card
NONCOMMERCIAL = "cc-by-nc-4.0"  # NVIDIA's license, by the Hub's identifier
TEXT = """---
license: {license}
library_name: stylegan
pipeline_tag: unconditional-image-generation
tags: [stylegan, gan]
---
# StyleGAN generator

A generator of [StyleGAN, version 1](https://arxiv.org/abs/1812.04948), in PyTorch.

| | |
|---|---|
{rows}

```python
from stylegan import load_generator

G = load_generator("THIS FOLDER")
images = G.sample(range(4))  # uint8 {shape}
```
"""


def save_folder(
    loaded: Pretrained,
    out: Path,
    *,
    license_name: str | None = None,
    trained_on: str | None = None,
    outputs: OutputWriter = KEEP_EXISTING,
    sources: Iterable[Path] = (),
) -> None:
    """Write a folder to upload, which every command accepts; none of the `sources` is replaced.

    license_name: of the weights, by the Hub's identifier; None = NVIDIA's, if inherited.
    trained_on: the training data, in a few words.
    """
    outputs.check(out / SHARED, out / README, sources=sources)
    if RunFolder.of(out):
        raise ValueError(f"{out} is a run folder; choose another folder")
    text = model_card(loaded, license_name, trained_on)
    save_safetensors(out / SHARED, loaded, outputs=outputs)
    outputs.text(out / README, text)


def model_card(loaded: Pretrained, license_name: str | None, trained_on: str | None) -> str:
    is_nvidias = license_of(loaded.lineage) == LICENSE
    license = license_name or (NONCOMMERCIAL if is_nvidias else "")
    if is_nvidias and not license.startswith("cc-by-nc"):
        raise ValueError(
            f"license must be {NONCOMMERCIAL}, as the weights come from NVIDIA's, got {license}"
        )
    if not license:
        raise ValueError(
            "the model card needs the license of the weights; pass --license, such as mit"
        )
    channels = loaded.generator.config.image_channels
    rows = {
        "images": f"{loaded.resolution}x{loaded.resolution}, {channels} channels",
        "trained on": sanitize(trained_on or "not specified"),
        "license of the weights": sanitize(license),
    }
    if loaded.images_seen is not None:
        rows["trained on"] += f", {loaded.images_seen:,} images seen"
    if loaded.lineage:
        rows["weights from"] = "; then ".join(describe_lineage(loaded.lineage))
    height, width = loaded.image_size()
    return TEXT.format(
        license=json.dumps(license),
        rows="\n".join(f"| {key} | {text.replace('|', '&#124;')} |" for key, text in rows.items()),
        shape=f"(4, {channels}, {height}, {width})",
    )
