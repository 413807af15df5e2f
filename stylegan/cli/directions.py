"""`stylegan directions`: directions in the space of w, found or learned, and shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from stylegan import directions as library
from stylegan.cli import options, values
from stylegan.cli.common import Command, Terminal, say
from stylegan.cli.options import Selection, gathered
from stylegan.directions import Directions, Method
from stylegan.figures import FORMATS, save_picture
from stylegan.machine.disk import REPLACING, Outputs
from stylegan.sampling.pretrained import Pretrained

OUT = options.path_option("--out", "File, .npz.  [default: where --edit and explore look for it]")


@click.group()
def directions() -> None:
    """Find directions of w that change pictures, or learn one from examples.

    Use them with --edit of generate, figure and video, and as sliders of explore. A file that
    exists keeps its other directions.

    \b
    stylegan directions find runs/mine
    stylegan directions learn runs/mine smiling/ others/ --name smile
    """


@dataclass(frozen=True)
class Target:
    """The file that gets directions of a generator, and their figures."""

    selection: Selection
    outputs: Outputs
    seed: int  # of the picture in the figures
    out: Path | None = None
    figure: Path | None = None

    @property
    def file(self) -> Path:
        return self.out or library.default_path(self.selection.source)

    def figures(self, methods: Sequence[Method]) -> dict[Method, Path]:
        """Name the file of each method's figure."""
        figure = self.figure
        if figure is None or len(methods) == 1:
            return dict.fromkeys(methods, figure) if figure else {}
        return {method: figure.with_stem(f"{figure.stem}-{method}") for method in methods}

    def others(self, methods: Sequence[Method], name: str | None) -> list[Directions]:
        """Read the directions of the file that stay. Raise ValueError if some would be lost."""
        generator = self.selection.loaded.generator
        return library.others_in(self.file, generator, methods, self.outputs, name=name)

    def opened(
        self, methods: Sequence[Method], *examples: Path, name: str | None = None
    ) -> Pretrained:
        """Open the generator. ValueError, before the work, if the results cannot be written."""
        source = self.selection.source
        originals = [Path(source), *examples]
        self.outputs.check(self.file, endings=[".npz"], sources=originals, exist_ok=True)
        figures = self.figures(methods).values()
        self.outputs.check(*figures, endings=FORMATS)
        loaded = self.selection.loaded
        if figures or self.selection.class_name:
            loaded.label(self.selection.class_name)
        self.others(methods, name)
        return loaded

    def write(self, new: Sequence[Directions], name: str | None = None) -> None:
        """Write new directions beside the others of the file, to which another process may have
        added since this one began, and their figures."""
        loaded = self.selection.loaded
        methods = [d.method for d in new]
        figures = self.figures(methods)
        pictures = []
        if figures:
            label = loaded.label(self.selection.class_name)
            draw = partial(library.draw_directions, loaded, seed=self.seed, labels=label)
            pictures = list(map(draw, new))
        directions = library.updated(self.others(methods, name), new)
        library.save_directions(self.file, directions, loaded.generator, outputs=REPLACING)
        for path, picture in zip(figures.values(), pictures, strict=True):
            save_picture(path, picture, outputs=self.outputs)
        counts = " and ".join(f"{len(d.vectors)} by {d.method}" for d in new)
        files = ", ".join(map(str, [self.file, *figures.values()]))
        say(f"{counts}, of the {loaded.origin}: {files}")


TARGET = options.together(
    options.count_option(
        "--samples", "Number of latents to measure w on.", default=50_000, least=2, most=10_000_000
    ),
    options.path_option(
        "--figure",
        "Picture to write, .png, .webp or .jpg: a row for each direction; of several methods a "
        "file for each, NAME-pca.png.",
    ),
    options.count_option(
        "--seed", "Seed of the picture that is moved.", default=0, least=0, most=values.LARGEST_SEED
    ),
    options.number_option("--psi", "Truncation of that picture.  [default: as in the file]"),
    options.CLASS,
    options.ON_DEVICE,
    options.OVERWRITE,
    gathered("selection", Selection),
    gathered("target", Target),
)


@directions.command(cls=Command)
@options.SOURCE
@OUT
@click.option(
    "--method",
    type=click.Choice(["pca", "sefa", "both"]),
    default="both",
    help="Principal components of w, or what the style layers amplify most.",
)
@options.count_option("--count", "Number of directions of each method.", default=10, most=1024)
@click.option("--layers", type=values.LAYERS, help="Layers to move, such as 0-3.  [default: all]")
@TARGET
def find(target: Target, method: str, count: int, layers: range | None, samples: int) -> None:
    """Find directions of w, without examples.

    \b
    stylegan directions find runs/mine
    stylegan directions find faces64 --out faces.npz --figure faces.png --seed 3
    """
    methods = [known for known in library.METHODS if method in ("both", known)]
    loaded = target.opened(methods)
    new = library.find_directions(
        loaded.generator,
        methods,
        count=count,
        layers=layers,
        samples=samples,
        label_rows=loaded.label_rows,
    )
    target.write(new)


@directions.command(cls=Command)
@options.SOURCE
@click.argument("positive", type=values.INPUT)
@click.argument("negative", type=values.INPUT)
@OUT
@click.option("--name", help="Name of the direction.  [default: that of POSITIVE]")
@TARGET
def learn(target: Target, positive: Path, negative: Path, name: str | None, samples: int) -> None:
    """Learn a direction of w from examples with an attribute, POSITIVE, and without, NEGATIVE.

    Both are folders of pictures named by seed, as generate writes them, or latents (.npz, or
    folders of project). The printed accuracy is on held-out examples.

    \b
    stylegan directions learn runs/mine smiling/ others/ --name smile
    stylegan generate runs/mine --edit svm:smile=+2
    """
    name = library.check_name(name or positive.stem)
    loaded = target.opened(["svm"], positive, negative, name=name)
    class_name = target.selection.class_name
    console = Terminal(say=options.note_once)
    w, present = library.examples_of(loaded, positive, negative, class_name, console)
    normal, accuracy = library.fit_hyperplane(w, present)
    new = library.to_directions(loaded, name, normal, accuracy, samples)
    larger_side = max(present.mean(), 1 - present.mean())
    say(
        f"svm:{name}: held-out accuracy {accuracy:.1%} on {len(w)} examples, of which the larger "
        f"side has {larger_side:.1%}"
    )
    target.write([new], name=name)
