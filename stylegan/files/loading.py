"""From whatever names a generator (run folder, file, address, bundled name) to the network."""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from stylegan.files import checkpoint, interop, portable
from stylegan.files.loaded import CUTOFF, PSI, LoadedGenerator
from stylegan.messages import listed, readable
from stylegan.networks import Discriminator, Generator, NetworkConfig
from stylegan.run_folder import RunFolder
from stylegan.schedule import ScheduleConfig, stage_at

WEIGHTS = Path(__file__).parent.parent / "weights"
BUNDLED = ("emoji32", "emoji64")  # ship as `weights/NAME-<8 digits of SHA-256>.safetensors` or .pt
ACCEPTED = (
    f"a run folder, a folder with {portable.SHARED}, a generator or state file of this project "
    "(.pt), an exported one (.safetensors, .npz), an official snapshot (.pkl), "
    "a checkpoint of rosinality, genforce or huangzh13 (.model, .pth), "
    f"an https address with #sha256=... of such a file, or a bundled name ({', '.join(BUNDLED)})"
)
Network = TypeVar("Network", Generator, Discriminator)


def load_generator(
    path_or_url: str | Path, *, map_location: str | torch.device = "cpu"
) -> Generator:
    """The generator that `path_or_url` names, in eval mode: see `load_source` for what it may be.

    The finished network; of one still growing, pass the `resolution` and `alpha` it has reached.
    """
    return load_source(path_or_url, map_location=map_location).generator


def load_source(source: str | Path, *, map_location: str | torch.device = "cpu") -> LoadedGenerator:
    """The generator of a run folder, one of our files, an official .pkl, a checkpoint of another
    program (see `stylegan.interop`), an https address of a file or a bundled name. A name comes
    before a path (write ./emoji32 for a folder called that).

    Of a run the newest generator file is taken, else the newest state that can be read; of a
    state its average generator. Nothing in a file is ever executed.
    """
    path = located(source)
    return load_run(path, map_location) if path.is_dir() else load_file(path, map_location)


def located(source: str | Path) -> Path:
    """The file or folder that `source` stands for, downloaded if it is an address."""
    if str(source) in BUNDLED:
        return bundled_file(str(source))
    if "://" in str(source):
        return downloaded(str(source))
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}; accepted are {ACCEPTED}")
    return path


def load_run(folder: Path, map_location: str | torch.device = "cpu") -> LoadedGenerator:
    """The newest generator of a run that can be read, else that of the newest state."""
    run = RunFolder(folder)
    shared = [path for path in [folder / portable.SHARED] if path.is_file()]
    damaged: list[str] = []
    for path in [*reversed(run.generators()), *reversed(run.states()), *shared]:
        try:
            loaded = load_file(path, map_location)
        except ValueError as error:
            damaged.append(str(error))
        else:
            note = "".join(f"; not used: {problem}" for problem in damaged)
            return dataclasses.replace(loaded, origin=loaded.origin + note)
    if damaged:
        raise ValueError(damaged[0])
    raise FileNotFoundError(
        f"the folder {folder} holds neither generator-*.pt nor state-*.pt nor {portable.SHARED}, "
        f"so it is not a run that has saved anything; accepted are {ACCEPTED}"
    )


def load_file(path: Path, map_location: str | torch.device = "cpu") -> LoadedGenerator:
    """The generator of one of our files, of an official snapshot or of another program."""
    found = contents(path)
    loaded = from_payload(found, path) if isinstance(found, dict) else from_foreign(found, path)
    loaded.generator.to(map_location)
    return loaded


def contents(path: Path) -> dict[str, Any] | interop.Snapshot:
    """What a file holds: the payload of one of ours, or the networks of a foreign one."""
    if path.suffix in portable.ONE_WAY:
        raise ValueError(
            f"{path} is a program, as `stylegan export` writes it to be run elsewhere; it cannot "
            "be read back: use the file that it was made from"
        )
    for recognised, read in portable.READERS:
        if recognised(path):
            return read(path)
    if is_pickle(path):
        return interop.load_official(path)
    content = checkpoint.read(path)
    if checkpoint.is_own(content):
        return checkpoint.checked(content, path)
    try:
        return interop.import_weights(content)
    except ValueError as error:
        raise ValueError(f"{path} {error}") from error


