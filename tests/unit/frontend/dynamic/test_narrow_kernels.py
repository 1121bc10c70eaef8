# SPDX-License-Identifier: Apache-2.0
"""Conversions from and to strings, float8 and numbers of less than a byte."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from intarsia_runtime.errors import ModelError

from .nodes import f32, one, texts

F8 = ml_dtypes.float8_e4m3fn


def cast(x: np.ndarray, to: int, **attrs: object) -> np.ndarray:
    return one("Cast", x, to=to, opset=25, **attrs)


@given(st.floats(-7.75, 7.75, width=32))
def test_integers_of_four_bits_cut_fractions_off(x: float) -> None:
    found = cast(f32([x]), TensorProto.INT4)
    assert found.dtype == ml_dtypes.int4
    assert found.astype(np.int64).tolist() == [int(x)]
    assert cast(found, TensorProto.FLOAT).tolist() == [float(int(x))]


def test_integers_keep_their_lowest_bits() -> None:
    x = np.array([-9, 7, 8, 255], np.int64)
    assert cast(x, TensorProto.INT4).astype(int).tolist() == [7, 7, -8, -1]
    assert cast(x, TensorProto.UINT4).astype(int).tolist() == [7, 7, 8, 15]
    assert cast(x, TensorProto.UINT2).astype(int).tolist() == [3, 3, 0, 3]
    assert cast(x, TensorProto.INT2).astype(int).tolist() == [-1, -1, 0, -1]


def test_float8_saturates_or_not() -> None:
    x = f32(1.0625, 500, np.inf, np.nan)
    kept = cast(x, TensorProto.FLOAT8E4M3FN)
    np.testing.assert_array_equal(kept.astype(np.float32), f32(1.0, 448, 448, np.nan))
    lost = cast(x, TensorProto.FLOAT8E4M3FN, saturate=0)
    np.testing.assert_array_equal(lost.astype(np.float32), f32(1.0, np.nan, np.nan, np.nan))
    infinite = cast(f32([1e6]), TensorProto.FLOAT8E5M2, saturate=0)
    assert np.isinf(infinite.astype(np.float32)).all()
    assert cast(f32([99]), TensorProto.FLOAT4E2M1).astype(float).tolist() == [6.0]


@pytest.mark.parametrize(("mode", "wanted"), [("up", 4), ("down", 2), ("nearest", 4)])
def test_exponents_round_as_told(mode: str, wanted: float) -> None:
    found = cast(f32([3.0]), TensorProto.FLOAT8E8M0, round_mode=mode)
    assert found.astype(np.float32).tolist() == [wanted]
    assert np.isnan(cast(f32([np.nan]), TensorProto.FLOAT8E8M0).astype(np.float32)).all()


def test_strings_and_numbers() -> None:
    assert cast(f32(1.5, np.inf, np.nan), TensorProto.STRING).tolist() == ["1.5", "INF", "NaN"]
    assert cast(np.array([True, False]), TensorProto.STRING).tolist() == ["1", "0"]
    assert cast(texts("1.5", "-inf"), TensorProto.FLOAT).tolist() == [1.5, -np.inf]
    assert cast(texts("12", "-3"), TensorProto.INT8).tolist() == [12, -3]
    with pytest.raises(ModelError, match="cannot take these operands"):
        cast(texts("many"), TensorProto.INT8)


def test_cast_like_takes_the_type_of_another() -> None:
    found = one("CastLike", f32(1, 2), np.zeros(1, F8), opset=25)
    assert found.dtype == F8
    assert one("CastLike", found, f32([0]), opset=25).tolist() == [1, 2]
    assert one("CastLike", f32(1, 2), np.zeros(1, np.int32), opset=25).dtype == np.int32
    same = cast(found, TensorProto.FLOAT8E4M3FN)
    assert same.tobytes() == found.tobytes()
    assert cast(f32([2]), TensorProto.COMPLEX64).tolist() == [2 + 0j]


def test_bits_are_read_as_another_type() -> None:
    found = one("BitCast", f32(1.0), to=TensorProto.INT32, opset=26)
    assert (found.shape, found.item()) == ((), 0x3F800000)
    with pytest.raises(ModelError, match="the widths differ"):
        one("BitCast", f32(1.0), to=TensorProto.INT8, opset=26)


def test_quantizing_to_narrow_types_and_back() -> None:
    x, scale = f32([[1, 2.6], [-20, 40]]), f32(1, 2)
    zero = np.array([1, 0], ml_dtypes.int4)
    q = one("QuantizeLinear", x, scale, zero, axis=0)
    assert q.astype(int).tolist() == [[2, 4], [-8, 7]]
    back = one("DequantizeLinear", q, scale, zero, axis=0)
    assert back.tolist() == [[1, 3], [-16, 14]]
    f8 = one("QuantizeLinear", x, f32(2.0), np.zeros((), F8))
    assert f8.astype(np.float32).tolist() == [[0.5, 1.25], [-10, 20]]
    blocks = f32([[1, 10], [1, 10]])
    wide = one("DequantizeLinear", np.ones((2, 4), ml_dtypes.int4), blocks, axis=1, block_size=2)
    assert wide.tolist() == [[1, 1, 10, 10]] * 2
    bits = one("QuantizeLinear", x, f32(1.0), None, output_dtype=TensorProto.UINT4)
    assert bits.astype(int).tolist() == [[1, 3], [0, 15]]
    plain = one("QuantizeLinear", x, f32(1.0), np.array(3, np.uint8))
    assert plain.tolist() == [[4, 6], [0, 43]]
