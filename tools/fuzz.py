"""Reads thousands of damaged files and looks for anything but a clean error."""

import collections
import contextlib
import dataclasses
import io
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import click
import mutations as damage
import numpy as np
import torch
from mutations import Mutation
from PIL import Image

from stylegan.config import TrainConfig, bundled, load_config, read_stored_config, to_toml
from stylegan.data import Store, cached_store, prepare, read_image
from stylegan.files import checkpoint
from stylegan.files.loading import load_source, save_generator
from stylegan.networks import Generator, NetworkConfig
from stylegan.training import TrainState

ROOT = Path(__file__).resolve().parents[1]
SNAPSHOT = ROOT / "tests" / "reference" / "official_snapshot.pkl"
TINY = NetworkConfig(
    resolution=8, z_dim=4, w_dim=4, mapping_layers=1, mapping_width=4, max_channels=4
)
MAX_SECONDS = 5  # of the processor, for one file
MAX_WAIT = 60  # seconds on the clock until a file counts as one that hangs
MAX_BYTES = 2**29  # of memory that one file may take
MAX_FILE = 2**24  # bytes; repeating what was repeated makes more
MAX_MESSAGE = 2_000  # characters
CLASS_MAKERS = (collections.__file__, dataclasses.__file__)  # they run text at an import

Watched = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Target:
    """A kind of file, how it is damaged, and how a user of the project reads it."""

    name: str
    file: str  # path below the target's folder
    make: Callable[[Path], list[bytes]]  # good contents; what lies around the file is made too
    mutate: Mutation
    read: Callable[[Path], None]
    named: str | None = None  # what an error must name; None: the file
    chatty: bool = False  # whether a decoder may print: libtiff does, from C, and cannot be told


@dataclass
class Tally:
    """What became of the files of one kind."""

    files: int
    loaded: int = 0
    refused: int = 0
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0  # the longest file
    megabytes: int = 0  # by which one file raised the peak of the reading process


@dataclass(frozen=True)
class Outcome:
    """What reading one file did; `finding` is empty if that was proper."""

    loaded: bool = False
    finding: str = ""
    seconds: float = 0.0
    megabytes: int = 0


# The reading process


def serve(connection: Connection, scratch: Path) -> None:
    """Read one file after the other as asked, until there is no more to read."""
    log = os.open(scratch / "output.txt", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.dont_write_bytecode = True
    watch = Watch(scratch)
    sys.addaudithook(watch)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = address_space() + 16 * MAX_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    baseline = peak_bytes()
    connection.send(None)
    while (request := connection.recv()) is not None:
        read, path, named, chatty = request
        before, spoken = time.process_time(), os.fstat(log).st_size
        peak = peak_bytes()
        loaded, finding = observe(read, path, named, watch)
        seconds, grown = time.process_time() - before, peak_bytes() - baseline
        if os.fstat(log).st_size > spoken and not chatty:
            printed = os.pread(log, 200, spoken).decode(errors="replace")
            finding = finding or f"printed {printed!r}"
        if seconds > MAX_SECONDS:
            finding = finding or f"took {seconds:.1f} s"
        if grown > MAX_BYTES:
            finding = finding or f"took {grown >> 20} MiB"
        connection.send(Outcome(loaded, finding, seconds, (peak_bytes() - peak) >> 20))


def observe(
    read: Callable[[Path], None], path: Path, named: str, watch: "Watch"
) -> tuple[bool, str]:
    """Whether the file could be read, and what is wrong with how that went."""
    error: Exception | None = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with watch:
            try:
                read(path)
            except Exception as raised:
                error = raised
    if watch.events:
        name, arguments = watch.events[0]
        return error is None, f"did {name} {arguments!r}"[:500]
    if warned:
        return error is None, f"warned: {warned[0].category.__name__}: {warned[0].message}"
    if error is not None:
        return False, fault_of(error, named)
    return True, ""


def fault_of(error: Exception, named: str) -> str:
    """What is wrong with an error; "" if it is as a user should see it."""
    text = str(error)
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(where.filename).name}:{where.lineno}"
    if not isinstance(error, ValueError | OSError):
        return f"{type(error).__name__} at {place}: {text[:300]!r}"
    if out_of_memory(error):
        return f"asked for more memory than there is: {text[:300]!r}"
    if named not in text:
        return f"an error at {place} that does not name {named}: {text[:300]!r}"
    if not text.isprintable():
        return f"an error of several lines or with control characters: {text[:300]!r}"
    if len(text) > MAX_MESSAGE:
        return f"an error of {len(text)} characters: {text[:300]!r}"
    return ""


