# SPDX-License-Identifier: Apache-2.0
"""Instructions of AArch64 kernels for each multiply-add, and the inner loops that spill.

``python -m tests.bench.aarch64`` compiles products and convolutions for AArch64, runs them under
QEMU with the counting plugin of the microcontroller tests, and disassembles the innermost loops
that multiply: what one of their turns takes is what the register tile allows. A spill is an access
to the stack in such a loop. Needs qemu-user and a cross compiler.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia_runtime.artifact.archive import open_artifact

from .instructions import COUNTER, emulated, write_program

EMULATOR = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu", "max,sve=off")

CPUS = ("cortex-a72", "cortex-a76", "neoverse-n2")
"""A processor with NEON alone, one with ``SDOT`` and float16, and one with ``SMMLA``."""

_PRODUCT = re.compile(
    r"(fmlal2?|fmla|fmul|[su]dot|usdot|sudot|bfdot|us?mmla|smmla|bfmmla|[su]ml[as]l2?|[su]mull2?|mla|mul)\s"
)
_EACH = {"bfdot": 2, "bfmmla": 4}
_LANES = re.compile(r"v\d+\.(\d+)[bhsd]")


@dataclass(frozen=True)
class Kernel:
    """An operator.

    Attributes:
        model: Of input ``x`` and output ``y``.
        products: Multiply-adds of a run.
        options: Of the target, but for the processor.
    """

    model: onnx.ModelProto
    products: int
    options: str = ""


@dataclass(frozen=True)
class Loop:
    """An innermost loop that multiplies.

    Attributes:
        instructions: Of one turn.
        products: Multiply-adds of one turn.
        spills: Accesses to the stack.
    """

    instructions: int
    products: int
    spills: int


@dataclass(frozen=True)
class Count:
    """What a kernel takes.

    Attributes:
        instructions: Of one run.
        loops: The innermost loops that multiply, the one of most products first.
    """

    instructions: int
    loops: tuple[Loop, ...]


def _model(node: onnx.NodeProto, kind: int, shapes: tuple[tuple[int, ...], tuple[int, ...]],
           constants: dict[str, np.ndarray]) -> onnx.ModelProto:  # fmt: skip
    info = helper.make_tensor_value_info
    initializers = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    x, y = (info(name, kind, shape) for name, shape in zip("xy", shapes, strict=True))
    graph = helper.make_graph([node], "one", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _floats(op: str, kind: int, shapes: tuple[tuple[int, ...], ...], **attrs: object) -> Kernel:
    x, w, y = shapes
    weight = np.random.default_rng(0).standard_normal(w)
    constants = {"w": weight.astype(helper.tensor_dtype_to_np_dtype(kind))}
    model = _model(helper.make_node(op, ["x", "w"], ["y"], **attrs), kind, (x, y), constants)
    return Kernel(model, _products(op, w, y))


def _bytes(op: str, kind: int, shapes: tuple[tuple[int, ...], ...], **attrs: object) -> Kernel:
    x, w, y = shapes
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    zero = np.array(3 if dtype == np.int8 else 131, dtype)
    constants = {
        "w": np.random.default_rng(0).integers(-127, 128, w).astype(np.int8),  # as quantizers have
        "xs": np.float32(0.02), "xz": zero, "ws": np.float32(0.01), "wz": np.int8(0),
        "ys": np.float32(0.3), "yz": zero,
    }  # fmt: skip
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    model = _model(helper.make_node(op, names, ["y"], **attrs), kind, (x, y), constants)
    return Kernel(model, _products(op, w, y))


def _products(op: str, weight: tuple[int, ...], result: tuple[int, ...]) -> int:
    each = weight[0] if "MatMul" in op else int(np.prod(weight[1:]))
    return int(np.prod(result)) * each


def _recurrent(op: str, gates: int, rows: int, **attrs: object) -> Kernel:
    """A layer over 8 steps whose inputs are as many as its states."""
    steps, size = 8, 128
    rng = np.random.default_rng(0)
    shapes = {
        "w": (1, gates * size, size),
        "r": (1, gates * size, size),
        "b": (1, 2 * gates * size),
    }
    constants = {
        name: (rng.standard_normal(shape) / size**0.5).astype(np.float32)
        for name, shape in shapes.items()
    }
    node = helper.make_node(op, ["x", *shapes], ["y"], hidden_size=size, **attrs)
    given, made = (steps, rows, size), (steps, 1, rows, size)
    model = _model(node, TensorProto.FLOAT, (given, made), constants)
    return Kernel(model, steps * rows * gates * size * 2 * size)


_SQUARE = ((256, 256),) * 3
_IMAGES = ((1, 64, 28, 28), (64, 64, 3, 3), (1, 64, 28, 28))

_FLOATS = {
    f"{name} {form}": _floats(op, kind, shapes, **attrs)
    for name, kind in (("float32", TensorProto.FLOAT), ("float16", TensorProto.FLOAT16))
    for form, op, shapes, attrs in (
        ("product", "MatMul", _SQUARE, {}),
        ("3x3 convolution", "Conv", _IMAGES, {"pads": [1] * 4}),
    )
}

KERNELS = {
    **_FLOATS,
    **{
        f"{name} in bfloat16": replace(kernel, options="-fpmath-mode=bf16")
        for name, kernel in _FLOATS.items()
        if "float32" in name
    },
    **{
        f"{name} in float16": replace(kernel, options="-fpmath-mode=fp16")
        for name, kernel in _FLOATS.items()
        if "float16" in name
    },
    "int8 product": _bytes("QLinearMatMul", TensorProto.INT8, _SQUARE),
    "uint8 product": _bytes("QLinearMatMul", TensorProto.UINT8, _SQUARE),
    "int8 3x3 convolution": _bytes("QLinearConv", TensorProto.INT8, _IMAGES, pads=[1] * 4),
    "uint8 3x3 convolution": _bytes("QLinearConv", TensorProto.UINT8, _IMAGES, pads=[1] * 4),
}
"""Kernels by name, which other libraries have too."""

LAYERS = {
    f"{op} of 128 columns, batch {rows}": _recurrent(op, gates, rows, **attrs)
    for op, gates, attrs in (("LSTM", 4, {}), ("GRU", 3, {"linear_before_reset": 1}))
    for rows in (1, 4, 8)
}
"""Recurrent layers by name."""


def counter(folder: Path) -> Path:
    """Compile the plugin of QEMU that counts."""
    plugin = folder / "counter.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(COUNTER), "-o", str(plugin)], check=True)
    return plugin


def count(kernel: Kernel, processor: str, plugin: Path, folder: Path) -> Count:
    """Compile a kernel for a processor, and count."""
    onnx.save(kernel.model, folder / "model.onnx")
    target = f"llvm -mtriple=aarch64-linux-gnu -mcpu={processor} {kernel.options}"
    artifact = folder / "model.intarsia"
    intarsia.build(str(folder / "model.onnx"), target=target).save(artifact)
    command = write_program(open_artifact(artifact), folder, "aarch64-linux-gnu-gcc")
    return Count(emulated(command, plugin, folder), multiplying_loops(folder / "lib.so"))


def outputs(path: Path, processor: str, x: np.ndarray, options: str = "") -> bytes:
    """Compile the model at a path for a processor, and run it under QEMU; return its output.

    The library is left beside the model, as ``lib.so``.
    """
    folder = path.parent
    target = f"llvm -mtriple=aarch64-linux-gnu -mcpu={processor} {options}"
    intarsia.build(str(path), target=target).save(folder / "model.intarsia")
    opened = open_artifact(folder / "model.intarsia")
    program = write_program(opened, folder, "aarch64-linux-gnu-gcc")
    (folder / "in").write_bytes(x.tobytes())
    files = [str(folder / name) for name in ("in", "out")]
    alone = {"OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
    subprocess.run([*EMULATOR, *program, "1", *files], check=True, env=alone)
    return (folder / "out").read_bytes()


def multiplying_loops(library: Path) -> tuple[Loop, ...]:
    """Return the innermost loops of a library that multiply vectors, the largest first."""
    listing = subprocess.run(
        ["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", str(library)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    code = [
        (int(match[1], 16), match[2])
        for match in re.finditer(r"^\s+([0-9a-f]+):\s+(.*)$", listing, re.MULTILINE)
    ]
    branches = [
        (int(match[1], 16), at)
        for at, text in code
        if (match := re.match(r"(?:b\.\w+|cbn?z|tbn?z)\s.*?\b([0-9a-f]+) <", text))
    ]
    spans = [(start, end) for start, end in branches if start <= end]
    inner = [
        span
        for span in spans
        if not any(other != span and span[0] <= other[0] <= other[1] <= span[1] for other in spans)
    ]
    loops = [_loop([text for at, text in code if start <= at <= end]) for start, end in inner]
    found = [loop for loop in loops if loop.products]
    return tuple(sorted(found, key=lambda loop: loop.products, reverse=True))


def _loop(body: list[str]) -> Loop:
    products = 0
    for text in body:
        match = _PRODUCT.match(text)
        lanes = _LANES.search(text)
        if match and lanes:
            each = 4 if "dot" in match[1] else 8 if "mmla" in match[1] else 1
            products += int(lanes[1]) * _EACH.get(match[1], each)
    return Loop(len(body), products, sum("[sp" in text for text in body))


def main() -> int:
    """Print the table."""
    for tool in ("qemu-aarch64", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump", "cc"):
        if shutil.which(tool) is None:
            print(f"there is no {tool}")
            return 2
    print("| kernel | processor | instructions, M | a multiply-add | its loop | spills |")
    print("|---|---|--:|--:|--:|--:|")
    for name, kernel in {**KERNELS, **LAYERS}.items():
        for processor in CPUS:
            with tempfile.TemporaryDirectory() as folder:
                got = count(kernel, processor, counter(Path(folder)), Path(folder))
            # Layers have loops of functions, too, which multiply vectors but are no tiles.
            first = max(got.loops, key=lambda loop: loop.products / loop.instructions)
            print(
                f"| {name} | {processor} | {got.instructions / 1e6:.1f} "
                f"| {got.instructions / kernel.products:.3f} "
                f"| {first.instructions / first.products:.3f} "
                f"| {sum(loop.spills for loop in got.loops)} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
