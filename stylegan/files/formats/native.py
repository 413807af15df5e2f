"""Our own files: `.pt` of `checkpoint`, and `.safetensors` with the description as metadata."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from stylegan import networks
from stylegan.config import DataConfig
from stylegan.files import checkpoint
from stylegan.files.formats.matching import Match, network_from
from stylegan.files.weights import Weights
from stylegan.sampling import DEFAULT_CUTOFF, DEFAULT_PSI, Rectangle, SamplingSettings
from stylegan.sampling.pretrained import Pretrained
from stylegan.schedule import ScheduleConfig, stage_at
from stylegan.utils.filesystem import KEEP_EXISTING, OutputWriter, as_value_error
from stylegan.utils.lineage import Lineage, from_dicts, license_of, lineage_entry, to_dicts
from stylegan.utils.text import require_module
from stylegan.utils.validation import NonNegativeInt, validate

Network = TypeVar("Network", networks.Generator, networks.Discriminator)
HEAD = {"format": checkpoint.FORMAT, "version": checkpoint.VERSION, "kind": "generator"}
MAX_HEADER = 2**23  # bytes; a 1024x1024 generator has about 20,000

Payload = dict[str, Any]  # of a file, unchecked


def weights_of(payload: Payload, path: Path, *, name: str = "") -> Weights:
    """Networks from the payload of the file `path`, called `name` in lineages."""
    checkpoint.checked(payload, path)
    kind = f"{payload['kind']} file"
    with as_value_error(path, f"is a {kind} that cannot be used"):
        weights = parsed_weights(payload, path, kind)
    entry = lineage_entry(path, license_of(weights.lineage), name=name)
    return dataclasses.replace(weights, lineage_entry=entry)


def parsed_weights(payload: Payload, path: Path, kind: str) -> Weights:
    """Build the networks and the description from a payload, without `lineage_entry`.

    The payload is unchecked, so any exception may be raised.
    """
    lineage = from_dicts(payload.get("lineage", ()))
    is_state = payload["kind"] == "state"
    config = validate(
        networks.NetworkConfig, payload["config"]["network"] if is_state else payload["config"]
    )
    critic: networks.Discriminator | None = None
    if payload["kind"] == "discriminator":
        critic = network_of(networks.make_discriminator, config, payload["weights"])
        return Weights(path, kind, None, discriminator=critic, lineage=lineage)
    if "discriminator" in payload:  # of states, and of generator files for transfer
        critic = network_of(networks.make_discriminator, config, payload["discriminator"])
    if is_state:
        schedule = validate(ScheduleConfig, payload["config"]["schedule"])
        images = validate(NonNegativeInt, payload["schedule_images"], "schedule_images")
        stage = stage_at(images, schedule)
        settings = SamplingSettings(stage.resolution, stage.alpha)
        average = network_of(networks.make_generator, config, payload["generator_ema"])
        generator = network_of(networks.make_generator, config, payload["generator"])
        # without an entry label_rows it is unknown whether labels are classes
        trained_on = payload["config"]["data"] if "label_rows" in payload else None
    else:
        settings = SamplingSettings(
            payload["resolution"], payload["alpha"], payload["psi"], payload["cutoff"]
        )
        average = network_of(networks.make_generator, config, payload["weights"])
        generator = average
        trained_on = payload.get("trained_on")
    loaded = Pretrained(
        average,
        dataclasses.replace(
            settings,
            centers=payload.get("centers"),
            active_rectangle=payload.get("active_rectangle"),
        ),
        f"{kind} {path}",
        images_seen=payload["images_seen"],
        label_names=payload.get("label_names", ()),
        label_rows=payload.get("label_rows"),
        trained_on=trained_on,
        lineage=lineage,
    )
    return Weights(path, kind, loaded, generator, critic, lineage)


def network_of(
    make: Callable[[networks.NetworkConfig], Network],
    config: networks.NetworkConfig,
    weights: Mapping[str, Tensor],
) -> Network:
    return network_from(lambda: make(config), lambda state: map(Match, state, state), weights)


def save_loaded(
    path: Path,
    loaded: Pretrained,
    *,
    discriminator: networks.Discriminator | None = None,
    outputs: OutputWriter = KEEP_EXISTING,
) -> None:
    """Write a generator file, with a discriminator for runs initialized from it."""
    payload = loaded.description() | {"weights": weights_on_cpu(loaded.generator)}
    if discriminator is not None:
        payload["discriminator"] = weights_on_cpu(discriminator)
    checkpoint.save(path, "generator", payload, outputs=outputs)


def save_generator(
    path: Path,
    generator: networks.Generator,
    *,
    resolution: int | None = None,
    alpha: float = 1.0,
    psi: float = DEFAULT_PSI,
    cutoff: int | None = DEFAULT_CUTOFF,
    active_rectangle: Rectangle | None = None,
    images_seen: int | None = None,
    label_names: Sequence[str] = (),
    label_rows: object = None,
    trained_on: DataConfig | None = None,
    lineage: Lineage = (),
    outputs: OutputWriter = KEEP_EXISTING,
) -> None:
    """Write a generator file with this description; see `Pretrained`."""
    resolution = generator.config.resolution if resolution is None else resolution
    settings = SamplingSettings(resolution, alpha, psi, cutoff, active_rectangle=active_rectangle)
    said = Pretrained(
        generator,
        settings,
        images_seen=images_seen,
        label_names=label_names,
        label_rows=label_rows,
        trained_on=trained_on,
        lineage=lineage,
    )
    save_loaded(path, said, outputs=outputs)


def save_discriminator(
    path: Path,
    network: networks.Discriminator,
    lineage: Lineage = (),
    *,
    outputs: OutputWriter = KEEP_EXISTING,
) -> None:
    payload = {
        "config": dataclasses.asdict(network.config),
        "lineage": to_dicts(lineage),
        "weights": weights_on_cpu(network),
    }
    checkpoint.save(path, "discriminator", payload, outputs=outputs)


def save_safetensors(
    path: Path, loaded: Pretrained, *, outputs: OutputWriter = KEEP_EXISTING
) -> None:
    require_module("safetensors", packages="safetensors", purpose="writing .safetensors files")
    from safetensors.torch import save

    weights = {name: t.contiguous() for name, t in weights_on_cpu(loaded.generator).items()}
    metadata = {"format": "pt", checkpoint.FORMAT: description_as_json(loaded)}
    content = save(weights, metadata)
    size = int.from_bytes(content[:8], "little")  # of the header, JSON of varying order
    header = json.dumps(json.loads(content[8 : 8 + size]), sort_keys=True, separators=(",", ":"))
    start = header.encode()
    start += b" " * (-len(start) % 8)
    with outputs.file(path) as file:
        file.write(len(start).to_bytes(8, "little") + start)
        file.write(memoryview(content)[8 + size :])


def is_safetensors(path: Path) -> bool:
    with open(path, "rb") as file:
        start = file.read(9)
    length = int.from_bytes(start[:8], "little")
    return start[8:] == b"{" and length <= min(MAX_HEADER, path.stat().st_size - 8)


def load_safetensors(path: Path, *, name: str = "") -> Weights:
    require_module("safetensors", packages="safetensors", purpose="a .safetensors file")
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:  # checks sizes against the file's
            text = (file.metadata() or {}).get(checkpoint.FORMAT)
            # cloned, as these tensors may be memory-mapped
            weights = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if text is None:
        raise ValueError(
            f"{path} is a safetensors file without the metadata of this project, which `stylegan "
            "export` writes"
        )
    payload = from_json(text, path, entry="metadata") | {"weights": weights}
    return weights_of(payload, path, name=name)


def description_as_json(loaded: Pretrained) -> str:
    """Description of a generator as JSON, for files of other formats."""
    return json.dumps(HEAD | loaded.description(), allow_nan=False)


def from_json(text: str, path: Path, *, entry: str) -> Payload:
    """Parse a JSON object, the content of an `entry` of a file."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: its {entry} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} is damaged: its {entry} is not a JSON object")
    return value


def weights_on_cpu(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}