def out_of_memory(error: BaseException | None) -> bool:
    """Whether an error is a consequence of an allocation that failed."""
    while error is not None:
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


class Watch:
    """An audit hook that keeps what no reading of a file may do, while it is entered."""

    forbidden = (
        "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.kill",
        "os.startfile", "subprocess.Popen", "pty.spawn", "pickle.find_class", "code.__new__",
    )  # fmt: skip
    forbidden_families = ("socket.", "urllib.", "http.", "ftplib.", "smtplib.", "webbrowser.")
    writing = (
        "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate",
        "os.chmod", "os.chown", "os.utime", "os.setxattr", "shutil.rmtree", "shutil.move",
    )  # fmt: skip

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch.resolve()
        self.known = (sys.prefix, sys.base_prefix, str(ROOT))
        self.events: list[Watched] = []
        self.active = False

    def __enter__(self) -> None:
        self.events, self.active = [], True

    def __exit__(self, *exception: object) -> None:
        self.active = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.active and self.is_foreign(event, arguments):
            self.events.append((event, tuple(str(argument)[:200] for argument in arguments)))

    def is_foreign(self, event: str, arguments: tuple[Any, ...]) -> bool:
        if event == "open":
            path, _, flags = arguments
            writes = (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            return bool(writes) and not self.within(path)
        if event in self.writing:
            folder = arguments[-1] if isinstance(arguments[-1], int) else -1
            paths = [a for a in arguments if isinstance(a, str | bytes | os.PathLike)]
            return not all(self.within(path, folder) for path in paths)
        if event == "exec":  # of `eval` too; NumPy compiles its headers, but only to read them
            caller = sys._getframe(2).f_code.co_filename
            return caller not in CLASS_MAKERS and not self.is_known(arguments[0].co_filename)
        return event in self.forbidden or event.startswith(self.forbidden_families)

    def within(self, path: Any, folder: int = -1) -> bool:
        """Whether a path, perhaps relative to an open folder, lies in the scratch folder."""
        if isinstance(path, int):
            return True  # opened before
        base = os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else os.getcwd()
        return Path(os.path.realpath(os.path.join(base, os.fsdecode(path)))).is_relative_to(
            self.scratch
        )

    def is_known(self, file: str) -> bool:
        """Whether code is of a file of this project or of the Python installation."""
        return file.startswith("<frozen ") or (os.path.isabs(file) and file.startswith(self.known))


def peak_bytes() -> int:
    """The most memory that this process has held; `ru_maxrss` begins with that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


# The watching process


class Reader:
    """The reading process, started again whenever a file has ended or spoiled it."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.process: Any = None

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, self.scratch), daemon=True)
        self.process.start()
        other.close()
        self.connection.recv()
        self.familiar: set[str] = set()  # kinds that it has read good files of

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.connection.close()
            self.process = None

    def read(self, sample: "Sample", data: bytes) -> Outcome:
        """The outcome of reading one damaged file, whatever that does to the process.

        Good ones come first: what is imported or compiled at first use is none of its doing.
        """
        if self.process is None:
            self.start()
        if sample.target.name not in self.familiar:
            for good in sample.good * 2:
                outcome = self.ask(sample, good)
                if not outcome.loaded:
                    raise RuntimeError(f"a good {sample.target.name} is not read: {outcome}")
            if outcome.finding:
                raise RuntimeError(f"a good {sample.target.name} does harm: {outcome}")
            self.familiar.add(sample.target.name)
        outcome = self.ask(sample, data)
        if outcome.finding:
            self.stop()  # a peak of memory would hide those of the files to come
        return outcome

    def ask(self, sample: "Sample", data: bytes) -> Outcome:
        sample.path.write_bytes(data)
        target = sample.target
        named = sample.path.name if target.named is None else target.named
        self.connection.send((target.read, sample.path, named, target.chatty))
        try:
            if not self.connection.poll(MAX_WAIT):
                self.stop()
                return Outcome(finding=f"hangs: no answer for {MAX_WAIT} s", seconds=MAX_WAIT)
            outcome: Outcome = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode
            self.stop()
            return Outcome(finding=f"ended the process with exit code {code}")
        return outcome


