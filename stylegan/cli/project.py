"""`stylegan project`: find the latents of given images."""

from pathlib import Path
from typing import Any, Literal

import click

from stylegan import projection
from stylegan.cli import common, options, param_types
from stylegan.cli.common import Terminal, echo
from stylegan.data import Crop
from stylegan.files.loading import open_weights
from stylegan.utils.filesystem import OutputWriter
from stylegan.utils.text import pluralize


@click.command(cls=common.Command)
@options.SOURCE
@click.argument("images", metavar="IMAGE...", nargs=-1, required=True, type=param_types.INPUT)
@click.option(
    "--space",
    type=click.Choice(["w", "w+"]),
    default="w",
    help="w: one w for all layers; w+: one per layer, a closer match but less like what the "
    "network generates.",
)
@click.option("--fit-noise", is_flag=True, help="Also fit the noise maps to the image.")
@options.count_option("--steps", "Number of search steps.", default=1000)
@options.count_option(
    "--starts", "Number of starts of the search; the nearest result is kept.", default=1
)
@options.number_option(
    "--search-noise", "Initial noise on w, relative to the spread of w.", default=0.05, least=0
)
@options.count_option(
    "--seed", "Seed of all random numbers.", default=0, least=0, most=param_types.MAX_SEED
)
@click.option(
    "--distance",
    "distance_name",
    type=click.Choice(["auto", "lpips", "eff", "pixels"]),
    default="auto",
    help="LPIPS, features of EfficientNet, or squared differences of pixels at every scale; auto: "
    "LPIPS if its weights are on this machine, else pixels.",
)
@options.FEATURE_WEIGHTS
@click.option(
    "--tune",
    is_flag=True,
    help="Then fine-tune a copy of the generator to match the images exactly (pivotal tuning), and "
    "write it to OUT/tuned.pt.",
)
@options.count_option("--tune-steps", "Number of steps of --tune.  [default: 350]")
@options.number_option(
    "--locality",
    "With --tune, weight of keeping other images as they were.  [default: 0.1]",
    least=0,
)
@click.option(
    "--crop",
    type=click.Choice(["center", "pad", "stretch"]),
    help="center: middle square; pad: all, with bars, in the shape of the generator's images "
    "(else 4:3); stretch: all, squeezed.  [default: as in training]",
)
@options.class_option("none; required by networks with labels")
@options.BATCH
@options.DEVICE
@options.path_option("--out", "Folder to write to.", default="projected")
@options.OVERWRITE
def project(
    source: str,
    images: tuple[Path, ...],
    starts: int,
    seed: int,
    distance_name: Literal["auto", "lpips", "eff", "pixels"],
    feature_weights: Path | None,
    tune: bool,
    tune_steps: int | None,
    locality: float | None,
    crop: Crop | None,
    class_name: str | None,
    batch: int | None,
    device: str,
    out: Path,
    outputs: OutputWriter,
    **search_options: Any,
) -> None:
    """Find the latents that reproduce each IMAGE best.

    Writes the latents of all images to OUT/latents.npz, for --latents of generate, figure and
    video, and those of each image to OUT/<name of the image>/, with target.png, projection.png and
    result.json. With --tune, OUT/tuned.pt is a generator that matches the images with the same
    latents. Images that cannot be read are skipped and listed at the end; the exit code is then 1.
    The same command resumes after an interruption.

    \b
    stylegan project faces64 smile.png --out projected
    stylegan generate faces64 --latents projected/latents.npz --out again
    stylegan project runs/mine photos/*.jpg --space w+ --fit-noise --out projected
    stylegan project runs/mine me.jpg --tune --out tuned
    """
    search = projection.SearchOptions(**search_options)
    given = {"steps": tune_steps, "locality": locality}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if changes and not tune:
        raise click.UsageError("--tune-steps and --locality require --tune")
    tuning = projection.TuningOptions(**changes) if tune else None
    for folder in filter(Path.is_dir, images):
        raise ValueError(f"{folder} is a folder; pass its images: {folder}/*.jpg")
    outputs.check(  # before opening a generator
        *projection.outputs_of(images, out), sources=[Path(source), *images], exist_ok=True
    )
    loaded = open_weights(source, map_location=options.use_device(device)).as_parent()
    loaded.label(class_name)  # raises before the weights of a distance are loaded
    projection.check_noise(search, loaded.generator.config)
    distance, reason = projection.choose_distance(distance_name, loaded, feature_weights)
    echo("distance: {name}, {what}; {reason}".format(**distance.about(), reason=reason))
    request = projection.ProjectionRequest(
        loaded=loaded,
        distance=distance,
        search=search,
        tuning=tuning,
        crop=crop,
        class_name=class_name,
        seed=seed,
        batch=batch or projection.default_batch(loaded.resolution),
        starts=starts,
        outputs=outputs,
    )
    console = Terminal("step", echo)
    projected, errors = projection.project_files(request, images, out, console=console)
    if projected:
        generator = out / "tuned.pt" if tuning else source
        echo(f"{pluralize(projected, 'projection')} in {out}. To generate the images:")
        latents = out / "latents.npz"
        echo(common.command("generate", generator, "--latents", latents, "--out", "again"))
    common.fail_if_skipped("image", errors, asked=len(images))
