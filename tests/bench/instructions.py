# SPDX-License-Identifier: Apache-2.0
"""Instructions of vector variants that this machine's clock cannot tell: AVX2 and NEON.

``python -m tests.bench.instructions`` compiles kernels for both, calls them from a small C program
once and some times more, and counts what those took: under callgrind, and under QEMU with
the counting plugin of the microcontroller tests. ONNX Runtime chooses its AVX2 kernels under
callgrind too, and is counted in the same way. Needs valgrind, qemu-user and a cross compiler.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import onnx

import intarsia
from intarsia_runtime.artifact.archive import OpenedArtifact, open_artifact
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.dtype import DType

COUNTER = Path(__file__).resolve().parents[2] / "plugins" / "c" / "tests" / "mcu" / "counter.c"

DRIVER = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef struct { int32_t type; uint32_t padding; int64_t value; } Any;
typedef struct {
    void *data; int32_t device, number, rank; uint8_t code, bits; uint16_t lanes;
    int64_t *shape, *strides; uint64_t offset;
} Tensor;
static void *memory(size_t bytes) {
    unsigned char *made = aligned_alloc(64, (bytes + 64) / 64 * 64);
    for (size_t i = 0; i < bytes; ++i) made[i] = 0;
    return made;
}
static void *constant(const char *path, size_t bytes) {
    FILE *file = fopen(path, "rb");
    void *made = memory(bytes);
    if (!file || fread(made, 1, bytes, file) != bytes) exit(3);
    fclose(file);
    return made;
}
%(shapes)s
int main(int argc, char **argv) {
    int (*run)(void *, Any *, int, Any *) = 0;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (library) *(void **)&run = dlsym(library, "__tvm_ffi_main");
    if (!run) { fprintf(stderr, "%%s\n", dlerror()); return 2; }
    void *context[] = {memory(%(workspace)d), %(constants)s};
    Tensor tensors[] = {%(tensors)s};
    Any arguments[1 + sizeof tensors / sizeof *tensors] = {{1, 0, (int64_t)(intptr_t)context}};
    FILE *data = argc > 3 ? fopen(argv[3], "rb") : 0;
    if (data && (fread(tensors->data, 1, %(read)d, data) != %(read)d || fclose(data))) return 4;
    int count = 1;
    for (; count <= (int)(sizeof tensors / sizeof *tensors); ++count)
        arguments[count] = (Any){7, 0, (int64_t)(intptr_t)&tensors[count - 1]};
    for (int left = atoi(argv[2]); left; --left) {
        Any result = {0, 0, 0};
        if (run(0, arguments, count, &result)) return 1;
    }
    data = argc > 4 ? fopen(argv[4], "wb") : 0;
    if (data && (fwrite(tensors[count - 2].data, 1, %(written)d, data) != %(written)d)) return 5;
    return data && fclose(data) ? 6 : 0;
}
"""

ONNXRUNTIME = """
import sys
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
shape = session.get_inputs()[0].shape
for _ in range(int(sys.argv[2])):
    session.run(None, {"x": np.zeros(shape, np.float32)})
"""


@dataclass(frozen=True)
class Case:
    """A kernel.

    Attributes:
        name: For the table.
        node: The operator, of ``x`` and ``w`` to ``y``.
        data: Shape of ``x``.
        weights: Shape of ``w``.
        result: Shape of ``y``.
        products: Multiplications of one result.
    """

    name: str
    node: onnx.NodeProto
    data: tuple[int, ...]
    weights: tuple[int, ...]
    result: tuple[int, ...]
    products: int

    def save(self, folder: Path) -> Path:
        """Write it as a model."""
        values = np.random.default_rng(0).standard_normal(self.weights).astype(np.float32)
        info = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(
            [self.node],
            "one",
            [info("x", onnx.TensorProto.FLOAT, self.data)],
            [info("y", onnx.TensorProto.FLOAT, self.result)],
            [onnx.numpy_helper.from_array(values, "w")],
        )
        opset = [onnx.helper.make_opsetid("", 18)]
        path = folder / "one.onnx"
        onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), path)
        return path


def cases() -> list[Case]:
    """Return the kernels that the table is about."""
    square, node = (512, 512), onnx.helper.make_node
    image, wide = (1, 64, 56, 56), (1, 144, 56, 56)
    return [
        Case("512x512x512 product", node("MatMul", ["x", "w"], ["y"]), square, square, square, 512),
        Case(
            "3x3 convolution, 64 to 64 channels, 56x56",
            node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]),
            *(image, (64, 64, 3, 3), image, 576),
        ),
        Case(
            "1x1 convolution, 64 to 256 channels, 56x56",
            node("Conv", ["x", "w"], ["y"]),
            *(image, (256, 64, 1, 1), (1, 256, 56, 56), 64),
        ),
        Case(
            "3x3 depthwise convolution, 144 channels, 56x56",
            node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], group=144),
            *(wide, (144, 1, 3, 3), wide, 9),
        ),
    ]


