"""Damaged files of every kind that the project reads: they load, or are refused cleanly."""

import contextlib
import io
import os
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import damage
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from stylegan.config import TrainConfig, bundled, load_config, read_stored_config, to_toml
from stylegan.data import Store, cached_store, prepare, read_image
from stylegan.files import checkpoint
from stylegan.files.formats import export
from stylegan.files.latents import read_latents, write_latents
from stylegan.files.loaded import LoadedGenerator
from stylegan.files.loading import load_source, save_generator
from stylegan.networks import Generator, NetworkConfig
from stylegan.training import TrainState

ROOT = Path(__file__).resolve().parents[1]
SNAPSHOT = ROOT / "tests" / "reference" / "official_snapshot.pkl"
TINY = NetworkConfig(
    resolution=8, z_dim=4, w_dim=4, mapping_layers=1, mapping_width=4, max_channels=4
)
MAX_SECONDS = 5  # of the processor, for one file
MAX_WAIT = 300  # seconds on the clock until a file counts as one that hangs
MAX_BYTES = 2**30  # of address space that one file may take; threads reserve some of it
MAX_MESSAGE = 2_000  # characters

# What no reading of a file may do


class Watch:
    """An audit hook that notes what is executed, called, connected to or written outside of a
    folder."""

    forbidden = (
        "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.kill",
        "subprocess.Popen", "pty.spawn", "pickle.find_class", "code.__new__", "socket.connect",
        "socket.getaddrinfo", "urllib.Request",
    )  # fmt: skip
    writing = (
        "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate",
        "os.chmod", "os.chown", "os.utime", "os.setxattr", "shutil.rmtree", "shutil.move",
    )  # fmt: skip
    known = ("<frozen ", str(ROOT), sys.prefix, sys.base_prefix)  # whose code may run
    class_makers = ("collections", "dataclasses")  # they run text at an import

    def __init__(self) -> None:
        self.folder: Path | None = None  # None: not watching
        self.events: list[str] = []

    def __call__(self, event, arguments):
        if self.folder is not None and self.is_improper(event, arguments):
            self.events.append(f"{event} {arguments!r}"[:300])

    def is_improper(self, event, arguments):
        if event == "open":
            path, _, flags = arguments
            written = (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            return bool(written) and not self.is_within(path)
        if event in self.writing:
            paths = [a for a in arguments if isinstance(a, str | bytes | os.PathLike)]
            return not all(map(self.is_within, paths))
        if event == "exec":  # of `eval` too; NumPy compiles its headers, but only to read them
            caller = sys._getframe(2).f_globals["__name__"]
            known = arguments[0].co_filename.startswith(self.known)
            return not known and caller not in self.class_makers
        return event in self.forbidden

    def is_within(self, path):
        """Whether a path is in the folder; a number was opened before."""
        return isinstance(path, int) or Path(os.fsdecode(path)).resolve().is_relative_to(
            self.folder
        )


WATCH = Watch()


@pytest.fixture(scope="module", autouse=True)
def audit_hook():
    sys.addaudithook(WATCH)  # for good: Python removes none


@contextlib.contextmanager
def guarded(folder):
    """Limits of memory and time, and the watch; nothing but `folder` may be written to."""

    def give_up(number, frame):
        pytest.fail(f"hangs: it has not ended after {MAX_WAIT} s")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before, handler = time.process_time(), signal.signal(signal.SIGALRM, give_up)
    WATCH.events = []
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MAX_BYTES, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, MAX_WAIT)
    WATCH.folder = folder.resolve()
    try:
        yield
    finally:
        WATCH.folder = None
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert not WATCH.events
    assert time.process_time() - before < MAX_SECONDS


def is_read(read, path, named, folder):
    """Whether `read` accepts the file. Everything but that and a clean refusal fails."""
    refusal = None
    with guarded(folder):
        try:
            read(path)
        except (ValueError, OSError) as error:
            refusal = error
    if refusal is None:
        return True
    text = str(refusal)
    assert named in text and text.isprintable() and len(text) <= MAX_MESSAGE, text[:300]
    cause = refusal
    while cause is not None:
        assert not isinstance(cause, MemoryError) and "allocate memory" not in str(cause), text
        cause = cause.__cause__ or cause.__context__
    return False


