# SPDX-License-Identifier: Apache-2.0
"""Element types of tensors, named as NumPy and ml_dtypes name them."""

from __future__ import annotations

from enum import Enum

from .errors import UnsupportedError


class DType(Enum):
    """Element type; ``value`` is the NumPy (or ml_dtypes) name."""

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"

    # Members are compared by identity; Enum's own hash takes ten times as long.
    __hash__ = object.__hash__

    @property
    def bits(self) -> int:
        """Width in bits; ``bool`` is stored in 8."""
        return _BITS[self]

    @property
    def bytes(self) -> int:
        """Width in bytes."""
        return _BITS[self] // 8

    @property
    def is_float(self) -> bool:
        """Whether the type is a floating-point type."""
        return self in _FLOATS

    @property
    def is_signed(self) -> bool:
        """Whether the type is a signed integer type."""
        return self.value.startswith("int")

    @property
    def is_unsigned(self) -> bool:
        """Whether the type is an unsigned integer type."""
        return self.value.startswith("uint")

    @property
    def is_integer(self) -> bool:
        """Whether the type is a signed or unsigned integer type (``bool`` is not)."""
        return self.is_signed or self.is_unsigned

    def __str__(self) -> str:
        return self.value


_BITS = {
    d: 8 if d is DType.BOOL else int("".join(ch for ch in d.value if ch.isdigit())) for d in DType
}
_FLOATS = frozenset(d for d in DType if "float" in d.value)


def parse_dtype(name: str) -> DType:
    """Return the element type called ``name``.

    Raises:
        UnsupportedError: No such element type.
    """
    try:
        return DType(name)
    except ValueError:
        known = ", ".join(d.value for d in DType)
        raise UnsupportedError(
            f"element type '{name}' is not supported", hint=f"one of {known}"
        ) from None
