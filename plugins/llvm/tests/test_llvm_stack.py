# SPDX-License-Identifier: Apache-2.0
"""Code needs little stack, whatever the sizes of a model: its threads may have 256 KiB."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from intarsia import build
from intarsia.target.target import Target
from intarsia_ir.graph.expr import constant
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.passes.stack_to_scratch import STACK_BYTES, frame_bytes
from intarsia_ir.tir.stmt import Allocate
from intarsia_llvm.codegen import llvm_text
from intarsia_llvm.lowering import lower_function as lower
from intarsia_llvm.optimize import compile_assembly
from intarsia_llvm.plugin import rewrite_relay
from intarsia_llvm.schedules.table import bound_stack
from intarsia_llvm.target import machine
from intarsia_loops.cpu.loops import load, parallel, seq, serial, store
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply, function_of, var

RUN = """
import sys, threading
import numpy as np
import intarsia

arrays = np.load(sys.argv[2])
outputs = []
def run():
    outputs.append(intarsia.load(sys.argv[1], threads=3).run([arrays["x"]])["y"])
threading.stack_size(256 << 10)
caller = threading.Thread(target=run)
caller.start()
caller.join()
np.testing.assert_allclose(outputs[0], arrays["y"], rtol=1e-4, atol=1e-4)
"""


def save_model(path, x, weight, **attributes):
    """Write a model of one ``Conv`` or ``MaxPool``."""
    names, weights = ["x"], []
    if weight is not None:
        names, weights = ["x", "w"], [numpy_helper.from_array(weight, "w")]
    kind = "MaxPool" if weight is None else "Conv"
    node = helper.make_node(kind, names, ["y"], **attributes)
    value = helper.make_tensor_value_info
    inputs = [value("x", onnx.TensorProto.FLOAT, x.shape)]
    outputs = [value("y", onnx.TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)


def convolved(x, weight, pads, dilation=1):
    """Return a convolution over one dimension."""
    outputs, _, taps = weight.shape
    width = x.shape[2] + sum(pads) - (taps - 1) * dilation
    result = np.zeros((x.shape[0], outputs, width), np.float32)
    for tap in range(taps):
        low = max(0, pads[0] - tap * dilation)
        high = min(width, x.shape[2] + pads[0] - tap * dilation)
        if high > low:
            first = low + tap * dilation - pads[0]
            result[:, :, low:high] += weight[:, :, tap] @ x[:, :, first : first + high - low]
    return result


CONVOLUTIONS = {
    "a long sequence": ((1, 64, 50_000), (32, 64, 3), (1, 1), 1),
    "a batch of long sequences": ((3, 8, 100_000), (8, 8, 5), (2, 2), 1),
    "three million samples": ((1, 1, 3_000_000), (2, 1, 5), (4, 0), 1),
    "a dilation of 2**30": ((1, 8, 16), (8, 8, 2), (1 << 30, 0), 1 << 30),
    "padding of 2**29 at both ends": ((1, 8, 16), (8, 8, 2), (1 << 29, 1 << 29), 1 << 30),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_run_on_a_small_stack(tmp_path, case):
    shape, kernel, pads, dilation = CONVOLUTIONS[case]
    rng = np.random.default_rng(3)
    x = rng.standard_normal(shape, np.float32)
    weight = rng.standard_normal(kernel, np.float32) / np.float32(kernel[1] * kernel[2]) ** 0.5
    save_model(tmp_path / "m.onnx", x, weight, pads=pads, dilations=[dilation])
    check(tmp_path, x, convolved(x, weight, pads, dilation))


def test_pools_run_on_a_small_stack(tmp_path):
    x = np.random.default_rng(4).standard_normal((1, 2, 3_000_000), np.float32)
    save_model(tmp_path / "m.onnx", x, None, kernel_shape=[3])
    check(tmp_path, x, np.maximum(np.maximum(x[..., :-2], x[..., 1:-1]), x[..., 2:]))


def check(folder, x, expected):
    """Run a model where every stack is 256 KiB."""
    build(str(folder / "m.onnx"), target="llvm").save(folder / "m.intarsia")
    np.savez(folder / "arrays.npz", x=x, y=expected)
    shell = ["sh", "-c", 'ulimit -s 256 && exec "$0" "$@"', sys.executable, "-c", RUN]
    files = [str(folder / "m.intarsia"), str(folder / "arrays.npz")]
    subprocess.run([*shell, *files], check=True, timeout=100)


FUNCTIONS = {
    "nn.conv": ((1, 64, 40, 40), (64, 64, 5, 5)),
    "a wide convolution": ((1, 64, 1, 20_000), (64, 64, 1, 5)),
    "a deep convolution": ((1, 4096, 4, 4), (64, 4096, 3, 3)),
    "a depthwise convolution": ((1, 16, 9, 3000), (16, 1, 3, 3)),
    "matmul": ((3, 200, 300), (3, 300, 170)),
    "a deep product": ((64, 65_536), (65_536, 32)),
    "nn.softmax": ((20, 9000),),
}
FRAMES = {
    "x86-64-v4": r"sub\w*\s+\$(\d+), %rsp",
    "generic": r"sub\s+sp, sp, #(\d+)(, lsl #12)?",
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("mcpu", FRAMES)
def test_the_frames_that_llvm_makes_are_small(make_target, name, mcpu):
    data, *weights = FUNCTIONS[name]
    options = {"mtriple": "aarch64-unknown-linux-gnu"} if mcpu == "generic" else {}
    target = make_target(mcpu=mcpu, **options)
    x, operands = var("x", *data), [constant(np.ones(size, np.float32)) for size in weights]
    if len(data) == 4:
        sides = weights[0][2:]
        attrs = {
            "strides": (1, 1),
            "padding": tuple((size // 2, size // 2) for size in sides),
            "dilation": (1, 1),
            "groups": data[1] // weights[0][1],
        }
        body = apply("nn.conv", x, *operands, **attrs)
    elif weights:
        body = apply("matmul", x, *operands)
    else:
        body = apply(name, x, axis=1)
    function = rewrite_relay(function_of(body), target)
    text = llvm_text(lower(function, (), target=target).module, target.options)
    assembly = compile_assembly(text, machine(target.options), 1)
    frames = [
        int(n.group(1)) << (12 if n.lastindex == 2 else 0)
        for n in re.finditer(FRAMES[mcpu], assembly)
    ]
    assert frames
    assert max(frames) <= 2 * STACK_BYTES


def copying(rows, size):
    """Rows of a parallel loop, each through a copy of its own: ``y[i, j] = x[i, j] + 1``."""
    x, y = Buffer("x", (rows, size), DType.FLOAT32), Buffer("y", (rows, size), DType.FLOAT32)
    copy = Buffer("copy", (size,), DType.FLOAT32, MemoryScope.STACK)

    def row(i):
        fill = serial(size, lambda j: store(copy, (j,), load(x, i, j) + 1.0))
        back = serial(size, lambda j: store(y, (i, j), load(copy, j)))
        return Allocate(copy, seq(fill, back))

    return PrimFunc("copying", (x, y), 1, parallel(rows, row))


def bounded(make_target, function, **options):
    target: Target = make_target(**options)
    return bound_stack(function, target)


def test_threads_have_slots_of_their_own(load_module, make_target):
    tvm_ffi = pytest.importorskip("tvm_ffi")
    rows, size = 400, 9_001
    kernel = bounded(make_target, copying(rows, size))
    (scratch,) = kernel.scratch_params
    assert scratch.shape == (64, 9_008)  # no two slots share a cache line
    assert frame_bytes(kernel) == 0
    module = load_module([kernel])
    x = np.random.default_rng(5).standard_normal((rows, size), np.float32)
    y, memory = np.empty_like(x), np.empty(scratch.shape, np.float32)
    for _ in range(20):
        y[:] = 0
        module.copying(*map(tvm_ffi.from_dlpack, (x, y, memory)))
        np.testing.assert_array_equal(y, x + 1)


def test_small_temporaries_stay_on_the_stack(make_target):
    function = copying(400, STACK_BYTES // 4)
    assert bounded(make_target, function) is function


@pytest.mark.parametrize(("options", "copies"), [({"num_threads": 3}, 3), ({}, 64)])
def test_there_are_as_many_slots_as_threads(make_target, options, copies):
    kernel = bounded(make_target, copying(400, 10_000), **options)
    assert kernel.scratch_params[0].shape == (copies, 10_000)


def test_one_thread_has_no_slots(make_target):
    kernel = bounded(make_target, copying(400, 10_000), num_threads=1)
    assert kernel.scratch_params[0].shape == (10_000,)
