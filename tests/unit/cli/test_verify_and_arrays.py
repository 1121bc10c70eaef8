# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import tempfile
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.driver.arrays import random_inputs, read_inputs, write_arrays
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ModelError, ResourceError, UsageError
from intarsia_tools.verify import compare

F = np.float32


@pytest.mark.parametrize(
    ("found", "expected", "ok"),
    [
        (F([1, 2, 100]), F([1.0005, 2, 100]), True),
        (F([1, 2, 100]), F([1, 2, 101]), False),
        (F([np.nan, np.inf, 1]), F([np.nan, np.inf, 1]), True),
        (F([np.nan]), F([1]), False),
        (F([np.inf]), F([-np.inf]), False),
        (F([1]), F([np.inf]), False),
        (np.int64([1, 2]), np.int64([1, 2]), True),
        (np.int64([1, 2]), np.int64([1, 3]), False),
        (np.int64([1]), np.int32([1]), False),
        (F([1]), F([[1]]), False),
        (np.zeros((0, 3), F), np.zeros((0, 3), F), True),
        (np.array(True), np.array(True), True),
    ],
)
def test_compare(found: np.ndarray, expected: np.ndarray, ok: bool) -> None:
    check = compare("y", found, expected)
    assert check.ok is ok
    assert check.to_json()["name"] == "y"


def test_a_quantized_model_may_be_a_step_off() -> None:
    found, expected = F([0.0, 1.03]), F([0.03, 1.0])
    assert not compare("y", found, expected).ok
    assert compare("y", found, expected, quantized=True).ok
    assert compare("y", np.uint8([3]), np.uint8([4]), quantized=True).ok
    assert not compare("y", np.uint8([3]), np.uint8([5]), quantized=True).ok


def test_random_inputs_are_the_same_for_the_same_seed() -> None:
    specs = [TensorSpec(dtype.value, (2, 50), dtype) for dtype in DType]
    first, again, other = (random_inputs(specs, seed) for seed in (1, 1, 2))
    for spec in specs:
        assert first[spec.name].dtype.name == spec.dtype.value
        assert first[spec.name].shape == spec.shape
        assert first[spec.name].tobytes() == again[spec.name].tobytes()
    assert first["float32"].tobytes() != other["float32"].tobytes()
    assert set(np.unique(first["int64"])) == {0, 1}
    assert random_inputs([TensorSpec("s", (), DType.INT8)], 0)["s"].shape == ()


def test_npz_keeps_names_and_order(tmp_path: Path) -> None:
    path = tmp_path / "y.npz"
    arrays = {"z/out": np.arange(3), "file": np.array(1.5), "a": np.zeros((0, 2))}
    write_arrays(path, arrays)
    with np.load(path) as file:
        assert list(file.files) == list(arrays)
    read = read_inputs(str(path), (), 0)
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
    assert [file.name for file in tmp_path.iterdir()] == ["y.npz"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"", "no zip archive"),
        (b"PK\x03\x04 damaged", "no zip archive, or a part of one"),
        (b"\x80\x04pickle", "no zip archive"),
        (b"x: 1, 2, 3", "no zip archive"),
    ],
)
def test_inputs_that_cannot_be_read(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "x.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=f"cannot read inputs from .*{reason}"):
        read_inputs(str(path), (), 0)


@pytest.mark.parametrize("member", ["passport.json", "x.npy"])
def test_an_archive_of_something_else_is_no_npz(tmp_path: Path, member: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr(member, "{}")
    with pytest.raises(ModelError, match=f"'{Path(member).stem}.*' in it is not an array"):
        read_inputs(str(tmp_path / "x.npz"), (), 0)


def test_one_array_is_no_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    with pytest.raises(ModelError, match="it holds one array without a name"):
        read_inputs(str(tmp_path / "x.npy"), (), 0)


@settings(deadline=None)
@given(st.data())
def test_damaged_inputs_are_said_to_be_damaged(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npz"
        np.savez_compressed(path, x=np.arange(20, dtype=np.float32))
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content)
        with suppress(ModelError, ResourceError):
            read_inputs(str(path), (), 0)


@pytest.mark.parametrize(
    "error", [zlib.error("bad block"), NotImplementedError("patched"), SyntaxError("header")]
)
def test_whatever_reading_raises_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    path = str(tmp_path / "x.npz")
    np.savez(path, x=np.zeros(3))
    monkeypatch.setattr(np, "load", fail)
    with pytest.raises(ModelError, match=f"cannot read inputs.*{error}"):
        read_inputs(path, (), 0)
    monkeypatch.setattr(np, "load", exhaust)
    with pytest.raises(ResourceError, match="no memory for the inputs in"):
        read_inputs(path, (), 0)


def exhaust(*_: object, **__: object) -> None:
    raise MemoryError


def test_outputs_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        write_arrays(tmp_path / "absent" / "y.npz", {})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ResourceError, match="No space left"):
        write_arrays(tmp_path / "y.npz", {"a": np.zeros(1)})
    assert list(tmp_path.iterdir()) == []
