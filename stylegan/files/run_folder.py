"""Run folders: names, numbering and retention of files, and the lock for training."""

import contextlib
import errno
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stylegan.config import TrainConfig, load_config, to_toml
from stylegan.utils.distributed import run_on_rank0
from stylegan.utils.filesystem import (
    ALLOW_OVERWRITE,
    KEEP_EXISTING,
    LOCK,
    LockId,
    check_folder,
    file_id,
    lock,
    lock_id,
    unfinished,
)
from stylegan.utils.lineage import SECTION, Lineage, from_dicts, sha256_of
from stylegan.utils.lineage import to_toml as lineage_toml
from stylegan.utils.records import append_line, read_lines
from stylegan.utils.text import sanitize
from stylegan.utils.toml import read_toml

CONFIG = "config.toml"
SAVED = {"saved", "stopped", "resume", "finished"}  # log events that follow a saved state
# How the temporary files of a training begin; others in the folder may be somebody's, unfinished.
TEMPORARY = ".state-", ".generator-", ".config", ".data.txt.", ".reals.png.", ".report.html."


class RunFolder:
    """Folder of one run, which need not exist yet."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / CONFIG  # complete; a run folder has one
        self.log_file = self.path / "log.jsonl"
        self.metrics_file = self.path / "metrics.jsonl"
        self.data_file = self.path / "data.txt"  # path of its training images
        self.skipped_file = self.path / "skipped.txt"  # unusable images
        self.report_file = self.path / "report.html"
        self.reals_file = self.path / "reals.png"
        self.samples = self.path / "samples"
        self.tensorboard = self.path / "tensorboard"
        self.best_generator = self.path / "generator-best.pt"
        self.held_lock: LockId | None = None  # while this process trains here

    @staticmethod
    def of(source: str | Path) -> "RunFolder | None":
        """Run of a folder, or of a file in it; None if there is none."""
        path = Path(source)
        run = RunFolder(path.parent if path.is_file() else path)
        if not run.config_file.is_file():
            return None
        # config.toml alone may belong to another program
        has_history = run.data_file.is_file() or run.log_file.is_file()
        return run if has_history or run.generators() or run.states() else None

    def config(self) -> TrainConfig:
        """Read the configuration; FileNotFoundError if there is none."""
        if not self.config_file.is_file():
            reason = "is a file" if self.path.is_file() else "does not exist"
            reason = "holds no config.toml" if self.path.is_dir() else reason
            raise FileNotFoundError(
                f"{self.path} {reason}, so it is not a run folder; pass one of a training"
            )
        return load_config(self.config_file, allow_unregistered=True)

    def stored_config(self) -> TrainConfig | None:
        """Configuration, or None before a run. Raises ValueError if none can start here."""
        check_folder(self.path, written=False)
        if self.config_file.is_file():
            return self.config()
        there = set(self.path.iterdir()) if self.path.is_dir() else set()
        if there - {self.path / LOCK, *unfinished(self.path)}:
            raise ValueError(
                f"{self.path} is not empty and holds no config.toml, so it is not a run; choose "
                "another --out"
            )
        return None

    def lineage(self) -> Lineage:
        """Lineage of the run's initial weights; empty if they were random."""
        if not self.config_file.is_file():
            return ()
        try:
            return from_dicts(read_toml(self.config_file).get(SECTION, ()))
        except ValueError as error:
            raise ValueError(f"{self.config_file}: {error}") from error

    def create(
        self,
        config: TrainConfig,
        data: Path,
        skipped: Sequence[tuple[str, str]],
        lineage: Lineage = (),
    ) -> list[str]:
        """Write configuration, lineage, data path and unusable images; return notes to print."""
        self.keep_locked()
        notes: list[str] = []
        text = to_toml(config) + lineage_toml(lineage)
        stored = read_toml(self.config_file) if self.config_file.is_file() else None
        if stored != tomllib.loads(text):
            if stored is not None and b"#" in (before := self.config_file.read_bytes()):
                copy = self.path / f"config-{sha256_of(self.config_file)[:8]}.toml"
                KEEP_EXISTING.content(copy, before)  # keeps the user's comments
                notes.append(f"config.toml changes; the old one with comments is {copy}")
            ALLOW_OVERWRITE.text(self.config_file, text)  # first, as it marks a run
        if self.data() != data.resolve():
            ALLOW_OVERWRITE.text(self.data_file, f"{data.resolve()}\n")
        lines = [f"{sanitize(name, 4096)}\t{sanitize(why, 4096)}" for name, why in skipped]
        file = self.skipped_file
        known = set(file.read_text("utf-8", "replace").splitlines() if file.is_file() else [])
        if new := [line for line in lines if line not in known]:
            append_line(file, "\n".join(new))
        return notes

    def data(self) -> Path | None:
        """Path of the training images; None if unknown."""
        if not self.data_file.is_file():
            return None
        text = os.fsdecode(self.data_file.read_bytes()).removesuffix("\n")
        return Path(text) if text else None

    def state_file(self, images_seen: int) -> Path:
        return self.path / f"state-{images_seen:09d}.pt"

    def generator_file(self, images_seen: int) -> Path:
        return self.path / f"generator-{images_seen:09d}.pt"

    def sample_file(self, images_seen: int, tick_kimg: float = 1) -> Path:
        """Sample file, named by kimg; by images, too, for the first kimg after a transfer and ticks
        of less than 1 kimg."""
        kimg, images = divmod(images_seen, 1000)
        if images and (tick_kimg < 1 or (kimg == 0 and self.lineage())):
            return self.samples / f"{kimg:06d}_{images:03d}.png"
        return self.samples / f"{kimg:06d}.png"

    def states(self) -> list[Path]:
        """State files, oldest first."""
        return self.numbered("state")

    def generators(self) -> list[Path]:
        """Files of the average generator, oldest first."""
        return self.numbered("generator")

    def numbered(self, kind: str) -> list[Path]:
        files = self.path.glob(f"{kind}-*.pt")
        return sorted(
            (p for p in files if p.stem[len(kind) + 1 :].isdecimal()), key=images_seen_in_name
        )

    def latest_images_seen(self) -> int:
        """Images seen of the newest state; 0 before the first."""
        return max(map(images_seen_in_name, self.states()), default=0)

    def has_lost_its_states(self) -> bool:
        """Whether the log mentions a saved state and none is left."""
        log, _ = read_lines(self.log_file, "event")
        return any(line["event"] in SAVED for line in log) and not self.states()

    def checkpoints(self) -> list[Path]:
        """Smallest file with the generator for each number of images seen, oldest first."""
        files = {images_seen_in_name(path): path for path in [*self.states(), *self.generators()]}
        if not files:
            reason = "contains none" if self.path.is_dir() else "is not a folder"
            raise FileNotFoundError(
                f"generator-*.pt or state-*.pt of a run folder are needed; {self.path} {reason}"
            )
        return [files[images] for images in sorted(files)]

    def grids(self) -> list[tuple[float, Path]]:
        """Grids of samples with their kimg, oldest first."""
        grids: list[tuple[float, Path]] = []
        for path in self.samples.glob("*.png"):
            if name := re.fullmatch(r"([0-9]{1,12})(?:_([0-9]{3}))?", path.stem):
                kimg, images = name.groups()
                grids.append((int(kimg) + int(images) / 1000 if images else int(kimg), path))
        return sorted(grids)

    def retain_states(self, images_seen: int, keep: int, milestone_images: int = 0) -> None:
        """Delete states up to `images_seen`, except the last `keep` of them and milestones.

        A milestone is the first state after a multiple of `milestone_images`; 0 = none.
        """
        passed = {0}
        before = [path for path in self.states() if images_seen_in_name(path) <= images_seen]
        for path in before[:-keep]:
            multiple = images_seen_in_name(path) // milestone_images if milestone_images else 0
            if multiple in passed:
                path.unlink(missing_ok=True)
            passed.add(multiple)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run folder, which is created if missing and removed if it stays empty.

        Raises ValueError on all ranks if another process holds it. Unfinished files are removed.
        """
        with ExitStack() as held:
            run_on_rank0(lambda: self.enter(held))
            yield

    def enter(self, held: ExitStack) -> None:
        """Create and lock the folder, until `held` ends."""
        check_folder(self.path)
        made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        held.callback(remove_empty, made)  # after the lock file is removed
        try:
            self.acquire(held)
        except BlockingIOError as error:
            raise ValueError(
                f"another process is training in {self.path}; wait until it ends, or choose "
                "another --out"
            ) from error
        for path in unfinished(self.path, self.samples):
            if path.parent == self.samples or path.name.startswith(TEMPORARY):
                path.unlink()

    def acquire(self, held: ExitStack) -> None:
        """Lock the folder, created if missing, until `held` ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.held_lock = held.enter_context(lock(self.path / LOCK))
        self.held_folder = file_id(self.path)
        self.held = held
        held.callback(setattr, self, "held_lock", None)

    def keep_locked(self) -> None:
        """Lock a new folder if that of `locked` was moved or deleted.

        Raises BlockingIOError if the new one is another run's. Does nothing without a lock.
        """
        found = lock_id(self.path / LOCK)
        if self.held_lock in (None, found):
            return
        is_new = not self.path.exists() or file_id(self.path) != self.held_folder
        if found or (is_new and self.config_file.exists()):
            raise OSError(errno.EAGAIN, "another run is in this folder by now")
        self.acquire(self.held)


def remove_empty(folders: Sequence[Path]) -> None:
    """Remove folders, innermost first, up to one that is not empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def images_seen_in_name(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])
