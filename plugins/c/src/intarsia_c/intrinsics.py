# SPDX-License-Identifier: Apache-2.0
"""Machine functions that ``<math.h>`` has not, in terms of those it has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from intarsia_ir.tir.expr import PrimExpr, cast, const, intrinsic
from intarsia_ir.tir.intrinsic import Intrinsic, IntrinsicRule
from intarsia_loops.codegen.c_math import sigmoid, widened


def _rsqrt(x: PrimExpr) -> PrimExpr:
    wide = widened(x)
    return cast(1.0 / intrinsic(Intrinsic.SQRT, wide), x.dtype)


def _exp10(x: PrimExpr) -> PrimExpr:
    wide = widened(x)
    return cast(intrinsic(Intrinsic.POW, const(10.0, wide.dtype), wide), x.dtype)


RULES: Mapping[Intrinsic, IntrinsicRule] = MappingProxyType(
    {Intrinsic.EXP10: _exp10, Intrinsic.RSQRT: _rsqrt, Intrinsic.SIGMOID: sigmoid}
)
"""Rules of all machine functions that have no function of their own in C."""
