"""`stylegan info`: what a file or folder is, and what can be done with it."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stylegan.cli import options
from stylegan.cli.common import Command, say
from stylegan.messages import count, readable

if TYPE_CHECKING:
    from stylegan.files.loaded import LoadedGenerator
    from stylegan.lineage import Lineage

Facts = dict[str, Any]


@click.command(cls=Command)
@options.SOURCE
def info(source: str) -> None:
    """Say what SOURCE is: a run folder, a checkpoint, a foreign one, a store, or a name.

    \b
    stylegan info runs/mine
    """
    print_facts(facts_of(source))


def print_facts(facts: Facts) -> None:
    say(*(f"{name:<12} {value}" for name, value in facts.items()))


def facts_of(source: str) -> Facts:
    """Name -> value of all there is to say."""
    from stylegan.data import is_store
    from stylegan.files.formats import read_snapshot
    from stylegan.files.loading import load_source
    from stylegan.run_folder import RunFolder

    path = Path(source)
    if path.is_dir() and is_store(path):
        return store_facts(path)
    uses = [f"stylegan generate {source}", f"stylegan train --init-from {source}"]
    if not path.is_file():
        facts = generator_facts(load_source(source))
    else:
        size = {"file size": f"{path.stat().st_size / 2**20:.1f} MiB"}
        snapshot = read_snapshot(path)
        if snapshot.loaded is None:
            facts = {"kind": snapshot.origin} | size | lineage_facts(snapshot.lineage)
            return facts | {"use": "none by itself; pictures need a generator"}
        facts = generator_facts(snapshot.loaded) | size
        uses += [f"stylegan convert {source} generator.pt"] if snapshot.notes else []
    run = RunFolder(path)
    generators, states = len(run.generators()), len(run.states())
    if generators + states:
        facts["run folder"] = f"{generators} generator and {states} state files"
    if RunFolder.at(path):
        uses[1] = f"stylegan train --out {source} (with the options it was begun with: resumes)"
    return facts | {"use": "; ".join(uses)}


def generator_facts(loaded: "LoadedGenerator") -> Facts:
    config, full = loaded.generator.config, loaded.generator.config.resolution
    images = f"{full}x{full}, {config.image_channels} channels"
    if loaded.resolution < full or loaded.alpha < 1:
        images += f", trained up to {loaded.resolution}x{loaded.resolution}"
        images += f" (fading in, alpha {loaded.alpha:.2f})" if loaded.alpha < 1 else ""
    cutoff = "all" if loaded.cutoff is None else loaded.cutoff
    toward = "" if loaded.centers is None else f", toward {len(loaded.centers)} centres"
    changed = [
        f"{field.name} = {value}"
        for field in dataclasses.fields(config)
        if (value := getattr(config, field.name)) != field.default
    ]
    facts = {
        "kind": loaded.origin,
        "images": images,
        "parameters": f"{sum(p.numel() for p in loaded.generator.parameters()):,} in the generator",
        "truncation": f"psi {loaded.psi:g}, cutoff {cutoff}{toward}",
        "config": ", ".join(changed) or "the paper's",
    }
    if loaded.images_seen is not None:
        facts["trained on"] = f"{loaded.images_seen:,} images seen"
    if config.label_dim:
        names = ", ".join(map(readable, loaded.label_names)) or "unnamed"
        facts["labels"] = f"{config.label_dim}: {names}"
    if loaded.active_rectangle is not None:
        top, bottom, left, right = loaded.active_rectangle
        facts["active part"] = f"rows {top} to {bottom}, columns {left} to {right}; rest is padding"
    return facts | lineage_facts(loaded.lineage)


def lineage_facts(lineage: "Lineage") -> Facts:
    """Where weights came from, and the licence that goes with them."""
    from stylegan.lineage import described, licence_of

    if not lineage:
        return {}
    return {"weights from": "; then ".join(described(lineage)), "licence": licence_of(lineage)}


def store_facts(path: Path) -> Facts:
    from stylegan.data import Store

    store = Store(path)
    left_out = count(len(store.skipped), "image")
    return {
        "kind": f"store {path}",
        "images": f"{store.num_images:,} of {store.resolution}x{store.resolution}, "
        f"{store.channels} channels, crop {store.meta.crop}",
        "labels": ", ".join(map(readable, store.label_names)) or "none",
        "made from": f"{readable(store.meta.source)}, {left_out} left out",
        "use": f"stylegan train --data {path} -o network.resolution={store.resolution}",
    }
