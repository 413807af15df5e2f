"""Where a command may write, who holds a folder, and what drives refuse."""

import errno
import fcntl
import os
from pathlib import Path

import pytest
from helpers.processes import started_python

from stylegan.data import open_source
from stylegan.data.faces import read_landmarks
from stylegan.files.checkpoint import is_npy, npz_arrays
from stylegan.files.loading import open_weights
from stylegan.utils.filesystem import (
    ALLOW_OVERWRITE,
    KEEP_EXISTING,
    OutputWriter,
    atomic_folder,
    check_folder,
    check_not_placeholder,
    lock,
    not_found,
    output_stem,
)
from stylegan.utils.toml import read_toml


def test_output_writer_rejects_devices_and_pipes(tmp_path):
    """A device would be replaced by a file; one that is read to its end has none."""
    os.mkfifo(tmp_path / "pipe.png")
    for path in ("/dev/null", "/dev/zero", tmp_path / "pipe.png"):
        for overwrite in (True, False):
            with pytest.raises(ValueError, match="is not a regular file; give another name"):
                OutputWriter(overwrite=overwrite).check(Path(path))
    (tmp_path / "old.png").touch()
    ALLOW_OVERWRITE.check(tmp_path / "old.png")
    with pytest.raises(ValueError, match="exists; pass --overwrite"):
        KEEP_EXISTING.check(tmp_path / "old.png")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file whose reading fails")
@pytest.mark.parametrize(
    "read",
    [
        read_toml,
        open_weights,
        npz_arrays,
        is_npy,
        read_landmarks,
        open_source,
        check_not_placeholder,
    ],
)
def test_attach_filename_covers_read_errors_of_every_reader(read, tmp_path):
    path = tmp_path / "file"
    path.symlink_to("/proc/self/mem")  # EIO
    with pytest.raises(OSError, match="Input/output error") as caught:
        read(path)
    assert caught.value.filename == str(path)


def test_atomic_folder_names_its_target_on_a_full_disk(tmp_path):
    full = pytest.raises(OSError, match=f"full: '{tmp_path / 'store'}'")
    with full, atomic_folder(tmp_path / "store"):
        raise OSError(28, "full")
    assert not any(tmp_path.iterdir())


def test_output_writer_names_the_requested_file_on_an_error(tmp_path):
    path = tmp_path / ("n" * 300)  # too long for a name
    with pytest.raises(OSError) as caught, ALLOW_OVERWRITE.file(path):
        pass
    assert str(caught.value.filename) == str(path)


def test_check_folder_rejects_read_only_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may do all
    for path in (tmp_path, tmp_path / "new" / "folder"):
        with pytest.raises(ValueError, match=f"{tmp_path} is not writable"):
            check_folder(path)
    with pytest.raises(ValueError, match="is not writable"):
        KEEP_EXISTING.check(tmp_path / "walk.webp")
    (tmp_path / "mine").mkdir()
    check_folder(tmp_path / "mine" / "new")


def test_check_folder_rejects_broken_links_and_a_shells_own_folder(tmp_path, monkeypatch):
    (tmp_path / "drive").symlink_to(tmp_path / "not mounted")
    for path in (tmp_path / "drive", tmp_path / "drive" / "new"):
        with pytest.raises(ValueError, match=f"{tmp_path / 'drive'} is a broken link"):
            check_folder(path)
    monkeypatch.chdir(tmp_path)
    for path in (Path("."), tmp_path):
        with pytest.raises(ValueError, match=f"{path} is the current folder"):
            check_folder(path, empty=True)


HOLDER = """
import sys
from pathlib import Path
from stylegan.utils import filesystem
with getattr(filesystem, sys.argv[1])(Path(sys.argv[2])) as held:
    if isinstance(held, Path):
        (held / "a").touch()
    print("begun", flush=True)
    sys.stdin.readline()
"""


def test_lock_has_one_holder_until_it_exits_or_is_killed(tmp_path):
    path = tmp_path / ".lock"
    for kill in (True, False):
        with started_python(HOLDER, "lock", path) as holder:
            with pytest.raises(BlockingIOError, match=f"holds this folder: '{tmp_path}'"):
                lock(path).__enter__()
            if not kill:
                holder.communicate("\n")
        with lock(path), pytest.raises(BlockingIOError):
            lock(path).__enter__()
        assert not any(tmp_path.iterdir())


def test_lock_leaves_that_of_another_holder_after_its_folder_was_moved(tmp_path):
    path = tmp_path / "run" / ".lock"
    path.parent.mkdir()
    with lock(path):
        path.parent.rename(tmp_path / "moved")
        path.parent.mkdir()
        other = lock(path)
        other.__enter__()
    with pytest.raises(BlockingIOError):
        lock(path).__enter__()
    other.__exit__(None, None, None)
    assert not any(path.parent.iterdir())


def test_lock_is_skipped_on_drives_without_locks(tmp_path, monkeypatch):
    def without_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", without_locks)
    with lock(tmp_path / ".lock"), lock(tmp_path / ".lock"):
        pass
    assert not any(tmp_path.iterdir())
    with atomic_folder(tmp_path / "first"), atomic_folder(tmp_path / "second"):
        assert (tmp_path / ".first.unfinished").is_dir()  # another process may be writing it


