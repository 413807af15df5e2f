"""`stylegan blend`: a generator made of two."""

from pathlib import Path

import click

from stylegan.cli import options, values
from stylegan.cli.common import Command, say
from stylegan.disk import check_file


@click.command(cls=Command)
@click.argument("a", type=values.SOURCE)
@click.argument("b", type=values.SOURCE)
@click.option(
    "--from",
    "first",
    type=click.IntRange(1, values.LARGEST),
    help="First resolution whose layers are taken from B.  [default: whole network]",
)
@options.count_option("--until", "Last of these resolutions.  [default: the finest]")
@click.option(
    "--share",
    type=values.Number(0, 1),
    help="Share of B in these layers, from 0 to 1.  [default: 1 with --from]",
)
@click.option("--out", type=values.OUTPUT, required=True, help="Generator file to write, .pt.")
@options.OVERWRITE
def blend(
    a: str,
    b: str,
    first: int | None,
    until: int | None,
    share: float | None,
    out: Path,
    overwrite: bool,
) -> None:
    """Write a generator with layers of B and the rest of A, or with weights between both.

    Coarse layers decide pose and shape, fine ones colours and texture. It makes sense where one
    network was trained on from the other (`train --init-from`), or both from a third. A and B are
    sources as of generate.

    \b
    stylegan blend runs/faces runs/cartoons --from 32 --out blend.pt
    stylegan blend runs/faces runs/cartoons --share 0.5 --out between.pt
    """
    from stylegan import blending
    from stylegan.files.formats.own import save_loaded

    if first is None and (until is not None or share is None):
        raise click.UsageError(
            "pass --from RESOLUTION (then --until and --share), or --share alone"
        )
    check_file(out, overwrite=overwrite, endings=[".pt"])
    share = 1.0 if share is None else share
    parents = blending.with_own_file(a), blending.with_own_file(b)
    blended = blending.blend(*parents, first=first, last=until, share=share)
    out.parent.mkdir(parents=True, exist_ok=True)
    save_loaded(out, blended)
    say(f"{out}: {blended.origin}; {blended.lineage[-1].copied}")