def is_pickle(path: Path) -> bool:
    """Whether the file is a bare pickle, as official snapshots are, or is called one; ours are zip
    archives."""
    with open(path, "rb") as file:
        first = file.read(1)
    pickled = first == b"\x80" or (path.suffix == ".pkl" and not checkpoint.is_zip(path))
    return pickled and not checkpoint.is_old(path)


def from_foreign(snapshot: interop.Snapshot, path: Path) -> LoadedGenerator:
    """The generator of a foreign file, with what its publisher generates with."""
    return LoadedGenerator(
        snapshot.generator_ema.eval(),
        f"{snapshot.layout} {path}",
        resolution=snapshot.resolution,
        alpha=snapshot.alpha,
        psi=snapshot.psi,
        cutoff=snapshot.cutoff,
        images_seen=snapshot.images_seen,
        active_rectangle=snapshot.active_rectangle,
    )


def from_payload(payload: Mapping[str, Any], path: Path) -> LoadedGenerator:
    """The generator of the payload of a generator or state file."""
    kind = payload["kind"]
    if kind not in ("generator", "state"):
        raise ValueError(
            f"{path} is a {kind} file; pictures need a generator: a generator-*.pt, a state-*.pt "
            "or the run folder"
        )
    with naming(kind, path):
        if kind == "generator":
            config, weights = payload["config"], payload["weights"]
            psi, cutoff = payload["psi"], payload["cutoff"]
        else:
            config, weights = payload["config"]["network"], payload["generator_ema"]
            psi, cutoff = PSI, CUTOFF
        resolution, alpha = growth_of(payload)
        network = network_of(Generator, config, weights)
        return LoadedGenerator(
            network,
            f"{kind} file {path}",
            resolution=resolution,
            alpha=alpha,
            psi=psi,
            cutoff=cutoff,
            images_seen=payload["images_seen"],
            label_names=tuple(payload.get("label_names", ())),
            active_rectangle=payload.get("active_rectangle"),
        )


@contextmanager
def naming(kind: str, path: Path) -> Iterator[None]:
    """Whatever is wrong with the content of one of our files is told in one line that names it."""
    try:
        yield
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"the {kind} file {path} cannot be used: {readable(reason, 1000)}"
        ) from error


def growth_of(payload: Mapping[str, Any]) -> tuple[int, float]:
    """The resolution that training had reached in a generator or state file, and its alpha."""
    if payload["kind"] == "generator":
        return payload["resolution"], payload["alpha"]
    schedule = ScheduleConfig(**payload["config"]["schedule"])
    stage = stage_at(payload["schedule_images"], schedule)
    return stage.resolution, stage.alpha


def newest_of_each_resolution(paths: Iterable[Path]) -> list[Path]:
    """Of generator and state files, oldest first, the last at each resolution; their weights are
    not read."""
    last: dict[int, Path] = {}
    for path in paths:
        payload = checkpoint.load(path, mapped=True)
        try:
            resolution, _ = growth_of(payload)
            last[resolution] = path
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} does not tell its resolution: {error}") from error
    return list(last.values())


