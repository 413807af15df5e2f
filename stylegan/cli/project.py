"""`stylegan project`: the latents whose pictures are nearest to given ones."""

import shlex
from pathlib import Path
from typing import Any, Literal

import click

from stylegan.cli import common, options, values
from stylegan.cli.common import fitting_memory, progress_bar, say
from stylegan.messages import count, readable


@click.command(cls=common.Command)
@options.SOURCE
@click.argument("images", metavar="IMAGE...", nargs=-1, required=True, type=values.INPUT)
@click.option(
    "--space",
    type=click.Choice(["w", "w+"]),
    default="w",
    help="w: one style for all layers; w+: one per layer, which is a closer match but less like "
    "what the network generates.",
)
@click.option(
    "--noise/--no-noise", "fit_noise", default=False, help="Fit the noise maps to the picture, too."
)
@options.count_option("--steps", "Number of search steps.", 1000)
@options.count_option("--starts", "Number of starts of the search; the nearest result is kept.", 1)
@options.number_option(
    "--search-noise", "Noise on w at the beginning, in units of its spread.", 0.05, least=0
)
@options.count_option("--seed", "Seed of everything random.", 0, 0, values.LARGEST_SEED)
@click.option(
    "--distance",
    "distance_name",
    type=click.Choice(["auto", "lpips", "eff", "pixels"]),
    default="auto",
    help="LPIPS, features of EfficientNet, or squared differences of pixels at every scale; auto: "
    "LPIPS if its weights are on this machine, else pixels.",
)
@options.WEIGHTS
@click.option(
    "--tune",
    is_flag=True,
    help="Then retrain a copy of the generator to match the pictures exactly (pivotal tuning), and "
    "write it to OUT/tuned.pt.",
)
@options.count_option("--tune-steps", "Number of steps of --tune.  [default: 350]")
@options.number_option(
    "--locality",
    "With --tune, how strongly other pictures are kept as they were.  [default: 0.1]",
    least=0,
)
@click.option(
    "--crop",
    type=click.Choice(["center", "pad", "stretch"]),
    help="center: middle square; pad: all, with bars, in the shape of the generator's pictures "
    "(else 4:3); stretch: all, squeezed.  [default: as in training]",
)
@options.CLASS
@options.BATCH
@options.DEVICE
@options.path_option("--out", "Folder to write to.", "projected")
@options.OVERWRITE
def project(
    source: str,
    images: tuple[Path, ...],
    distance_name: Literal["auto", "lpips", "eff", "pixels"],
    weights: Path | None,
    tune: bool,
    tune_steps: int | None,
    locality: float | None,
    batch: int | None,
    device: str,
    out: Path,
    overwrite: bool,
    **given: Any,
) -> None:
    """Find the latents whose picture is nearest to IMAGE.

    OUT/latents.npz gets the latents of all images, for --latents of generate, figure and video.
    OUT/<name of an image>/ gets its latents.npz, target.png, projection.png and result.json.
    With --tune, OUT/tuned.pt is a generator like any other that matches the pictures with the same
    latents. Images that cannot be read are left out and named at the end; the exit code is then 1.

    \b
    stylegan project faces64 smile.png --out projected
    stylegan generate faces64 --latents projected/latents.npz --out again
    stylegan project runs/mine photos/*.jpg --space w+ --noise --out projected
    stylegan project runs/mine me.jpg --tune --out tuned
    """
    from stylegan import projection
    from stylegan.files.loading import open_weights

    for folder in filter(Path.is_dir, images):
        raise ValueError(f"{readable(folder)} is a folder; name its pictures: {folder}/*.jpg")

    asked: dict[str, Any] = {"steps": tune_steps, "locality": locality}
    asked = {name: value for name, value in asked.items() if value is not None}
    if asked and not tune:
        raise click.UsageError("--tune-steps and --locality require --tune")
    tuning = projection.TuningOptions(**asked) if tune else None
    search = ("space", "fit_noise", "steps", "search_noise")
    search_options = projection.SearchOptions(**{name: given.pop(name) for name in search})
    projection.check_free(images, out, tuned=tune, overwrite=overwrite)
    loaded = open_weights(source, map_location=common.use_device(device)).as_parent()
    loaded.label(given["class_name"])  # errors come before the weights of a distance are loaded
    projection.check_noise(search_options, loaded.generator.config)
    distance, why = projection.choose_distance(distance_name, loaded, weights)
    say("distance: {name}, {what}; {why}".format(**distance.about(), why=why))
    batch = batch or projection.default_batch(loaded.resolution)
    with fitting_memory(batch, loaded.resolution), progress_bar("step") as progress:
        how = given | {"batch": batch, "tell": say, "progress": progress}
        found, errors = projection.project_files(
            loaded, images, out, distance, search_options, tuning, **how
        )
    if found:
        generator, latents = str(out / "tuned.pt") if tune else source, str(out / "latents.npz")
        again = shlex.join(["stylegan", "generate", generator, "--latents", latents])
        say(f"{count(found, 'projection')} in {out}. The pictures again:", f"{again} --out again")
    common.refuse_left_out("image", errors, asked=len(images))
