# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import json
import mmap
import os
import random
import shutil
import struct
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from intarsia.driver.copying import copy_artifact
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_ir.writing import artifact_writer as writer
from intarsia_ir.writing.artifact_writer import write_artifact
from intarsia_ir.writing.stream import THREADED_BYTES
from intarsia_ir.writing.tensor_pieces import tensor_pieces
from intarsia_runtime.artifact import archive
from intarsia_runtime.artifact.archive import is_artifact, open_artifact, read_passport
from intarsia_runtime.artifact.digest import MemberDigest
from intarsia_runtime.artifact.passport import Passport, UnitEntry
from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    CallPlan,
    CopyStep,
    RegionStep,
    TensorSpec,
)
from intarsia_runtime.artifact.tensors import read_layout
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import (
    ArtifactError,
    IntarsiaError,
    ModelError,
    PluginError,
    ResourceError,
    UnsupportedError,
    UsageError,
)

X = TensorSpec("x", (2, 3), DType.FLOAT32)
IN = Argument(ArgumentSource.INPUT, 0, (2, 3), DType.FLOAT32)
OUT = Argument(ArgumentSource.OUTPUT, 0, (2, 3), DType.FLOAT32)
WEIGHT = Argument(ArgumentSource.CONSTANT, 0, (5,), DType.FLOAT32)
PLAN = CallPlan((X,), (X,), ("w",), ("toy_0",), 64, (CopyStep(IN, OUT),))
PASSPORT = Passport(
    name="sample",
    intarsia="0",
    target="toy",
    os="linux",
    arch="x86_64",
    plan=PLAN,
    units=(
        UnitEntry("main", "shared-library", ("lib.so",)),
        UnitEntry("toy_0", "toy", ("graph.json", "deep/blob.bin"), ("w",), (X,), (X,), "toy==1"),
    ),
    plugins={"intarsia-toy": "1"},
)
UNITS = (
    CompiledUnit("toy_0", "toy", {"graph.json": b"{}", "deep/blob.bin": b"blob"}),
    CompiledUnit("main", "shared-library", {"lib.so": b"\x7fELF" * 100}),
)
CONSTANTS = {
    "w": np.arange(5, dtype=np.float32),
    "empty": np.zeros((0, 4), np.int8),
    "scalar": np.array(7, np.int64),
    "bits": np.array([True, False]),
    "brain": np.array([1.5, -2], ml_dtypes.bfloat16),
    ".pad1": np.array([3], np.uint8),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "sample.intarsia"
    write_artifact(target, PASSPORT, UNITS, CONSTANTS)
    return target


def test_what_is_written_is_read(path: Path) -> None:
    opened = open_artifact(path)
    assert replace(opened.passport, members={}) == PASSPORT
    assert opened.unit_files("toy_0") == {"graph.json": b"{}", "deep/blob.bin": b"blob"}
    for name, array in CONSTANTS.items():
        weight = opened.weights[name]
        assert (weight.spec.shape, weight.spec.dtype.value) == (array.shape, array.dtype.name)
        assert bytes(weight.data) == array.tobytes()
    assert read_passport(path) == opened.passport
    assert is_artifact(path)
    assert is_artifact(path.with_name("absent.intarsia"))
    assert is_artifact(path.rename(path.with_suffix(".zip")))
    assert not is_artifact(path.parent)


def test_every_member_and_every_weight_is_aligned(path: Path) -> None:
    weights = open_artifact(path).weights
    for weight in (weights[name] for name in CONSTANTS):
        address = np.frombuffer(weight.data, np.uint8).ctypes.data if len(weight.data) else 0
        assert address % 64 == 0


def test_other_zip_and_safetensors_readers_understand_it(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[-1] == "passport.json"
        weights = dict(safetensors.deserialize(archive.read("params.safetensors")))
    for name, array in CONSTANTS.items():
        assert bytes(weights[name]["data"]) == array.tobytes()
        assert tuple(weights[name]["shape"]) == array.shape


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
KINDS = st.sampled_from([numpy_dtype(dtype) for dtype in DType])


@given(
    st.dictionaries(
        NAMES.filter("__metadata__".__ne__),
        st.tuples(KINDS, st.lists(st.integers(0, 9), max_size=3)),
        max_size=8,
    )
)
def test_weights_are_written_as_the_library_writes_them(
    kinds: dict[str, tuple[np.dtype, list[int]]],
) -> None:
    arrays = {name: np.ones(shape, kind) for name, (kind, shape) in kinds.items()}
    gaps = {
        f"{name}\0": np.zeros(-array.nbytes % 64 // array.itemsize, array.dtype)
        for name, array in arrays.items()
    }
    everything = arrays | {name: gap for name, gap in gaps.items() if gap.size}
    rows = {
        name: safetensors.TensorSpec(
            dtype=array.dtype.name,
            shape=array.shape,
            data_ptr=array.ctypes.data,
            data_len=array.nbytes,
        )
        for name, array in everything.items()
    }
    assert b"".join(tensor_pieces(arrays)) == safetensors.serialize(rows)


def test_the_same_content_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.intarsia"
    write_artifact(again, PASSPORT, UNITS[::-1], dict(reversed(CONSTANTS.items())))
    assert again.read_bytes() == path.read_bytes()
    assert str(tmp_path).encode() not in path.read_bytes()


@pytest.mark.parametrize("part", range(16))
def test_a_file_cut_short_is_refused(path: Path, part: int) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * part // 16])
    with pytest.raises(ArtifactError) as caught:
        open_artifact(path)
    assert caught.value.exit_code == 7
    assert str(path) in str(caught.value)


def test_a_flipped_bit_is_refused_or_changes_nothing(path: Path) -> None:
    content = path.read_bytes()
    whole = open_artifact(path)
    random.seed(7)
    for position in random.sample(range(len(content)), 400):
        damaged = bytearray(content)
        damaged[position] ^= 1 << random.randrange(8)
        path.write_bytes(damaged)
        try:
            opened = open_artifact(path)
        except ArtifactError:
            continue
        assert opened.passport == whole.passport
        assert opened.files == whole.files
        assert {n: bytes(w.data) for n, w in opened.weights.items()} == {
            n: a.tobytes() for n, a in CONSTANTS.items()
        } | {n: bytes(w.data) for n, w in whole.weights.items() if n not in CONSTANTS}


def rewrite(path: Path, members: dict[str, bytes | None]) -> None:
    """Replace, add or (with None) drop members."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (content | members).items():
            if data is not None:
                archive.writestr(name, data)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"units/main/lib.so": b"other"}, "member 'units/main/lib.so' is damaged.*sha256"),
        ({"units/main/lib.so": None}, "disagree on the members: units/main/lib.so"),
        ({"params.safetensors": None}, "disagree on the members: params.safetensors"),
        ({"units/toy_0/more": b""}, "disagree on the members: units/toy_0/more"),
        ({"../evil": b""}, r"'\.\./evil' does not belong"),
        ({"units/main/../evil": b""}, "has a name that leaves the archive"),
        ({"units/main": b""}, "has a name that leaves the archive"),
        ({"passport.json": None}, "has no passport.json"),
        ({"passport.json": b"{"}, "is not JSON"),
        ({"passport.json": b"[" * 100_000}, "is not JSON"),
        ({"passport.json": b"[]"}, "passport.json is not an object"),
        ({"passport.json": b'{"schema": 1}'}, "has schema 1, this version reads schema 2"),
        ({"passport.json": b'{"schema": 2}'}, "the passport's 'name' is not a text"),
    ],
)
def test_a_changed_archive_is_refused(
    path: Path, members: dict[str, bytes | None], message: str
) -> None:
    rewrite(path, members)
    with pytest.raises(ArtifactError, match=message):
        open_artifact(path)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["plan", "workspace_bytes"], -1, "'workspace_bytes' is negative"),
        (["plan", "workspace_bytes"], True, "'workspace_bytes' is not a whole number"),
        (["plan", "constants"], [1], "'constants' is not a list of texts"),
        (["plugins"], {"acme": 1}, "'plugins' is not an object of texts"),
        (["plan", "inputs", 0, "shape"], [-1], "'shape' is not a list of sizes"),
        (["plan", "inputs", 0, "dtype"], "int3", "element type 'int3' is not supported"),
        (["plan", "steps", 0, "args"], [], "a copy in the passport's plan has 0 tensors"),
        (["plan", "steps", 0, "args", 0, "place"], "moon", "has an argument in 'moon'"),
        (["plan", "steps", 0, "args", 0, "index"], 3, "step 0 of the plan reads or writes outside"),
        (["plan", "steps", 0, "args", 0, "shape"], [99], "outside of its input"),
        (["plan", "regions"], ["other"], "do not match the regions"),
        (["units", 1, "files"], ["absent"], "unit 'toy_0' has no file 'absent'"),
        (["units", 1, "constants"], ["absent"], "the weights absentare missing"),
        (["plan", "steps", 0, "region"], 5, "step 0 of the plan calls region 5"),
    ],
)
def test_a_passport_that_contradicts_itself_is_refused(
    path: Path, keys: list[str | int], value: object, message: str
) -> None:
    with zipfile.ZipFile(path) as archive:
        document = json.loads(archive.read("passport.json"))
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    if keys[-1] == "region":
        place |= {"label": "", "nodes": []}
    rewrite(path, {"passport.json": json.dumps(document).encode()})
    with pytest.raises(ArtifactError, match=message):
        open_artifact(path)


def test_a_plan_that_reads_past_a_weight_is_refused(tmp_path: Path) -> None:
    long = replace(WEIGHT, shape=(500,))
    plan = replace(PLAN, steps=(CopyStep(long, OUT),))
    path = tmp_path / "long.intarsia"
    write_artifact(path, replace(PASSPORT, plan=plan), UNITS, CONSTANTS)
    with pytest.raises(ArtifactError, match="reads past the end of the weight 'w'"):
        open_artifact(path)


def test_a_region_called_with_other_tensors_is_refused(tmp_path: Path) -> None:
    plan = replace(PLAN, steps=(RegionStep(0, (IN, WEIGHT)),))
    path = tmp_path / "other.intarsia"
    write_artifact(path, replace(PASSPORT, plan=plan), UNITS, CONSTANTS)
    with pytest.raises(ArtifactError, match="calls unit 'toy_0' with tensors that do not match"):
        open_artifact(path)


def test_an_unknown_unit_is_named() -> None:
    with pytest.raises(ArtifactError, match="names no unit 'other'"):
        PASSPORT.unit("other")


def test_a_name_that_is_there_twice_is_refused(path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("units/main/lib.so", b"second")
    with pytest.raises(ArtifactError, match="is there twice"):
        open_artifact(path)


def test_a_compressed_member_is_refused(path: Path) -> None:
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("units/main/bomb", bytes(1 << 20))
    with pytest.raises(ArtifactError, match="is not a stored file"):
        open_artifact(path)


def test_a_passport_too_large_is_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intarsia_runtime.artifact.archive._MAX_PASSPORT", 100)
    with pytest.raises(ArtifactError, match="too large"):
        open_artifact(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"nonsense", "damaged header"),
        (b'{"w": {"dtype": "F32", "shape": [5], "data_offsets": [0, 999]}}', "outside of the file"),
        (b'{"w": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}', "outside of the file"),
        (b'{"w": {"dtype": "F1", "shape": [5], "data_offsets": [0, 20]}}', "damaged header"),
    ],
)
def test_a_damaged_weights_header_is_refused(header: bytes, message: str) -> None:
    from intarsia_runtime.artifact.tensors import read_layout

    member = struct.pack("<Q", len(header)) + header + bytes(20)
    with pytest.raises(ArtifactError, match=message):
        read_layout(memoryview(member))


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.intarsia", tmp_path):
        with pytest.raises(ModelError, match="there is no file"):
            open_artifact(path)
    with pytest.raises(UsageError, match="is a folder"):
        write_artifact(tmp_path, PASSPORT, UNITS, {})


def test_a_file_that_is_replaced_while_it_is_opened(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, read = tmp_path / "other", archive.parse_passport
    write_artifact(other, PASSPORT, UNITS, {**CONSTANTS, "w": np.zeros(5000, np.float32)})

    def replaced(data: bytes) -> Passport:
        if other.exists():
            other.replace(path)
        return read(data)

    monkeypatch.setattr(archive, "parse_passport", replaced)
    assert open_artifact(path).weights["w"].spec.shape == (5,)
    assert open_artifact(path).weights["w"].spec.shape == (5000,)


def test_an_unreadable_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("mmap.mmap", refuse)
    with pytest.raises(ArtifactError, match="cannot map"):
        open_artifact(path)
    monkeypatch.setattr("zipfile.ZipFile", refuse)
    with pytest.raises(ModelError, match=r"cannot read.*Permission denied"):
        open_artifact(path)


@pytest.mark.parametrize("name", ["../lib.so", "a//b", "/lib.so", "a\nb", ".", "c:evil"])
def test_a_unit_cannot_leave_its_folder(tmp_path: Path, name: str) -> None:
    units = [CompiledUnit("main", "shared-library", {name: b""})]
    with pytest.raises(PluginError, match="which no artifact can hold"):
        write_artifact(tmp_path / "x.intarsia", PASSPORT, units, {})
    assert list(tmp_path.iterdir()) == []


def test_the_one_name_that_a_weight_cannot_have(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="cannot be called '__metadata__'"):
        write_artifact(tmp_path / "x.intarsia", PASSPORT, UNITS, {"__metadata__": CONSTANTS["w"]})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), ResourceError),
        (OSError(errno.EROFS, "Read-only file system"), ResourceError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_write_that_fails_leaves_the_old_file(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
    expected: type[BaseException],
) -> None:
    before = path.read_bytes()

    def stream(*_: object) -> Iterator[tuple[str, bytes]]:
        yield "units/main/lib.so", b"new"
        raise failure

    monkeypatch.setattr(writer, "_unit_files", stream)
    with pytest.raises(expected) as caught:
        write_artifact(path, PASSPORT, UNITS, CONSTANTS)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    if isinstance(caught.value, IntarsiaError):
        assert str(path) in str(caught.value)


def test_a_digest_that_cannot_be_taken_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(MemberDigest, "update", refuse)
    with pytest.raises(MemoryError):
        write_artifact(path, PASSPORT, UNITS, {"w": np.zeros(THREADED_BYTES, np.uint8)})
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("fault", [None, OSError(errno.EXDEV, "Invalid cross-device link"), 0])
def test_a_copy_is_the_same_whatever_the_system_can_do(
    path: Path, monkeypatch: pytest.MonkeyPatch, fault: OSError | int | None
) -> None:
    calls: list[int] = []
    real = os.copy_file_range

    def copy(source: int, target: int, count: int, *places: int) -> int:
        calls.append(count)
        if len(calls) > 1 and isinstance(fault, OSError):
            raise fault
        return 0 if fault == 0 else real(source, target, 100, *places)

    if fault is not None:
        monkeypatch.setattr(os, "copy_file_range", copy)
    target = path.with_name("copy.intarsia")
    target.write_bytes(b"old")
    with path.open("rb") as file:
        file.read(7)
        copy_artifact(file, target)
    assert target.read_bytes() == path.read_bytes()
    assert sorted(file.name for file in path.parent.iterdir()) == [target.name, path.name]
    assert fault is None or calls


@pytest.mark.skipif(sys.platform != "linux", reason="other systems copy in the usual way")
@pytest.mark.parametrize("fault", [None, OSError(errno.EINVAL, "Invalid argument"), 0, 100])
@pytest.mark.parametrize("size", [0, 5, 4096, 3 * 4096 + 5, 5 * 4096])
def test_a_copy_that_is_not_read_next_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: OSError | int | None, size: int
) -> None:
    """Past the system's memory of files, in steps of two blocks, as far as the system does it."""
    calls: list[int] = []
    real = os.pwrite

    def write(copy: int, data: mmap.mmap, place: int) -> int:
        calls.append(len(data))
        if len(calls) == 1 or fault is None:
            return real(copy, data, place)
        if isinstance(fault, OSError):
            raise fault
        with open(f"/proc/self/fd/{copy}", "r+b", buffering=0) as usual:  # writes parts of blocks
            return real(usual.fileno(), data[:fault], place)

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(writer, "_STEP", 2 * 4096)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(251)) * 100)
    with source.open("r+b") as file:
        file.truncate(size)
        copy_artifact(file, target, is_read_next=False)
    assert target.read_bytes() == source.read_bytes()
    assert bool(calls) == (size >= 4096)


def test_a_copy_that_fails_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    monkeypatch.setattr(shutil, "copyfileobj", refuse)
    with path.open("rb") as file, pytest.raises(ResourceError, match="No space left"):
        copy_artifact(file, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems store files when they like")
@pytest.mark.parametrize("fault", [None, OSError(errno.ENOSYS, "Function not implemented")])
def test_what_is_written_begins_to_be_stored(
    path: Path, monkeypatch: pytest.MonkeyPatch, fault: OSError | None
) -> None:
    places: list[tuple[int, int]] = []

    def advise(_: int, start: int, count: int, __: int) -> None:
        places.append((start, count))
        if fault is not None:
            raise fault

    monkeypatch.setattr(os, "posix_fadvise", advise)
    monkeypatch.setattr(writer, "_STEP", 4096)
    again = path.with_name("again.intarsia")
    write_artifact(again, PASSPORT, UNITS, {**CONSTANTS, "v": np.ones(3000, np.float32)})
    assert open_artifact(again).weights["v"].data == np.ones(3000, np.float32).tobytes()
    assert places
    assert all(count >= 4096 for _, count in places)
    assert places == sorted(set(places))


def test_a_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        write_artifact(tmp_path / "absent" / "x.intarsia", PASSPORT, UNITS, CONSTANTS)


def test_large_members_keep_their_alignment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    path = tmp_path / "large.intarsia"
    write_artifact(path, PASSPORT, UNITS, CONSTANTS)
    weight = open_artifact(path).weights["w"]
    assert np.frombuffer(weight.data, np.uint8).ctypes.data % 64 == 0


@pytest.mark.parametrize(
    "shape", ["Infinity", "1e400", "NaN", "[1e400]", "[2.0]", "[true]", "[-2]"]
)
@pytest.mark.parametrize("key", ["shape", "data_offsets"])
def test_numbers_of_the_weights_header_are_integers(shape: str, key: str) -> None:
    fields = {"dtype": '"F32"', "shape": "[2]", "data_offsets": "[0,8]", key: shape}
    entry = ",".join(f'"{name}":{value}' for name, value in fields.items())
    text = f'{{"w":{{{entry}}}}}'.encode()
    member = len(text).to_bytes(8, "little") + text + bytes(8)
    with pytest.raises(ArtifactError, match="damaged header"):
        read_layout(memoryview(member))
