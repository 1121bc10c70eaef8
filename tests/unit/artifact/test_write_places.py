# SPDX-License-Identifier: Apache-2.0
"""What is written takes the place of files alone, and says so where it cannot."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from intarsia_ir.writing.new_file import atomic_write
from intarsia_runtime.errors import ResourceError, UsageError


def write(path: Path, data: bytes = b"new") -> None:
    with atomic_write(path) as file:
        file.write(data)


@pytest.mark.skipif(os.name != "posix", reason="needs pipes with names")
def test_only_a_file_is_replaced(tmp_path: Path) -> None:
    """Root may rename a file over anything, ``/dev/null`` too, which everybody writes to."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    to_pipe, loop = tmp_path / "to pipe", tmp_path / "loop"
    to_pipe.symlink_to(pipe)
    loop.symlink_to(loop)
    names = {
        tmp_path: "is a folder",
        pipe: "is a device or a pipe",
        to_pipe: "is a device or a pipe",
        loop: "cannot write",
        tmp_path / ("n" * 300): "cannot write .*: File name too long",
        tmp_path / "n\0": "cannot write .*null byte",
        pipe / "below": "cannot write .*: Not a directory",
    }
    for path, message in names.items():
        with pytest.raises(UsageError, match=message):
            write(path)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert sorted(tmp_path.iterdir()) == [loop, pipe, to_pipe]


def test_a_link_leads_to_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    link.symlink_to(Path("folder", "real"))
    for data in (b"new", b"old and new"):
        write(link, data)
        assert link.is_symlink()
        assert real.read_bytes() == data
    assert list((tmp_path / "folder").iterdir()) == [real]


def test_a_disk_that_takes_nothing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing what could not be made fails there, too, and in other words."""

    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    path = tmp_path / "file"
    monkeypatch.setattr(Path, "unlink", refuse)
    message = f"cannot write '{path}': Read-only"
    with pytest.raises(ResourceError, match=message) as caught, atomic_write(path):
        refuse(path)
    assert caught.value.hint == "name another place"


def test_a_folder_that_cannot_be_read_gets_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    write(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"new"
