"""Bundled and downloaded files, verified by the hash in their name or address."""

import re
import sys
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import torch

from stylegan.utils.lineage import sha256_of

WEIGHTS = Path(__file__).parent.parent / "weights"
BUNDLED = ("faces64", "glyphs64")  # ship as `weights/NAME-<8 digits of SHA-256>.pt`
BUNDLED_LICENSE = "MIT"


def bundled_file(name: str) -> Path:
    """Path of a bundled network, verified by the hash in its name."""
    files = [path for path in WEIGHTS.glob(f"{name}-*.pt") if hash_prefix(path.name)]
    if len(files) != 1:
        raise FileNotFoundError(
            f"{WEIGHTS} must contain one file {name}-<hash>.pt, got {len(files)}; clone the whole "
            "repository or reinstall the package"
        )
    return check_hash(files[0], str(hash_prefix(files[0].name)))


def bundled_name(path: Path, sha256: str) -> str | None:
    """Name of the bundled network that `path` is, or is a copy of under the same name; or None."""
    name = path.stem.rpartition("-")[0]
    bundled = WEIGHTS / path.name
    if name not in BUNDLED or not bundled.is_file():
        return None
    return name if sha256_of(bundled) == sha256 else None


def fetch(url: str) -> Path:
    """Download an https address to the cache of torch.hub, unless it is there.

    The address contains at least 8 digits of the SHA-256: `NAME-<digits>.pt` or `#sha256=<digits>`.
    """
    if not re.fullmatch("https://[!-~]+/[!-~]*", url):
        raise ValueError(
            f"{url} is not an https address without blanks; use one, or download the file and "
            "pass its path"
        )
    parts = urlsplit(url)
    name = PurePosixPath(parts.path).name
    if not name:
        raise ValueError(f"{url} does not name a file")
    promised = re.fullmatch(
        r"sha256=([0-9a-f]{8,64})", parts.fragment or f"sha256={hash_prefix(name)}"
    )
    if promised is None:
        raise ValueError(
            f"{url} does not specify the SHA-256 of the file; add #sha256=<its first 8 to 64 "
            "digits>, or download it and pass its path"
        )
    digits = promised[1]
    path = hub_cache() / ("" if digits == hash_prefix(name) else digits) / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(
                url.partition("#")[0], str(path), digits, progress=sys.stderr.isatty()
            )
        except (HTTPException, OSError, RuntimeError, UnicodeError) as error:
            raise OSError(
                f"{url} could not be downloaded ({error}); without a network, put the file at "
                f"{path} or pass the path of a local copy"
            ) from error
    return check_hash(path, digits)


def hub_cache() -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints"


def hash_prefix(file_name: str) -> str | None:
    """First digits of the SHA-256 in `NAME-<digits>.pt`, at least 8; or None."""
    if re.fullmatch(r"(generator|state)-\d+\.pt", file_name):  # of a run: the digits count images
        return None
    digits = re.search(r"-([0-9a-f]{8,64})\.", file_name)
    return digits[1] if digits else None


def check_hash(path: Path, promised: str) -> Path:
    """Check that the SHA-256 of `path` begins with the digits `promised`; ValueError if not."""
    digest = sha256_of(path)
    if not digest.startswith(promised):
        raise ValueError(
            f"{path} is damaged: its SHA-256 begins with {digest[:8]}, not {promised}; delete it "
            "and download it again"
        )
    return path
