"""Our own files: `.pt` of `checkpoint`, and `.safetensors`, whose metadata say the rest as JSON."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from stylegan import networks
from stylegan.disk import atomic_file
from stylegan.files import checkpoint
from stylegan.files.loaded import LoadedGenerator, Snapshot
from stylegan.lineage import Lineage, from_plain, to_plain
from stylegan.messages import readable
from stylegan.schedule import ScheduleConfig, stage_at

Network = TypeVar("Network", networks.Generator, networks.Discriminator)
HEAD = {"format": checkpoint.FORMAT, "version": checkpoint.VERSION, "kind": "generator"}
LARGEST_HEADER = 2**23  # bytes; a generator at 1024x1024 has about 20,000
HALF = torch.float16, torch.bfloat16


def snapshot_of(payload: Mapping[str, Any], path: Path) -> Snapshot:
    """The networks of the payload of a file; any fault of it is an error that names the file."""
    checkpoint.checked(payload, path)
    origin = f"{payload['kind']} file {path}"
    try:
        return networks_of(payload, origin)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"the {origin} cannot be used: {readable(reason, 1000)}") from error


def networks_of(payload: Mapping[str, Any], origin: str) -> Snapshot:
    kind, config = payload["kind"], payload["config"]
    lineage = from_plain(payload.get("lineage", ()))  # older files lack it
    discriminator = None
    if kind == "discriminator":
        critic = network_of(networks.make_discriminator, config, payload["weights"])
        return Snapshot(origin, None, discriminator=critic, lineage=lineage)
    if kind == "generator":
        network = average = network_of(networks.make_generator, config, payload["weights"])
        said = {name: payload[name] for name in ("resolution", "alpha", "psi", "cutoff")}
    else:  # a state, which says nothing of psi and cutoff
        sizes, schedule = config["network"], ScheduleConfig(**config["schedule"])
        stage = stage_at(payload["schedule_images"], schedule)
        said = {"resolution": stage.resolution, "alpha": stage.alpha}
        network = network_of(networks.make_generator, sizes, payload["generator"])
        average = network_of(networks.make_generator, sizes, payload["generator_ema"])
        discriminator = network_of(networks.make_discriminator, sizes, payload["discriminator"])
    loaded = LoadedGenerator(
        average,
        origin,
        **said,
        images_seen=payload["images_seen"],
        label_names=tuple(payload.get("label_names", ())),
        active_rectangle=payload.get("active_rectangle"),
        lineage=lineage,
        centers=payload.get("centers"),  # most files lack them
    )
    return Snapshot(origin, loaded, network, discriminator, lineage)


def network_of(
    make: Callable[[networks.NetworkConfig], Network],
    config: Mapping[str, Any],
    weights: Mapping[str, Tensor],
) -> Network:
    """A network with these weights, in eval mode. All take the type and device of the first."""
    sizes = networks.NetworkConfig(**config)
    with torch.device("meta"):  # shapes only: an absurd network fails before it costs memory
        network = make(sizes)
    given = checkpoint.fitting(network.state_dict(), weights)
    first = next(iter(given.values()))
    network.load_state_dict(
        {name: t.detach().to(first).contiguous() for name, t in given.items()}, assign=True
    )
    return network.eval()


def save_loaded(path: Path, loaded: LoadedGenerator) -> None:
    payload = loaded.description() | {"weights": weights_on_cpu(loaded.generator)}
    checkpoint.save(path, "generator", payload)


def save_generator(path: Path, generator: networks.Generator, **fields: Any) -> None:
    """As `save_loaded`, of a generator with these fields of `LoadedGenerator`."""
    fields = {"resolution": generator.config.resolution} | fields
    save_loaded(path, LoadedGenerator(generator, "memory", **fields))


def save_discriminator(path: Path, network: networks.Discriminator, lineage: Lineage = ()) -> None:
    about = {"config": dataclasses.asdict(network.config), "lineage": to_plain(lineage)}
    checkpoint.save(path, "discriminator", about | {"weights": weights_on_cpu(network)})


def save_safetensors(path: Path, loaded: LoadedGenerator) -> None:
    from safetensors.torch import save

    weights = {name: t.contiguous() for name, t in weights_on_cpu(loaded.generator).items()}
    metadata = {"format": "pt", checkpoint.FORMAT: about(loaded)}
    with atomic_file(path) as file:
        file.write(save(weights, metadata))


def is_safetensors(path: Path) -> bool:
    with open(path, "rb") as file:
        start = file.read(9)
    length = int.from_bytes(start[:8], "little")
    return start[8:] == b"{" and length <= min(LARGEST_HEADER, path.stat().st_size - 8)


def load_safetensors(path: Path) -> Snapshot:
    """The generator that `save_safetensors` wrote; numbers of half precision come as float32."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ValueError(
            '.safetensors files need safetensors: pip install -e ".[export]"'
        ) from error
    try:
        with safe_open(path, framework="pt") as file:  # sizes agree with the file's
            text = (file.metadata() or {}).get(checkpoint.FORMAT)
            # copies: what the library gives may be the file itself, mapped into memory
            weights = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {readable(str(error))}") from error
    if text is None:
        raise ValueError(
            f"{path} is a safetensors file without the metadata of this project, which "
            "specifies the network that the weights are of; `stylegan export` writes it"
        )
    wide = {name: t.float() if t.dtype in HALF else t for name, t in weights.items()}
    return snapshot_of(from_json(text, path, "metadata") | {"weights": wide}, path)


def about(loaded: LoadedGenerator) -> str:
    """What a file of another format says beside the weights, as JSON."""
    return json.dumps(HEAD | loaded.description(), allow_nan=False)


def from_json(text: str, path: Path, what: str) -> dict[str, Any]:
    """A JSON object that a file holds as its `what`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: its {what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} is damaged: its {what} is not a JSON object")
    return value


def weights_on_cpu(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}
