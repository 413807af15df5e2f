"""A run folder: the names of its files, their numbers, which are kept, and who may train in it."""

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stylegan.agreement import from_first
from stylegan.atomic import PARTIAL, remove_partials, write_text
from stylegan.config import TrainConfig, read_stored_config, to_toml
from stylegan.destination import check_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EINVAL)  # of NFS, too


class RunFolder:
    """The folder of one run; it need not exist yet."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.toml"  # complete; it marks a run
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
    def at(source: str | Path) -> "RunFolder | None":
        """The folder `source` if a run has begun there; None for all else."""
        folder = RunFolder(source)
        return folder if folder.config_file.is_file() else None

    def config(self) -> TrainConfig:
        """The configuration of the run. FileNotFoundError where there is none."""
        if self.path.is_file():
            raise FileNotFoundError(f"{self.path} is a file, not a run folder")
        if not self.config_file.is_file():
            found = f"holds no {self.config_file.name}" if self.path.is_dir() else "does not exist"
            raise FileNotFoundError(
                f"{self.path} {found}, so it is not a run folder; give one that train.py has "
                "written"
            )
        return read_stored_config(self.config_file)

    def stored_config(self) -> TrainConfig | None:
        """As `config`, and None where nothing has begun. ValueError if a run cannot begin here."""
        check_folder(self.path)
        if self.config_file.is_file():
            return self.config()
        if self.path.is_dir() and any(p.suffix != PARTIAL for p in self.path.iterdir()):
            raise ValueError(
                f"{self.path} is not empty and holds no {self.config_file.name}, so it is not a "
                "run; choose another --out"
            )
        return None

    def create(self, config: TrainConfig, data: Path, skipped: Sequence[tuple[str, str]]) -> None:
        """Write what the run is, where its images are, and those that it cannot use, each with its
        reason."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.config_file, to_toml(config))  # first: it marks a run
        write_text(self.data_file, f"{data.resolve()}\n")
        if skipped:
            lines = [f"{name}\t{reason}\n" for name, reason in skipped]
            write_text(self.skipped_file, "".join(lines))

    def data(self) -> Path | None:
        """Where the images of the run were; None if an older version did not write it."""
        if not self.data_file.is_file():
            return None
        return Path(self.data_file.read_text(encoding="utf-8").strip())

    def state_file(self, images_seen: int) -> Path:
        return self.path / f"state-{images_seen:09d}.pt"

    def generator_file(self, images_seen: int) -> Path:
        return self.path / f"generator-{images_seen:09d}.pt"

    def sample_file(self, images_seen: int) -> Path:
        return self.samples / f"{images_seen // 1000:06d}.png"

    def states(self) -> list[Path]:
        """Files to resume from, oldest first."""
        return self.numbered("state")

    def generators(self) -> list[Path]:
        """Files of the average generator, oldest first."""
        return self.numbered("generator")

    def numbered(self, kind: str) -> list[Path]:
        pattern = re.compile(rf"{kind}-(\d+)\.pt")
        files = (path for path in self.path.glob(f"{kind}-*.pt") if pattern.fullmatch(path.name))
        return sorted(files, key=images_of)

    def saved(self) -> int:
        """Images seen by the newest state; 0 before the first."""
        return max(map(images_of, self.states()), default=0)

    def checkpoints(self) -> list[Path]:
        """A file with the generator for each number of images, the smaller if there are two; oldest
        first. FileNotFoundError if there are none."""
        files = {images_of(path): path for path in [*self.states(), *self.generators()]}
        if not files:
            what = "holds none" if self.path.is_dir() else "is not a folder"
            raise FileNotFoundError(
                "this is made of the generator-*.pt and state-*.pt of a run folder, but "
                f"{self.path} {what}"
            )
        return [files[images] for images in sorted(files)]

    def grids(self) -> list[tuple[int, Path]]:
        """Thousands of images and the samples of then, oldest first."""
        paths = (p for p in self.samples.glob("*.png") if re.fullmatch(r"[0-9]{1,12}", p.stem))
        return sorted((int(path.stem), path) for path in paths)

    def retain_states(self, images_seen: int, keep: int, milestone_images: int = 0) -> None:
        """Delete all states up to that of `images_seen` but the last `keep` of them and milestones:
        the first state after each multiple of `milestone_images` (0: none)."""
        passed = {0}
        for path in [path for path in self.states() if images_of(path) <= images_seen][:-keep]:
            multiple = images_of(path) // milestone_images if milestone_images else 0
            if multiple in passed:
                path.unlink(missing_ok=True)
            passed.add(multiple)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Meanwhile no other call trains here: ValueError if one does already, in all processes.

        The folder is made if it is not there. Where the system or its files have no locks, nothing
        is checked. What a killed save has left is removed.
        """
        with ExitStack() as held:
            from_first(lambda: self.enter(held))
            yield

    def enter(self, held: ExitStack) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        if fcntl is not None:
            descriptor = os.open(self.path, os.O_RDONLY)
            held.callback(os.close, descriptor)  # which ends the lock, as the end of the process
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ValueError(
                    f"another process is training in {self.path}; wait until it has finished or "
                    "end it, or choose another --out"
                ) from error
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
        for kind in ("state", "generator"):
            remove_partials(self.path, kind)


def images_of(path: Path) -> int:
    """The number of images in the name of a numbered file."""
    return int(path.stem.rpartition("-")[2])
