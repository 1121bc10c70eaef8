# SPDX-License-Identifier: Apache-2.0
"""The C source for the processor beside the device, with a driver that plays the device."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ethos_u.codegen import compile_region, emit
from intarsia_ethos_u.target import EthosUOptions
from intarsia_ethos_u.tosa.execute import inwards, outwards
from intarsia_ethos_u.vela import ArenaSlot
from intarsia_ir.graph.expr import Expr
from intarsia_testkit.qdq_models import channelled_residual_net
from intarsia_testkit.quantized_expressions import inputs_for

from .cases import binary, chain, unsigned_conv
from .quantized import region_of
from .tools import needs_vela

DRIVER = """
#include <stdint.h>
#include <string.h>
struct ethosu_driver;
unsigned char seen[65536];
unsigned char given[65536];
uint64_t called[8];
int answer;
int ethosu_invoke_v3(struct ethosu_driver *driver, const void *stream, const int stream_bytes,
                     uint64_t *const bases, const uintptr_t *bytes, const int count, void *user)
{
    (void)user;
    called[0] = (uintptr_t)driver;
    called[1] = (uint64_t)stream_bytes;
    called[2] = (uint64_t)count;
    called[3] = bytes[0];
    called[4] = bytes[1];
    called[5] = memcmp(stream, "COP1", 4) == 0;
    memcpy(seen, (const void *)(uintptr_t)bases[1], bytes[1]);
    memcpy((void *)(uintptr_t)bases[1], given, bytes[1]);
    return answer;
}
"""
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")


class Value(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("zero", ctypes.c_uint32), ("pointer", ctypes.c_void_p)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("numbers", ctypes.c_int32 * 3),
        ("kind", ctypes.c_uint8 * 4),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    ]


class Device(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("driver", "arena", "fast")]


def places(estimate: bytes, which: str) -> list[ArenaSlot]:
    return [ArenaSlot(item["offset"], item["bytes"]) for item in json.loads(estimate)[which]]


@needs_vela
@pytest.mark.parametrize("make", [chain, unsigned_conv, binary("qnn.add")])
def test_the_driver_gets_the_region_and_its_tensors(
    make: Callable[[], Expr], tmp_path: Path
) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    region = region_of(make())
    unit = compile_region(region, EthosUOptions(accelerator_config="ethos-u55-128"))
    program, _ = emit(region)
    for name in unit.sources:
        (tmp_path / name).write_bytes(unit.files[name])
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "region.so"
    sources = [str(tmp_path / name) for name in ("ethos_u_0.c", "driver.c")]
    command = [compiler, *STRICT, "-shared", "-fPIC", "-o", str(library), *sources]
    subprocess.run(command, check=True)
    native = ctypes.CDLL(str(library))

    arrays = inputs_for(region.function)
    results = [
        np.zeros(value.type.static_shape, str(value.type.dtype))
        for value in region.function.outputs
    ]
    tensors = [Tensor(data=array.ctypes.data) for array in (*arrays, *results)]
    values = (Value * len(tensors))(*(Value(7, 0, ctypes.addressof(t)) for t in tensors))
    arena = (ctypes.c_ubyte * 65536)()
    device = Device(77, ctypes.addressof(arena), 0)
    given = np.arange(65536).astype(np.uint8)
    ctypes.memmove((ctypes.c_ubyte * 65536).in_dll(native, "given"), given.tobytes(), 65536)
    call = native.ethos_u_0_call
    assert call(ctypes.byref(device), values, len(tensors), None) == 0

    called = list((ctypes.c_uint64 * 8).in_dll(native, "called"))
    sizes = [len(unit.files[name]) for name in ("command_stream.bin", "weights.bin")]
    assert [called[0], called[1], called[2], called[3], called[5]] == [77, sizes[0], 3, sizes[1], 1]
    seen = bytes((ctypes.c_ubyte * 65536).in_dll(native, "seen"))
    estimate = unit.files["estimate.json"]
    for border, array, at in zip(program.inputs, arrays, places(estimate, "inputs"), strict=True):
        assert seen[at.offset : at.offset + at.size] == inwards(border, array).tobytes()
    for border, array, at in zip(
        program.outputs, results, places(estimate, "outputs"), strict=True
    ):
        shape = program.tensors[border.name].shape
        raw = given[at.offset : at.offset + at.size].view(np.int8).reshape(shape)
        np.testing.assert_array_equal(array, outwards(border, raw))

    assert call(ctypes.byref(device), values, 1, None) == -1
    ctypes.c_int.in_dll(native, "answer").value = 5
    assert call(ctypes.byref(device), values, len(tensors), None) == 5


@needs_vela
@pytest.mark.parametrize("core", ["-mcpu=cortex-m55", "-march=armv8.1-m.main+mve.fp+fp.dp"])
def test_host_and_region_compile_for_a_microcontroller(core: str, tmp_path: Path) -> None:
    """A Cortex-M85 by its architecture: compilers before GCC 13 do not know the name."""
    compiler = shutil.which("arm-none-eabi-gcc")
    if compiler is None:
        pytest.skip("no arm-none-eabi-gcc")
    artifact = tmp_path / "model.intarsia"
    intarsia.build(channelled_residual_net().SerializeToString(), "arm/corstone-300").save(artifact)
    with zipfile.ZipFile(artifact) as members:
        members.extractall(tmp_path)
    flags = [core, "-mthumb", "-mfloat-abi=hard", "-O2", "-c", *STRICT]
    for source in ("units/main/model_entry.c", "units/ethos_u_0/ethos_u_0.c"):
        made = tmp_path / f"{Path(source).stem}.o"
        subprocess.run([compiler, *flags, str(tmp_path / source), "-o", str(made)], check=True)
        assert made.stat().st_size > 1000
