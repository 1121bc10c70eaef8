# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace

from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.artifact.passport import Passport
from intarsia_runtime.errors import ArtifactError, ResourceError, UsageError
from intarsia_runtime.executors.graph import GraphExecutor
from intarsia_runtime.library import NativeLibrary
from intarsia_runtime.load import load
from intarsia_runtime.program import LoadedProgram
from intarsia_runtime.threads import (
    MOST_THREADS,
    available_threads,
    load_openmp,
    startable_threads,
    thread_pool,
    thread_setter,
)


def call(library: NativeLibrary, symbol: str) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int)(library.required(symbol))()


def test_two_loads_of_one_library_share_no_state(machine_code: bytes) -> None:
    first, second = NativeLibrary(machine_code, "a"), NativeLibrary(machine_code, "a")
    assert [call(first, "__tvm_ffi_calls") for _ in range(3)] == [1, 2, 3]
    assert call(second, "__tvm_ffi_calls") == 1
    first.close()
    first.close()
    assert call(second, "__tvm_ffi_calls") == 2


def test_without_anonymous_files_a_temporary_one_serves(
    machine_code: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError("not here")

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert call(NativeLibrary(machine_code, "a"), "__tvm_ffi_calls") == 1
    monkeypatch.setattr(sys, "platform", "other")
    assert call(NativeLibrary(machine_code, "a"), "__tvm_ffi_calls") == 1
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(ResourceError, match="the code of 'a' cannot be loaded: not here"):
        NativeLibrary(machine_code, "a")


def test_files_in_memory_have_a_limit_too(artifact: Path) -> None:
    code = (
        "import resource, signal\n"
        "from intarsia_runtime.load import load\n"
        "from intarsia_runtime.errors import ResourceError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        f"    load({str(artifact)!r}, threads=1)\n"
        "except ResourceError as error:\n"
        "    print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.startswith("the code of 'main' cannot be loaded: File too large\n  hint: ")


def test_no_memory_for_the_code(monkeypatch: pytest.MonkeyPatch, machine_code: bytes) -> None:
    def refuse(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(ResourceError, match="no memory to load 'a'"):
        NativeLibrary(machine_code, "a")


def test_what_is_no_library_is_refused() -> None:
    with pytest.raises(
        ArtifactError, match="the code of 'a': the file is not a shared library of ELF"
    ):
        NativeLibrary(b"not a library", "a")


def test_a_missing_symbol_is_named(machine_code: bytes) -> None:
    library = NativeLibrary(machine_code, "a")
    assert library.address("absent") == 0
    with pytest.raises(ArtifactError, match="the code of 'a' exports no 'absent'"):
        library.required("absent")


def test_loading_and_closing_leaks_no_descriptors(artifact: Path) -> None:
    load(artifact).close()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        load(artifact).close()
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_damage_is_found_before_the_code_is_loaded(artifact: Path) -> None:
    content = bytearray(artifact.read_bytes())
    content[content.index(b"\x7fELF") + 3000] ^= 1
    artifact.write_bytes(content)
    with pytest.raises(ArtifactError, match="is damaged"):
        load(artifact)


def test_an_artifact_that_cannot_run_in_process(save: Callable[..., Path]) -> None:
    opened = open_artifact(save())
    main = replace(opened.passport.units[0], loader="c-source", files=())
    passport = replace(opened.passport, units=(main, opened.passport.units[1]))
    with pytest.raises(ArtifactError, match="holds no files for 'c-source'"):
        LoadedProgram(replace(opened, passport=passport), 1)


def test_a_workspace_beyond_all_memory(save: Callable[..., Path], passport: Passport) -> None:
    plan = replace(passport.plan, workspace_bytes=1 << 62)
    with pytest.raises(ResourceError, match="no memory for a workspace"):
        load(save(plan=plan))


def test_missing_features_are_refused(save: Callable[..., Path]) -> None:
    with pytest.raises(ArtifactError, match="this machine has no warp_drive"):
        load(save(cpu_features=("warp_drive",)))


def test_running_imports_no_compiler_and_one_executor(artifact: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from intarsia_runtime.load import load\n"
        f"print(load({str(artifact)!r}).run([np.ones((2, 3), 'f')])['y'].sum())\n"
        "ours = {name.partition('.')[0] for name in sys.modules if name.startswith('intarsia')}\n"
        "print(ours, {'onnx', 'llvmlite', 'tvm_ffi', 'click', 'pluggy'} & set(sys.modules))\n"
        "executors = ('aot', 'foreign', 'graph', 'open', 'variants', 'vm')\n"
        "print([n for n in executors if f'intarsia_runtime.executors.{n}' in sys.modules])\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[:3] == ["24.0", "{'intarsia_runtime'} set()", "['aot']"]


@pytest.mark.slow
def test_the_code_loads_with_tvm_ffi_alone(tmp_path: Path, machine_code: bytes) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    path = tmp_path / "lib.so"
    path.write_bytes(machine_code)
    x, y = np.array([[1, -2, 3], [-4, 5, -6]], np.float32), np.empty((2, 3), np.float32)
    tvm_ffi.load_module(str(path)).get_function("relu")(x, y)
    np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_threads_come_from_the_environment_or_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert available_threads() == 3
    for odd in ("many", "0", "-1", "", "²"):
        monkeypatch.setenv("OMP_NUM_THREADS", odd)
        assert available_threads() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("OMP_NUM_THREADS", "99999999999")
    assert available_threads() == MOST_THREADS
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert available_threads() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert available_threads() == os.cpu_count()


@pytest.mark.parametrize("threads", [0, -1, MOST_THREADS + 1, 1 << 80])
def test_numbers_of_threads_that_cannot_be(artifact: Path, threads: int) -> None:
    with pytest.raises(UsageError, match=r"a model cannot run on .* threads") as raised:
        load(artifact, threads=threads)
    assert raised.value.hint == "--threads 1 to 1024"


def test_a_library_gets_no_more_threads_than_the_system_gives(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def few(self: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    assert startable_threads(5) == 5
    monkeypatch.setattr(threading.Thread, "start", few)
    with pytest.warns(UserWarning, match="the system gives 3 threads of 8"):
        executable = load(artifact, threads=8)  # its region is a library's
    assert executable.threads == 3
    assert not any(thread.is_alive() for thread in started)


def test_openmp_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intarsia_runtime.threads._OPENMP", "libabsent.so.9")
    assert load_openmp() is None
    assert thread_setter(None) is None


def test_the_threads_of_the_process_have_a_place_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = thread_pool()
    assert (place % 64, thread_pool()) == (0, place)

    def full(*_: object) -> None:
        """Stand for ctypes' function, which takes attributes too."""

    monkeypatch.setattr(ctypes, "pythonapi", SimpleNamespace(PyMem_RawCalloc=full))
    with pytest.raises(ResourceError, match="no memory for threads"):
        thread_pool.__wrapped__()


def test_waiting_threads_spin_briefly_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str | None] = []

    def dlopen(*_: object, **__: object) -> object:
        seen.append(os.environ.get("GOMP_SPINCOUNT"))
        raise OSError("not here")

    monkeypatch.setattr(ctypes, "CDLL", dlopen)
    for name, value in (("LANG", "C"), ("GOMP_SPINCOUNT", "7"), ("OMP_WAIT_POLICY", "active")):
        monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
        monkeypatch.setenv(name, value)
        assert load_openmp() is None
    assert seen == ["20000", "7", None]


def test_profile_has_one_row_for_each_step(artifact: Path) -> None:
    executable = load(artifact, executor="graph")
    assert isinstance(executable, GraphExecutor)
    rows = executable.profile([np.ones((2, 3), np.float32)], repeat=3)
    assert [row.label for row in rows] == ["nn.relu", "twice", "add", "copy"]
    assert [row.nodes for row in rows] == [("r",), ("d",), ("a",), ()]
    assert sum(row.share for row in rows) == pytest.approx(1)
    with pytest.raises(UsageError, match="median of 0 runs"):
        executable.profile([np.ones((2, 3), np.float32)], repeat=0)
