# SPDX-License-Identifier: Apache-2.0
"""Machine functions that OpenCL C has not, or whose drivers are off where it shows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from intarsia_ir.tir.expr import PrimExpr, cast, const, intrinsic, select
from intarsia_ir.tir.intrinsic import Intrinsic, IntrinsicRule
from intarsia_loops.codegen.c_math import sigmoid, widened
from intarsia_runtime.dtype import DType

_SATURATED: Mapping[DType, float] = MappingProxyType({DType.FLOAT32: 9.1, DType.FLOAT64: 19.1})
"""Beyond it, tanh is 1 when it is rounded to the type."""


def tanh(x: PrimExpr) -> PrimExpr:
    """The rule of ``tanh``: 1 where it is 1.

    OpenCL allows 5 units in the last place, and pocl's is one off up to infinity: then 1 - tanh,
    as in GELU, is 6e-8 where it is 0.
    """
    wide = widened(x)
    limit, one = _SATURATED[wide.dtype], const(1.0, wide.dtype)
    inside = select(wide < -limit, -one, intrinsic(Intrinsic.TANH, wide))
    return cast(select(wide > limit, one, inside), x.dtype)


RULES: Mapping[Intrinsic, IntrinsicRule] = MappingProxyType(
    {Intrinsic.SIGMOID: sigmoid, Intrinsic.TANH: tanh}
)
"""Rules of machine functions."""