class Sample:
    """A place for files of one kind, with what lies around them, and good contents."""

    def __init__(self, target: Target, scratch: Path) -> None:
        folder = scratch / target.name
        folder.mkdir()
        self.target = target
        self.good = target.make(folder)
        self.path = folder / target.file


def fuzz(target: Target, files: int, seed: int, reader: Reader, keep: Path) -> Tally:
    """Read `files` damaged files of one kind; those that do something improper go to `keep`."""
    tally = Tally(files)
    sample = Sample(target, reader.scratch)
    for number in range(files):
        rng = Random(f"{target.name} {seed} {number}")
        data = target.mutate(rng.choice(sample.good), rng)[:MAX_FILE]
        outcome = reader.read(sample, data)
        tally.seconds = max(tally.seconds, outcome.seconds)
        tally.megabytes = max(tally.megabytes, outcome.megabytes)
        if outcome.finding:
            keep.mkdir(parents=True, exist_ok=True)
            culprit = keep / f"{target.name}-{seed}-{number}{sample.path.suffix}"
            culprit.write_bytes(data)
            tally.findings.append(f"{culprit}: {outcome.finding}")
            click.echo(tally.findings[-1], err=True)
        elif outcome.loaded:
            tally.loaded += 1
        else:
            tally.refused += 1
    return tally


# The kinds of file


def tiny_generator() -> Generator:
    torch.manual_seed(0)
    return Generator(TINY)


def make_checkpoints(folder: Path) -> list[bytes]:
    """A generator file and a state file."""
    save_generator(folder / "a.pt", tiny_generator(), images_seen=100)
    config = load_config(None, ["network.resolution=8", "schedule.stable_kimg=1"])
    config = TrainConfig(network=TINY, schedule=config.schedule)
    checkpoint.save(folder / "b.pt", "state", TrainState.create(config).to_payload())
    return [(folder / name).read_bytes() for name in ("a.pt", "b.pt")]


def use_generator(path: Path) -> None:
    """Load a file and make one picture as it says."""
    loaded = load_source(path)
    generator = loaded.generator
    config = generator.config
    z = torch.zeros(1, config.z_dim, dtype=generator.w_avg.dtype)
    labels = torch.zeros(1, config.label_dim, dtype=z.dtype) if config.label_dim else None
    with torch.inference_mode():
        images = generator(
            z,
            labels,
            psi=loaded.psi,
            cutoff=loaded.cutoff,
            resolution=loaded.resolution,
            alpha=loaded.alpha,
            noise="const",
        )
    images.sum().item()


def use_sealed(path: Path) -> None:
    """As `use_generator`; and whatever loads holds the weights that were saved."""
    use_generator(path)
    payload = checkpoint.load(path)
    good = checkpoint.load(path.with_name("a.pt" if payload["kind"] == "generator" else "b.pt"))
    for field_name in checkpoint.NETWORKS[payload["kind"]]:
        for name, tensor in good[field_name].items():
            if not torch.equal(payload[field_name][name], tensor):
                raise RuntimeError(f"{field_name} {name} has other values than were saved")


def make_snapshot(folder: Path) -> list[bytes]:
    return [SNAPSHOT.read_bytes()]


def picture(mode: str, size: tuple[int, int] = (12, 10)) -> Image.Image:
    """Coloured noise."""
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 4), np.uint8)
    if mode == "I;16":
        return Image.fromarray(pixels[:, :, :2].copy().view(np.uint16)[:, :, 0])
    return Image.fromarray(pixels, "RGBA").convert(mode)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def oriented() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def make_png(folder: Path) -> list[bytes]:
    frames = [picture("RGB"), picture("RGB").rotate(180)]
    return [
        encoded(picture("RGB"), "PNG", exif=oriented()),
        encoded(picture("RGBA"), "PNG"),
        encoded(picture("P"), "PNG", transparency=b"\0\x80\xff"),
        encoded(picture("LA"), "PNG", dpi=(72, 72)),
        encoded(picture("I;16"), "PNG"),
        encoded(picture("1"), "PNG"),
        encoded(frames[0], "PNG", save_all=True, append_images=frames[1:]),
    ]


