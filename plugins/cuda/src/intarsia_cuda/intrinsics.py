# SPDX-License-Identifier: Apache-2.0
"""Machine functions that CUDA has not, in terms of those it has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from intarsia.dtype import DType
from intarsia.tir.expr import PrimExpr, cast, const, intrinsic, select
from intarsia.tir.intrinsic import Intrinsic, IntrinsicRule


def _sigmoid(x: PrimExpr) -> PrimExpr:
    """``exp`` only of what is not positive, so that nothing overflows."""
    wide = x if x.dtype is DType.FLOAT64 else cast(x, DType.FLOAT32)
    small = intrinsic(Intrinsic.EXP, -intrinsic(Intrinsic.ABS, wide))
    return cast(select(wide >= 0.0, const(1.0, wide.dtype), small) / (small + 1.0), x.dtype)


RULES: Mapping[Intrinsic, IntrinsicRule] = MappingProxyType({Intrinsic.SIGMOID: _sigmoid})
"""Rules of the machine functions that have no function of their own in CUDA."""
