"""Generators on the Hugging Face Hub, or in a folder like those there."""

import copy
import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch

try:
    from huggingface_hub import EvalResult, ModelCard, ModelCardData, ModelHubMixin, hf_hub_download
except ImportError as error:
    raise ImportError("this needs huggingface_hub: pip install 'stylegan[export]'") from error

from stylegan.files.formats import SHARED, save_safetensors
from stylegan.files.formats.safetensors import check_header
from stylegan.files.loaded import LoadedGenerator, SeededGenerator
from stylegan.files.loading import load_file
from stylegan.lineage import NVIDIA, described, licence_of
from stylegan.messages import readable
from stylegan.networks import NetworkConfig

TASK = "unconditional-image-generation"
README = "README.md"
NONCOMMERCIAL = "cc-by-nc-4.0"  # NVIDIA's licence, as the Hub writes it
USAGE = """
```python
import torch
from stylegan.files.huggingface import HubGenerator

G = HubGenerator.from_pretrained("THIS REPOSITORY OR A FOLDER")
pictures = G.sample(range(4){labels})  # uint8 (4, {channels}, {height}, {width})
```
"""
SIGNATURE = "<!-- written by stylegan: {} -->\n"  # the last line of a card, with its SHA-256


def signed(card: str) -> str:
    """A card with a last line that tells whether it is as it was written."""
    return card + SIGNATURE.format(hashlib.sha256(card.encode()).hexdigest())


def is_written(folder: Path) -> bool:
    """Whether a folder is as `HubGenerator.save_pretrained` left it."""
    try:
        check_header(folder / SHARED)
        lines = (folder / README).read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, ValueError):
        return False
    return "".join(lines) == signed("".join(lines[:-1]))


@dataclass(frozen=True)
class Card:
    """What the model card says and the file of weights does not."""

    licence: str = ""  # of the weights, as the Hub writes it: "mit"; "" = NVIDIA's, if it is theirs
    data: str = "not specified"  # what it was trained on, in a word or two
    metrics: Mapping[str, float] = field(default_factory=dict)  # by name
    text: str = ""  # anything more, in Markdown


class HubGenerator(
    SeededGenerator,
    ModelHubMixin,
    library_name="stylegan",
    pipeline_tag=TASK,
    tags=["stylegan", "gan"],
    paper_url="https://arxiv.org/abs/1812.04948",
):
    """A generator with `from_pretrained`, `save_pretrained` and `push_to_hub`.

    HubGenerator.of(load_source("runs/mine"), Card("mit", "my photos")).push_to_hub("me/mine")

    Shared are `model.safetensors`, as `stylegan export` writes it, `config.json` for those who
    look, and a model card. The first alone is read.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__(config)
        self.card: Card | None = None  # needed to share it

    @classmethod
    def of(cls, loaded: LoadedGenerator, card: Card | None = None) -> Self:
        """A copy of a loaded generator, in eval mode."""
        generator = copy.deepcopy(loaded.generator)
        network = super().of(dataclasses.replace(loaded, generator=generator))
        network.card = card
        return network

    def checked_card(self) -> Card:
        card = self.card or Card()
        if licence_of(self.loaded.lineage) == NVIDIA:
            if not (card.licence or NONCOMMERCIAL).startswith(NONCOMMERCIAL[:8]):
                raise ValueError(
                    f"these weights began from NVIDIA's, whose licence goes with them: it is "
                    f"{NONCOMMERCIAL}, so the card cannot say {readable(card.licence)}"
                )
            card = dataclasses.replace(card, licence=card.licence or NONCOMMERCIAL)
        if not card.licence:
            raise ValueError(
                "a model card says under which licence the weights are: set "
                '`card = stylegan.files.huggingface.Card("mit", ...)` first'
            )
        return card

    def save_pretrained(
        self, save_directory: str | Path, *, overwrite: bool = False, **settings: Any
    ) -> str | None:
        """Write a folder that `from_pretrained`, and `stylegan generate`, take.

        What this method wrote there before is replaced; other files of these names, and a card
        that was edited, only with `overwrite`.
        """
        self.checked_card()
        folder = Path(save_directory)
        there = [name for name in (SHARED, "config.json", README) if (folder / name).exists()]
        if there and not overwrite and not is_written(folder):
            raise ValueError(
                f"{folder} holds {', '.join(there)} already, not or not all as written by "
                "save_pretrained; choose another folder or pass overwrite=True"
            )
        (folder / README).unlink(missing_ok=True)  # else it would stay
        return super().save_pretrained(save_directory, **settings)

    def push_to_hub(self, repo_id: str, **settings: Any) -> str:
        """Upload it; the arguments are those of ModelHubMixin. Returns the address."""
        self.checked_card()  # before a repository is made
        return super().push_to_hub(repo_id, **settings)

    def _save_pretrained(self, save_directory: Path) -> None:
        save_safetensors(save_directory / SHARED, self.loaded)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        map_location: str | torch.device = "cpu",
        config: object = None,  # of config.json: the weights' own file says it too
        **settings: Any,
    ) -> Self:
        folder = Path(model_id)
        path = folder / SHARED
        if not folder.is_dir():
            path = Path(hf_hub_download(model_id, SHARED, **settings))
        elif not path.is_file():
            raise FileNotFoundError(f"the folder {folder} holds no {SHARED}")
        return cls.of(load_file(path, map_location))

    def generate_model_card(self, *args: Any, **settings: Any) -> ModelCard:
        """The card: licence and metrics as the Hub reads them, and the same for people."""
        card, info = self.checked_card(), self._hub_mixin_info
        kind: Any = {"task_type": TASK, "dataset_type": card.data, "dataset_name": card.data}
        results = [
            EvalResult(metric_type=name, metric_value=value, **kind)
            for name, value in card.metrics.items()
        ]
        data = ModelCardData(
            license=card.licence,
            library_name=info.model_card_data.library_name,
            pipeline_tag=TASK,
            tags=info.model_card_data.tags,
            model_name="StyleGAN generator" if results else None,
            eval_results=results or None,
        )
        return ModelCard(signed(f"---\n{data.to_yaml()}\n---\n{self.card_text(card)}\n"))

    def card_text(self, card: Card) -> str:
        """The card for people."""
        channels, labels = self.config.image_channels, self.config.label_dim
        number = sum(p.numel() for p in self.parameters())
        size, seen = self.loaded.resolution, self.loaded.images_seen
        height, width = self.loaded.picture_size()
        sources = described(self.loaded.lineage)
        rows = {
            "images": f"{size}x{size}, {channels} channels",
            "parameters": f"{number:,}",
            "trained on": card.data + ("" if seen is None else f", {seen:,} images seen"),
            "licence of the weights": card.licence,
            **({"weights from": "; then ".join(sources)} if sources else {}),
            **{f"metric {name}": f"{value:g}" for name, value in card.metrics.items()},
        }
        usage = USAGE.format(
            labels=f", labels=torch.eye({labels})[[0, 1 % {labels}] * 2]" if labels else "",
            channels=channels,
            height=height,
            width=width,
        )
        lines = [
            "# StyleGAN generator",
            "",
            f"A generator of [StyleGAN, version 1]({self._hub_mixin_info.paper_url}), in PyTorch.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in rows.items()),
            usage,
            card.text,
        ]
        return "\n".join(lines)
