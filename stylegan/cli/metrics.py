"""`stylegan metrics`: how good a generator, or a folder of pictures, is."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from stylegan.cli import values
from stylegan.cli.common import Command, data_option, progress_bar, use_device
from stylegan.cli.measuring import image_bars, measuring_tools, open_store
from stylegan.cli.options import (
    BATCH,
    CENTERS,
    DEVICE,
    WEIGHTS,
    centers_of,
    count_option,
    path_option,
)
from stylegan.cli.terminal import note, say
from stylegan.destination import check_file
from stylegan.messages import readable

if TYPE_CHECKING:
    import torch

    from stylegan.centers import Centers
    from stylegan.metrics import Pictures, Request, Result, Samples, Subject
    from stylegan.run_folder import RunFolder


@click.command(cls=Command)
@click.argument("sources", metavar="SOURCE...", type=values.SOURCE, nargs=-1, required=True)
@data_option("what a run was trained on")
@click.option(
    "--metrics",
    "names",
    help="Any of fid, kid, pr, is, ppl-z-full, ppl-w-full, ppl-z-end, ppl-w-end, ls, swd, eff-fd, "
    "eff-kid, eff-pr; a number of images may follow, as in fid50k.  [default: eff-fd,eff-pr,swd; "
    "swd without stylegan\\[features\\]]",
)
@click.option(
    "--resolution",
    type=values.whole_number(),
    help="Size that pictures in the place of a generator, and the reals, are brought to.  "
    "[default: theirs, if all have one]",
)
@click.option(
    "--mirror/--no-mirror", default=None, help="Flip half of the reals.  [default: as the run did]"
)
@CENTERS
@click.option(
    "--psi",
    "psis",
    type=values.NUMBERS,
    default="1",
    help="Truncation; 1 is none. Several values, as in 1,0.7,0.5, are a sweep.",
)
@click.option(
    "--mixed",
    type=values.COUNTS,
    default="1",
    help="Number of latents behind the styles of a sample; 1,2,3,4 for table 2 of the paper.",
)
@click.option(
    "--yardsticks",
    is_flag=True,
    help="Compare with half of the reals: the generator, the other half and the average image.",
)
@click.option(
    "--noise",
    type=click.Choice(["random", "const"]),
    default="random",
    help="Noise: drawn from the seed of each sample, or the stored maps.",
)
@count_option("--seed", "Seed of the first sample; the next one has the next seed.", 0, least=0)
@BATCH
@DEVICE
@WEIGHTS
@click.option(
    "--classifier",
    "classifiers",
    type=values.INPUT,
    multiple=True,
    help="TorchScript file, images to logits, for ls; it is executed. May be repeated.",
)
@click.option(
    "--crop-faces", is_flag=True, help="Measure path length of the faces alone (FFHQ, CelebA)."
)
@click.option(
    "--active-only", is_flag=True, help="Measure pictures without their bars (--crop pad)."
)
@path_option("--out", "File to append results to.  [default: metrics.jsonl of a run]")
def metrics(
    sources: tuple[str, ...],
    names: str | None,
    centers: "Centers | Literal['none'] | None",
    psis: list[float],
    mixed: list[int],
    yardsticks: bool,
    device: str,
    weights: Path | None,
    classifiers: tuple[Path, ...],
    crop_faces: bool,
    out: Path | None,
    resolution: int | None,
    noise: str,
    **looked_at: Any,
) -> None:
    """Measure how good the generators of SOURCE... are: one line of JSON per result.

    A generator that is still growing is measured at the resolution it has reached. If there is
    more to compare than one generator as it is, a table follows on stderr.

    A SOURCE may also be a folder, zip or prepared store of pictures, such as samples of another
    program. All of them are measured, unless a number follows the name of the metric.

    \b
    stylegan metrics runs/mine --yardsticks
    stylegan metrics runs/mine --metrics eff-fd,eff-pr --psi 1,0.8,0.6,0.4
    stylegan metrics runs/e runs/f --metrics eff-fd --mixed 1,2,3,4
    stylegan metrics ffhq.pkl --data ffhq/ --metrics fid50k,ppl-w-end --mirror
    stylegan metrics runs/mine samples/ --data photos/ --metrics eff-fd1k,eff-pr1k
    torchrun --nproc-per-node 8 -m stylegan metrics runs/mine --metrics fid50k,kid,pr
    """
    from stylegan import distributed
    from stylegan.metrics import (
        check_results_file,
        default_names,
        evaluate,
        holds_pictures,
        parse,
    )
    from stylegan.metrics import yardsticks as yardsticks_of
    from stylegan.metrics.efficientnet import HOW_TO_GET, weights_path
    from stylegan.run_folder import RunFolder

    if out is not None:
        check_file(out, overwrite=True)
        check_results_file(out)
        out.parent.mkdir(parents=True, exist_ok=True)
    wanted_names = names or default_names()
    parse(wanted_names)  # before any work
    chosen = use_device(device)
    of_pictures = [source for source in sources if holds_pictures(source)]
    shown = set(psis) != {1} or set(mixed) != {1} or noise != "random" or centers is not None
    if of_pictures and shown:
        raise ValueError(
            f"--psi, --centers, --mixed and --noise choose what a generator shows, and "
            f"{readable(of_pictures[0])} is pictures; measure them in a command of their own"
        )
    if resolution is not None and not of_pictures:
        raise ValueError("--resolution is for pictures; a generator has its own resolution")
    if names is None and weights_path() is None:
        note(f"swd alone, which does not see what is in an image; for eff-fd: {HOW_TO_GET}")
    tools = measuring_tools(weights, classifiers, crop_faces=crop_faces)
    rows: list[Row] = []
    with distributed.process_group(chosen):
        for source in sources:
            run = RunFolder.at(source)
            plan: list[tuple[Samples, list[Request]]]
            if source in of_pictures:
                pictures = pictures_of(source, chosen, resolution=resolution, **looked_at)
                requests = parse(wanted_names, len(pictures.pictures))
                note(*fewer_than_usual(source, requests))
                plan = [(pictures, requests)]
            else:
                requests = parse(wanted_names)
                subject = subject_of(
                    source, run, requests, chosen, noise=noise, centers=centers, **looked_at
                )
                plan = [
                    (replace(subject, psi=psi, mixed=n), requests)
                    for psi in dict.fromkeys(psis)
                    for n in dict.fromkeys(mixed)
                ]
            plan += yardsticks_of(plan[0][0], requests) if yardsticks else []
            place = out or (run.metrics_file if run else None)
            for variant, wanted in plan:
                rows.append(Row(source, variant, wanted, []))
                for result in evaluate(variant, wanted, tools, tell=note):
                    rows[-1].results.append(result)
                    say(result.line())
                    if place is not None:
                        result.append_to(place)
        if len(rows) > 1:
            note(*table(rows))
    asked = [row for row in rows if not row.subject.half]
    missing = dict.fromkeys(name for row in asked for name in row.missing())
    if missing and (names or not any(row.results for row in rows)):
        raise ValueError(f"not measured, see above: {', '.join(missing)}")


class Row(NamedTuple):
    """What was measured of one source, looked at in one way."""

    source: str
    subject: "Samples"
    wanted: "Sequence[Request]"
    results: "list[Result]"

    def missing(self) -> list[str]:
        known = {result.metric for result in self.results}
        return [request.name for request in self.wanted if request.name not in known]


def subject_of(
    source: str,
    run: "RunFolder | None",
    requests: "Sequence[Request]",
    device: "torch.device",
    *,
    data: Path | None,
    mirror: bool | None,
    batch: int | None,
    active_only: bool,
    centers: "Centers | Literal['none'] | None",
    **options: Any,
) -> "Subject":
    """The generator of a source, and what it is compared with if a request asks for that."""
    from stylegan.distributed import on_all_ranks
    from stylegan.files.loading import load_source
    from stylegan.metrics import KINDS, Subject

    loaded = on_all_ranks(lambda: load_source(source, map_location=device))
    loaded = loaded.adjusted(centers=centers_of(loaded, centers))
    if active_only and loaded.active_rectangle is None:
        raise ValueError(f"the pictures of the {loaded.origin} have no bars to leave out")
    reals = any(KINDS[request.kind].reals for request in requests)
    options |= {"batch": batch} if batch else {}
    return Subject.of(
        loaded,
        open_store(data, run, loaded) if reals or loaded.generator.config.label_dim else None,
        mirror=run.config().data.mirror if mirror is None and run else bool(mirror),
        cutoff=loaded.cutoff,
        active=loaded.active_rectangle if active_only else None,
        centers=loaded.centers,
        progress=image_bars(),
        **options,
    )


def pictures_of(
    source: str,
    device: "torch.device",
    *,
    data: Path | None,
    mirror: bool | None,
    batch: int | None,
    active_only: bool,
    resolution: int | None,
    seed: int,
) -> "Pictures":
    """The pictures of a source, and what they are compared with if that is given."""
    from stylegan.metrics import Pictures

    with progress_bar("img") as preparing:
        return Pictures.of(
            Path(source),
            data,
            resolution=resolution,
            tell=note,
            preparing=preparing,
            device=device,
            mirror=bool(mirror),
            active_only=active_only,
            seed=seed,
            progress=image_bars(),
            **({"batch": batch} if batch else {}),
        )


def fewer_than_usual(source: str, requests: "Sequence[Request]") -> list[str]:
    """What to know about metrics of fewer pictures than others take, if some are."""
    from stylegan.metrics import KINDS

    usual = {request: KINDS[request.kind].images for request in requests}
    fewer = [f"{r.name} instead of {n:,}" for r, n in usual.items() if r.images < n]
    if not fewer:
        return []
    return [
        f"{readable(source)}: fewer pictures than usual ({', '.join(fewer)}); compare only with "
        "numbers of as many"
    ]


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown with a line for each way of looking at each source; 95 % intervals in ()."""
    from stylegan.metrics import Subject, Yardstick
    from stylegan.metrics.engine import interval_text, score_name

    scores = [
        {
            score_name(result.metric, name): f"{value:.4g}{interval_text(result.protocol, name)}"
            for result in row.results
            for name, value in result.values.items()
        }
        for row in rows
    ]
    columns = list(dict.fromkeys(name for found in scores for name in found))
    lines = [["", "psi", "mixed", *columns], ["---"] * (3 + len(columns))]
    for row, found in zip(rows, scores, strict=True):
        name = row.source
        if isinstance(row.subject, Yardstick):
            name = row.subject.name
        elif row.subject.half:
            name += " against half of the reals"
        looked_at = ["", ""]
        if isinstance(row.subject, Subject):
            looked_at = [f"{row.subject.psi:g}", f"{row.subject.mixed}"]
        lines.append([name, *looked_at, *(found.get(score, "") for score in columns)])
    return [f"| {' | '.join(line)} |" for line in lines]
