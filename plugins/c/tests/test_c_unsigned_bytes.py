# SPDX-License-Identifier: Apache-2.0
"""Bytes with the zero point -128 between convolutions: DSP instructions take them unsigned."""

from __future__ import annotations

import numpy as np
import pytest

import intarsia
from intarsia import Executor, Runtime
from intarsia_c.unsigned_bytes import unsigned_bytes
from intarsia_ir.graph.expr import (
    Call,
    Expr,
    Function,
    Var,
    call,
    constant,
    make_tuple,
    tensor_type,
)
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.ops.qnn import Dequantize
from intarsia_ir.ops.qnn_linear import Conv
from intarsia_runtime.dtype import DType

from .mcu.tiny_nets import save_net

X = Var("x", TensorType((1, 4, 6, 6), DType.INT8))
ATTRS = Conv.Attrs(strides=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1))
RNG = np.random.default_rng(4)


def conv(x: Expr, given: int, made: int, channels: int = 4) -> Call:
    weight = RNG.integers(-127, 128, (channels, tensor_type(x).static_shape[1], 3, 3), np.int8)
    bias = RNG.integers(-99, 99, channels, np.int32)
    operands = (
        *(x, np.float32(0.02), np.int8(given)),
        *(weight, np.float32(0.01), np.int8(0)),
        *(np.float32(0.05), np.int8(made), bias),
    )
    fields = [part if isinstance(part, Expr) else constant(np.asarray(part)) for part in operands]
    return call(Conv, *fields, attrs=ATTRS)


def kinds(function: Function) -> list[DType]:
    return [tensor_type(node).dtype for node in calls(function)]


def evaluated(function: Function) -> np.ndarray:
    x = np.random.default_rng(5).integers(-128, 128, (1, 4, 6, 6), np.int8)
    (y,) = evaluate(function, {"x": x})
    return y


def test_bytes_between_convolutions_lose_their_sign() -> None:
    first = conv(X, 3, -128)
    old = Function((X,), conv(conv(conv(first, -128, -128), -128, 7), 7, -128))
    new = unsigned_bytes(old)
    assert kinds(old) == [DType.INT8] * 4
    assert kinds(new) == [DType.UINT8, DType.UINT8, DType.INT8, DType.INT8]
    np.testing.assert_array_equal(evaluated(new), evaluated(old))


def test_bytes_that_something_else_reads_keep_theirs() -> None:
    shared = conv(X, 3, -128)
    scale, lowest, level = (constant(a) for a in (np.float32(0.5), np.int8(-128), np.int8(5)))
    seen = call(Dequantize, shared, scale, lowest)
    other = call(Dequantize, conv(shared, -128, 5), scale, level)
    function = Function((X,), make_tuple((seen, other)))
    assert unsigned_bytes(function) is function


def test_bytes_that_are_read_with_another_zero_point_keep_theirs() -> None:
    function = Function((X,), conv(conv(X, 3, -128), -127, 5))
    assert unsigned_bytes(function) is function


@pytest.mark.parametrize(("cpu", "is_moved"), [("cortex-m4", True), ("cortex-m55", False)])
def test_only_processors_with_dsp_instructions_move_bytes(tmp_path, cpu, is_moved) -> None:
    path, _ = save_net(tmp_path, "keywords_signed")
    executor = Executor("aot", {"unpacked-api": True, "interface-api": "c"})
    artifact = intarsia.build(path, f"c -mcpu={cpu}", executor=executor, runtime=Runtime("c"))
    source = "".join(file.read_text() for file in artifact.save(f"{tmp_path}/out/").glob("src/*"))
    assert ("ix_depthwise_u8" in source) == is_moved
