# SPDX-License-Identifier: Apache-2.0
"""Conversions from and to strings, float8, and numbers of less than a byte; reinterpreted bits."""

from __future__ import annotations

from types import MappingProxyType

import ml_dtypes
import numpy as np

from intarsia_ir.ops.arrays import convert
from intarsia_ir.ops.narrow_formats import INTEGERS, to_narrow
from intarsia_runtime.dtype import DType

from ..tensors import array_type, element_code
from .call import NumpyCall

_PLAIN = frozenset(dtype.value for dtype in DType)


def is_plain(dtype: np.dtype) -> bool:
    """Whether compiled functions have tensors of the element type."""
    return dtype.name in _PLAIN


def _to_strings(x: np.ndarray) -> np.ndarray:
    return np.array([_text(item) for item in x.reshape(-1)], object).reshape(x.shape)


def _text(item: object) -> str:
    if isinstance(item, bool | np.bool_):
        return "1" if item else "0"
    return str(item).replace("inf", "INF").replace("nan", "NaN")


def _from_strings(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    integer = dtype.kind in "iu"
    numbers = [int(text) if integer else float(text) for text in x.reshape(-1)]
    return np.array(numbers, np.int64 if integer else np.float64).astype(dtype).reshape(x.shape)


def _cast(call: NumpyCall, x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if x.dtype == dtype:
        return x.copy()
    if dtype.hasobject:
        return _to_strings(x)
    if x.dtype.hasobject:
        return _from_strings(x, dtype)
    if is_plain(dtype):
        wide = x if is_plain(x.dtype) else x.astype(np.float32)
        return convert(wide, DType(dtype.name))
    if dtype.name.startswith("complex"):
        return x.astype(dtype)
    saturate = bool(call.integer("saturate", 1))
    return to_narrow(x, dtype, saturate=saturate, round_mode=call.string("round_mode", "up"))


def cast(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """Convert elements; between ordinary types it is left to the converter."""
    dtype = array_type(call.integer("to"), str(call.span))
    if is_plain(dtype) and is_plain(x.dtype):
        return NotImplemented
    return _cast(call, x, dtype)


def cast_like(call: NumpyCall, x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Convert elements to the type of another tensor's."""
    if is_plain(like.dtype) and is_plain(x.dtype):
        return NotImplemented
    return _cast(call, x, like.dtype)


def bit_cast(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """Read the same bits as another element type of the same width."""
    dtype = array_type(call.integer("to"), str(call.span))
    if dtype.hasobject or x.dtype.hasobject or _bits(dtype) != _bits(x.dtype):
        raise call.model_error(f"cannot read {x.dtype} as {dtype}: the widths differ")
    return x.copy(order="C").view(dtype)


def _bits(dtype: np.dtype) -> int:
    return INTEGERS.get(dtype.name, 4 if dtype.name.startswith("float4") else dtype.itemsize * 8)


def quantize_linear(
    call: NumpyCall, x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None
) -> np.ndarray:
    """Divide by the scale, round to even, add the zero point; narrow results only."""
    code = call.integer("output_dtype", 0)
    dtype = zero.dtype if zero is not None else array_type(code or 2, str(call.span))
    if is_plain(dtype):
        return NotImplemented
    divisor = _spread(call, scale, x.shape).astype(np.float32)
    quotient = x.astype(np.float32) / divisor
    shift = 0 if zero is None else _spread(call, zero, x.shape).astype(np.float32)
    if dtype.name not in INTEGERS:
        return to_narrow(quotient + shift, dtype, saturate=bool(call.integer("saturate", 1)))
    limits = ml_dtypes.iinfo(dtype)
    whole = np.clip(np.rint(quotient) + shift, int(limits.min), int(limits.max))
    return whole.astype(np.int8).astype(dtype)


def dequantize_linear(
    call: NumpyCall, x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None
) -> np.ndarray:
    """Subtract the zero point and multiply by the scale; narrow operands only."""
    if is_plain(x.dtype):
        return NotImplemented
    wide = x.astype(np.float32)
    if zero is not None:
        wide = wide - _spread(call, zero, x.shape).astype(np.float32)
    result = wide * _spread(call, scale, x.shape).astype(np.float32)
    code = call.integer("output_dtype", 0) or element_code(scale.dtype)
    return result.astype(array_type(code, str(call.span)))


def _spread(call: NumpyCall, value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a scale or zero point for each element: of all, of a slice, or of a block."""
    if value.size == 1:
        return value.reshape(())
    axis = call.axis("axis", len(shape), 1)
    block = call.integer("block_size", 0)
    if block:
        return np.take(value, np.arange(shape[axis]) // block, axis)
    return value.reshape([shape[axis] if i == axis else 1 for i in range(len(shape))])


KERNELS = MappingProxyType(
    {
        ("", "Cast"): cast,
        ("", "CastLike"): cast_like,
        ("", "BitCast"): bit_cast,
        ("", "QuantizeLinear"): quantize_linear,
        ("", "DequantizeLinear"): dequantize_linear,
    }
)
