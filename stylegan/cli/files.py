"""`stylegan info`, `convert`, `export` and `blend`: files of weights."""

import dataclasses
from pathlib import Path

import click

from stylegan import blending
from stylegan.cli import options, param_types
from stylegan.cli.common import Command, command, echo
from stylegan.data import Preparation, Store, is_store
from stylegan.files import formats, huggingface
from stylegan.files.download import BUNDLED
from stylegan.files.formats import NoiseInput, native
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.metrics.image_folders import holds_images, usable
from stylegan.networks import NetworkConfig
from stylegan.sampling import Cutoff
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils.filesystem import OutputWriter
from stylegan.utils.lineage import Lineage, describe_lineage, license_of, sha256_of
from stylegan.utils.text import pluralize, sanitize

Facts = dict[str, str]  # by a heading of at most 12 characters


@click.command(cls=Command)
@options.SOURCE
def info(source: str) -> None:
    """Describe SOURCE: a run folder, a checkpoint, one of another program, images, or a name.

    \b
    stylegan info runs/mine
    """
    print_facts(facts_of(source))


def print_facts(facts: Facts) -> None:
    echo(*(f"{name:<12} {value}" for name, value in facts.items()))


def facts_of(source: str) -> Facts:
    """Facts about a source, with commands that use it."""
    path = Path(source)
    is_folder = source not in BUNDLED and path.is_dir()
    if is_folder and is_store(path):
        return store_facts(path)
    if holds_images(source):
        return image_facts(source)
    weights = open_weights(source, need=None)
    size = {"file size": f"{weights.file.stat().st_size / 2**20:.1f} MiB"}
    if weights.loaded is None:
        facts = {"kind": weights.origin} | size | lineage_facts(weights.lineage)
        return facts | {"use": "none by itself; images need a generator"}
    facts = generator_facts(weights.loaded) | size
    if is_folder:
        run = RunFolder(path)
        generators = len(run.generators())
        states = len(run.states())
        if generators + states:
            facts["run folder"] = f"{generators} generator and {states} state files"
    if weights.discriminator is not None:
        facts["networks"] = "generator and discriminator: training starts from both"
    facts["generate"] = command("generate", source)
    if is_folder and RunFolder.of(path):
        facts["continue"] = command("train", "--out", source)
    else:
        facts["start from"] = command("train", "--init-from", source)
    if weights.notes:
        facts["convert"] = command("convert", source, "generator.pt")
    return facts


def generator_facts(loaded: Pretrained) -> Facts:
    config = loaded.generator.config
    settings = loaded.settings
    full = config.resolution
    images = f"{full}x{full}, {pluralize(config.image_channels, 'channel')}"
    if loaded.resolution < full or settings.alpha < 1:
        images += f", trained up to {loaded.resolution}x{loaded.resolution}"
        images += f" (fading in, alpha {settings.alpha:.2f})" if settings.alpha < 1 else ""
    cutoff = "all" if settings.cutoff is None else settings.cutoff
    toward = "" if settings.centers is None else f", toward {len(settings.centers)} centers"
    usual = dataclasses.asdict(NetworkConfig())
    values = dataclasses.asdict(config).items()
    changed = [f"{name} = {value}" for name, value in values if value != usual[name]]
    facts = {
        "kind": loaded.origin,
        "images": images,
        "parameters": f"{sum(p.numel() for p in loaded.generator.parameters()):,} in the generator",
        "truncation": f"psi {settings.psi:g}, cutoff {cutoff}{toward}",
        "config": ", ".join(changed) or "the paper's",
    }
    if loaded.images_seen is not None:
        facts["images seen"] = f"{loaded.images_seen:,}"
    if config.label_dim:
        names = ", ".join(map(sanitize, loaded.label_names)) or "unnamed"
        facts["labels"] = f"{config.label_dim}: {names}"
    if settings.active_rectangle is not None:
        top, bottom, left, right = settings.active_rectangle
        facts["active part"] = f"rows {top} to {bottom}, columns {left} to {right}; rest is padding"
    return facts | lineage_facts(loaded.lineage)


def lineage_facts(lineage: Lineage) -> Facts:
    if not lineage:
        return {}
    return {
        "weights from": "; then ".join(describe_lineage(lineage)),
        "license": license_of(lineage),
    }


def store_facts(path: Path) -> Facts:
    store = Store(path)
    left_out = pluralize(len(store.skipped), "image")
    return {
        "kind": f"store {path}",
        "images": f"{store.num_images:,} of {store.resolution}x{store.resolution}, "
        f"{store.channels} channels, crop {store.meta.crop}",
        "labels": ", ".join(map(sanitize, store.label_names)) or "none",
        "made from": f"{store.meta.source}, {left_out} left out",
        "train": command("train", "--data", path, "--resolution", store.resolution),
    }


def image_facts(source: str) -> Facts:
    findings = usable(Path(source), Preparation())
    left_out = pluralize(len(findings.skipped), "image")
    sizes = " to ".join(dict.fromkeys(findings.ends()))
    return {
        "kind": f"{findings.kind} {source}",
        "images": f"{findings.num_usable:,} of {sizes}, {left_out} left out, by the headers",
        "details": command("check", source),
        "train": command("train", "--data", source),
    }


