# SPDX-License-Identifier: Apache-2.0
"""Weights are written while code is compiled; what becomes of the file depends on the rest."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sys
import threading
from contextlib import closing
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from msgspec.structs import replace

from intarsia_ir.writing import artifact_writer, new_file
from intarsia_ir.writing.artifact_writer import ArtifactWriter, write_artifact
from intarsia_ir.writing.deferred import DeferredArray, Weights
from intarsia_ir.writing.new_file import NewFile
from intarsia_ir.writing.stream import THREADED_BYTES
from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.artifact.passport import Passport, UnitEntry
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.errors import PluginError, ResourceError, UnsupportedError, UsageError

PASSPORT = Passport(
    name="sample",
    intarsia="0",
    target="toy",
    os="linux",
    arch="x86_64",
    plan=CallPlan((), (), ("w",), (), 64, ()),
    units=(UnitEntry("main", "shared-library", ("lib.so",)),),
)
UNITS = (CompiledUnit("main", "shared-library", {"lib.so": b"\x7fELF" * 100}),)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sample.intarsia"


def numbers(value: int, size: int = THREADED_BYTES) -> DeferredArray:
    def fill(array: np.ndarray) -> None:
        array[...] = value

    return DeferredArray((size,), np.dtype(np.uint8), fill)


def test_weights_that_come_first_give_the_same_file(path: Path) -> None:
    weights = Weights({"w": numbers(1), "v": np.arange(5, dtype=np.float32)})
    with closing(ArtifactWriter(path)) as writer:
        writer.begin(weights)
        assert not path.exists()
        written = writer.commit(PASSPORT, UNITS, Weights(dict(weights.contents)))
    assert sorted(written.members) == ["params.safetensors", "units/main/lib.so"]
    assert set(open_artifact(path).weights) == {"w", "v"}
    plain = path.with_name("plain")
    write_artifact(plain, PASSPORT, UNITS, weights)
    assert path.read_bytes() == plain.read_bytes()
    assert sorted(path.parent.iterdir()) == [plain, path]


def test_other_weights_than_those_begun_are_written_anew(path: Path) -> None:
    for others in ({"w": numbers(2)}, {"w": numbers(1), "v": numbers(2)}):
        with closing(ArtifactWriter(path)) as writer:
            writer.begin(Weights({"w": numbers(1)}))
            writer.commit(PASSPORT, UNITS, Weights(others))
        found = open_artifact(path).weights
        assert {name: bytes(weight.data[:2]) for name, weight in found.items()} == {
            name: bytes(array.array()[:2]) for name, array in others.items()
        }
        assert list(path.parent.iterdir()) == [path]


def test_what_is_not_finished_leaves_the_old_file(path: Path) -> None:
    """Weights that come after the one being written are not computed any more."""
    write_artifact(path, PASSPORT, UNITS, {"w": np.zeros(3, np.float32)})
    before, begun, go_on = path.read_bytes(), threading.Event(), threading.Event()
    last: list[int] = []

    def wait(array: np.ndarray) -> None:
        begun.set()
        assert go_on.wait(20)

    def note(array: np.ndarray) -> None:
        last.append(array.size)

    kind = np.dtype(np.uint8)
    later = {f"b{number}": DeferredArray((64,), kind, note) for number in range(9)}
    writer = ArtifactWriter(path)
    writer.begin(Weights({"a": DeferredArray((THREADED_BYTES,), kind, wait), **later}))
    assert begun.wait(20)
    assert len(list(path.parent.iterdir())) == 2
    threading.Timer(0.05, go_on.set).start()
    writer.close()
    writer.close()
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    assert len(last) < 4  # two buffers are filled ahead


@pytest.mark.parametrize(
    ("failure", "expected", "message"),
    [
        (MemoryError(), MemoryError, "^$"),
        (OSError(errno.ENOSPC, "No space left"), ResourceError, "sample.intarsia': No space left"),
        (OSError(errno.ENAMETOOLONG, "Too long"), UsageError, "sample.intarsia': Too long"),
    ],
)
def test_weights_that_fail_are_heard_of_at_the_end(
    path: Path, failure: Exception, expected: type[Exception], message: str
) -> None:
    def refuse(_: np.ndarray) -> None:
        raise failure

    weights = Weights({"w": DeferredArray((THREADED_BYTES,), np.dtype(np.uint8), refuse)})
    with closing(ArtifactWriter(path)) as writer:
        writer.begin(weights)
        with pytest.raises(expected, match=message):
            writer.commit(PASSPORT, UNITS, weights)
    assert list(path.parent.iterdir()) == []


def test_what_cannot_be_written_is_heard_of_at_once(path: Path) -> None:
    cases = {
        path.parent: ({}, UsageError, "is a folder"),
        path.parent / "absent" / "x": ({}, UsageError, "cannot write"),
        path: ({"__metadata__": np.zeros(1, np.uint8)}, UnsupportedError, "cannot be called"),
    }
    for place, (weights, error, message) in cases.items():
        with closing(ArtifactWriter(place)) as writer, pytest.raises(error, match=message):
            writer.begin(weights)
    assert list(path.parent.iterdir()) == []


def test_a_thread_that_is_not_to_be_had_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with closing(ArtifactWriter(path)) as writer, pytest.raises(RuntimeError, match="new thread"):
        writer.begin({"w": np.zeros(1, np.uint8)})
    assert list(path.parent.iterdir()) == []


def test_code_that_cannot_be_written_leaves_nothing(path: Path) -> None:
    units = (CompiledUnit("main", "shared-library", {"../lib.so": b""}),)
    with closing(ArtifactWriter(path)) as writer:
        writer.begin({})
        with pytest.raises(PluginError, match="which no artifact can hold"):
            writer.commit(replace(PASSPORT, target="other"), units, {})
    assert list(path.parent.iterdir()) == []


REMOVES = new_file._remove.__code__


class Interrupt:
    """Raises KeyboardInterrupt when a line is about to run, by the line's number among all.

    Those are the lines of the modules that write an artifact, in the thread that traces.
    """

    WHERE = frozenset({artifact_writer.__file__, new_file.__file__, contextlib.__file__})

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, _: object) -> Interrupt | None:
        if frame.f_code.co_filename not in self.WHERE:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0 and frame.f_code is not REMOVES:  # there commands take it later
                raise KeyboardInterrupt
        return self

    def write(self, path: Path) -> bool:
        """Write an artifact; whether there were as many lines. In a destructor it is dropped."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            write_artifact(path, PASSPORT, UNITS, {"w": np.zeros(3, np.float32)})
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        return self.left <= 0


