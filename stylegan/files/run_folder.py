"""A run folder: the names of its files, their numbers, which are kept, and who may train in it."""

import contextlib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stylegan.config import TrainConfig, load_config, to_toml
from stylegan.machine.disk import LOCK, REPLACING, check_folder, identity, lock, unfinished
from stylegan.machine.distributed import from_rank0
from stylegan.machine.lineage import SECTION, Lineage, from_plain, sha256_of
from stylegan.machine.lineage import to_toml as lineage_toml
from stylegan.machine.messages import readable
from stylegan.machine.records import append_line, read_lines
from stylegan.machine.toml import read_toml

CONFIG = "config.toml"
SAVED = {"saved", "stopped", "resume", "finished"}  # events of the log of which each needs a state


class RunFolder:
    """The folder of one run; it need not exist yet."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.held: tuple[int, int] | None = None  # this folder, while this process trains here
        self.config_file = self.path / CONFIG  # complete; it marks a run
        self.log_file = self.path / "log.jsonl"
        self.metrics_file = self.path / "metrics.jsonl"
        self.data_file = self.path / "data.txt"  # where its images are
        self.skipped_file = self.path / "skipped.txt"  # images that cannot be used
        self.report_file = self.path / "report.html"
        self.reals_file = self.path / "reals.png"
        self.samples = self.path / "samples"
        self.tensorboard = self.path / "tensorboard"
        self.best_generator = self.path / "generator-best.pt"

    @staticmethod
    def of(source: str | Path) -> "RunFolder | None":
        """Return the run that a folder is, or that a file lies in; None for all else."""
        path = Path(source)
        run = RunFolder(path.parent if path.is_file() else path)
        return run if run.config_file.is_file() else None

    def config(self) -> TrainConfig:
        """Read the configuration of the run. Raise FileNotFoundError where there is none."""
        if not self.config_file.is_file():
            reason = "is a file" if self.path.is_file() else "does not exist"
            reason = "holds no config.toml" if self.path.is_dir() else reason
            raise FileNotFoundError(
                f"{self.path} {reason}, so it is not a run folder; pass one of a training"
            )
        return load_config(self.config_file, unknown_parts=True)

    def stored_config(self) -> TrainConfig | None:
        """Return `config`; None before a run. Raise ValueError if none can begin here."""
        check_folder(self.path, written=False)
        if self.config_file.is_file():
            return self.config()
        if self.path.is_dir() and {*self.path.iterdir()} - {self.path / LOCK, *self.unfinished()}:
            raise ValueError(
                f"{self.path} is not empty and holds no config.toml, so it is not a run; choose "
                "another --out"
            )
        return None

    def lineage(self) -> Lineage:
        """Return the lineage of the run's first weights; empty if they were random."""
        if not self.config_file.is_file():
            return ()
        try:
            return from_plain(read_toml(self.config_file).get(SECTION, ()))
        except ValueError as error:
            raise ValueError(f"{self.config_file}: {error}") from error

    def create(
        self,
        config: TrainConfig,
        data: Path,
        skipped: Sequence[tuple[str, str]],
        lineage: Lineage = (),
    ) -> list[str]:
        """Write the configuration, the origin of weights and images, and the images that cannot be
        used, where the files say something else; return what a user should know of that."""
        self.check_held()
        notes: list[str] = []
        text = to_toml(config) + lineage_toml(lineage)
        stored = read_toml(self.config_file) if self.config_file.is_file() else None
        if stored != tomllib.loads(text):
            if stored is not None and b"#" in (before := self.config_file.read_bytes()):
                copy = self.path / f"config-{sha256_of(self.config_file)[:8]}.toml"
                copy.write_bytes(before)  # nobody's comments are lost
                notes.append(f"config.toml changes; with its comments it is {copy} now")
            REPLACING.text(self.config_file, text)  # first: it marks a run
        if self.data() != data.resolve():
            REPLACING.text(self.data_file, f"{data.resolve()}\n")
        lines = [f"{readable(name, 4096)}\t{readable(why, 4096)}" for name, why in skipped]
        file = self.skipped_file
        known = set(file.read_text("utf-8", "replace").splitlines() if file.is_file() else [])
        if new := [line for line in lines if line not in known]:
            append_line(file, "\n".join(new))
        return notes

    def data(self) -> Path | None:
        """Return the place of the run's images; None if unknown."""
        if not self.data_file.is_file():
            return None
        text = os.fsdecode(self.data_file.read_bytes()).removesuffix("\n")
        return Path(text) if text else None

    def state_file(self, images_seen: int) -> Path:
        return self.path / f"state-{images_seen:09d}.pt"

    def generator_file(self, images_seen: int) -> Path:
        return self.path / f"generator-{images_seen:09d}.pt"

    def sample_file(self, images_seen: int) -> Path:
        """Name a file by thousands of images; below the first, but for the start, by images too."""
        kimg, images = divmod(images_seen, 1000)
        if kimg == 0 and images and self.lineage():
            return self.samples / f"{kimg:06d}_{images:03d}.png"
        return self.samples / f"{kimg:06d}.png"

    def states(self) -> list[Path]:
        """Return the files to resume from, oldest first."""
        return self.numbered("state")

    def generators(self) -> list[Path]:
        """Return the files of the average generator, oldest first."""
        return self.numbered("generator")

    def numbered(self, kind: str) -> list[Path]:
        files = self.path.glob(f"{kind}-*.pt")
        return sorted((p for p in files if p.stem[len(kind) + 1 :].isdecimal()), key=images_of)

    def saved(self) -> int:
        """Return the images seen by the newest state; 0 before the first."""
        return max(map(images_of, self.states()), default=0)

    def has_lost_its_states(self) -> bool:
        """Return true if the log names a saved state, and none is left."""
        log, _ = read_lines(self.log_file, "event")
        return any(line["event"] in SAVED for line in log) and not self.states()

    def checkpoints(self) -> list[Path]:
        """Return the smallest file with the generator for each number of images, oldest first."""
        files = {images_of(path): path for path in [*self.states(), *self.generators()]}
        if not files:
            reason = "holds none" if self.path.is_dir() else "is not a folder"
            raise FileNotFoundError(
                "this is made of the generator-*.pt and state-*.pt of a run folder, but "
                f"{self.path} {reason}"
            )
        return [files[images] for images in sorted(files)]

    def grids(self) -> list[tuple[float, Path]]:
        """Return thousands of images and the samples of then, oldest first."""
        grids: list[tuple[float, Path]] = []
        for path in self.samples.glob("*.png"):
            if name := re.fullmatch(r"([0-9]{1,12})(?:_([0-9]{3}))?", path.stem):
                kimg, images = name.groups()
                grids.append((int(kimg) + int(images) / 1000 if images else int(kimg), path))
        return sorted(grids)

    def retain_states(self, images_seen: int, keep: int, milestone_images: int = 0) -> None:
        """Delete states up to that of `images_seen` but the last `keep` of them and milestones: the
        first after each multiple of `milestone_images` (0: none)."""
        passed = {0}
        for path in [path for path in self.states() if images_of(path) <= images_seen][:-keep]:
            multiple = images_of(path) // milestone_images if milestone_images else 0
            if multiple in passed:
                path.unlink(missing_ok=True)
            passed.add(multiple)

    def unfinished(self) -> list[Path]:
        """Return files that killed calls have left."""
        return [*unfinished(self.path), *unfinished(self.samples)]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other calls from training here: ValueError, in all processes, if one does already.
        Makes the folder, removes it again if it stays empty, and removes unfinished files."""
        with ExitStack() as held:
            from_rank0(lambda: self.enter(held))
            yield

    def enter(self, held: ExitStack) -> None:
        """Make the folder and hold it, until `held` ends."""
        check_folder(self.path)
        made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        held.callback(remove_empty, made)  # once the lock is gone, which is a file there
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock(self.path / LOCK))
        except BlockingIOError as error:
            raise ValueError(
                f"another process is training in {self.path}; wait until it has finished or "
                "end it, or choose another --out"
            ) from error
        self.held = identity(self.path)
        held.callback(setattr, self, "held", None)
        for path in self.unfinished():
            path.unlink()

    def check_held(self) -> None:
        """Raise OSError if this process has trained here and the folder was renamed or removed. All
        that a run writes asks first, as another run may have the name now."""
        if self.held and not (self.path.is_dir() and self.held == identity(self.path)):
            raise OSError(f"{self.path} was renamed or removed during the training, which stopped")


def training_pictures(source: str | Path) -> Mapping[Path, Path]:
    """Return the place of the training pictures of the run that `source` is, or is a file of, with
    that run: files written there would become training pictures."""
    run = RunFolder.of(source)
    data = run.data() if run else None
    return {data: run.path} if run and data else {}


def remove_empty(folders: Sequence[Path]) -> None:
    """Remove these folders, the innermost first, up to one that is not empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def images_of(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])
