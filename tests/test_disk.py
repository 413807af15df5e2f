"""Where a command may write."""

import os
from pathlib import Path

import pytest

from stylegan.disk import check_file


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