@click.command(cls=Command)
@options.SOURCE
@click.argument("destination", type=param_types.OUTPUT)
@options.path_option(
    "--discriminator", "File (.pt) to write the discriminator to, if SOURCE has one."
)
@options.CENTERS
@options.OVERWRITE
def convert(
    source: str,
    destination: Path,
    discriminator: Path | None,
    centers: param_types.Centers,
    outputs: OutputWriter,
) -> None:
    """Write the generator of SOURCE to a file of this project, DESTINATION (.pt).

    SOURCE is an official .pkl (Gs is converted), a checkpoint of
    rosinality/style-based-gan-pytorch (.model), genforce/genforce, huangzh13/StyleGAN.pytorch,
    open-mmlab/mmgeneration (.pth), or any other source that `stylegan generate` accepts. No code
    in it is executed. Variables without a counterpart are an error. A name like ...-512x384.pkl
    means that images are padded around a center of that size.

    \b
    stylegan convert karras2019stylegan-ffhq-1024x1024.pkl ffhq.pt
    """
    destinations = [file for file in (destination, discriminator) if file]
    weights = open_weights(source, need="discriminator" if discriminator else "pictures")
    outputs.check(*destinations, endings=[".pt"], sources=[weights.file])
    loaded = options.with_centers(weights.require_loaded(), centers)
    echo(*(f"note         {note}" for note in weights.notes))
    print_facts(generator_facts(loaded))
    shared = weights.discriminator if weights.kind == "generator file" else None
    native.save_loaded(destination, loaded, discriminator=shared, outputs=outputs)
    if discriminator:
        critic = weights.require_discriminator()
        native.save_discriminator(discriminator, critic, loaded.lineage, outputs=outputs)
    for file in destinations:
        size = f"{file.stat().st_size / 2**20:.1f} MiB, SHA-256 {sha256_of(file)[:16]}..."
        echo(f"written      {file}: {size}")


@click.command(cls=Command)
@options.SOURCE
@click.argument("destination", type=param_types.OUTPUT)
@options.number_option("--psi", "Default truncation.  [default: as in SOURCE]")
@options.CUTOFF
@click.option(
    "--noise",
    type=click.Choice(["input", "const", "none"]),
    help="Noise of .onnx and .pt2: maps as inputs, the stored maps, or none.  [default: const]",
)
@click.option(
    "--license",
    "license_name",
    metavar="NAME",
    help="For FOLDER/: the license of the weights as the Hub names it, such as mit.  "
    "[default: NVIDIA's, if they are derived from NVIDIA's weights]",
)
@click.option("--trained-on", metavar="TEXT", help="For FOLDER/: the training data, in brief.")
@options.OVERWRITE
def export(
    source: str,
    destination: Path,
    psi: float | None,
    cutoff: Cutoff,
    noise: NoiseInput | None,
    license_name: str | None,
    trained_on: str | None,
    outputs: OutputWriter,
) -> None:
    """Export the generator of SOURCE for other programs, in the format of DESTINATION's ending.

    \b
    .safetensors  weights, and everything else as JSON in the metadata
    .onnx         images from z and psi, in any runtime
    .pt2          the same as a program of torch.export, for torch only
    FOLDER/       model.safetensors and a model card, for the Hugging Face Hub

    \b
    stylegan export runs/mine mine.safetensors
    stylegan export faces64 faces64.onnx --psi 0.5
    stylegan export runs/mine mine/ --license mit --trained-on "300 photos of mine"
    """
    to_folder = destination.is_dir() or not destination.suffix
    if to_folder and noise is not None:
        raise click.UsageError("--noise requires .onnx or .pt2")
    if not to_folder and (license_name or trained_on):
        raise click.UsageError("--license and --trained-on require a FOLDER/")
    weights = open_weights(source)
    loaded = weights.require_loaded().with_settings(psi=psi, cutoff=cutoff)
    if to_folder:
        huggingface.save_folder(
            loaded,
            destination,
            license_name=license_name,
            trained_on=trained_on,
            outputs=outputs,
            sources=[weights.file],
        )
        echo(
            f"{destination}: {formats.SHARED} and {huggingface.README}, of the {loaded.origin}",
            f"{huggingface.README} can be edited",
        )
        return
    formats.export(loaded, destination, noise=noise, outputs=outputs, sources=[weights.file])
    echo(f"{destination}: {destination.stat().st_size / 2**20:.1f} MiB, of the {loaded.origin}")


@click.command(cls=Command)
@click.argument("a", type=param_types.SOURCE)
@click.argument("b", type=param_types.SOURCE)
@click.option(
    "--from",
    "first",
    type=click.IntRange(1, param_types.MAX_NUMBER),
    help="First resolution whose layers come from B.  [default: whole network]",
)
@options.count_option("--until", "Last resolution whose layers come from B.  [default: the finest]")
@options.number_option(
    "--share", "Weight of B in these layers.  [default: 1 with --from]", least=0, most=1
)
@click.option("--out", type=param_types.OUTPUT, required=True, help="Generator file to write, .pt.")
@options.OVERWRITE
def blend(
    a: str,
    b: str,
    first: int | None,
    until: int | None,
    share: float | None,
    out: Path,
    outputs: OutputWriter,
) -> None:
    """Write a generator with layers of B and the rest of A, or one that interpolates between both.

    Coarse layers decide pose and shape, fine layers colors and texture. One network must have been
    initialized from the other (`train --init-from`), or both from a third. A and B are sources as
    for generate.

    \b
    stylegan blend runs/faces runs/cartoons --from 32 --out blend.pt
    stylegan blend runs/faces runs/cartoons --share 0.5 --out between.pt
    """
    if first is None and (until is not None or share is None):
        raise click.UsageError("pass --from RESOLUTION (then --until, --share), or --share alone")
    parents = open_weights(a), open_weights(b)
    outputs.check(out, endings=[".pt"], sources=[parent.file for parent in parents])
    blended = blending.blend(
        *(parent.as_parent() for parent in parents),
        first=first,
        last=until,
        share=1.0 if share is None else share,
    )
    native.save_loaded(out, blended, outputs=outputs)
    echo(f"{out}: {blended.origin}; {blended.lineage[-1].copied}")
