"""What the text of an edit names: a direction of a generator."""

from collections.abc import Callable, Sequence
from pathlib import Path

from stylegan.directions.files import default_path, load_directions
from stylegan.directions.finding import COUNT, KNOWN, METHODS, Directions, Method, find_directions
from stylegan.edits import FORM, Edit, check_layers, parsed
from stylegan.files.loaded import LoadedGenerator
from stylegan.messages import readable

QUICK_SAMPLES = 10_000  # latents that directions without a file are measured on


def known_directions(
    source: str | Path,
    loaded: LoadedGenerator,
    file: Path | None = None,
    *,
    methods: Sequence[Method] = METHODS,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Directions]:
    """Directions of the file; by default of the one beside the source, and those of `methods` that
    it lacks, found from the first 10,000 seeds. If that file is damaged or of other weights, `tell`
    gets the reason, and it is not used."""
    if file is not None:
        return load_directions(file, loaded.generator)
    found: list[Directions] = []
    if default_path(source).exists():
        try:
            found = load_directions(default_path(source), loaded.generator)
        except ValueError as error:
            tell(f"not used: {error}")
    config = loaded.generator.config
    there = {d.method for d in found}
    possible = METHODS if config.styles else ("pca",)
    if new := [m for m in methods if m in possible and m not in there]:
        count = min(COUNT, config.w_dim)
        found += find_directions(loaded.generator, new, count=count, samples=QUICK_SAMPLES)
    return found


def read_edits(
    texts: Sequence[str],
    loaded: LoadedGenerator,
    source: str | Path,
    *,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Edit]:
    """The move of each text `[FILE:]METHOD:NAME[=STRENGTH][@LAYERS]`, such as `pca:2=+3@0-3` or
    `svm:smile`. FILE (.npz) holds directions; without it those of `source` are used. STRENGTH
    counts standard deviations of w and is 1 unless given."""
    known: dict[tuple[Path | None, Method], Directions] = {}
    moves: list[Edit] = []
    for text in texts:
        called, strength, layers = parsed(text)
        before, ending, name = called.partition(".npz:")
        file = Path(f"{before}.npz") if ending else None
        kind, _, member = (name if ending else called).partition(":")
        method = next((m for m in KNOWN if m == kind), None)
        if method is None or not member:
            raise ValueError(f"{readable(text, 60)} is not an edit like {FORM}")
        if layers is not None:
            check_layers(layers, loaded.generator.config)
        if (file, method) not in known:
            found = known_directions(source, loaded, file, methods=[method], tell=tell)
            known |= {(file, d.method): d for d in found if d.method == method}
        if (file, method) not in known:
            raise ValueError(
                f"{file or default_path(source)} has no directions of {method}; stylegan "
                "directions finds those that the network has, with --from for svm"
            )
        moves.append(known[file, method].edit(member, strength, layers))
    return moves
