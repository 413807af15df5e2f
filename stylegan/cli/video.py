"""`stylegan video`: films of a generator, or of its training."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from stylegan.cli.common import Command, Decorated, progress_bar
from stylegan.cli.looking import (
    CLASS,
    CUTOFF,
    CUTOFF_ALL,
    DEVICE,
    LATENTS,
    LAYERS,
    OVERWRITE,
    PSI,
    RESOLUTION,
    SOURCE,
    Asked,
    Numbers,
    SeedRange,
    chosen_ranges,
    seeds_option,
    together,
)
from stylegan.destination import check_file

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from stylegan.files.loading import LoadedGenerator
    from stylegan.video import Interpolation, Scene

POINTS = 4  # of a walk, unless seeds are chosen
SECONDS_PER_POINT = 2.0
MORPH_SECONDS, TIMELAPSE_SECONDS = 6.0, 10.0
CAST, MIXED, OTHERS = "0-5", "0", "10-13"  # seeds


class Grid(click.ParamType):
    """`3x2` as 3 columns and 2 rows."""

    name = "columns x rows"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"([1-9][0-9]?)x([1-9][0-9]?)", str(value))
        if not found:
            self.fail(f"{value!r} is no grid like 3x2, columns by rows", param, ctx)
        return int(found[1]), int(found[2])


def film_options(name: str, seconds: str) -> Callable[[Decorated], Decorated]:
    """What every film has."""
    return together(
        click.option(
            "--noise",
            type=click.Choice(["const", "random", "none"]),
            default="const",
            show_default=True,
            help="Fine detail: the stored maps, others in every frame (it flickers), or none.",
        ),
        CLASS,
        DEVICE,
        click.option("--fps", type=float, default=25, show_default=True, help="Frames per second."),
        click.option(
            "--seconds",
            type=click.FloatRange(min=0, min_open=True),
            help=f"Length.  [default: {seconds}]",
        ),
        click.option(
            "--scale",
            type=click.IntRange(min=1),
            help="Of each picture, its pixels repeated.  [default: to 256 pixels at least]",
        ),
        click.option(
            "--out",
            type=click.Path(path_type=Path),
            default=f"{name}.mp4",
            show_default=True,
            help='File to write: .mp4 (H.264; pip install ".[video]"), .webp or .gif.',
        ),
        OVERWRITE,
    )


LOOP = click.option(
    "--loop/--no-loop",
    default=True,
    show_default=True,
    help="Come back, so that the frame after the last is the first.",
)
INTERPOLATION = click.option(
    "--interpolation",
    type=click.Choice(["spline", "linear"]),
    help="In w: smoothly through the points, or straight.  [default: spline]",
)


@click.group()
def video() -> None:
    """Film a walk through latent space, a morph, or the training of a run.

    \b
    stylegan video walk emoji32 --seeds 0-7 --out walk.mp4
    stylegan video timelapse runs/mine --out timelapse.webp
    """


@video.command(cls=Command)
@together(SOURCE, seeds_option(f"{POINTS} for each walk"), LATENTS)
@click.option(
    "--space",
    type=click.Choice(["w", "z"]),
    default="w",
    show_default=True,
    help="Of the walk; in z it follows great circles.",
)
@together(INTERPOLATION, LOOP)
@click.option(
    "--grid",
    type=Grid(),
    default="1x1",
    show_default=True,
    help="Several walks at once, each through its part of the seeds, in their order.",
)
@together(PSI, CUTOFF, RESOLUTION)
@film_options("walk", f"{SECONDS_PER_POINT:g} for each seed of a walk")
def walk(
    seeds: list[int] | None,
    space: str,
    interpolation: "Interpolation | None",
    loop: bool,
    grid: tuple[int, int],
    **film: Any,
) -> None:
    """Walk from seed to seed.

    \b
    stylegan video walk emoji32 --seeds 0-7 --seconds 10 --out walk.mp4
    stylegan video walk emoji32 --space z --grid 3x2 --out walks.webp
    """
    from stylegan.paths import places
    from stylegan.video import walk_in_w, walk_in_z

    if space == "z" and interpolation is not None:
        raise click.UsageError("--interpolation is for walks in w; those in z follow great circles")
    studio = Studio(**film)
    if space == "z" and studio.asked.latents is not None:
        raise click.UsageError("--latents are walked through in w; leave --space z out")
    loaded = studio.asked.loaded()
    columns, rows = grid
    walks = columns * rows
    points = studio.asked.points(loaded, seeds, f"0-{POINTS * walks - 1}")
    each, left = divmod(len(points.names), walks)
    if walks == 1 and each < 2:
        raise ValueError(f"a walk needs at least 2 {studio.asked.what}, not {each}")
    if left or each < 2:
        raise ValueError(
            f"{len(points.names)} points do not make {walks} walks of equally many, at least 2; "
            f"give {walks * max(each, 2)} of them, for instance"
        )
    knots = points.ws if points.z is None or space == "w" else points.z
    knots = knots.unflatten(0, (walks, each)).transpose(0, 1)
    if space == "w":
        scene = walk_in_w(knots, interpolation or "spline", closed=loop)
    else:
        labels = loaded.label(studio.asked.class_name)
        scene = walk_in_z(loaded, knots, labels, closed=loop)
    frames = studio.frames(SECONDS_PER_POINT * each)
    studio.shoot(loaded, scene, places(frames, each, closed=loop), columns)


@video.command(cls=Command)
@together(SOURCE, seeds_option(MIXED), LATENTS)
@click.option(
    "--columns",
    type=SeedRange(),
    help=f"Source B, as --seeds is source A.  [default: {OTHERS}]",
)
@together(LAYERS, INTERPOLATION, LOOP, PSI, CUTOFF, RESOLUTION)
@film_options("mixing", f"{SECONDS_PER_POINT:g} for each seed of source B")
def mixing(
    seeds: list[int] | None,
    columns: list[int] | None,
    layers: list[tuple[int, int]] | None,
    interpolation: "Interpolation | None",
    loop: bool,
    **film: Any,
) -> None:
    """Styles of some layers walk through source B, those of the others stay source A's.

    A row for each seed of source A, side by side coarse, middle and fine layers.

    \b
    stylegan video mixing emoji32 --seeds 0,1 --columns 10-13 --out mixing.mp4
    """
    from stylegan.paths import places
    from stylegan.video import mixing_scene

    studio = Studio(**film)
    loaded = studio.asked.loaded()
    sources = studio.asked.points(loaded, seeds, MIXED)
    others = studio.asked.points(loaded, columns, OTHERS)
    ranges = chosen_ranges(layers, loaded)
    scene = mixing_scene(
        loaded, sources.ws, others.ws, ranges, interpolation or "spline", closed=loop
    )
    n = len(others.names)
    if n < 2:
        raise ValueError(
            f"--columns needs at least 2 {studio.asked.what}, to walk from one to another"
        )
    frames = studio.frames(SECONDS_PER_POINT * n)
    labels = [f"{name}, {some.label}" for name in sources.names for some in ranges]
    studio.shoot(loaded, scene, places(frames, n, closed=loop), len(ranges), labels=labels)


@video.command(cls=Command)
@together(SOURCE, seeds_option(CAST), LATENTS)
@click.option(
    "--psis", type=Numbers(), default="1,-1", show_default=True, help="The first and the last."
)
@together(LOOP, CUTOFF_ALL, RESOLUTION)
@film_options("truncation", f"{MORPH_SECONDS:g}")
def truncation(seeds: list[int] | None, psis: list[float], loop: bool, **film: Any) -> None:
    """Truncation from full variety over the average picture to the opposites, and back.

    \b
    stylegan video truncation emoji32 --seeds 0-5 --psis 1,-1 --out truncation.mp4
    """
    from stylegan.figures import default_columns
    from stylegan.paths import places
    from stylegan.video import psi_at, truncation_scene

    if len(psis) != 2:
        raise click.UsageError(f"--psis are the first and the last, two numbers, not {len(psis)}")
    studio = Studio(**film)
    loaded = studio.asked.loaded(every_layer=True)
    points = studio.asked.points(loaded, seeds, CAST)
    ends = psis[0], psis[1]
    scene = truncation_scene(loaded, points.ws, ends, closed=loop)
    frames = studio.frames(MORPH_SECONDS)
    t = places(frames, 1, closed=True) if loop else places(frames, 2, closed=False)
    captions = [f"psi {round(psi, 2) + 0:.2f}" for psi in psi_at(t, *ends, closed=loop).tolist()]
    columns = default_columns(len(points.names))
    whole = dataclasses.replace(loaded, psi=1.0)  # the scene has truncated
    studio.shoot(whole, scene, t, columns, captions=captions)


@video.command(cls=Command)
@together(SOURCE, seeds_option(CAST, latents=False), PSI, CUTOFF)
@film_options("timelapse", f"{TIMELAPSE_SECONDS:g}")
def timelapse(source: str, seeds: list[int] | None, **film: Any) -> None:
    """The same seeds over the training of a run.

    SOURCE is a run folder; at each moment its nearest generator-*.pt or state-*.pt is shown.

    \b
    stylegan video timelapse runs/mine --seeds 0-7 --seconds 8 --out timelapse.mp4
    """
    from stylegan.figures import default_columns, nearest
    from stylegan.run_folder import RunFolder, images_of
    from stylegan.video import Stage, check_frame, timelapse_frames

    studio = Studio(source=source, **film)
    files = RunFolder(source).checkpoints()
    count = studio.frames(TIMELAPSE_SECONDS)
    chosen = [files[i] for i in nearest([images_of(path) for path in files], count)]
    (last,) = studio.asked.snapshots(chosen[-1:])
    points = studio.asked.points(last, seeds, CAST)
    stage = Stage.of(last.picture_size(), default_columns(len(points.names)), studio.scale)
    check_frame(studio.out, stage.frame_size(len(points.names), captions=True))
    times = [sum(1 for _ in same) for _, same in itertools.groupby(chosen)]
    frames = timelapse_frames(
        studio.asked.snapshots(dict.fromkeys(chosen)),
        times,
        lambda loaded: studio.asked.points(loaded, seeds, CAST),
        stage,
        noise=studio.noise,
    )
    studio.write(frames, count, f"run {source}")


class Studio:
    """What a film is to be, and where it goes. What cannot be written is refused at once."""

    def __init__(
        self,
        *,
        fps: float,
        seconds: float | None,
        scale: int | None,
        noise: "Literal['const', 'random', 'none']",
        out: Path,
        overwrite: bool,
        **look: Any,
    ) -> None:
        from stylegan.video import check_length, check_video

        check_video(out, fps)
        if seconds is not None:
            check_length(seconds)
        check_file(out, overwrite=overwrite)
        self.asked = Asked(**look)
        self.fps, self.seconds, self.scale, self.noise, self.out = fps, seconds, scale, noise, out

    def frames(self, default_seconds: float) -> int:
        """How many."""
        from stylegan.video import check_length

        seconds = default_seconds if self.seconds is None else self.seconds
        check_length(seconds)
        return max(1, round(seconds * self.fps))

    def shoot(
        self,
        loaded: "LoadedGenerator",
        scene: "Scene",
        places: "Tensor",
        columns: int,
        *,
        labels: "Sequence[str] | None" = None,
        captions: "Sequence[str]" = (),
    ) -> None:
        """Film the scene at the places, a frame each."""
        from stylegan.video import Stage, check_frame, filmed

        stage = Stage.of(loaded.picture_size(), columns, self.scale, labels)
        cells = scene(places[:1]).shape[1]
        check_frame(self.out, stage.frame_size(cells, captions=bool(captions)))
        shots = filmed(loaded, scene, places, noise=self.noise)
        texts = captions or itertools.repeat("")
        frames = (stage.frame(shot, text) for shot, text in zip(shots, texts, strict=False))
        self.write(frames, len(places), loaded.origin)

    def write(self, frames: "Iterator[np.ndarray]", count: int, origin: str) -> None:
        """The file, with a bar on the way, and say so."""
        from stylegan.video import write_video

        with progress_bar("frame") as show:
            write_video(self.out, shown_on(show, frames, count), count=count, fps=self.fps)
        length = f"{count / self.fps:.1f} s at {self.fps:g} frames per second"
        click.echo(f"{self.out}, {length}, from the {origin}")


def shown_on(
    show: Callable[[int, int], None], frames: "Iterator[np.ndarray]", count: int
) -> "Iterator[np.ndarray]":
    """The frames, each told when it is done."""
    for done, frame in enumerate(frames, start=1):
        yield frame
        show(done, count)
