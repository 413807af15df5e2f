"""Where a command may write."""

import os
from pathlib import Path

import pytest

from stylegan.disk import atomic_folder, check_file


def test_devices_and_pipes_are_no_files_to_write(tmp_path):
    """A device would be replaced by a file; one that is read to its end has none."""
    os.mkfifo(tmp_path / "pipe.png")
    for path in ("/dev/null", "/dev/zero", tmp_path / "pipe.png"):
        for overwrite in (True, False):
            with pytest.raises(ValueError, match="is not a regular file; give another name"):
                check_file(Path(path), overwrite=overwrite)
    (tmp_path / "old.png").touch()
    check_file(tmp_path / "old.png", overwrite=True)
    with pytest.raises(ValueError, match="exists; pass --overwrite"):
        check_file(tmp_path / "old.png", overwrite=False)


def test_a_full_disk_is_told_with_the_folder_that_was_to_be(tmp_path):
    full = pytest.raises(OSError, match=f"full: '{tmp_path / 'store'}'")
    with full, atomic_folder(tmp_path / "store"):
        raise OSError(28, "full")
    assert not any(tmp_path.iterdir())