# The kinds of file


def make_checkpoints(folder):
    """A generator file and a state file."""
    torch.manual_seed(0)
    save_generator(folder / "a.pt", Generator(TINY), images_seen=100)
    config = load_config(None, ["network.resolution=8", "schedule.stable_kimg=1"])
    config = TrainConfig(network=TINY, schedule=config.schedule)
    checkpoint.save(folder / "b.pt", "state", TrainState.create(config).to_payload())
    return [(folder / name).read_bytes() for name in ("a.pt", "b.pt")]


def make_exported(folder, name):
    """A generator for other programs."""
    torch.manual_seed(0)
    export(LoadedGenerator(Generator(TINY).eval(), "memory", resolution=8), folder / name)
    return [(folder / name).read_bytes()]


def use_generator(path):
    """Load a file and make one picture with its settings."""
    loaded = load_source(path)
    config, average = loaded.generator.config, loaded.generator.w_avg
    labels = torch.zeros(1, config.label_dim).to(average) if config.label_dim else None
    with torch.inference_mode():
        loaded.generator(
            torch.zeros(1, config.z_dim).to(average),
            labels,
            psi=loaded.psi,
            cutoff=loaded.cutoff,
            resolution=loaded.resolution,
            alpha=loaded.alpha,
            noise="const",
        )


def make_latents(folder):
    """Styles with maps of noise, and latents."""
    torch.manual_seed(0)
    config = Generator(TINY).config
    maps = [torch.randn(1, 1, r, r) for r in (4, 4, 8, 8)]
    write_latents(folder / "f.npz", torch.randn(2, config.num_styles(), config.w_dim), maps)
    first = (folder / "f.npz").read_bytes()
    np.savez(folder / "f.npz", z=np.zeros((3, config.z_dim), np.float32))
    return [first, (folder / "f.npz").read_bytes()]


def use_checkpoint(path):
    """As `use_generator`; and whatever loads holds the weights that were saved."""
    use_generator(path)
    payload = checkpoint.load(path)
    good = checkpoint.load(path.with_name("a.pt" if payload["kind"] == "generator" else "b.pt"))
    for network in checkpoint.NETWORKS[payload["kind"]]:
        for name, tensor in good[network].items():
            assert torch.equal(payload[network][name], tensor)


def picture(mode, size=(12, 10)):
    """Coloured noise."""
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 4), np.uint8)
    if mode == "I;16":
        return Image.fromarray(pixels[:, :, :2].copy().view(np.uint16)[:, :, 0])
    return Image.fromarray(pixels, "RGBA").convert(mode)


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def make_png(folder):
    rgb = picture("RGB")
    plain = [encoded(picture(mode), "PNG") for mode in ("RGBA", "LA", "I;16", "1")]
    return [
        *plain,
        encoded(rgb, "PNG", exif=turned()),
        encoded(picture("P"), "PNG", transparency=b"\0\x80\xff"),
        encoded(rgb, "PNG", save_all=True, append_images=[rgb.rotate(180)]),
    ]


def make_jpeg(folder):
    rgb, small = picture("RGB", (40, 30)), picture("RGB", (24, 20))
    return [
        encoded(rgb, "JPEG", exif=turned()),
        encoded(rgb, "JPEG", progressive=True, subsampling=2),
        *(encoded(picture(mode, (40, 30)), "JPEG") for mode in ("L", "CMYK")),
        encoded(small, "MPO", save_all=True, append_images=[small]),
    ]


def use_image(path):
    for channels in (1, 3, 4):
        read_image(path.read_bytes(), channels=channels, name=str(path))


