# SPDX-License-Identifier: Apache-2.0
"""Softmax of float16: computed in float32, or in the precision that a Cast around it names."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto

from .onnx_models import model, node, ours

HALF = TensorProto.FLOAT16


def _softmax(
    shape: tuple[int, ...], *, to: int = 0, kind: int = HALF, opset: int = 18
) -> onnx.ModelProto:
    """Softmax, behind a Cast to ``to`` if that is given."""
    nodes = [node("Cast", "x", "c", to=to)] if to else []
    nodes.append(node("Softmax", "c" if to else "x", axis=len(shape) - 1))
    return model(nodes, {"x": shape}, dtype=kind, opset=opset)


def _in_half(x: np.ndarray) -> np.ndarray:
    """What NumPy gives: each step rounded to float16."""
    grown = np.exp(x - x.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


def _rounded_once(x: np.ndarray) -> np.ndarray:
    return _in_half(x.astype(np.float64)).astype(x.dtype)


@pytest.fixture
def rows() -> np.ndarray:
    return (np.random.default_rng(0).standard_normal((16, 100)) * 3).astype(np.float16)


def test_a_cast_to_the_same_type_names_the_precision(rows: np.ndarray) -> None:
    (found,) = ours(_softmax(rows.shape, to=HALF), {"x": rows})
    np.testing.assert_array_equal(found, _in_half(rows))
    assert (found != _rounded_once(rows)).any()


def test_of_old_opsets_too(rows: np.ndarray) -> None:
    proto = _softmax((4, 4, 100), to=HALF, opset=11)
    (found,) = ours(proto, {"x": rows.reshape(4, 4, 100)})
    np.testing.assert_array_equal(found, _in_half(rows).reshape(4, 4, 100))


def test_rounds_once_where_nothing_is_said(rows: np.ndarray) -> None:
    (found,) = ours(_softmax(rows.shape), {"x": rows})
    np.testing.assert_array_equal(found, _rounded_once(rows))


def test_a_cast_from_another_type_says_nothing(rows: np.ndarray) -> None:
    wide = rows.astype(np.float32)
    proto = _softmax(rows.shape, to=HALF, kind=TensorProto.FLOAT)
    (found,) = ours(proto, {"x": wide})
    np.testing.assert_array_equal(found, _rounded_once(rows))


def test_bfloat16_is_never_so_coarse(rows: np.ndarray) -> None:
    x = rows.astype(ml_dtypes.bfloat16)
    proto = _softmax(x.shape, to=TensorProto.BFLOAT16, kind=TensorProto.BFLOAT16)
    (found,) = ours(proto, {"x": x})
    np.testing.assert_array_equal(found, _rounded_once(x))


def test_a_sum_that_float16_cannot_hold_is_not_rounded() -> None:
    x = np.zeros((1, 70_000), np.float16)
    (found,) = ours(_softmax(x.shape, to=HALF), {"x": x})
    np.testing.assert_array_equal(found, np.full_like(x, 1 / 70_000))
