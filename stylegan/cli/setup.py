"""What a `train` command means: asked, remembered or chosen; and what a user is told of it."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stylegan.cli.common import progress_bar
from stylegan.disk import name_of
from stylegan.messages import aligned, count, readable
from stylegan.schedule import batch_size_at
from stylegan.toml import toml_value

if TYPE_CHECKING:
    from stylegan.config import TrainConfig
    from stylegan.data import Findings
    from stylegan.files.weights import Weights
    from stylegan.run_folder import RunFolder

BUNDLED_DATA = "datasets/faces-64.zip"
DEFAULT_CONFIG = "quickstart"
BEFORE = {  # options of the command line that are options of the configuration, before `-o`
    "resolution": "network.resolution",
    "kimg": "schedule.total_kimg",
}
AFTER = {  # likewise, after `-o`
    "labels": "data.labels",
    "mirror": "data.mirror",
    "crop": "data.crop",
    "precision": "precision",
    "batch_gpu": "batch_gpu",
    "seed": "seed",
}
HANDFUL = 10  # pictures
FEW = 2000  # pictures
FITTED = {"resolution", "kimg", "width"}  # options to which others are fitted


@dataclass(frozen=True)
class TrainSetup:
    config: "TrainConfig"
    source: Path
    is_own: bool  # data of the user's, not the bundled
    lines: list[str]  # what was found and chosen
    start: "Weights | None"  # the weights that a new run begins with


def resolve_setup(
    run: "RunFolder",
    config_name: str | None,
    data: Path | None,
    overrides: Sequence[str],
    options: Mapping[str, Any],
    device: str,
    memory: float = math.inf,
    cores: int = 1,
    processes: int | None = None,
) -> TrainSetup:
    """The configuration and the data: those of the run that has begun, except what is asked.

    `overrides` are those of `-o`, `options` all others by their names (None or False: not given).
    `device` is its type, `memory` in bytes and `cores` are those of a process, of which there are
    `processes`, by default as many as there are now. With weights to
    start from and no configuration asked for, the network has their sizes; growth begins where
    theirs has ended.
    """
    from stylegan import distributed
    from stylegan.config import AUTO, load_config, parse_options, read_options
    from stylegan.data.check import needed_channels
    from stylegan.files.loading import open_weights
    from stylegan.fitting import Facts, choose, fitted, gamma_of_size, implied
    from stylegan.networks import NetworkConfig
    from stylegan.training.preflight import largest_step
    from stylegan.training.transfer import GROWS_AGAIN, beginning, sizes

    asked_for = {k: v for k, v in options.items() if v is not None and v is not False}
    width = asked_for.get("width")
    channels = asked_for.get("channels")
    init_from = asked_for.get("init_from")
    stored = run.stored_config()
    source = data or (data_of(run) if stored else bundled_data())
    is_own = source != bundled_data()
    remembered = str(run.config_file)
    name = config_name or (remembered if stored else AUTO if is_own else DEFAULT_CONFIG)
    lines: list[str] = []
    if stored and (name == AUTO or (is_own and name == DEFAULT_CONFIG)):  # which once chose, too
        lines.append(f"{readable(run.path)} keeps the options that it began with")
        name = remembered
    start = None
    if init_from and not stored:  # first: it may be a mistake
        start = open_weights(init_from, need="training")

    asked: dict[str, object] = {
        **{option: asked_for[key] for key, option in BEFORE.items() if key in asked_for},
        **parse_options(overrides),
        **{option: asked_for[key] for key, option in AFTER.items() if key in asked_for},
    }
    if channels == "auto" and not stored:  # a run that has begun keeps its own
        channels, why = needed_channels(source, load_config(None, asked).data.include)
        lines.append(why)
    if isinstance(channels, int):
        # older runs are not premultiplied
        premultiplied = channels == 4 and (not stored or stored.network.premultiplied)
        asked["network.image_channels"] = channels
        asked["network.premultiplied"] = premultiplied
    if start and config_name in (None, AUTO):
        asked = sizes(start, width=width) | asked
    processes = processes or distributed.world_size()
    if stored:
        processes = stored.schedule.num_processes

    file: dict[str, Any] = {}
    if name == AUTO:
        findings = looked_at(source, load_config(None, implied(asked) | asked))
        facts = Facts(
            images=findings.num_good,
            reach=findings.reach(),
            device=device,
            memory=memory,
            cores=cores,
            processes=processes,
            grown=start.require_loaded().grown if start else 0,
        )
        config, hindrance = choose(facts, asked, largest_step, width=width)
        lines += [*found_lines(findings), *chosen_lines(config, hindrance)]
    else:
        config = load_config(name, asked, processes)
        file = read_options(name)
        if is_own and not stored:
            lines += found_lines(looked_at(source, config))
        elif not (is_own or stored or config_name):
            if near := run.nearly():
                raise ValueError(
                    f"there is no run in {readable(run.path)}; did you mean {readable(near)}? "
                    f"--config {DEFAULT_CONFIG} begins a new one, on the bundled faces"
                )
            lines.append(f"no --data, and no run in {readable(run.path)}: the bundled faces")

    grows_from = GROWS_AGAIN in file.keys() | asked.keys()
    begins: dict[str, object] = {}
    if start:
        begins, line = beginning(start, config, is_asked=grows_from)
        lines.append(line)
    elif stored and run.lineage() and not grows_from:
        begins = {GROWS_AGAIN: stored.schedule.initial_resolution}
    if name != AUTO:  # the choice begins there, and has fitted the rest
        if begins:
            asked = begins | asked
            config = load_config(name, asked, processes)
        if FITTED & asked_for.keys():
            usual = file.get("network.resolution", NetworkConfig.resolution)
            begun = stored.schedule if stored else None
            fits = fitted(config, usual, width=width, begun=begun)
            if not stored and config.network.resolution != usual:
                fits["r1_gamma"] = gamma_of_size(config, usual)
            config = load_config(name, fits | asked, processes)
    return TrainSetup(config, source, is_own, lines, start)


def usual_folder(config_name: str | None, data: Path | None) -> Path:
    """Where a run goes without --out: `runs/<config>`."""
    from stylegan.config import AUTO

    usual = DEFAULT_CONFIG if data in (None, bundled_data()) else AUTO
    return Path("runs") / (usual if config_name is None else name_of(Path(config_name)))


def bundled_data() -> Path:
    from stylegan.config import bundled

    return bundled(BUNDLED_DATA)


def data_of(run: "RunFolder") -> Path:
    """Where the images of a run are; those of the package may have moved."""
    source = run.data()
    if source is None:
        raise FileNotFoundError(
            f"{run.data_file} does not say where the images of the run are; give them by --data"
        )
    if source.exists():
        return source
    if source.name == Path(BUNDLED_DATA).name:
        return bundled_data()
    raise FileNotFoundError(
        f"the images of {run.path} were in {source}, where there is nothing; give them by --data"
    )


def looked_at(source: Path, config: "TrainConfig", *, decode: bool = False) -> "Findings":
    """What the images of a source are like. ValueError if there are none, or no labels although
    `config` asks for them."""
    from stylegan.data import check
    from stylegan.training.run import fit_to_data, preparation_for

    with progress_bar("img") as progress:
        preparation = preparation_for(config)
        if not decode:  # then all sizes are of interest
            preparation = dataclasses.replace(preparation, resolution=None)
        findings = check(source, preparation, decode=decode, progress=progress)
    if not findings.reach():
        raise ValueError(
            "; ".join([f"no image of {source} can be used", *findings.left_out_lines()])
        )
    if not findings.label_names:
        fit_to_data(config, findings)  # refuses those that are asked for, before anything is told
    return findings


def found_lines(findings: "Findings") -> list[str]:
    """What a source holds: pictures, sizes, and how many reach each resolution."""
    from stylegan.data.sources import kinds_of

    sizes = " to ".join(dict.fromkeys(findings.ends()))
    line = f"{readable(findings.path)}: {count(findings.num_good, 'picture')} of {sizes}"
    line += "" if findings.kind == "store" else ", by the headers of the files"
    lines = [line]
    reach = findings.reach()
    if oblong := sum(n for (width, height), n in findings.sizes.items() if width != height):
        treatments = {
            "center": "only the middle square is used",
            "pad": "the middle {}:{} is used, between bars".format(*findings.fit.aspect),
            "stretch": "squeezed to a square",
        }
        lines.append(f"{oblong:,} not square: {treatments[findings.fit.kind]} (--crop, --aspect)")
    # from 32, or the largest that all reach
    least = max(findings.resolution() or 0, min(32, max(reach, default=0)))
    table = {r: n for r, n in reach.items() if r >= least}
    if set(table.values()) != {findings.num_good}:
        counts = [f"{n:,}" for n in table.values()]
        rows = [["  resolution", *map(str, table)], ["  pictures that reach it", *counts]]
        lines += aligned(rows, left=[0])
    return lines + ([f"ignored: {kinds_of(findings.ignored)}"] if findings.ignored else [])


def chosen_lines(config: "TrainConfig", hindrance: str) -> list[str]:
    """What is chosen for pictures and machine."""
    resolution = config.network.resolution
    line = (
        f"chosen for them and this machine: --resolution {resolution} "
        f"--width {config.network.max_channels} --kimg {config.schedule.total_kimg:g} "
        f"-o schedule.batch_size={batch_size_at(resolution, config.schedule)} "
        f"-o 'r1_gamma={toml_value(config.r1_gamma)}' "
        f"-o 'augment.kind=\"{config.augment.kind}\"'"
    )
    line += f" --batch-gpu {config.batch_gpu}" if config.batch_gpu else ""
    why = [f"not a larger resolution: {hindrance}"] if hindrance else []
    return [f"{line}; what you ask for stays", *why]


def advice(images: int, config: "TrainConfig", *, started: bool) -> list[str]:
    """What helps if pictures are few; `started` from other weights already."""
    from stylegan.fitting import LEAST_AUGMENTED_KIMG

    pictures = count(images, "usable picture")
    if images < HANDFUL:
        return [f"WARNING: {pictures}: the network will learn them by heart and show little else"]
    lines = ["--mirror doubles them, if left and right may be exchanged"]
    if config.data.mirror:
        lines = ["half of them are shown mirrored; if that is wrong: -o data.mirror=false"]
    if images < FEW:
        lines.insert(0, f"{pictures} are few: more would help most; stop when samples get worse")
        if config.augment.kind == "none" and config.schedule.total_kimg >= LEAST_AUGMENTED_KIMG:
            lines.append("-o 'augment.kind=\"ada\"' keeps the network from learning them by heart")
        if not started:
            lines.append("trained weights of a similar kind help: --init-from, docs/training.md")
    return lines
