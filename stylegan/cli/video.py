"""`stylegan video`: videos of a generator, or of its training."""

import functools
from collections.abc import Callable
from pathlib import Path

import click

from stylegan import video as library
from stylegan.cli import options, param_types
from stylegan.cli.common import Command, Terminal, echo, note
from stylegan.cli.options import Decorator, Selection
from stylegan.figures import StyleRange, default_columns, style_ranges
from stylegan.files.run_folder import RunFolder
from stylegan.sampling.curves import frame_positions, spherical, spline
from stylegan.utils.filesystem import OutputWriter
from stylegan.utils.text import pluralize

POINTS = 4  # per walk, unless seeds are chosen
SEEDS_B = "10-13"  # seeds of source B
Ends = tuple[float, float]  # first and last value
Frames = Callable[..., int]  # number of frames of a clip, or of a walk through `points`
LOOP = click.option(
    "--loop/--no-loop", default=True, help="End where the video starts, so that it can repeat."
)
SETTINGS = (options.PSI, options.CUTOFF, options.CENTERS, options.EDIT, options.RESOLUTION)


@click.group()
def video() -> None:
    """Make a video of a walk through latent space, a morph, or a training run.

    \b
    stylegan video walk faces64 --seeds 0-7 --out walk.webp
    stylegan video timelapse runs/mine --out timelapse.webp
    """


def video_command(
    seeds: str, *extra: Decorator, length: float, each: str = "", of_run: bool = False
) -> Callable[[Callable[..., library.Clip]], click.Command]:
    """Decorator that makes a command of a function. The function takes a `Selection`, a `Frames`
    and the values of the `extra` options, and returns a clip. By default the clip lasts `length`
    seconds; the help adds `each`, such as " for each seed of a walk"."""

    def register(make: Callable[..., library.Clip]) -> click.Command:
        @video.command(make.__name__, cls=Command)
        @options.selecting(seeds, *extra)
        @click.option(
            "--noise",
            type=click.Choice(["const", "random", "none"]),
            help="Fine detail: the network's maps, random in every frame (flickers), or none.  "
            "[default: that of --latents, else const]",
        )
        @options.CLASS
        @options.number_option("--fps", "Frames per second.", default=25, least=0.01, most=240)
        @options.number_option(
            "--seconds",
            f"Length of the video.  [default: {length:g}{each}]",
            least=0.001,
            most=86_400,
        )
        @options.count_option("--scale", "Enlargement.  [default: to 256 pixels at least]")
        @options.path_option(
            "--out",
            "File: .webp, .gif or .mp4 (H.264; pip install av); or a folder for .png frames.",
            default=f"{make.__name__}.webp",
        )
        @options.OVERWRITE
        @functools.wraps(make)
        def command(
            fps: float,
            seconds: float | None,
            scale: int | None,
            out: Path,
            outputs: OutputWriter,
            **given: object,
        ) -> None:
            selection, own = Selection.split(given, seeds)

            def frames(points: int = 1) -> int:
                return max(1, round((seconds or length * points) * fps))

            library.check_clip(out, fps, outputs)
            clip = make(selection, frames, **own)
            library.write_video(
                out,
                clip.arrange(scale),
                count=clip.count,
                fps=fps,
                outputs=outputs,
                console=Terminal("frame"),
            )
            took = f"{clip.count / fps:.1f} s at {fps:g} frames per second"
            origin = f"run {selection.source}" if of_run else selection.loaded.origin
            echo(f"{out}, {took}, from the {origin}")

        return command

    return register


@video_command(
    f"0-{POINTS - 1}",
    options.LATENTS,
    click.option(
        "--space",
        type=click.Choice(["w", "z"]),
        default="w",
        help="Latent space of the walk; in z it follows great circles, and networks with labels "
        "require --class.",
    ),
    LOOP,
    click.option(
        "--grid",
        type=param_types.GRID,
        default="1x1",
        help="Columns and rows of walks. The seeds are divided between the walks, in order; by "
        f"default each has {POINTS}.",
    ),
    *SETTINGS,
    length=2,
    each=" for each seed of a walk",
)
def walk(
    selection: Selection, frames: Frames, space: str, loop: bool, grid: list[int]
) -> library.Clip:
    """Walk from seed to seed.

    \b
    stylegan video walk faces64 --seeds 0-7 --seconds 10 --out walk.webp
    stylegan video walk faces64 --space z --grid 3x2 --out walks.webp
    """
    if space == "z" and selection.latents is not None:
        raise click.UsageError("--space z requires seeds; walks through --latents are in w")
    columns, rows = grid
    walks = columns * rows
    loaded = selection.loaded
    label = loaded.label(selection.class_name) if space == "z" else None  # one for a whole walk
    points = selection.other(selection.seeds, f"0-{POINTS * walks - 1}").points(loaded)
    each, left = divmod(len(points.names), walks)
    if left or each < 2:
        raise ValueError(
            f"{pluralize(len(points.names), selection.unit)} for {pluralize(walks, 'walk')}: each "
            "requires the same number, at least 2"
        )
    if space == "w" or points.z is None:
        loaded, (ws,) = library.with_truncated(loaded, points.ws)
        knots = ws.cpu().unflatten(0, (walks, each)).transpose(0, 1)
        styles = spline(knots, closed=loop)
    else:
        curves = [spherical(z, closed=loop) for z in points.z.cpu().split(each)]
        styles = library.walk_in_z(loaded, curves, label)
    t = frame_positions(frames(each), each, closed=loop)
    noise = points.noise
    if not isinstance(noise, str):  # one map for each latent; a walk is mostly between them
        note("the noise maps of --latents are not used: a walk has those of the network")
        noise = "const"
    return library.make_clip(loaded, styles, t, columns=columns, noise=noise)


