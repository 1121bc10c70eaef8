# SPDX-License-Identifier: Apache-2.0
"""The loader, with a unit in C for this machine that has the exports of a real one."""

from __future__ import annotations

import ctypes
import gc
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from intarsia_arm_acl.loader import load
from intarsia_arm_acl.stamp import SYMBOL, stamp_text
from intarsia_runtime.abi import ArgumentBlock
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, PluginError
from intarsia_runtime.loading import LoadRequest

UNIT = """
#include <stdint.h>
#include <stdio.h>
static float constants[2];
static int fail, open_units, threads_seen;
void *intarsia_acl_open(const void *const *data, int32_t count, int32_t threads, char *error,
                        unsigned long size) {
    if (count != 2) { snprintf(error, size, "%d constants", count); return 0; }
    for (int n = 0; n < 2; ++n) constants[n] = *(const float *)data[n];
    threads_seen = threads;
    ++open_units;
    return constants;
}
struct any { int32_t type; uint32_t padding; void **tensor; };
int intarsia_acl_call(void *handle, const struct any *arguments, int32_t count, void *result) {
    const float *x = arguments[0].tensor[0];
    float *y = arguments[1].tensor[0];
    if (handle != constants || count != 2 || x[0] < 0) { fail = 1; return -1; }
    y[0] = x[0] * constants[0] + constants[1];
    y[1] = threads_seen;
    return 0;
}
const char *intarsia_acl_error(void *handle) { return fail ? "a negative number" : ""; }
void intarsia_acl_close(void *handle) { --open_units; }
int opened(void) { return open_units; }
"""
FLOAT = DType.FLOAT32


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the unit with")
    folder: Path = tmp_path_factory.mktemp("unit")
    (folder / "unit.c").write_text(UNIT)
    command = [compiler, "-shared", "-fPIC", "-o", str(folder / "lib.so"), str(folder / "unit.c")]
    subprocess.run(command, check=True)
    return (folder / "lib.so").read_bytes()


def request(library: bytes, count: int = 2) -> LoadRequest:
    # Twelve names, so that an order by text would be another one.
    numbers = (10, 2)[:count]
    constants = {f"arm_acl_0.{n}": np.array([n], np.float32) for n in numbers}
    specs = TensorSpec("x", (1,), FLOAT), TensorSpec("y", (2,), FLOAT)
    return LoadRequest("arm_acl_0", {"lib.so": library}, constants, specs[:1], specs[1:], 3, 0)


def run(handle: int, function: int, x: np.ndarray, y: np.ndarray) -> int:
    block = ArgumentBlock([TensorSpec("x", (1,), FLOAT), TensorSpec("y", (2,), FLOAT)])
    for tensor, array in zip(block.tensors, (x, y), strict=True):
        tensor.data = array.ctypes.data
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p
    )
    return prototype(function)(handle, block.address, block.count, block.result_address)


def test_opens_calls_and_closes(library: bytes) -> None:
    call = load(request(library))
    y = np.zeros(2, np.float32)
    assert run(call.handle, call.function, np.array([5], np.float32), y) == 0
    # Constants come in the order of their numbers: 5 * 2 + 10.
    assert list(y) == [20, 3]
    assert call.describe_failure is not None
    assert call.describe_failure() == ""
    del call
    gc.collect()


def test_the_stamp_is_exported_as_every_compiler_reads_it(tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler to build the unit with")
    (tmp_path / "unit.cpp").write_text("#include <cstdint>\n" + stamp_text(2**63 + 5))
    command = [compiler, "-shared", "-fPIC", "-fvisibility=hidden", "-Werror", "-o", "lib.so"]
    subprocess.run([*command, "unit.cpp"], check=True, cwd=tmp_path)
    found = ctypes.c_uint64.in_dll(ctypes.CDLL(str(tmp_path / "lib.so")), SYMBOL)
    assert found.value == 2**63 + 5


def test_a_failing_unit_says_why(library: bytes) -> None:
    call = load(request(library))
    y = np.zeros(2, np.float32)
    assert run(call.handle, call.function, np.array([-1], np.float32), y) == -1
    assert call.describe_failure is not None
    assert call.describe_failure() == "a negative number"


def test_a_unit_that_cannot_be_opened_says_why(library: bytes) -> None:
    with pytest.raises(PluginError, match="region 'arm_acl_0' cannot be opened: 1 constants"):
        load(request(library, count=1))


def test_damaged_units_are_refused(library: bytes) -> None:
    empty = LoadRequest("arm_acl_0", {}, {}, (), (), 1, 0)
    with pytest.raises(ArtifactError, match=r"unit 'arm_acl_0': it has no lib\.so"):
        load(empty)
    broken = LoadRequest("arm_acl_0", {"lib.so": b"no library"}, {}, (), (), 1, 0)
    with pytest.raises(ArtifactError, match="not a shared library of ELF"):
        load(broken)


def test_a_missing_library_has_a_hint(tmp_path: Path, library: bytes) -> None:
    compiler = shutil.which("cc")
    assert compiler is not None  # the fixture found it
    stub = tmp_path / "libarm_compute.so"
    flags = [compiler, "-shared", "-fPIC", "-x", "c", "-"]
    subprocess.run(
        [*flags, "-Wl,-soname,libarm_compute.so.999", "-o", str(stub)], input=b"", check=True
    )
    link = ["-Wl,--no-as-needed", f"-L{tmp_path}", "-larm_compute"]
    subprocess.run(
        [*flags, "-x", "none", *link, "-o", str(tmp_path / "lib.so")], input=b"", check=True
    )
    with pytest.raises(ArtifactError, match=r"libarm_compute\.so\.999") as caught:
        load(request((tmp_path / "lib.so").read_bytes()))
    assert caught.value.hint is not None
    assert "install the release of Arm Compute Library" in caught.value.hint
