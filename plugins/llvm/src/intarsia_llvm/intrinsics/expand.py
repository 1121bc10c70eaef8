# SPDX-License-Identifier: Apache-2.0
"""Which rule computes which intrinsic, and the pass that applies them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from intarsia_ir.tir.expr import CallIntrinsic, PrimExpr, cast
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.intrinsic import Intrinsic, IntrinsicRule
from intarsia_ir.tir.passes.rebuild import rebuild_stmt
from intarsia_ir.tir.walk import children, with_children
from intarsia_runtime.dtype import DType

from . import circular, elementary, exponential
from .polynomial import number, root

Rule: TypeAlias = Callable[..., PrimExpr]


def _rsqrt(x: PrimExpr) -> PrimExpr:
    return number(1.0, x) / root(x)


def _in(dtypes: tuple[DType, ...], rule: Rule) -> Rule:
    """Return ``rule`` for any float: others than ``dtypes`` go through the next wider of them."""

    def widened(*args: PrimExpr) -> PrimExpr:
        own = args[0].dtype
        if own in dtypes:
            return rule(*args)
        wider = DType.FLOAT32 if DType.FLOAT32 in dtypes else DType.FLOAT64
        result = rule(*(cast(arg, wider) for arg in args))
        return result if result.dtype is DType.BOOL else cast(result, own)

    return widened


_BOTH = (DType.FLOAT32, DType.FLOAT64)
_DOUBLE = (DType.FLOAT64,)

RULES: Mapping[Intrinsic, Rule] = MappingProxyType(
    {
        Intrinsic.ACOS: _in(_DOUBLE, circular.acos),
        Intrinsic.ACOSH: _in(_DOUBLE, exponential.acosh),
        Intrinsic.ASIN: _in(_DOUBLE, circular.asin),
        Intrinsic.ASINH: _in(_DOUBLE, exponential.asinh),
        Intrinsic.ATAN: _in(_DOUBLE, circular.atan),
        Intrinsic.ATAN2: _in(_DOUBLE, circular.atan2),
        Intrinsic.ATANH: _in(_DOUBLE, exponential.atanh),
        Intrinsic.CBRT: _in(_DOUBLE, elementary.cbrt),
        Intrinsic.COPYSIGN: _in(_BOTH, elementary.copysign),
        Intrinsic.COS: _in(_BOTH, circular.cos),
        Intrinsic.COSH: _in(_DOUBLE, exponential.cosh),
        Intrinsic.ERF: _in(_BOTH, circular.erf),
        Intrinsic.ERFC: _in(_DOUBLE, circular.erfc),
        Intrinsic.EXP: _in(_BOTH, exponential.exp),
        Intrinsic.EXP10: _in(_DOUBLE, elementary.exp10),
        Intrinsic.EXP2: _in(_DOUBLE, elementary.exp2),
        Intrinsic.EXPM1: _in(_DOUBLE, elementary.expm1),
        Intrinsic.FDIM: _in(_BOTH, elementary.fdim),
        Intrinsic.FMAX: elementary.fmax,
        Intrinsic.FMIN: elementary.fmin,
        Intrinsic.HYPOT: _in(_DOUBLE, elementary.hypot),
        Intrinsic.ISFINITE: elementary.isfinite,
        Intrinsic.LOG: _in(_BOTH, exponential.log),
        Intrinsic.LOG10: _in(_DOUBLE, elementary.log10),
        Intrinsic.LOG2: _in(_DOUBLE, elementary.log2),
        Intrinsic.LOG1P: _in(_DOUBLE, exponential.log1p),
        Intrinsic.POW: _in(_DOUBLE, exponential.power),
        Intrinsic.RSQRT: _in(_BOTH, _rsqrt),
        Intrinsic.SIGMOID: _in(_BOTH, exponential.sigmoid),
        Intrinsic.SIGNBIT: _in(_BOTH, elementary.signbit),
        Intrinsic.SIN: _in(_BOTH, circular.sin),
        Intrinsic.SINH: _in(_DOUBLE, exponential.sinh),
        Intrinsic.TAN: _in(_BOTH, circular.tan),
        Intrinsic.TANH: _in(_BOTH, exponential.tanh),
    }
)
"""Rules of all intrinsics that are not one LLVM intrinsic."""


def expand_intrinsics(
    function: PrimFunc, rules: Mapping[Intrinsic, IntrinsicRule] = RULES
) -> PrimFunc:
    """Return ``function`` with every intrinsic that has a rule replaced by what the rule says.

    What another plugin's rule gives may again be made of intrinsics that have rules.
    """
    memo: dict[int, PrimExpr] = {}
    keep: list[PrimExpr] = []

    def rule(expr: PrimExpr) -> PrimExpr | None:
        if not isinstance(expr, CallIntrinsic) or expr.intrinsic not in rules:
            return None
        made = rules[expr.intrinsic](*(walk(arg) for arg in expr.args))
        return made if rules[expr.intrinsic] is RULES.get(expr.intrinsic) else walk(made)

    def walk(expr: PrimExpr) -> PrimExpr:
        known = memo.get(id(expr))
        if known is None:
            known = rule(expr)
            if known is None:
                parts = children(expr)
                known = (
                    with_children(expr, tuple([walk(part) for part in parts])) if parts else expr
                )
            memo[id(expr)] = known
            keep.append(expr)
        return known

    body = rebuild_stmt(function.body, walk)
    return function if body is function.body else replace(function, body=body)