def make_jpeg(folder: Path) -> list[bytes]:
    two = [picture("RGB", (24, 20)), picture("RGB", (24, 20))]
    return [
        encoded(picture("RGB", (40, 30)), "JPEG", exif=oriented()),
        encoded(picture("RGB", (40, 30)), "JPEG", progressive=True, subsampling=2),
        encoded(picture("L", (40, 30)), "JPEG"),
        encoded(picture("CMYK", (40, 30)), "JPEG"),
        encoded(two[0], "MPO", save_all=True, append_images=two[1:]),
    ]


def make_other_images(folder: Path) -> list[bytes]:
    rgb = picture("RGB")
    tiffs = [
        encoded(rgb, "TIFF", compression=c) for c in ("tiff_lzw", "tiff_adobe_deflate", "jpeg")
    ]
    plain = [encoded(rgb, kind) for kind in ("BMP", "GIF", "TIFF", "WEBP")]
    return [*plain, *tiffs, encoded(rgb, "WEBP", lossless=True)]


def use_image(path: Path) -> None:
    for channels in (1, 3, 4):
        read_image(path, channels=channels)


def zipped(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for i, (name, content) in enumerate(files.items()):
            entry = zipfile.ZipInfo(name)  # of one fixed date
            archive.writestr(entry, content, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)[i % 2])
    return file.getvalue()


def pictures() -> dict[str, bytes]:
    return {
        "a/0.png": encoded(picture("RGB"), "PNG"),
        "a/1.png": encoded(picture("RGB"), "PNG"),
        "b/2.jpg": encoded(picture("RGB"), "JPEG"),
        "b/3.bmp": encoded(picture("RGB"), "BMP"),
    }


def make_zip(folder: Path) -> list[bytes]:
    return [zipped(pictures()), zipped(pictures() | {"notes.txt": b"words"})]


def use_zip(path: Path) -> None:
    """As training does: prepared into a cache, and read from there."""
    cache = path.parent / "cache"
    try:
        use_store(cached_store(path, cache_dir=cache, workers=1).path / "meta.json")
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def make_store(folder: Path, file: str) -> list[bytes]:
    (folder / "pictures.zip").write_bytes(zipped(pictures()))
    return [(prepare(folder / "pictures.zip", folder / "store").path / file).read_bytes()]


def make_meta(folder: Path) -> list[bytes]:
    return make_store(folder, "meta.json")


def make_images(folder: Path) -> list[bytes]:
    return make_store(folder, "0008.npy")


def make_labels(folder: Path) -> list[bytes]:
    return make_store(folder, "labels.npy")


def make_names(folder: Path) -> list[bytes]:
    return make_store(folder, "names.txt")


def use_store(path: Path) -> None:
    """Everything in a store, as training, `info` and `check` read it."""
    store = Store(path.parent)
    for resolution in (2**k for k in range(2, store.resolution.bit_length())):
        store.images(resolution)[:].sum()
        store.identity(resolution)
    if store.labels is not None:
        store.one_hot(store.labels)
    if store.active_rectangle is not None:
        sum(store.active_rectangle)
    [name.encode("utf-8", "surrogateescape") for name in store.names + store.label_names]
    [f"{name}: {reason}" for name, reason in store.skipped]
    with contextlib.suppress(ValueError):  # the one error that is meant
        store.verify()


def make_configs(folder: Path) -> list[bytes]:
    names = ("quickstart", "ffhq-256", "car-512")
    bundled_ones = [bundled(f"configs/{name}.toml").read_bytes() for name in names]
    return [*bundled_ones, to_toml(load_config("quickstart")).encode()]


def use_config(path: Path) -> None:
    load_config(str(path))


