"""Keyframes of a film in a file: JSON with the styles of pictures, which the explorer saves."""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stylegan.files.formats.metadata import from_json
from stylegan.files.loaded import LoadedGenerator, fits, hashes
from stylegan.messages import readable
from stylegan.networks import NetworkConfig
from stylegan.paths import places

FORMAT, VERSION = "stylegan-keyframes", 1
MOST, LARGEST_FILE = 1000, 2**27  # keyframes, bytes
LONGEST = 24 * 60 * 60  # seconds from one to the next


@dataclass(frozen=True, eq=False)
class Keyframes:
    """Pictures that a film passes, and when."""

    ws: Tensor  # (N, num_styles, w_dim), truncated and edited already
    seconds: Sequence[float]  # from each to the next, or of the last to the first
    loop: bool = True  # whether the film comes back
    ease: bool = False  # whether it slows down at each

    def __post_init__(self) -> None:
        if not 2 <= len(self.ws) <= MOST:
            raise ValueError(f"a film has from 2 to {MOST} keyframes, not {len(self.ws)}")
        for seconds in self.seconds:
            if not 0 < seconds <= LONGEST:
                raise ValueError(
                    f"from one keyframe to the next it is more than 0 and at most {LONGEST} "
                    f"seconds, not {seconds:g}"
                )

    @property
    def ways(self) -> Sequence[float]:
        """Seconds of each part of the film."""
        return self.seconds if self.loop else self.seconds[:-1]

    def places(self, frames: int) -> Tensor:
        """Where on the path through the keyframes evenly spread frames are: float64 (frames,)."""
        starts = torch.tensor([0.0, *accumulate(self.ways)], dtype=torch.float64)
        now = places(frames, 1 if self.loop else 2, closed=self.loop) * starts[-1]
        part = (torch.searchsorted(starts, now, right=True) - 1).clamp_max(len(self.ways) - 1)
        way = ((now - starts[part]) / (starts[part + 1] - starts[part])).clamp(0, 1)
        return part + (1 - torch.cos(torch.pi * way)) / 2 if self.ease else part + way


def styles_text(styles: Tensor) -> str:
    """Styles (num_styles, w_dim) as a text: base64 of little-endian float32."""
    return base64.b64encode(styles.cpu().float().numpy().astype("<f4").tobytes()).decode()


def styles_of(text: Any, config: NetworkConfig, name: str) -> Tensor:
    """The inverse of `styles_text`; ValueError, about what is called `name`, if it is not of this
    network."""
    content = decoded(text, name)
    if len(content) != 4 * config.num_styles() * config.w_dim:
        raise ValueError(f"{name} is of another network")
    numbers = np.frombuffer(content, "<f4").reshape(config.num_styles(), config.w_dim)
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} has numbers that are not finite")
    return torch.from_numpy(numbers.astype(np.float32))


def decoded(text: Any, name: str) -> bytes:
    """The bytes of base64."""
    try:
        if not isinstance(text, str):
            raise ValueError(f"it is {'empty' if text is None else readable(repr(text), 40)}")
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{name} must be base64: {error}") from error


def keyframes_text(keyframes: Keyframes, loaded: LoadedGenerator) -> str:
    """The content of a file, which names the generator by `hashes`."""
    both = zip(keyframes.ws, keyframes.seconds, strict=True)
    about = {
        "format": FORMAT,
        "version": VERSION,
        **hashes(loaded.generator),
        "loop": keyframes.loop,
        "ease": keyframes.ease,
        "keyframes": [{"seconds": some, "styles": styles_text(ws)} for ws, some in both],
    }
    return json.dumps(about, indent=1, allow_nan=False) + "\n"


def read_keyframes(path: Path, loaded: LoadedGenerator) -> Keyframes:
    """The keyframes of a file. ValueError if it is another file, damaged, or of other weights.
    Nothing in it is executed."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} with keyframes")
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{path} is too large: keyframes are at most {LARGEST_FILE >> 20} MiB")
    about = from_json(path.read_text(encoding="utf-8", errors="replace"), path, "text")
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        raise ValueError(
            f"{path} does not hold keyframes of version {VERSION}; stylegan explore saves them"
        )
    if not fits(about, loaded.generator):
        raise ValueError(f"{path} has keyframes of other weights; pass their generator")
    try:
        entries, flags = about["keyframes"], [about["loop"], about["ease"]]
        if not isinstance(entries, list) or not all(isinstance(flag, bool) for flag in flags):
            raise ValueError("keyframes must be a list, loop and ease true or false")
        config = loaded.generator.config
        ws = [
            styles_of(entry["styles"], config, f"keyframe {i}") for i, entry in enumerate(entries)
        ]
        empty = torch.empty(0, config.num_styles(), config.w_dim)
        seconds = [float(entry["seconds"]) for entry in entries]
        return Keyframes(torch.stack(ws) if ws else empty, seconds, *flags)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} is damaged: {readable(reason, 1000)}") from error
