# SPDX-License-Identifier: Apache-2.0
"""Files that hold no exported program are told from those that may, with no need of torch."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from intarsia_runtime.errors import ModelError
from intarsia_torch.importing import from_torch


@pytest.mark.parametrize(
    "content",
    [b"", b"\x08\x09\x12\x07pytorch", b"PK\x03\x04 and no more", b"PK\x05\x06" + b"\xff" * 18],
)
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"model.pt2' holds no exported program: ") as raised:
        from_torch(path)
    assert "torch.export.save" in raised.value.hint


def test_a_member_that_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data/weights/weight_0", b"\0" * 64)
    content = bytearray(path.read_bytes())
    content[content.index(b"\0" * 64) + 10] = 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"is damaged: the checksum of '.*weight_0' is another"):
        from_torch(path)


@pytest.mark.parametrize("name", ["absent.pt2", "."])
def test_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match="there is no file"):
        from_torch(tmp_path / name)
