# SPDX-License-Identifier: Apache-2.0
"""How element types and constants are spelled in LLVM IR.

A type has a *register* form, which arithmetic uses, and a *memory* form. ``bool`` is ``i1`` in a
register and ``i8`` in memory. The 16-bit floats are ``float`` in a register, always holding a value
of the type.
"""

from __future__ import annotations

import math
import struct

from intarsia_runtime.dtype import DType

_INTEGERS = {dtype: f"i{dtype.bits}" for dtype in DType if not dtype.is_float}
_REGISTER = {
    **_INTEGERS,
    DType.BOOL: "i1",
    DType.FLOAT16: "float",
    DType.BFLOAT16: "float",
    DType.FLOAT32: "float",
    DType.FLOAT64: "double",
}
_MEMORY = {
    **_INTEGERS,
    DType.FLOAT16: "i16",
    DType.BFLOAT16: "i16",
    DType.FLOAT32: "float",
    DType.FLOAT64: "double",
}


def register_type(dtype: DType, lanes: int = 1) -> str:
    """Return the type of a value in a register."""
    return vector_type(_REGISTER[dtype], lanes)


def memory_type(dtype: DType, lanes: int = 1) -> str:
    """Return the type of a value in memory."""
    return vector_type(_MEMORY[dtype], lanes)


def vector_type(scalar: str, lanes: int) -> str:
    """Return a vector of ``lanes`` elements, or the scalar type for one."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def float_text(value: float, scalar: str) -> str:
    """Return a float constant; hexadecimal, so that no digit is lost.

    Args:
        value: Rounded to the type; what is too large for it becomes infinite.
        scalar: ``float`` or ``double``.
    """
    if scalar == "float" and math.isfinite(value):
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    return f"0x{bits:016X}"


def int_text(value: int, dtype: DType) -> str:
    """Return an integer or bool constant, wrapped to the type."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    wrapped = value & ((1 << dtype.bits) - 1)
    return str(wrapped - (1 << dtype.bits) if wrapped >> (dtype.bits - 1) else wrapped)


def splat(text: str, scalar: str, lanes: int) -> str:
    """Return a constant in every lane."""
    return text if lanes == 1 else f"splat ({scalar} {text})"


def overload(dtype: DType, lanes: int) -> str:
    """Return the suffix by which LLVM's intrinsics tell types apart, e.g. ``v16f32``."""
    scalar = {"float": "f32", "double": "f64"}.get(register_type(dtype), register_type(dtype))
    return scalar if lanes == 1 else f"v{lanes}{scalar}"
