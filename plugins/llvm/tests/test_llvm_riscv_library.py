# SPDX-License-Identifier: Apache-2.0
"""A whole artifact for RISC-V: linked by the system's cross linker, loaded and run by an emulator.

A C program opens the library as the runtime does: the context with workspace and constants, the
arguments as tensors, and one call of ``__tvm_ffi_main``.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia_runtime.artifact.archive import OpenedArtifact, open_artifact

GCC, EMULATOR, LIBRARIES = "riscv64-linux-gnu-gcc", "qemu-riscv64", "/usr/riscv64-linux-gnu"

pytestmark = pytest.mark.skipif(
    shutil.which(GCC) is None or shutil.which(EMULATOR) is None,
    reason="needs Debian's gcc-riscv64-linux-gnu and qemu-user",
)

RUNNER = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct tensor { void *data; int32_t device[2], ndim; uint8_t code, bits; uint16_t lanes;
                int64_t *shape, *strides; uint64_t byte_offset; };
struct any { int32_t type; uint32_t padding; union { int64_t number; void *pointer; } value; };
typedef int (*function)(void *, const struct any *, int32_t, struct any *);

static int64_t in_shape[] = {IN_SHAPE}, out_shape[] = {OUT_SHAPE};
static float in[IN_COUNT], out[OUT_COUNT];
static uint64_t sizes[] = {SIZES};

int main(int count, char **names) {
    void *library = dlopen(names[1], RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 1; }
    function run = (function)dlsym(library, "__tvm_ffi_main");
    if (!run) return 2;
    void *context[CONSTANTS + 2];
    for (int n = 0; n <= CONSTANTS; ++n) context[n] = aligned_alloc(64, (sizes[n] + 127) / 64 * 64);
    FILE *file = fopen(names[2], "rb");
    for (int n = 1; n <= CONSTANTS; ++n)
        if (fread(context[n], 1, sizes[n], file) != sizes[n]) return 3;
    if (fread(in, 1, sizeof in, file) != sizeof in) return 3;
    struct tensor tensors[2] = {{in, {1, 0}, IN_RANK, 2, 32, 1, in_shape, 0, 0},
                                {out, {1, 0}, OUT_RANK, 2, 32, 1, out_shape, 0, 0}};
    struct any arguments[3] = {{1, 0, {.pointer = context}}}, result = {0};
    for (int n = 0; n < 2; ++n) arguments[n + 1] = (struct any){7, 0, {.pointer = &tensors[n]}};
    if (run(0, arguments, 3, &result)) return 4;
    fwrite(out, 1, sizeof out, stdout);
    return 0;
}
"""


BITS = "zba=true,zbb=true,zbc=true,zbs=true"
EMULATED = {
    "generic-rv64": "rv64",
    "sifive-u74": f"rv64,{BITS}",
    "sifive-x280": f"rv64,{BITS},v=true,vlen=512,elen=64",
}
"""What the emulator has of each processor."""


@pytest.mark.parametrize("cpu", EMULATED)
def test_a_network_runs(cpu: str, tmp_path: Path) -> None:
    dice = np.random.default_rng(0)
    weights = {
        "w": dice.normal(size=(8, 3, 3, 3)).astype(np.float32) / 3,
        "b": dice.normal(size=8).astype(np.float32),
        "m": dice.normal(size=(8, 5)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Tanh", ["c"], ["t"]),
        helper.make_node("GlobalAveragePool", ["t"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["p"]),
        helper.make_node("Softmax", ["p"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5])],
        [numpy_helper.from_array(data, name) for name, data in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    target = f"llvm -mtriple=riscv64-linux-gnu -mcpu={cpu} -num-threads=1"
    intarsia.build(model, target).save(tmp_path / "m.intarsia")
    opened = open_artifact(tmp_path / "m.intarsia")
    assert opened.passport.arch == "riscv64"
    given = dice.normal(size=(2, 3, 9, 9)).astype(np.float32)
    made = np.frombuffer(_run(opened, given, tmp_path, EMULATED[cpu]), np.float32).reshape(2, 5)
    wanted = intarsia.build(model, "llvm").load().run({"x": given})["y"]
    np.testing.assert_allclose(made, wanted, rtol=1e-5)


def _run(opened: OpenedArtifact, given: np.ndarray, folder: Path, cpu: str) -> bytes:
    """Run the library of an artifact with one input and one output in the emulator."""
    plan = opened.passport.plan
    (folder / "lib.so").write_bytes(opened.unit_files("main")["lib.so"])
    constants = [bytes(opened.weights[name].data) for name in plan.constants]
    (folder / "data").write_bytes(b"".join(constants) + given.tobytes())
    text = RUNNER
    result = plan.outputs[0].shape
    for name, value in {
        "IN_SHAPE": ", ".join(map(str, given.shape)),
        "OUT_SHAPE": ", ".join(map(str, result)),
        "IN_COUNT": given.size,
        "OUT_COUNT": int(np.prod(result)),
        "IN_RANK": given.ndim,
        "OUT_RANK": len(result),
        "SIZES": ", ".join(str(n) for n in (plan.workspace_bytes, *map(len, constants))),
        "CONSTANTS": len(constants),
    }.items():
        text = text.replace(name, str(value))
    (folder / "run.c").write_text(text)
    subprocess.run([GCC, "-O1", "-o", "run", "run.c", "-ldl"], cwd=folder, check=True)
    command = [EMULATOR, "-cpu", cpu, "-L", LIBRARIES, "run", "./lib.so", "data"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