def left_in(folder: Path) -> list[Path]:
    """Files that stay when a thread that writes has ended."""
    for thread in threading.enumerate():
        if "_write" in thread.name:
            thread.join()
    return list(folder.iterdir())


def test_an_interrupt_anywhere_leaves_the_whole_file_or_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left goes with the objects of whoever was interrupted."""
    monkeypatch.setattr(sys, "unraisablehook", id)
    write_artifact(path, PASSPORT, UNITS, {"w": np.zeros(3, np.float32)})
    whole, seen, at = path.read_bytes(), {True: 0, False: 0}, 1
    path.unlink()
    while Interrupt(at).write(path):
        left = left_in(path.parent)
        if left not in ([], [path]):  # it is in a cycle
            gc.collect()
            left = left_in(path.parent)
        assert left in ([], [path]), at
        assert not left or path.read_bytes() == whole
        seen[bool(left)] += 1
        path.unlink(missing_ok=True)
        at += 1
    assert path.read_bytes() == whole
    assert seen[False] > 100
    assert seen[True] > 5


def test_an_interrupt_while_the_thread_starts_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_artifact(path, PASSPORT, UNITS, {"w": np.zeros(3, np.float32)})
    assert list(path.parent.iterdir()) == []


def test_a_forked_process_leaves_files_of_its_parent_alone(path: Path) -> None:
    with closing(NewFile(path)) as new:
        child = os.fork()
        if child == 0:
            new.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert len(list(path.parent.iterdir())) == 1
    assert list(path.parent.iterdir()) == []
