# SPDX-License-Identifier: Apache-2.0
"""Element types of eight bits and fewer: what their codes mean, and how arrays convert to them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Protocol, cast

import ml_dtypes
import numpy as np
from msgspec import Struct

from intarsia_runtime.dtype import DType

from .arrays import Array, convert


class _Finfo(Protocol):
    """What is read of ``ml_dtypes.finfo``, which has no types."""

    max: float


class FloatFormat(Struct, frozen=True):
    """A float of a sign, an exponent and a mantissa.

    Attributes:
        mantissa: Bits of the mantissa.
        bias: Of the exponent.
        sign: The bit of the sign.
        largest: Code of the largest finite number.
        overflow: Code of what is larger, without saturation: of infinity, or of NaN.
        nan: Code of NaN; one that is larger, below the sign, is NaN too. ``None``: there is none.
        negative_zero: Whether the sign alone is zero; otherwise it is the only NaN.
    """

    mantissa: int
    bias: int
    sign: int
    largest: int
    overflow: int
    nan: int | None
    negative_zero: bool = True


FLOATS = MappingProxyType(
    {
        "float4_e2m1fn": FloatFormat(1, 1, 0x8, 0x7, 0x7, None),
        "float8_e4m3fn": FloatFormat(3, 7, 0x80, 0x7E, 0x7F, 0x7F),
        "float8_e4m3fnuz": FloatFormat(3, 8, 0x80, 0x7F, 0x80, 0x80, negative_zero=False),
        "float8_e5m2": FloatFormat(2, 15, 0x80, 0x7B, 0x7C, 0x7E),
        "float8_e5m2fnuz": FloatFormat(2, 16, 0x80, 0x7F, 0x80, 0x80, negative_zero=False),
    }
)
"""Floats with a sign, by NumPy's name."""

INTEGERS = MappingProxyType({"int2": 2, "int4": 4, "uint2": 2, "uint4": 4})
"""Widths of the integers, by NumPy's name."""

EXPONENTS = "float8_e8m0fnu"
"""Powers of two alone; 255 is NaN."""

ROUNDINGS = ("up", "down", "nearest")
"""How a number between two powers of two becomes one of them; half goes up to the nearest."""


def width(name: str) -> int:
    """Return how many bits a number of a narrow type has."""
    return INTEGERS.get(name, 4 if name.startswith("float4") else 8)


def stored_type(name: str) -> np.dtype:
    """Return the element type of arrays of a narrow type."""
    return np.dtype(getattr(ml_dtypes, name))


def to_narrow(x: Array, dtype: np.dtype, *, saturate: bool = True, round_mode: str = "up") -> Array:
    """Convert to a narrow element type.

    Args:
        x: Numbers.
        dtype: Element type wanted.
        saturate: Give the largest finite number for what is too large, not NaN or infinity.
        round_mode: One of :data:`ROUNDINGS`; for exponents alone.
    """
    source = x.astype(np.float32) if x.dtype.kind in "fV" and x.dtype != np.float64 else x
    if dtype.name in INTEGERS:
        bits = convert(source, DType.INT64) & ((1 << INTEGERS[dtype.name]) - 1)
        return bits.astype(np.uint8).view(dtype)
    number = source if source.dtype == np.float64 else source.astype(np.float32)
    if dtype.name == EXPONENTS:
        return _to_exponents(number.astype(np.float32), round_mode).view(dtype)
    largest = float(cast("_Finfo", ml_dtypes.finfo(dtype)).max)
    if saturate or dtype.name.startswith("float4"):
        number = np.where(np.isnan(number), number, np.clip(number, -largest, largest))
    with np.errstate(all="ignore"):
        return number.astype(dtype)


def _to_exponents(x: Array, round_mode: str) -> Array:
    """Keep the power of two of the size of a number; the byte is the exponent plus 127."""
    bits = x.view(np.uint32)
    exponent = ((bits >> 23) & 0xFF).astype(np.int64)
    fraction = bits & 0x7FFFFF
    if round_mode == "up":
        more = fraction > 0
    elif round_mode == "nearest":
        more = fraction >= 0x400000
    else:
        more = np.zeros_like(fraction, bool)
    stored = np.minimum(exponent + more, 254)
    return np.where(np.isnan(x), 255, stored).astype(np.uint8)