@video_command(
    "0",
    *(options.LATENTS, options.source_b_option(SEEDS_B), options.LAYERS, LOOP, *SETTINGS),
    length=2,
    each=" for each seed of source B",
)
def mixing(
    selection: Selection,
    frames: Frames,
    seeds_b: list[int] | None,
    ranges: list[StyleRange] | None,
    loop: bool,
) -> library.Clip:
    """Walk through source B in some layers only.

    A row for each seed of source A; in its columns the coarse, middle or fine layers move.

    \b
    stylegan video mixing faces64 --seeds 0,1 --seeds-b 10-13 --out mixing.webp
    """
    loaded = selection.loaded
    sources = selection.points()
    others = selection.other(seeds_b, SEEDS_B).points(selection.loaded)
    ranges = ranges or style_ranges(loaded.settings.synthesis_resolution)
    n = len(others.names)
    if n < 2:
        raise ValueError(f"--seeds-b requires at least 2 {selection.unit}s to walk between")
    loaded, (still, moving) = library.with_truncated(loaded, sources.ws, others.ws)
    styles = library.mixing_walk(loaded, still, moving, ranges, closed=loop)
    t = frame_positions(frames(n), n, closed=loop)
    labels = [f"{name}, {layer_range.label}" for name in sources.names for layer_range in ranges]
    return library.make_clip(
        loaded, styles, t, columns=len(ranges), labels=labels, noise=sources.noise
    )


@video_command(
    "0-5",
    options.LATENTS,
    click.option("--psis", type=param_types.PAIR, default="1,-1", help="First and last psi."),
    *(LOOP, options.CUTOFF_ALL, options.CENTERS, options.EDIT, options.RESOLUTION),
    length=6,
)
def truncation(selection: Selection, frames: Frames, psis: Ends, loop: bool) -> library.Clip:
    """Vary psi from full variety to opposites, and back.

    \b
    stylegan video truncation faces64 --seeds 0-5 --psis 1,-1 --out truncation.webp
    """
    now = library.between(*psis, frames(), closed=loop)
    return library.truncation_clip(selection.loaded, selection.points(), now)


@video_command(
    "0-5",
    options.LATENTS,
    click.option(
        "--strengths",
        type=param_types.PAIR,
        default="-1,1",
        help="First and last factor of the strengths of edits.",
    ),
    *(LOOP, *SETTINGS),
    length=6,
)
def edit(selection: Selection, frames: Frames, strengths: Ends, loop: bool) -> library.Clip:
    """Vary the strength of edits from first to last, and back.

    \b
    stylegan video edit faces64 --seeds 0-5 --edit pca:1=+2@0-3 --out edit.webp
    """
    if not selection.edits:
        raise click.UsageError("pass --edit, for instance --edit pca:1=+2")
    edits = dict(zip(selection.edits, selection.loaded.settings.edits, strict=True))
    if len(edits) < len(selection.edits):
        raise click.UsageError("an --edit is given twice; combine their strengths in one")
    loaded = selection.loaded.with_settings(edits=())
    now = library.between(*strengths, frames(), closed=loop)
    return library.edit_clip(loaded, selection.points(loaded), edits, now)


@video_command(
    "0-5",
    options.count_option("--waves", "Number of harmonics; more make a livelier loop.", default=2),
    *SETTINGS,
    length=8,
)
def loop(selection: Selection, frames: Frames, waves: int) -> library.Clip:
    """Let each latent drift randomly through z, and return.

    \b
    stylegan video loop faces64 --seeds 0-5 --psi 0.5 --out loop.webp
    """
    loaded = selection.loaded
    seeds = selection.chosen_seeds
    curves = [library.noise_loop(seed, loaded.generator.config.z_dim, waves) for seed in seeds]
    styles = library.walk_in_z(loaded, curves, selection.labels(loaded))
    t = frame_positions(frames(), 1, closed=True)
    columns = default_columns(len(seeds))
    return library.make_clip(loaded, styles, t, columns=columns, noise=selection.noise or "const")


@video_command("0-5", options.PSI, options.CUTOFF, length=10, of_run=True)
def timelapse(selection: Selection, frames: Frames) -> library.Clip:
    """Show the same seeds over the course of a training run.

    SOURCE is a run folder; each frame is of the generator-*.pt or state-*.pt nearest in time.

    \b
    stylegan video timelapse runs/mine --seeds 0-7 --seconds 8 --out timelapse.webp
    """
    files = RunFolder(selection.source).checkpoints()
    return library.timelapse_clip(files, selection.of_file, selection.points, frames())
