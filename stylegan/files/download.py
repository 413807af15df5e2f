"""Files that a name or an address stands for, and the hashes in their names."""

import re
import sys
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import torch

from stylegan.machine.lineage import sha256_of

WEIGHTS = Path(__file__).parent.parent / "weights"
BUNDLED = ("faces64", "glyphs64")  # ship as `weights/NAME-<8 digits of SHA-256>.pt`
BUNDLED_LICENSE = "MIT"


def bundled_file(name: str) -> Path:
    """Return the file of a bundled network, which must have the hash in its name."""
    files = [path for path in WEIGHTS.glob(f"{name}-*.pt") if hash_prefix(path.name)]
    if len(files) != 1:
        raise FileNotFoundError(
            f"{len(files)} files {name}-<hash>.pt are in {WEIGHTS}, where there should be one; get "
            "the whole repository or install the package again"
        )
    return verified(files[0], str(hash_prefix(files[0].name)))


def bundled_name(path: Path, sha256: str) -> str | None:
    """Return the name of a bundled network if this is its file, or a copy under the same name."""
    name = path.stem.rpartition("-")[0]
    bundled = WEIGHTS / path.name
    if name not in BUNDLED or not bundled.is_file():
        return None
    return name if sha256_of(bundled) == sha256 else None


def downloaded(url: str) -> Path:
    """Fetch the file at an https address, once, to the cache of torch.hub. The address has the
    first digits of its SHA-256, at least 8, as `NAME-<digits>.pt` or `#sha256=<digits>`."""
    if not re.fullmatch("https://[!-~]+/[!-~]*", url):
        raise ValueError(
            f"{url} is not an https address without blanks; use one, or download the "
            "file and give its path"
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
            f"{url} does not specify the SHA-256 of the file, so a forged one would not be "
            "noticed; add #sha256=<its first 8 to 64 digits>, or download it and give its path"
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
                f"{url} could not be downloaded ({error}); without a network, put the file "
                f"at {path} or give the path of a local copy"
            ) from error
    return verified(path, digits)


def hub_cache() -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints"


def hash_prefix(file_name: str) -> str | None:
    """Return the digits of SHA-256 in `NAME-<digits>.pt`, at least 8."""
    if re.fullmatch(r"(generator|state)-\d+\.pt", file_name):  # of a run: a number of images
        return None
    digits = re.search(r"-([0-9a-f]{8,64})\.", file_name)
    return digits[1] if digits else None


def verified(path: Path, promised: str) -> Path:
    """Return `path`. Raise ValueError unless its SHA-256 begins with the digits `promised`."""
    digest = sha256_of(path)
    if not digest.startswith(promised):
        raise ValueError(
            f"{path} is damaged: its SHA-256 begins with {digest[:8]}, not {promised}; delete it "
            "and get it again"
        )
    return path