def test_lock_names_the_folder_on_other_errors(tmp_path, monkeypatch):
    def broken(descriptor, operation):
        raise OSError(errno.EIO, "input or output")

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(OSError, match=f"input or output: '{tmp_path}'"):
        lock(tmp_path / ".lock").__enter__()


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_output_writer_ignores_missing_fsync_and_reports_its_errors(tmp_path, monkeypatch, number):
    def refused(descriptor):
        raise OSError(number, "refused")

    def write():
        ALLOW_OVERWRITE.text(tmp_path / "a.txt", "text")
        with atomic_folder(tmp_path / "b") as folder:
            (folder / "c").touch()

    monkeypatch.setattr(os, "fsync", refused)
    if number == errno.EINVAL:
        write()
        assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.txt", "b", "c"]
    else:
        with pytest.raises(OSError, match=f"refused: '{tmp_path / 'a.txt'}'"):
            write()
        with (
            pytest.raises(OSError, match=f"refused: '{tmp_path}"),
            atomic_folder(tmp_path / "b") as folder,
        ):
            (folder / "c").touch()
        assert not any(tmp_path.iterdir())


def test_output_writer_keeps_a_file_that_appears_meanwhile(tmp_path):
    path = tmp_path / "latents.npz"
    KEEP_EXISTING.text(path, "first")
    with (
        pytest.raises(FileExistsError, match=f"{path} exists; pass --overwrite"),
        KEEP_EXISTING.file(path) as file,
    ):
        file.write(b"second")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["first"]
    ALLOW_OVERWRITE.text(path, "third")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["third"]


def test_atomic_folder_replaces_only_an_empty_folder(tmp_path):
    (tmp_path / "out").mkdir()
    with atomic_folder(tmp_path / "out") as folder:
        (folder / "a").touch()
    full = pytest.raises(ValueError, match=f"the folder {tmp_path / 'out'} is not empty")
    with full, atomic_folder(tmp_path / "out") as folder:
        (folder / "b").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "a"]


def test_atomic_folder_writes_where_a_link_points(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    for name in ("empty", "new"):
        target = tmp_path / "elsewhere" / name
        (tmp_path / name).symlink_to(target)
        with atomic_folder(tmp_path / name) as folder:
            (folder / "a").touch()
        assert (tmp_path / name).is_symlink() and (target / "a").is_file()


def test_atomic_folder_refuses_a_volume_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("os.path.ismount", lambda path: path == tmp_path)
    with pytest.raises(ValueError, match="is a disk or volume"), atomic_folder(tmp_path):
        raise AssertionError("begun")


def test_output_writer_takes_names_as_long_as_the_disk_does(tmp_path):
    path = tmp_path / ("a" * 251 + ".png")
    KEEP_EXISTING.text(path, "content")
    assert list(tmp_path.iterdir()) == [path]


def test_atomic_folder_waits_for_another_writer(tmp_path):
    out, waited = tmp_path / "out", []
    with started_python(HOLDER, "atomic_folder", out) as writer:

        def waiting():
            waited.append(sorted(path.name for path in tmp_path.iterdir()))
            writer.communicate("\n")

        with pytest.raises(ValueError, match="is not empty"), atomic_folder(out, waiting):
            pass
    assert waited == [[".out.unfinished", ".out.unfinished.lock"]]
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "a"]


def test_atomic_folder_removes_only_leftovers_of_killed_processes(tmp_path):
    (tmp_path / ".mine.unfinished").mkdir()  # no lock: not ours
    with started_python(HOLDER, "atomic_folder", tmp_path / "killed"):
        pass
    assert (tmp_path / ".killed.unfinished" / "a").exists()
    with started_python(HOLDER, "atomic_folder", tmp_path / "other") as other:
        with atomic_folder(tmp_path / "out"):
            pass
        other.communicate("\n")
    assert {path.name for path in tmp_path.iterdir()} == {"out", "other", ".mine.unfinished"}


@pytest.mark.parametrize("target", ["elsewhere", "mine.pt"])  # broken, or a circle
def test_keep_existing_keeps_a_broken_link(target, tmp_path):
    link = tmp_path / "mine.pt"
    link.symlink_to(target)
    with pytest.raises(ValueError, match="exists"):
        KEEP_EXISTING.check(link)
    with pytest.raises(FileExistsError), KEEP_EXISTING.file(link) as file:
        file.write(b"new")
    assert link.is_symlink() and [path.name for path in tmp_path.iterdir()] == ["mine.pt"]


def test_not_found_says_what_is_there_or_near(tmp_path):
    (tmp_path / "faces.zip").touch()
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    for name, message in {
        "link": f"{tmp_path / 'link'} is a broken link",
        "pipe": f"{tmp_path / 'pipe'} is neither a file nor a folder",
        "face.zip": f"there is no run {tmp_path / 'face.zip'} (did you mean "
        f"{tmp_path / 'faces.zip'}?); pass one",
        "cats": f"there is no run {tmp_path / 'cats'}; pass one",
    }.items():
        assert not_found(tmp_path / name, "pass one", what="run") == message


@pytest.mark.parametrize(
    ("name", "stem"), [("a.png", "a"), ("a.b.png", "a.b"), ("...png", "...png")]
)
def test_output_stem_is_never_a_name_of_dots_alone(name, stem):
    assert output_stem(Path("in") / name) == stem
