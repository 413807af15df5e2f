"""`stylegan video`: films of a generator, or of its training."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stylegan.cli import options, values
from stylegan.cli.common import Command, progress_bar
from stylegan.cli.options import CENTERS, CUTOFF, EDIT, LATENTS, LAYERS, PSI, RESOLUTION, Selection
from stylegan.cli.terminal import say
from stylegan.destination import check_file
from stylegan.messages import count

if TYPE_CHECKING:
    from stylegan.video import Film, Interpolation, Sound, Take

POINTS = 4  # of a walk, unless seeds are chosen
SECONDS_PER_POINT = 2.0
MORPH_SECONDS, LOOP_SECONDS, TIMELAPSE_SECONDS = 6.0, 8.0, 10.0
OTHERS = "10-13"  # seeds of source B
FILE = 'File: .mp4 (H.264; pip install ".[video]"), .webp or .gif.'
SCALE = "Enlargement of each picture, its pixels repeated.  [default: to 256 pixels at least]"
NOISE = click.option(
    "--noise",
    type=click.Choice(["const", "random", "none"]),
    default="const",
    help="Fine detail: the stored maps, others in every frame (it flickers), or none.",
)
LOOP = click.option(
    "--loop/--no-loop",
    default=True,
    help="Come back, so that the frame after the last is the first.",
)
INTERPOLATION = click.option(
    "--interpolation",
    type=click.Choice(["spline", "linear"]),
    help="Path in w: smooth through the points, or straight.  [default: spline]",
)


AUDIO = click.option(
    "--audio",
    type=values.INPUT,
    help="Sound of the film (.mp4): any file with sound, whose length the film has unless "
    "--seconds is shorter.",
)
REACT = click.option(
    "--react",
    "reactions",
    metavar="FEATURE:EDIT",
    type=values.REACTION,
    multiple=True,
    help="Move along an edit with the sound, such as onset-low:pca:1=+3: none of it in silence, "
    "all of it where the feature is largest. Features are loudness and onset (where notes and "
    "beats begin), of all or as loudness-low (below 250 Hz), -mid, -high (from 4 kHz). Several "
    "are added.",
)


@dataclass(frozen=True)
class Shot:
    """How long a film is to be, how large its pictures, and what is heard."""

    fps: float
    seconds: float | None
    scale: int | None
    sound: "Sound | None" = None
    reactions: tuple[tuple[str, str], ...] = ()

    def frames(self, default_seconds: float) -> int:
        from stylegan.video import check_length

        longest = default_seconds if self.sound is None else self.sound.seconds
        seconds = longest if self.seconds is None else self.seconds
        check_length(seconds)
        if self.sound is not None and round((seconds - longest) * self.fps) > 0:
            raise ValueError(
                f"{self.sound.path} lasts {longest:.1f} s, so the film cannot last {seconds:g} s; "
                "leave --seconds out"
            )
        return max(1, round(seconds * self.fps))

    def film(self, selection: Selection, made: "Take | Film") -> "Film":
        """A take moved by the sound, as a film."""
        import numpy as np
        import torch

        from stylegan.video import Film, Moves, feature, film

        if isinstance(made, Film):
            return made
        if self.sound is not None and self.reactions:
            frames, loaded, source = len(made.t), selection.loaded, selection.source
            edits = [options.edits_of(source, loaded, (text,)) for _, text in self.reactions]
            heard = [feature(self.sound, name, self.fps, frames) for name, _ in self.reactions]
            moves = Moves(torch.from_numpy(np.stack(heard, axis=1)), edits)
            made = replace(made, moves=moves if made.moves is None else made.moves + moves)
        return film(made, scale=self.scale)


@click.group()
def video() -> None:
    """Film a walk through latent space, a morph, an edit, or the training of a run.

    \b
    stylegan video walk emoji32 --seeds 0-7 --out walk.mp4
    stylegan video walk emoji32 --audio song.mp3 --react onset-low:pca:1=+3 --out song.mp4
    stylegan video timelapse runs/mine --out timelapse.webp
    """


Make = Callable[..., "Take | Film"]


def kind(seeds: str, *own: Any, length: str, of_run: bool = False) -> Callable[[Make], Make]:
    """Makes a command of a function from a selection, a shot and its own options to a film."""

    def register(make: Make) -> Make:
        name = make.__name__

        @video.command(name, cls=Command)
        @options.selecting(seeds, *own, NOISE, options.CLASS)
        @click.option("--fps", type=values.NUMBER, default=25, help="Frames per second.")
        @click.option(
            "--seconds",
            type=values.real_number(0.001),
            help=f"Length of the film.  [default: {length}]",
        )
        @options.count_option("--scale", SCALE)
        @options.together(*([] if of_run else [AUDIO, REACT]))
        @options.path_option("--out", FILE, f"{name}.mp4")
        @options.OVERWRITE
        @functools.wraps(make)
        def command(
            selection: Selection,
            fps: float,
            seconds: float | None,
            scale: int | None,
            out: Path,
            overwrite: bool,
            audio: Path | None = None,
            reactions: tuple[tuple[str, str], ...] = (),
            **given: Any,
        ) -> None:
            from stylegan.video import (
                check_frame,
                check_holds_sound,
                check_video,
                read_sound,
                write_video,
            )

            check_video(out, fps)
            check_file(out, overwrite=overwrite)
            if reactions and audio is None:
                raise click.UsageError("--react needs a sound to move with: pass --audio FILE")
            if audio is not None:
                check_holds_sound(out)
            sound = None if audio is None else read_sound(audio)
            shot = Shot(fps, seconds, scale, sound, reactions)
            shot.frames(default_seconds=1)  # what cannot be is refused before the work
            film = shot.film(selection, make(selection, shot, **given))
            check_frame(out, film.size)
            with progress_bar("frame") as progress:
                write_video(
                    out, film.frames, count=film.count, fps=fps, sound=audio, progress=progress
                )
            took = f"{film.count / fps:.1f} s at {fps:g} frames per second"
            origin = f"run {selection.source}" if of_run else selection.loaded.origin
            say(f"{out}, {took}, from the {origin}")

        return make

    return register


@kind(
    f"0-{POINTS - 1}",
    LATENTS,
    click.option(
        "--space",
        type=click.Choice(["w", "z"]),
        default="w",
        help="Latent space of the walk; in z it follows great circles.",
    ),
    INTERPOLATION,
    LOOP,
    click.option(
        "--grid",
        type=values.GRID,
        default="1x1",
        help="Columns and rows of walks, each through its part of the seeds, in their order; by "
        f"default {POINTS} seeds each.",
    ),
    *(PSI, CUTOFF, CENTERS, EDIT, RESOLUTION),
    length=f"{SECONDS_PER_POINT:g} for each seed of a walk",
)
def walk(
    selection: Selection,
    shot: Shot,
    space: str,
    interpolation: "Interpolation | None",
    loop: bool,
    grid: tuple[int, int],
) -> "Take":
    """Walk from seed to seed.

    \b
    stylegan video walk emoji32 --seeds 0-7 --seconds 10 --out walk.mp4
    stylegan video walk emoji32 --space z --grid 3x2 --out walks.webp
    """
    from stylegan.paths import places
    from stylegan.video import Take, walk_in_w, walk_in_z

    if space == "z" and interpolation is not None:
        raise click.UsageError("--interpolation is for walks in w; those in z follow great circles")
    if space == "z" and selection.latents is not None:
        raise click.UsageError("--latents are walked through in w; leave --space z out")
    walks = grid[0] * grid[1]
    loaded = selection.loaded
    points = replace(selection, default_seeds=list(range(POINTS * walks))).points(loaded)
    each, left = divmod(len(points.names), walks)
    if left or each < 2:
        raise ValueError(
            f"{count(len(points.names), selection.unit)} for {count(walks, 'walk')}: each needs "
            f"equally many, at least 2; give {walks * max(each, 2)}, for instance"
        )
    knots = points.ws if points.z is None or space == "w" else points.z
    knots = knots.unflatten(0, (walks, each)).transpose(0, 1)
    if space == "w":
        scene = walk_in_w(knots, interpolation or "spline", closed=loop)
    else:
        scene = walk_in_z(loaded, knots, selection.label(loaded), closed=loop)
    t = places(shot.frames(SECONDS_PER_POINT * each), each, closed=loop)
    return Take(loaded, scene, t, columns=grid[0], noise=points.noise)


@kind(
    "0",
    LATENTS,
    options.source_b_option(OTHERS),
    *(LAYERS, INTERPOLATION, LOOP, PSI, CUTOFF, CENTERS, EDIT, RESOLUTION),
    length=f"{SECONDS_PER_POINT:g} for each seed of source B",
)
def mixing(
    selection: Selection,
    shot: Shot,
    columns: list[int] | None,
    layers: list[range] | None,
    interpolation: "Interpolation | None",
    loop: bool,
) -> "Take":
    """Styles of some layers walk through source B, those of the others stay source A's.

    A row for each seed of source A, side by side coarse, middle and fine layers.

    \b
    stylegan video mixing emoji32 --seeds 0,1 --columns 10-13 --out mixing.mp4
    """
    from stylegan.figures import StyleRange, style_ranges
    from stylegan.paths import places
    from stylegan.video import Take, mixing_scene

    loaded = selection.loaded
    sources, others = selection.points(loaded), selection.other(columns, OTHERS).points(loaded)
    ranges = [StyleRange(some) for some in layers] if layers else style_ranges(loaded.resolution)
    n = len(others.names)
    if n < 2:
        raise ValueError(
            f"--columns needs at least 2 {selection.unit}s, to walk from one to another"
        )
    scene = mixing_scene(
        loaded, sources.ws, others.ws, ranges, interpolation or "spline", closed=loop
    )
    t = places(shot.frames(SECONDS_PER_POINT * n), n, closed=loop)
    labels = [f"{name}, {some.label}" for name in sources.names for some in ranges]
    return Take(loaded, scene, t, columns=len(ranges), labels=labels, noise=sources.noise)


@kind(
    "0-5",
    LATENTS,
    click.option(
        "--psis",
        type=values.NUMBERS,
        default="1,-1",
        help="The first and the last psi.",
    ),
    *(LOOP, options.CUTOFF_ALL, CENTERS, EDIT, RESOLUTION),
    length=f"{MORPH_SECONDS:g}",
)
def truncation(selection: Selection, shot: Shot, psis: list[float], loop: bool) -> "Take":
    """Truncation from full variety over the average picture to the opposites, and back.

    \b
    stylegan video truncation emoji32 --seeds 0-5 --psis 1,-1 --out truncation.mp4
    """
    from stylegan.video import truncation

    ends, n = first_and_last("--psis", psis), shot.frames(MORPH_SECONDS)
    return truncation(selection.loaded, selection.points(selection.loaded), ends, n, closed=loop)


@kind(
    "0-5",
    LATENTS,
    EDIT,
    click.option(
        "--strengths",
        type=values.NUMBERS,
        default="-1,1",
        help="How many times the edits, the first and the last.",
    ),
    *(LOOP, PSI, CUTOFF, CENTERS, RESOLUTION),
    length=f"{MORPH_SECONDS:g}",
)
def edit(selection: Selection, shot: Shot, strengths: list[float], loop: bool) -> "Take":
    """Edits from one strength to another, and back.

    \b
    stylegan video edit emoji32 --seeds 0-5 --edit pca:1=+2@0-3 --out edit.mp4
    """
    from stylegan.video import editing

    ends = first_and_last("--strengths", strengths)
    if not selection.edits:
        raise click.UsageError("pass --edit, for instance --edit pca:1=+2")
    loaded = selection.loaded.adjusted(edits=[])
    edits = {text: options.edits_of(selection.source, loaded, (text,)) for text in selection.edits}
    n = shot.frames(MORPH_SECONDS)
    return editing(loaded, selection.points(loaded), edits, ends, n, closed=loop)


def first_and_last(option: str, numbers: list[float]) -> tuple[float, float]:
    """The two numbers of an option."""
    if len(numbers) != 2:
        raise click.UsageError(
            f"{option} are the first and the last, two numbers, not {len(numbers)}"
        )
    return numbers[0], numbers[1]


@kind(
    "0-5",
    options.count_option("--waves", "Harmonics of the loop: more of them are livelier.", 2),
    *(PSI, CUTOFF, CENTERS, EDIT, RESOLUTION),
    length=f"{LOOP_SECONDS:g}",
)
def loop(selection: Selection, shot: Shot, waves: int) -> "Take":
    """Each seed's latent drifts at random through z, and comes back: a noise loop.

    \b
    stylegan video loop emoji32 --seeds 0-5 --psi 0.5 --out loop.mp4
    """
    from stylegan.figures import default_columns
    from stylegan.paths import places
    from stylegan.video import Take, loops_in_z

    loaded, seeds = selection.loaded, selection.chosen_seeds
    return Take(
        loaded,
        loops_in_z(loaded, seeds, waves, selection.labels(loaded)),
        places(shot.frames(LOOP_SECONDS), 1, closed=True),
        columns=default_columns(len(seeds)),
        noise=selection.noise or "const",
    )


@kind(
    "",
    click.argument("file", type=values.INPUT),
    INTERPOLATION,
    click.option("--loop/--no-loop", default=None, help="Come back.  [default: as in FILE]"),
    click.option(
        "--ease/--no-ease", default=None, help="Slow down at each keyframe.  [default: as in FILE]"
    ),
    *(EDIT, RESOLUTION),
    length="as in FILE",
)
def keyframes(
    selection: Selection,
    shot: Shot,
    file: Path,
    interpolation: "Interpolation | None",
    loop: bool | None,
    ease: bool | None,
) -> "Take":
    """Through the keyframes of FILE, which the page of `stylegan explore` saves.

    \b
    stylegan video keyframes emoji32 keyframes.json --out film.mp4
    """
    from stylegan.files.keyframes import read_keyframes
    from stylegan.video import keyframe_walk

    if selection.class_name is not None:
        raise click.UsageError("--class does not apply: keyframes hold styles, of whatever class")
    found = read_keyframes(file, selection.loaded)
    found = replace(
        found,
        loop=found.loop if loop is None else loop,
        ease=found.ease if ease is None else ease,
    )
    return keyframe_walk(
        selection.loaded,
        found,
        shot.frames(sum(found.ways)),
        interpolation=interpolation or "spline",
        noise=selection.noise or "const",
    )


@kind("0-5", PSI, CUTOFF, length=f"{TIMELAPSE_SECONDS:g}", of_run=True)
def timelapse(selection: Selection, shot: Shot) -> "Film":
    """The same seeds over the training of a run.

    SOURCE is a run folder; at each moment its nearest generator-*.pt or state-*.pt is shown.

    \b
    stylegan video timelapse runs/mine --seeds 0-7 --seconds 8 --out timelapse.mp4
    """
    from stylegan.run_folder import RunFolder
    from stylegan.video import timelapse_film

    files, n = RunFolder(selection.source).checkpoints(), shot.frames(TIMELAPSE_SECONDS)
    return timelapse_film(files, selection.load, selection.points, n, scale=shot.scale)
