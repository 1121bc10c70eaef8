# SPDX-License-Identifier: Apache-2.0
"""Call compiled functions with NumPy arrays of any element type, and walk call plans."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import onnx
import onnxruntime

import intarsia
from intarsia_runtime.artifact.plan import ArgumentSource, KernelStep
from intarsia_runtime.dtype import DType

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")


class AnyValue(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("pad", ctypes.c_int32), ("value", ctypes.c_void_p)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    ]


def numpy_type(dtype):
    return np.dtype(ml_dtypes.bfloat16) if dtype is DType.BFLOAT16 else np.dtype(dtype.value)


def described(array):
    """A DLPack tensor of an array, and what must live as long."""
    dtype = DType(array.dtype.name)
    code = {DType.BOOL: 6, DType.BFLOAT16: 4}.get(
        dtype, 2 if dtype.is_float else 0 if dtype.is_signed else 1
    )
    shape = np.array(array.shape or (0,), np.int64)
    strides = np.array([s // array.itemsize for s in array.strides] or (0,), np.int64)
    tensor = Tensor(
        array.ctypes.data,
        (1, 0),
        array.ndim,
        code,
        array.itemsize * 8,
        1,
        shape.ctypes.data,
        strides.ctypes.data,
        0,
    )
    return tensor, (shape, strides, array)


class Library:
    """A compiled module."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))

    def call(self, name, *args, context=None):
        """Call ``__tvm_ffi_<name>`` with arrays; returns its status."""
        held = [described(array) for array in args]
        values = [AnyValue(7, 0, ctypes.addressof(tensor)) for tensor, _ in held]
        if context is not None:
            values.insert(0, AnyValue(1, 0, context))
        packed = (AnyValue * max(1, len(values)))(*values)
        return self.library[f"__tvm_ffi_{name}"](None, packed, len(values), None)


def aligned(size):
    """Bytes at a multiple of 64, full of a pattern that is NaN as a float."""
    block = np.full(size + 128, 0xFF, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + max(1, size)]


def walk(library, plan, inputs, constants, rename):
    """Carry out a plan kernel by kernel; returns the outputs."""
    outputs = [np.zeros(spec.shape, numpy_type(spec.dtype)) for spec in plan.outputs]
    workspace = aligned(plan.workspace_bytes)
    held = {
        ArgumentSource.INPUT: inputs,
        ArgumentSource.OUTPUT: outputs,
        ArgumentSource.CONSTANT: constants,
    }

    def place(arg):
        if arg.place is ArgumentSource.WORKSPACE:
            data = workspace[arg.index : arg.index + arg.bytes]
        else:
            data = held[arg.place][arg.index].reshape(-1).view(np.uint8)
        return data.view(numpy_type(arg.dtype)).reshape(arg.shape)

    for step in plan.steps:
        if isinstance(step, KernelStep):
            assert library.call(rename(step.function), *(place(arg) for arg in step.args)) == 0
        else:
            place(step.destination)[...] = place(step.source)
    return outputs


def exact_session(model: bytes | str) -> onnxruntime.InferenceSession:
    """ONNX Runtime for a model; without VNNI its products with uint8 saturate by default.

    It has no exact kernel for int8 activations, and needs none.
    """
    options = onnxruntime.SessionOptions()
    proto = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
    if onnx.TensorProto.UINT8 in {tensor.data_type for tensor in proto.graph.initializer}:
        options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def holds_here(model: onnx.ModelProto, x: np.ndarray) -> None:
    """Hold what a model gives on this machine to ONNX Runtime's result, element by element."""
    session = exact_session(model.SerializeToString())
    (want,) = session.run(None, {"x": x})
    built = intarsia.build(intarsia.from_onnx(model), target="c -opt-level=1")
    (got,) = built.load().run({"x": x}).values()
    np.testing.assert_array_equal(got, want)
