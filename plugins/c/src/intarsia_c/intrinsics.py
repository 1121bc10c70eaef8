# SPDX-License-Identifier: Apache-2.0
"""Machine functions that ``<math.h>`` has not, and those of float32 that a loop is faster with.

A C compiler calls ``expf`` and ``tanhf`` for one element after the other, and vectorizes
polynomials: ``erf``, ``exp``, ``tanh`` and ``sigmoid`` of float32 are those of ``llvm``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from intarsia_ir.tir.expr import PrimExpr, cast, const, intrinsic
from intarsia_ir.tir.intrinsic import Intrinsic, IntrinsicRule
from intarsia_loops.codegen.c_math import sigmoid, widened
from intarsia_loops.cpu.exponential import (
    erf_size,
    exp_single,
    sigmoid_single,
    tanh_single,
)
from intarsia_runtime.dtype import DType


def _rsqrt(x: PrimExpr) -> PrimExpr:
    wide = widened(x)
    return cast(1.0 / intrinsic(Intrinsic.SQRT, wide), x.dtype)


def _exp10(x: PrimExpr) -> PrimExpr:
    wide = widened(x)
    return cast(intrinsic(Intrinsic.POW, const(10.0, wide.dtype), wide), x.dtype)


def _exp(x: PrimExpr) -> PrimExpr:
    wide = widened(x)
    single = wide.dtype is DType.FLOAT32
    return cast(exp_single(wide) if single else intrinsic(Intrinsic.EXP, wide), x.dtype)


def _sigmoid(x: PrimExpr) -> PrimExpr:
    wide = widened(x)
    return cast(sigmoid_single(wide), x.dtype) if wide.dtype is DType.FLOAT32 else sigmoid(x)


def _tanh(x: PrimExpr) -> PrimExpr:
    wide = widened(x)
    if wide.dtype is not DType.FLOAT32:
        return intrinsic(Intrinsic.TANH, x)
    return cast(intrinsic(Intrinsic.COPYSIGN, tanh_single(wide), wide), x.dtype)


def _erf(x: PrimExpr) -> PrimExpr:
    wide = widened(x)
    if wide.dtype is not DType.FLOAT32:
        return intrinsic(Intrinsic.ERF, x)
    return cast(intrinsic(Intrinsic.COPYSIGN, erf_size(wide), wide), x.dtype)


RULES: Mapping[Intrinsic, IntrinsicRule] = MappingProxyType(
    {
        Intrinsic.ERF: _erf,
        Intrinsic.EXP: _exp,
        Intrinsic.EXP10: _exp10,
        Intrinsic.RSQRT: _rsqrt,
        Intrinsic.SIGMOID: _sigmoid,
        Intrinsic.TANH: _tanh,
    }
)
"""Rules of machine functions, among them all that have no function of their own in C."""
