"""`stylegan align`: faces cropped as those that official networks were trained on."""

from pathlib import Path

import click

from stylegan.cli import options, values
from stylegan.cli.common import Command, note, progress_bar, refuse_left_out, say
from stylegan.messages import count, listed


@click.command(cls=Command)
@click.argument("source", metavar="IN", type=values.INPUT)
@click.argument("out", type=values.OUTPUT)
@click.option(
    "--landmarks",
    type=values.INPUT,
    required=True,
    help="CSV (file,x0,y0,x1,y1,...) with five or 68 points of each face.",
)
@options.count_option("--size", "Pixels a side of the pictures to write.", 1024, most=2048)
@options.OVERWRITE
def align(source: Path, out: Path, landmarks: Path, size: int, overwrite: bool) -> None:
    """Crop the faces in the pictures of IN, a folder or one picture, as FFHQ does, to the folder
    OUT.

    The file of landmarks names the pictures and gives five points of each face (the eyes, the
    nose, the corners of the mouth, each from left to right in the picture) or the 68 of iBUG, in
    pixels of the upright picture. Faces are turned upright; where the square leaves the picture,
    the picture is mirrored and blurred. Pictures that cannot be read are left out and named at the
    end; the exit code is then 1.

    \b
    stylegan align photos faces --landmarks photos.csv
    stylegan project runs/faces faces/*.png --tune --out projected
    """
    from stylegan.data.faces import align_files, read_landmarks

    faces = read_landmarks(landmarks)
    with progress_bar("picture") as progress:
        sides, errors = align_files(
            source, faces, out, size, overwrite=overwrite, progress=progress
        )
    small = [f"{file.name} ({side:.0f})" for file, side in sides.items() if side < size]
    if small:
        note(f"{count(len(small), 'face')} smaller than {size} pixels, enlarged: {listed(small)}")
    if sides:
        say(f"{count(len(sides), 'face')} in {out}, {size}x{size}")
    refuse_left_out("picture", errors)