def use_stored_config(path: Path) -> None:
    """As the configuration of a run."""
    read_stored_config(path)


def make_options(folder: Path) -> list[bytes]:
    return [b"schedule.total_kimg = 100", b"schedule.batch_size = { 4 = 64, 8 = 32 }", b"seed = 1"]


def use_option(path: Path) -> None:
    """The text as an option of the command line."""
    load_config(None, [path.read_bytes().decode("utf-8", "surrogateescape")])


CHECKPOINTS = damage.any_of(
    damage.without_comment,
    damage.inside_archive(damage.pickle_program),
    damage.inside_archive(damage.pickle_program),
    damage.inside_archive(damage.anything),
    damage.entries_of_archive,
)
ZIPS = damage.any_of(
    damage.anything,
    damage.entries_of_archive,
    damage.fields_of_archive,
    damage.inside_archive(damage.anything),
)
TOML = damage.any_of(damage.anything, damage.toml_lines, damage.toml_lines)
NPY = damage.any_of(damage.anything, damage.npy_header)
TARGETS = [
    Target("checkpoint", "f.pt", make_checkpoints, damage.one_change, use_sealed),
    Target("checkpoint-unsealed", "f.pt", make_checkpoints, CHECKPOINTS, use_generator),
    Target(
        "pickle",
        "f.pkl",
        make_snapshot,
        damage.any_of(damage.anything, damage.pickle_program, damage.pickle_program),
        use_generator,
    ),
    Target(
        "store-meta",
        "store/meta.json",
        make_meta,
        damage.any_of(damage.anything, damage.json_values, damage.json_values),
        use_store,
        "store",
    ),
    Target("store-npy", "store/0008.npy", make_images, NPY, use_store, "store"),
    Target("store-labels", "store/labels.npy", make_labels, NPY, use_store, "store"),
    Target("store-names", "store/names.txt", make_names, damage.anything, use_store, "store"),
    Target("zip", "f.zip", make_zip, ZIPS, use_zip),
    Target("png", "f.png", make_png, damage.any_of(damage.anything, damage.png_chunks), use_image),
    Target(
        "jpeg", "f.jpg", make_jpeg, damage.any_of(damage.anything, damage.jpeg_segments), use_image
    ),
    Target("other-images", "f.tif", make_other_images, damage.anything, use_image, chatty=True),
    Target("toml", "f.toml", make_configs, TOML, use_config),
    Target(
        "option",
        "f.txt",
        make_options,
        damage.any_of(damage.anything, damage.toml_lines),
        use_option,
        named="",
    ),
    Target("stored-config", "config.toml", make_configs, TOML, use_stored_config),
]


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        yield Path(folder).resolve()


@click.command()
@click.option("--files", default=2000, show_default=True, help="Damaged files of each kind.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([target.name for target in TARGETS]),
    help="Only this kind; may be repeated.",
)
@click.option("--seed", default=0, show_default=True, help="The same seed, the same damage.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    default=Path("fuzz-findings"),
    show_default=True,
    help="Folder for files that were not read properly.",
)
def main(files: int, kinds: tuple[str, ...], seed: int, keep: Path) -> None:
    """Damage good files in many ways and read them as a user would.

    Proper are: the file loads, or one ValueError or OSError of one line that names it. Findings
    are other errors, warnings, output, crashes, more than 5 s of processor time or 512 MiB of
    memory, anything executed, connected to, or written outside of a scratch folder.

    \b
    python tools/fuzz.py --kind png --kind jpeg --files 500
    """
    titles = ("kind", "files", "loaded", "refused", "findings", "longest", "memory")
    click.echo("{:20} {:>7} {:>7} {:>7} {:>8} {:>9} {:>9}".format(*titles))
    found = 0
    with scratch_folder() as scratch, Reader(scratch) as reader:
        for target in TARGETS:
            if kinds and target.name not in kinds:
                continue
            tally = fuzz(target, files, seed, reader, keep)
            found += len(tally.findings)
            click.echo(
                f"{target.name:20} {tally.files:7} {tally.loaded:7} {tally.refused:7} "
                f"{len(tally.findings):8} {tally.seconds:7.2f} s {tally.megabytes:5} MiB"
            )
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
