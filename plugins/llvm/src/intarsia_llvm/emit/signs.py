# SPDX-License-Identifier: Apache-2.0
"""The size of one number with the sign of another."""

from __future__ import annotations

from intarsia_runtime.dtype import DType

from .spelling import overload, register_type
from .writer import FunctionWriter


def copy_sign(w: FunctionWriter, operands: tuple[str, str], dtype: DType, lanes: int) -> str:
    """Write ``copysign`` of a size and a sign, which LLVM may not move across a conversion.

    Where the result becomes ``half``, LLVM narrows both operands instead, and looks through the
    conversions of the sign to where it was a double: to narrow that it calls ``__truncdfhf2``,
    which no library here has. It knows the same function by its bits, too. Fences stop it.
    """
    size, sign = operands
    kind, suffix = register_type(dtype, lanes), overload(dtype, lanes)
    fence = w.declarations.use(kind, f"llvm.arithmetic.fence.{suffix}", (kind,))
    function = w.declarations.use(kind, f"llvm.copysign.{suffix}", (kind, kind))
    sign = w.emit(f"call {kind} {fence}({kind} {sign})")
    joined = w.emit(f"call {kind} {function}({kind} {size}, {kind} {sign})")
    return w.emit(f"call {kind} {fence}({kind} {joined})")