def network_of(
    kind: type[Network], config: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> Network:
    """The network that holds `weights`, in their type and place; eval mode."""
    checkpoint.check_weights(weights)
    sizes = NetworkConfig(**config)
    with torch.device("meta"):  # shapes only: an absurd network fails before it costs memory
        problems = checkpoint.misfits(kind(sizes), weights)
    if problems:
        raise ValueError(f"the weights do not fit the network; {listed(problems)}")
    with torch.random.fork_rng(devices=[]):  # the initial weights are drawn, then overwritten
        network = kind(sizes)
    for some in weights.values():
        network.to(some.device, some.dtype)
        break
    checkpoint.load_weights(network, weights)
    return network.eval()


def save_loaded(path: Path, loaded: LoadedGenerator) -> None:
    """Write a generator as a small file for users."""
    checkpoint.save(path, "generator", payload_of(loaded))


def save_discriminator(path: Path, network: Discriminator) -> None:
    """Write a discriminator as a file of its own."""
    payload = {"config": dataclasses.asdict(network.config), "weights": weights_on_cpu(network)}
    checkpoint.save(path, "discriminator", payload)


def weights_on_cpu(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}


def save_generator(
    path: Path,
    generator: Generator,
    *,
    images_seen: int | None = None,
    resolution: int | None = None,
    alpha: float = 1.0,
    psi: float = PSI,
    cutoff: int | None = CUTOFF,
    label_names: Sequence[str] = (),
    active_rectangle: Sequence[int] | None = None,
) -> None:
    """As `save_loaded`; the fields are those of `LoadedGenerator`."""
    loaded = LoadedGenerator(
        generator,
        "memory",
        resolution=generator.config.resolution if resolution is None else resolution,
        alpha=alpha,
        psi=psi,
        cutoff=cutoff,
        images_seen=images_seen,
        label_names=label_names,
        active_rectangle=active_rectangle,
    )
    save_loaded(path, loaded)


def payload_of(loaded: LoadedGenerator) -> dict[str, Any]:
    """The fields of a generator file."""
    network, rectangle = loaded.generator, loaded.active_rectangle
    return {
        "config": dataclasses.asdict(network.config),
        "weights": weights_on_cpu(network),
        "images_seen": loaded.images_seen,
        "resolution": loaded.resolution,
        "alpha": loaded.alpha,
        "psi": loaded.psi,
        "cutoff": loaded.cutoff,
        "label_names": list(loaded.label_names),
        "active_rectangle": None if rectangle is None else list(rectangle),
    }


def bundled_file(name: str) -> Path:
    """The file of a bundled network, whose content must agree with the hash in its name."""
    pattern = re.compile(rf"{re.escape(name)}-[0-9a-f]{{8}}\.(safetensors|pt)")
    files = [p for p in sorted(WEIGHTS.glob(f"{name}-*")) if pattern.fullmatch(p.name)]
    if len(files) != 1:
        raise FileNotFoundError(
            f"{len(files)} files {name}-<hash>.safetensors or .pt are in {WEIGHTS}, where there "
            "should be one; get the whole repository or install the package again"
        )
    return verified(files[0], str(hash_prefix(files[0].name)))


def downloaded(url: str) -> Path:
    """A local copy of the file at an https address, kept in the cache of torch.hub.

    The address tells the first digits of its SHA-256, at least 8: in the name, as
    `NAME-<digits>.pt`, or after it, as `#sha256=<digits>`. They are compared at each use.
    """
    parts = urlsplit(url)
    if parts.scheme != "https":
        raise ValueError(
            f"{url} is not an https address, so nothing protects it on its way; "
            "use https, or download the file and give its path"
        )
    name = PurePosixPath(parts.path).name
    if not name or not parts.netloc:
        raise ValueError(f"{url} does not name a file")
    digits = fragment_hash(parts.fragment, url) if parts.fragment else hash_prefix(name)
    if digits is None:
        raise ValueError(
            f"{url} does not tell the SHA-256 of the file, so nothing would tell a forged one from "
            "it; add #sha256=<its first 8 or more digits>, or download it and give its path"
        )
    folder = hub_cache()
    if digits != hash_prefix(name):
        folder /= digits
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(url.partition("#")[0], str(path), digits)
        except RuntimeError as error:
            raise ValueError(f"{url} does not hold what its address promises: {error}") from error
        except OSError as error:
            raise OSError(
                f"{url} could not be downloaded ({error}); without a network, put the file "
                f"at {path} or give the path of a local copy"
            ) from error
    return verified(path, digits)


def hub_cache() -> Path:
    """Where torch.hub keeps files of weights."""
    return Path(torch.hub.get_dir()) / "checkpoints"


def fragment_hash(fragment: str, url: str) -> str:
    """The digits of `sha256=<digits>`."""
    found = re.fullmatch(r"sha256=([0-9a-f]{8,64})", fragment)
    if not found:
        raise ValueError(f"{url} ends in #{fragment}, not in #sha256=<8 to 64 hexadecimal digits>")
    return found[1]


def hash_prefix(file_name: str) -> str | None:
    """The digits of SHA-256 in `NAME-<digits>.pt`, at least 8.

    The number in `generator-000600000.pt` is one of images.
    """
    if re.fullmatch(r"(generator|state)-\d+\.pt", file_name):
        return None
    found = re.search(r"-([0-9a-f]{8,64})\.", file_name)
    return found[1] if found else None


def verified(path: Path, promised: str) -> Path:
    """`path`, if the SHA-256 of its content begins with the digits `promised`."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if not digest.startswith(promised):
        raise ValueError(
            f"{path} is damaged: its SHA-256 begins with {digest[:8]}, not {promised}; "
            "delete it and get it again"
        )
    return path