def write_program(opened: OpenedArtifact, folder: Path, compiler: str) -> list[str]:
    """Compile a C program that runs an artifact so often as its first argument says.

    Two more name a file with the first input, which is zeros otherwise, and one for the output.
    """
    plan = opened.passport.plan
    (folder / "lib.so").write_bytes(opened.unit_files("main")["lib.so"])
    constants: list[str] = []
    for number, name in enumerate(plan.constants):
        weight = opened.weights[name]
        path = folder / f"constant{number}"
        path.write_bytes(weight.data)
        constants.append(f'constant("{path}", {weight.spec.bytes})')
    specs = (*plan.inputs, *plan.outputs)
    text = DRIVER % {
        "shapes": "\n".join(_axes(number, spec) for number, spec in enumerate(specs)),
        "workspace": plan.workspace_bytes,
        "read": plan.inputs[0].bytes,
        "written": plan.outputs[0].bytes,
        "constants": ", ".join(constants) or "0",
        "tensors": ", ".join(
            f"{{memory({spec.bytes}), 1, 0, {len(spec.shape)}, {_dlpack_type(spec)}, 1,"
            f" s{n}, t{n}, 0}}"
            for n, spec in enumerate(specs)
        ),
    }
    source, program = folder / "driver.c", folder / "driver"
    source.write_text(text)
    links = ["-ldl", "-Wl,--no-as-needed", "-lgomp", "-lm"]
    subprocess.run([compiler, "-O2", str(source), "-o", str(program), *links], check=True)
    return [str(program), str(folder / "lib.so")]


def _dlpack_type(spec: TensorSpec) -> str:
    """Return the code and the bits of an element type."""
    if spec.dtype is DType.BFLOAT16:
        return "4, 16"
    code = 2 if spec.dtype.is_float else 0 if spec.dtype.is_signed else 1
    return f"{code}, {spec.dtype.bits}"


def _axes(number: int, spec: TensorSpec) -> str:
    steps = [prod(spec.shape[axis + 1 :]) for axis in range(len(spec.shape))]
    sizes, strides = (", ".join(map(str, axes)) for axes in (spec.shape, steps))
    return f"static int64_t s{number}[] = {{{sizes}}}, t{number}[] = {{{strides}}};"


def callgrind(command: list[str], calls: int = 2) -> int:
    """Return the instructions of one call, run by callgrind.

    Args:
        command: A program that takes the number of calls.
        calls: How many are counted; more even out what else the program does.
    """

    def total(calls: int) -> int:
        tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        done = subprocess.run(
            [*tool, *command, str(calls)],
            capture_output=True,
            text=True,
            check=True,
            env={"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        )
        found = re.search(r"Collected : (\d+)", done.stderr)
        assert found is not None, done.stderr
        return int(found.group(1))

    return (total(1 + calls) - total(1)) // calls


def emulated(command: list[str], counter: Path, folder: Path) -> int:
    """Return the instructions of one call, run by QEMU as an AArch64 program."""

    def total(calls: int) -> int:
        result = folder / "count"
        plugin = ["-plugin", f"{counter},result={result}"]
        tool = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", *plugin]
        subprocess.run(
            [*tool, *command, str(calls)],
            check=True,
            env={"OMP_NUM_THREADS": "1", "QEMU_CPU": "max,sve=off"},
        )
        return int(result.read_text())

    return (total(3) - total(1)) // 2


def measure(case: Case, counter: Path, folder: Path, *, alone: bool) -> str:
    """Return the line of a kernel; ``alone`` leaves ONNX Runtime out."""
    model = case.save(folder)
    counts: dict[str, int] = {}
    for name, options, compiler in (
        ("avx2", "-mcpu=haswell", "cc"),
        ("neon", "-mtriple=aarch64-linux-gnu -mcpu=cortex-a72", "aarch64-linux-gnu-gcc"),
    ):
        artifact = folder / f"{name}.intarsia"
        intarsia.build(str(model), target=f"llvm {options}").save(artifact)
        place = folder / name
        place.mkdir()
        command = write_program(open_artifact(artifact), place, compiler)
        if name == "avx2":
            counts[name] = callgrind(command)
        else:
            counts[name] = emulated(command, counter, place)
    theirs, ratio = "", ""
    if not alone:
        script = folder / "peer.py"
        script.write_text(ONNXRUNTIME)
        count = callgrind([sys.executable, str(script), str(model)], calls=50)
        theirs, ratio = f"{count / 1e6:.1f}", f"{counts['avx2'] / count:.2f}"
    least = prod(case.result) * case.products
    return (
        f"| {case.name} | {counts['avx2'] / 1e6:.1f} | {least / 8 / counts['avx2']:.0%} "
        f"| {counts['neon'] / 1e6:.1f} | {least / 4 / counts['neon']:.0%} | {theirs} | {ratio} |"
    )


def main() -> int:
    """Print the table."""
    for tool in ("valgrind", "qemu-aarch64", "aarch64-linux-gnu-gcc", "cc"):
        if shutil.which(tool) is None:
            print(f"there is no {tool}")
            return 2
    parser = argparse.ArgumentParser()
    parser.add_argument("--alone", action="store_true", help="leave ONNX Runtime out")
    alone = parser.parse_args().alone
    print(
        "| kernel | AVX2, M | multiply-adds | NEON, M | multiply-adds | ONNX Runtime, M | ratio |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")
    for case in cases():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            counter = folder / "counter.so"
            build = ["cc", "-O2", "-shared", "-fPIC", str(COUNTER), "-o", str(counter)]
            subprocess.run(build, check=True)
            print(measure(case, counter, folder, alone=alone), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