def make_zip(folder):
    names = ("a/0.png", "a/1.png", "b/2.jpeg", "b/3.bmp")
    files = [(n, encoded(picture("RGB"), n.partition(".")[2].upper())) for n in names]
    return [damage.packed(files), damage.packed([*files, ("notes.txt", b"words")])]


def use_zip(path):
    """As training does: prepared into a cache, and read from there."""
    cache = path.parent / "cache"
    use_store(cached_store(path, cache_dir=cache, workers=1).path / "meta.json")


def make_store(folder, file):
    (folder / "pictures.zip").write_bytes(make_zip(folder)[0])
    return [(prepare(folder / "pictures.zip", folder / "store").path / file).read_bytes()]


def use_store(path):
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


def make_configs(folder):
    names = ("quickstart", "ffhq-256", "car-512")
    files = [bundled(f"configs/{name}.toml").read_bytes() for name in names]
    return [*files, to_toml(load_config("quickstart")).encode()]


@dataclass(frozen=True)
class Kind:
    """A kind of file, how it is damaged, and how a user of the project reads it."""

    file: str  # below a folder of its own
    make: Callable  # of the folder: good contents; what lies around the file is made too
    damages: tuple[Callable, ...]  # strategies of good contents
    read: Callable
    named: str | None = None  # what an error must name; None: the file


def stored(file, *damages):
    return Kind(
        f"store/{file}", lambda folder: make_store(folder, file), damages, use_store, "store"
    )


EDITED = damage.edited
KINDS = {
    "checkpoint": Kind("f.pt", make_checkpoints, (lambda d: EDITED(d, most=1),), use_checkpoint),
    "checkpoint with right checksums": Kind(
        "f.pt",
        make_checkpoints,
        (damage.entry_of_archives(".pkl", EDITED), damage.archives),
        use_generator,
    ),
    "official pickle": Kind(
        "f.pkl", lambda folder: [SNAPSHOT.read_bytes()], (EDITED, damage.pickles), use_generator
    ),
    "safetensors": Kind(
        "f.safetensors",
        lambda folder: make_exported(folder, "f.safetensors"),
        (EDITED, damage.safetensors_header),
        use_generator,
    ),
    "latents": Kind(
        "f.npz",
        make_latents,
        (EDITED, damage.archives),
        lambda path: read_latents(path, Generator(TINY)),
    ),
    "store's meta": stored("meta.json", EDITED, damage.json_values),
    "store's images": stored("0008.npy", EDITED),
    "zip": Kind("f.zip", make_zip, (EDITED, damage.archives), use_zip),
    "PNG": Kind("f.png", make_png, (EDITED,), use_image),
    "JPEG": Kind("f.jpg", make_jpeg, (EDITED,), use_image),
    "configuration": Kind(
        "f.toml", make_configs, (EDITED, damage.toml_lines), lambda path: load_config(str(path))
    ),
    "configuration of a run": Kind(
        "config.toml", make_configs, (EDITED, damage.toml_lines), read_stored_config
    ),
}


def fuzz(kind, folder, examples):
    """How many damaged files were read and refused. The last one that failed stays in `folder`."""
    good, path = kind.make(folder), folder / kind.file
    named = path.name if kind.named is None else kind.named
    tally = Counter()

    def check(data):
        shutil.rmtree(folder / "cache", ignore_errors=True)
        path.write_bytes(data)
        return is_read(kind.read, path, named, folder)

    for data in good:  # what is imported or compiled at first use comes first
        path.write_bytes(data)
        kind.read(path)
        assert check(data)
    strategies = st.one_of([st.sampled_from(good).flatmap(damage) for damage in kind.damages])

    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategies)
    def run(data):
        tally[check(data)] += 1

    run()
    return tally


@pytest.mark.parametrize(
    "examples", [20, pytest.param(400, marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_damaged_files_are_read_or_refused_with_one_line_that_names_them(
    kind, examples, tmp_path, capfd
):
    tally = fuzz(kind, tmp_path, examples)
    assert tally[False] > 0
    assert capfd.readouterr() == ("", "")
