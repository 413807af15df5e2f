"""Options shared by several commands, and the generator and latents that they select."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import click
import torch
from torch import Tensor

from stylegan.cli import param_types
from stylegan.cli.common import Terminal, note
from stylegan.cli.param_types import MAX_NUMBER as MOST
from stylegan.data import default_cache_dir
from stylegan.data.images import Fit
from stylegan.directions import read_edits
from stylegan.figures import LatentPoints, StyleRange, of_latents, points_from_seeds
from stylegan.files.latents import has_styles
from stylegan.files.loading import open_weights
from stylegan.metrics import Tools
from stylegan.sampling import Cutoff
from stylegan.sampling.centers import find_centers
from stylegan.sampling.pretrained import Pretrained
from stylegan.utils import distributed
from stylegan.utils.filesystem import OutputWriter
from stylegan.utils.limits import usual_threads
from stylegan.utils.memory import keep_memory

FEATURES = "metrics"  # folder of the cache for features of real images
Decorator = Callable[[Callable[..., object]], Callable[..., object]]  # such as an option of click


def combine(*options: Decorator) -> Decorator:
    """Combine decorators into one; help lists the options in this order."""
    return lambda command: functools.reduce(lambda f, option: option(f), options[::-1], command)


def crop_of(crop: str | None, aspect: str | None) -> str | None:
    """`data.crop` of the configuration for --crop and --aspect."""
    if aspect is None:
        return crop
    if crop not in (None, "pad"):
        raise click.UsageError("--aspect requires --crop pad: other crops have no bars")
    return str(Fit.parse(f"pad {aspect}"))


def use_device(device: str) -> torch.device:
    """Device of `--device`; also sets the number of threads, and on a CPU keeps freed memory for
    reuse.

    Raises ValueError if there is no such device."""
    found = distributed.resolve_device(device)
    torch.set_num_threads(usual_threads())
    if found.type == "cpu":
        keep_memory()
    return found


def path_option(name: str, help: str, *, default: str | None = None) -> Decorator:
    return click.option(name, type=param_types.OUTPUT, default=default, help=help)


def count_option(
    name: str,
    help: str,
    *,
    former: str | None = None,  # an earlier name, which is still accepted
    default: int | None = None,
    least: int = 1,
    most: int = MOST,
) -> Decorator:
    names = [name, former] if former else [name]
    return click.option(*names, type=click.IntRange(least, most), default=default, help=help)


def number_option(
    name: str, help: str, *, default: float | None = None, least: float = -MOST, most: float = MOST
) -> Decorator:
    return click.option(name, type=param_types.Number(least, most), default=default, help=help)


# A flag that also takes a value, as in `--cond=1` of NVIDIA's programs.
SWITCH: dict[str, Any] = {"type": bool, "is_flag": False, "flag_value": "true", "metavar": ""}


def data_option(default: str) -> Decorator:
    kinds = "Folder of images, zip, TFRecords, tars, Parquet, hf:owner/name, or prepared store."
    text = f"{kinds}  [default: {default}]"
    return click.option("--data", type=param_types.INPUT, help=text)


def source_b_option(default: str) -> Decorator:
    text = f"Seeds of source B; --seeds are those of source A.  [default: {default}]"
    return click.option("--seeds-b", type=param_types.SEEDS, help=text)


def channels_option(default: str | None = None) -> Decorator:
    text = "L for gray, RGB, RGBA for color with alpha; auto: as the images."
    text += "" if default else "  [default: RGB, or as configured or --init-from]"
    return click.option("--channels", type=param_types.CHANNEL, default=default, help=text)


SOURCE = click.argument("source", type=param_types.SOURCE)
FEATURE_WEIGHTS = click.option(
    "--feature-weights", type=param_types.INPUT, help="Weights of Inception or VGG16."
)
LATENTS = click.option(
    "--latents",
    metavar="FILE.npz",
    type=param_types.INPUT,
    help="File of latents (ws, w or z, optionally with noise) to use instead of seeds.",
)
MIRROR = click.option(
    "--mirror/--no-mirror",
    default=None,
    help="Flip half of the reals.  [default: as in training; none for folders]",
)
PSI = number_option(
    "--psi",
    "Truncation: 0 = the average image, 1 = full variety, negative = the opposite.  "
    "[default: as in the file, else 0.7; with --latents 1]",
)
REACH = "Number of truncated layers, from the coarsest, or 'all'."
CUTOFF = click.option(
    "--cutoff", type=param_types.CUTOFF, help=f"{REACH}  [default: as in the file, else 8]"
)
CUTOFF_ALL = click.option("--cutoff", type=param_types.CUTOFF, default="all", help=REACH)
CENTERS = click.option(
    "--centers",
    type=param_types.CENTERS,
    help="Truncate toward the nearest of N centers of w, which preserves variety; 'class': toward "
    "the nearest mean of a class, or that of --class; 'none': toward the average.  "
    "[default: as in the file, else none]",
)
NOISE = click.option(
    "--noise",
    type=click.Choice(["const", "random", "none"]),
    help="Fine detail: the stored maps, random from the seed of each image, or none.  "
    "[default: that of --latents if it has any, else const]",
)


def class_option(default: str) -> Decorator:
    return click.option(
        "--class",
        "class_name",
        metavar="NAME|NUMBER",
        help=f"Class to show. Several are mixed: smile=0.7,sad=0.3.  [default: {default}]",
    )


CLASS = class_option("alternating classes")
RESOLUTION = count_option(
    "--resolution",
    "Resolution, at most the network's; below the trained one, images are averaged.  [default: the "
    "trained one]",
    least=4,
)
LAYERS = click.option(
    "--layers",
    "ranges",
    type=param_types.LAYER_RANGES,
    callback=lambda context, option, ranges: ranges and [StyleRange(r) for r in ranges],
    help="Layers to mix, from 0, two for each resolution: 0-3,4-7,8-17.  "
    "[default: coarse, middle and fine]",
)
EDIT = click.option(
    "--edit",
    "edits",
    type=param_types.EDIT,
    metavar="DIRECTION[=STRENGTH][@LAYERS]",
    multiple=True,
    help="Move w along a direction, such as pca:2=+3@0-3 (also sefa:1, svm:NAME), by STRENGTH "
    "standard deviations; for a FILE.npy, by STRENGTH times its vector. May be repeated.",
)
SHAPE = combine(
    click.option(
        "--crop",
        type=click.Choice(["center", "pad", "stretch"]),
        help="center: middle square; pad: middle of --aspect, with black bars; stretch: the whole "
        "image, squeezed into the square.",
    ),
    click.option(
        "--aspect",
        metavar="W:H",
        help="Width:height for --crop pad, such as 3:4; implies --crop pad.  [default: 4:3]",
    ),
)
BATCH = count_option("--batch", "Images at a time; fewer need less memory.")
DEVICE = click.option(
    "--device", metavar="DEVICE", default="auto", help="Device: cpu, cuda, cuda:1, mps."
)
OVERWRITE = click.option(
    "--overwrite",
    "outputs",
    is_flag=True,
    callback=lambda context, option, given: OutputWriter(overwrite=given),
    help="Replace existing files.",
)
SAMPLING = (LATENTS, PSI, CUTOFF, CENTERS, EDIT, NOISE, CLASS, RESOLUTION)


def sampling_without(*left_out: Decorator) -> list[Decorator]:
    return [option for option in SAMPLING if option not in left_out]


@dataclasses.dataclass(frozen=True)
class Selection:
    """A generator and points of its latent space, as chosen by options. None: the default."""

    source: str
    device: str
    default_seeds: str = ""
    seeds: list[int] | None = None  # with `latents`, row indices
    latents: Path | None = None
    psi: float | None = None
    cutoff: Cutoff = None
    noise: Literal["const", "random", "none"] | None = None
    class_name: str | None = None
    resolution: int | None = None
    edits: tuple[str, ...] = ()
    centers: param_types.Centers = None

    @classmethod
    def split(
        cls, given: Mapping[str, Any], default_seeds: str
    ) -> tuple["Selection", dict[str, Any]]:
        """Separate the options of a selection from those of its command."""
        names = {field.name for field in dataclasses.fields(cls)}
        chosen = {name: value for name, value in given.items() if name in names}
        others = {name: value for name, value in given.items() if name not in names}
        return cls(default_seeds=default_seeds, **chosen), others

    @property
    def unit(self) -> str:
        """Noun for messages and file names: seed or latent."""
        return "seed" if self.latents is None else "latent"

    @property
    def chosen_seeds(self) -> Sequence[int]:
        return param_types.seeds(self.default_seeds) if self.seeds is None else self.seeds

    @functools.cached_property
    def loaded(self) -> Pretrained:
        """Generator of the source, with the chosen resolution, truncation and edits."""
        device = use_device(self.device)
        loaded = open_weights(self.source, map_location=device).require_loaded()
        full = loaded.generator.config.resolution
        if self.resolution is not None and loaded.resolution < self.resolution <= full:
            note(
                f"trained up to {loaded.resolution}x{loaded.resolution}: finer layers are still "
                "untrained"
            )
        loaded = loaded.with_settings(resolution=self.resolution)  # which edits may refer to
        edits = None
        if self.edits:
            edits = read_edits(self.edits, loaded, self.source, console=Terminal(say=note_once))
        loaded = loaded.with_settings(
            psi=1.0 if self.psi is None and self.latents is not None else self.psi,
            cutoff=self.cutoff,
            edits=edits,
        )
        return with_centers(loaded, self.centers, self.class_name)

    def of_file(self, file: Path) -> Pretrained:
        """Open another generator with the same settings."""
        return dataclasses.replace(self, source=str(file)).loaded

    def points(self, loaded: Pretrained | None = None) -> LatentPoints:
        """Points of the seeds or latents in `loaded`, by default the selected generator."""
        loaded = loaded or self.loaded
        if self.latents is None:
            return points_from_seeds(
                loaded, self.chosen_seeds, self.labels(loaded), self.noise or "const"
            )
        label = None if self.class_name is None else loaded.label(self.class_name)
        points = of_latents(loaded, self.latents, self.seeds, label, self.noise)
        if label is not None and self.centers != "class" and has_styles(self.latents):
            note_once("--class has no effect: ws and w are already of a class")
        return points

    def other(self, seeds: list[int] | None, default: str) -> "Selection":
        return dataclasses.replace(self, seeds=seeds, default_seeds=default)

    def labels(self, loaded: Pretrained) -> Tensor | None:
        """Labels (1 or N, label_dim): the chosen class, or alternating classes by seed. None for a
        network without labels."""
        if self.class_name is None and (turns := loaded.class_order_note()):
            note_once(turns)
        return loaded.labels_of(self.chosen_seeds, self.class_name)


def with_centers(
    loaded: Pretrained, centers: param_types.Centers, class_name: str | None = None
) -> Pretrained:
    """Truncate toward the centers of `--centers`; with a class, toward those of its latents."""
    if centers is None:
        return loaded
    label = None if class_name is None else loaded.label(class_name)
    toward: Tensor | Literal["none"] = "none"
    if centers != "none":
        toward = find_centers(loaded.generator, centers, label, loaded.label_rows)
    return loaded.with_settings(centers=toward)


def note_once(text: str) -> None:
    """Print a note unless the command has already printed it."""
    said = click.get_current_context().meta
    if text not in said:
        said[text] = True
        note(text)


def selecting(seeds: str, *options: Decorator) -> Decorator:
    """Add the options of a `Selection`: SOURCE, `--seeds` if `seeds` is a default, `options` and
    `--device`."""
    also = ""
    default = seeds
    if LATENTS in options:
        also = "; with --latents their numbers, from 0"
        default = f"{seeds}, or all latents"
    text = f"Seeds of the images{also}.  [default: {default}]"
    seeds_option = [click.option("--seeds", type=param_types.SEEDS, help=text)] if seeds else []
    return combine(SOURCE, *seeds_option, *options, DEVICE)


def measuring_tools(
    feature_weights: Path | None = None, classifiers: tuple[Path, ...] = ()
) -> Tools:
    return Tools(default_cache_dir() / FEATURES, feature_weights, classifiers, Terminal())
