"""From whatever names a generator (run folder, file, address, bundled name) to the network."""

import dataclasses
import difflib
from contextlib import suppress
from pathlib import Path

import torch

from stylegan.files.download import BUNDLED, bundled_file, downloaded
from stylegan.files.formats import SHARED, read_snapshot
from stylegan.files.formats.own import save_generator as save_generator
from stylegan.files.loaded import LoadedGenerator, SeededGenerator
from stylegan.messages import readable
from stylegan.networks import Discriminator, make_generator
from stylegan.run_folder import RunFolder

ACCEPTED = (
    f"a run folder, a folder with {SHARED}, a generator or state file of this project "
    "(.pt), an exported one (.safetensors), an official snapshot (.pkl) or its variables (.npz), "
    "a checkpoint of rosinality, genforce, huangzh13 or mmgeneration (.model, .pth), "
    f"an https address with #sha256=... of such a file, or a bundled name ({', '.join(BUNDLED)})"
)
Device = str | torch.device


def load_generator(path_or_url: str | Path, *, map_location: Device = "cpu") -> SeededGenerator:
    """The generator that `path_or_url` names, as for `load_source`, in eval mode. `sample` makes
    pictures as its file says; calls take the `resolution` and `alpha` of its `loaded`."""
    return SeededGenerator.of(load_source(path_or_url, map_location=map_location))


def load_bundled(
    name: str, *, pretrained: bool = True, map_location: Device = "cpu"
) -> SeededGenerator:
    """A generator that ships with the package, or the same network with random weights."""
    loaded = load_source(name)
    if not pretrained:
        generator = make_generator(loaded.generator.config).eval()
        loaded = dataclasses.replace(loaded, generator=generator, origin="random weights")
    return SeededGenerator.of(loaded).to(map_location)


def load_source(source: str | Path, *, map_location: Device = "cpu") -> LoadedGenerator:
    """The generator of what is `ACCEPTED`. A bundled name comes before a path (write ./people64 for
    a folder called that). Of a run the newest generator file that can be read is taken, else the
    newest such state; of a state its average generator. Nothing in a file is ever executed."""
    return load_with_file(source, map_location=map_location)[0]


def load_with_file(
    source: str | Path, *, map_location: Device = "cpu"
) -> tuple[LoadedGenerator, Path]:
    """The same, and the file that it was read from."""
    damaged: list[ValueError] = []
    for file in files_of(located(source)):
        try:
            loaded = read_snapshot(file).to_generate()
        except ValueError as error:
            damaged.append(error)
        else:
            loaded.generator.to(map_location)
            note = "".join(f"; not used: {problem}" for problem in damaged)
            return dataclasses.replace(loaded, origin=loaded.origin + note), file
    raise damaged[0]


def located(source: str | Path) -> Path:
    """The file or folder that `source` stands for, downloaded if it is an address."""
    if source in BUNDLED:
        return bundled_file(str(source))
    if "://" in str(source):
        return downloaded(str(source))
    path = Path(source)
    if not path.exists():
        beside = list(BUNDLED) if path.parent == Path() else []
        with suppress(OSError):
            beside += [p.name for p in path.parent.iterdir()]
        near = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.8)
        hint = f"accepted are {ACCEPTED}"
        if near:
            hint = f"did you mean {readable(path.with_name(near[0]))}?"
        raise FileNotFoundError(f"there is no {readable(path)}; {hint}")
    return path


def files_of(path: Path, *, states_first: bool = False) -> list[Path]:
    """The file `path`, or the files of weights in a folder, in the order in which to try them:
    generators before states unless `states_first`, each from the newest on."""
    if not path.is_dir():
        return [path]
    run = RunFolder(path)
    kinds = [run.states(), run.generators()]
    files = [file for kind in (kinds if states_first else kinds[::-1]) for file in reversed(kind)]
    files += [file for file in [path / SHARED] if file.is_file()]
    if not files:
        raise FileNotFoundError(
            f"the folder {path} holds neither generator-*.pt nor state-*.pt nor {SHARED}, "
            f"so it is not a run that has saved anything; accepted are {ACCEPTED}"
        )
    return files


def load_discriminator(source: str | Path, *, map_location: Device = "cpu") -> Discriminator:
    """The discriminator, in eval mode, of a run (its newest state), a state file, an official
    snapshot, what `stylegan convert --discriminator` wrote, or an address of one of these."""
    path = files_of(located(source), states_first=True)[0]
    network = read_snapshot(path).discriminator
    if network is None:
        raise ValueError(
            f"{path} holds no discriminator; those that do: state-*.pt of a run, what `stylegan "
            "convert --discriminator` writes, official .pkl"
        )
    return network.eval().to(map_location)
