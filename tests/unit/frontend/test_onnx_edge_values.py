# SPDX-License-Identifier: Apache-2.0
"""Operators of integers, of zeros alone and of nothing; sizes without a name."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from intarsia_ir.graph.types import TensorType
from intarsia_onnx import from_onnx
from intarsia_runtime.dtype import DType

from .onnx_models import model, node, ours


def check(proto: onnx.ModelProto, x: np.ndarray) -> None:
    """The importer's graph gives what ONNX's reference gives."""
    wanted = ReferenceEvaluator(proto).run(None, {"x": x})
    for got, value in zip(ours(proto, {"x": x}), wanted, strict=True):
        want = np.asarray(value)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("op", ["ReduceLogSum", "ReduceLogSumExp"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_logarithms_of_integers(op: str, dtype: type[np.integer]) -> None:
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto = model([node(op, "x a")], {"x": (4, 9)}, weights={"a": np.array([1])}, dtype=kind)
    x = {"x": np.arange(1, 37, dtype=dtype).reshape(4, 9)}
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    np.testing.assert_array_equal(ours(proto, x), session.run(None, x), strict=True)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_resized_integers_are_rounded(mode: str, dtype: type[np.integer]) -> None:
    x = (np.arange(40).reshape(1, 1, 5, 8) % 7 * 3 + 9).astype(dtype)
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    sizes = {"s": np.array([1, 1, 7, 11])}
    check(
        model([node("Resize", "x _ _ s", mode=mode)], {"x": x.shape}, weights=sizes, dtype=kind), x
    )


def test_a_range_of_zeros_alone_has_a_scale() -> None:
    outputs = ("y", "scale", "zero")
    proto = model(
        [node("DynamicQuantizeLinear", "x", " ".join(outputs))], {"x": (2, 3)}, outputs=outputs
    )
    check(proto, np.zeros((2, 3), np.float32))


@pytest.mark.parametrize("axis", [0, 1])
def test_hardmax_of_nothing(axis: int) -> None:
    proto = model([node("Hardmax", "x", axis=axis)], {"x": (0, 3)}, dtype=TensorProto.FLOAT)
    (got,) = ours(proto, {"x": np.zeros((0, 3), np.float32)})
    assert got.shape == (0, 3)


def test_sizes_written_as_question_marks_are_not_one() -> None:
    proto = model([node("Relu", "x")], {"x": ("?", 3, "?")})
    (parameter,) = from_onnx(proto, shapes={"x": (2, 3, 5)}).main.params
    assert parameter.type == TensorType((2, 3, 5), DType.FLOAT32)
