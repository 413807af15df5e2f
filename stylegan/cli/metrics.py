"""`stylegan metrics` and `report`: the quality of a generator or of a folder of images."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from stylegan import metrics as library
from stylegan.cli import common, options, param_types
from stylegan.cli.common import echo, note
from stylegan.files.run_folder import RunFolder
from stylegan.metrics import MeasuredSource
from stylegan.metrics.efficientnet import HOW_TO_GET, weights_path
from stylegan.metrics.engine import interval_text, require_libraries, score_name
from stylegan.report import drawings_of, is_unchanged, write_report
from stylegan.report.history import read_run
from stylegan.utils.distributed import process_group
from stylegan.utils.filesystem import KEEP_EXISTING, OutputWriter


@click.command(cls=common.Command)
@click.argument("sources", metavar="SOURCE...", type=param_types.SOURCE, nargs=-1, required=True)
@options.data_option("what a run was trained on")
@click.option(
    "--metrics",
    "names",
    help=f"Any of {', '.join(library.METRICS)}; a number of samples may follow, as in fid50k.  "
    "[default: eff-fd,eff-pr,swd; swd without the extra `features`]",
)
@options.count_option(
    "--resolution", "Resize images and reals to this resolution.  [default: their own]", least=4
)
@options.MIRROR
@options.CENTERS
@click.option(
    "--psi",
    "psis",
    type=param_types.NUMBERS,
    default="1",
    help="Truncation of the layers that the file truncates, usually the first 8; 1 is none. "
    "Several values, as in 1,0.7,0.5, are a sweep.",
)
@click.option(
    "--real-baseline",
    "--yardsticks",
    is_flag=True,
    help="Split the reals: compare the generator and one half with the other half.",
)
@click.option(
    "--noise",
    type=click.Choice(["random", "const"]),
    help="Noise: random, from the seed of each sample, or the stored maps.  [default: as in "
    "training, else random]",
)
@options.count_option(
    "--seed",
    "Seed of the first sample; sample i has this seed plus i.",
    default=0,
    least=0,
    most=param_types.MAX_SEED,
)
@options.BATCH
@options.DEVICE
@options.FEATURE_WEIGHTS
@click.option(
    "--classifier",
    "classifiers",
    type=param_types.INPUT,
    multiple=True,
    help="TorchScript file, images to logits, for ls; it is executed. May be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines instead of a table.")
@options.path_option("--out", "File to append JSON lines to.  [default: metrics.jsonl of a run]")
def metrics(
    sources: tuple[str, ...],
    data: Path | None,
    names: str | None,
    centers: param_types.Centers,
    device: str,
    feature_weights: Path | None,
    classifiers: tuple[Path, ...],
    as_json: bool,
    out: Path | None,
    **given: Any,
) -> None:
    """Measure the generators of SOURCE... and print a table.

    A generator that is still growing is measured at the resolution it has reached. For runs that
    differ only in their seed, the table also has mean and standard deviation.

    A SOURCE may also be a folder, zip or prepared store of images, such as samples of another
    program. All of them are measured, unless a number follows the name of the metric.

    \b
    stylegan metrics runs/mine --real-baseline
    stylegan metrics runs/mine --metrics eff-fd,eff-pr --psi 1,0.8,0.6,0.4
    stylegan metrics ffhq.pkl --data ffhq/ --metrics fid50k,ppl-w-end --mirror
    stylegan metrics runs/mine samples/ --data photos/ --no-mirror --metrics eff-fd1k
    torchrun --nproc-per-node 8 -m stylegan metrics runs/mine --metrics fid50k,kid,pr
    """
    conditions = library.Conditions(**given)
    tools = options.measuring_tools(feature_weights, classifiers)
    place = options.use_device(device)
    runs = [run for source in sources if (run := RunFolder.of(source))]
    for path in [out] if out else [run.metrics_file for run in runs]:
        KEEP_EXISTING.check(path, exist_ok=True)
        if out is None and path.is_symlink():  # of a run, perhaps somebody else's
            raise ValueError(f"{path} is a link, which is not followed; pass --out")
    if out is not None:
        library.check_lines(out)
        out.parent.mkdir(parents=True, exist_ok=True)
        out = out.resolve()  # a link of the user's own
    wanted = library.default_names() if names is None else names
    requests = library.parse(wanted)  # raises on mistakes before any work
    if names is not None:
        require_libraries(requests)
    library.check_sources(sources, conditions, requests, centers=centers)
    if names is None and weights_path() is None:
        note(f"measuring only swd, which is blind to content; for eff-fd: {HOW_TO_GET}")
    rows: list[MeasuredSource] = []
    with process_group(place, tools.console):
        compared = library.compare(
            sources,
            data,
            wanted,
            tools,
            device=place,
            conditions=conditions,
            adjust=partial(options.with_centers, centers=centers),
        )
        try:
            for row in compared:
                rows.append(row)
                file = out or (row.run.metrics_file if row.run else None)
                for result in row.measure(tools):
                    if as_json:
                        echo(result.line())
                    if file is not None:
                        result.append_to(file)
        finally:  # also on Ctrl-C: what has been measured may have taken hours
            if not as_json and any(row.results for row in rows):
                echo(*table(rows))
    missing = dict.fromkeys(name for row in rows for name in row.missing())
    if missing and (names is not None or not any(row.results for row in rows)):
        raise ValueError(f"not measured, see above: {', '.join(missing)}")


def table(rows: Sequence[MeasuredSource]) -> list[str]:
    """Markdown table: a line per row, 95 % intervals in (), means over runs that differ in seed."""
    rows = [row for row in rows if row.results]  # an interrupted one has none
    lines = [
        {"": row.name, "psi": psi_of(row)}
        | {
            score_name(result.metric, name): f"{value:.4g}{interval_text(result.protocol, name)}"
            for result in row.results
            for name, value in result.values.items()
        }
        for row in rows
    ]
    lines += means(rows)
    columns = list(dict.fromkeys(name for line in lines for name in line))
    cells = [columns, ["---"] * len(columns)]
    cells += [[line.get(column, "") for column in columns] for line in lines]
    return [f"| {' | '.join(line)} |" for line in cells]


def psi_of(row: MeasuredSource) -> str:
    return "" if row.psi is None else f"{row.psi:g}"


def means(rows: Sequence[MeasuredSource]) -> list[dict[str, str]]:
    """Rows with mean and standard deviation over runs that differ only in their seed."""
    groups: dict[tuple[object, str], dict[Path, dict[str, float]]] = defaultdict(dict)
    for row in rows:
        if row.run is not None and row.setting is not None and row.results:
            scores = {k: value for result in row.results for k, value in result.scores().items()}
            groups[row.setting, psi_of(row)][row.run.path.resolve()] = scores
    lines = []
    for (_, psi), group in groups.items():
        first, *others = group.values()
        if others:
            lines.append({"": f"mean of {len(group)} runs", "psi": psi})
            for name in first:
                if all(name in other for other in others):
                    values_of = [scores[name] for scores in group.values()]
                    mean = statistics.fmean(values_of)
                    deviation = statistics.stdev(values_of)
                    lines[-1][name] = f"{mean:.4g} ± {deviation:.2g}"
    return lines


@click.command(cls=common.Command)
@click.argument("run", type=param_types.INPUT)
@options.data_option("what the run was trained on")
@options.path_option("--out", "File to write.  [default: report.html of RUN]")
@options.DEVICE
@options.OVERWRITE
def report(
    run: Path, data: Path | None, out: Path | None, device: str, outputs: OutputWriter
) -> None:
    """Write report.html of a run, finished or not: curves, samples, truncation, neighbors.

    \b
    stylegan report runs/mine
    """
    read_run(run)  # raises on mistakes before any work
    out = out or RunFolder(run).report_file
    outputs.check(out, exist_ok=is_unchanged(out))
    drawings = drawings_of(
        run, options.measuring_tools(), data=data, device=options.use_device(device)
    )
    echo(f"report written to {write_report(run, drawings, out, outputs=outputs)}")
