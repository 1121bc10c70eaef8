# SPDX-License-Identifier: Apache-2.0
"""Machine functions that ``<math.h>`` has not, in terms of those it has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from intarsia.dtype import DType
from intarsia.tir.expr import PrimExpr, cast, const, intrinsic, select
from intarsia.tir.intrinsic import Intrinsic, IntrinsicRule


def _wide(x: PrimExpr) -> PrimExpr:
    """The 16-bit floats as float32, so that only the result is rounded to them."""
    return x if x.dtype is DType.FLOAT64 else cast(x, DType.FLOAT32)


def _rsqrt(x: PrimExpr) -> PrimExpr:
    wide = _wide(x)
    return cast(1.0 / intrinsic(Intrinsic.SQRT, wide), x.dtype)


def _sigmoid(x: PrimExpr) -> PrimExpr:
    """``exp`` only of what is not positive, so that nothing overflows."""
    wide = _wide(x)
    small = intrinsic(Intrinsic.EXP, -intrinsic(Intrinsic.ABS, wide))
    return cast(select(wide >= 0.0, const(1.0, wide.dtype), small) / (small + 1.0), x.dtype)


def _exp10(x: PrimExpr) -> PrimExpr:
    wide = _wide(x)
    return cast(intrinsic(Intrinsic.POW, const(10.0, wide.dtype), wide), x.dtype)


RULES: Mapping[Intrinsic, IntrinsicRule] = MappingProxyType(
    {Intrinsic.EXP10: _exp10, Intrinsic.RSQRT: _rsqrt, Intrinsic.SIGMOID: _sigmoid}
)
"""Rules of all machine functions that have no function of their own in C."""
