# SPDX-License-Identifier: Apache-2.0
"""Recognise: put one operator where a model spells it out in many.

Exporters write GELU, SiLU, hard swish and layer normalisation as their formulas. As one operator
they are what accelerators have kernels for, and what the fallback computes without storing the
steps between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from msgspec import Struct

from ..dtype import DType
from ..ir.expr import Call, Expr, Function, call
from ..ir.match import match_pattern
from ..ir.module import IRModule
from ..ir.pattern import Match, OpPattern, Pattern, Wildcard, op
from ..ir.types import TensorType
from ..ir.walk import children, count_uses, post_order, with_children
from ..ops import OPERATORS
from ..ops.activation import Gelu, HardSigmoid
from ..ops.normalization import LayerNorm
from ..ops.reduce import ReduceOp
from ..ops.unary import Clip
from .base import Pass, Remarks, map_functions
from .rules.constants import scalar_value

Build: TypeAlias = "Callable[[Match, Sequence[Expr]], Call | None]"

X = Wildcard("x")
A = Wildcard("k0", constant=True)
B = Wildcard("k1", constant=True)
C = Wildcard("k2", constant=True)
D = Wildcard("k3", constant=True)
E = Wildcard("k4", constant=True)


class Formula(Struct, frozen=True):
    """A way of spelling an operator out.

    Attributes:
        name: What it spells.
        pattern: How.
        build: Given a match and the rewritten operands, the operator; ``None`` if a number differs.
    """

    name: str
    pattern: Pattern
    build: Build


def recognise(module: IRModule, remarks: Remarks) -> IRModule:
    """Replace formulas by the operators they spell."""
    formulas: dict[str, list[Formula]] = {}
    for formula in _formulas():
        if isinstance(formula.pattern, OpPattern):
            formulas.setdefault(formula.pattern.op, []).append(formula)

    def change(function: Function) -> Function:
        return _recognise(function, formulas, remarks)

    return map_functions(module, change)


def _recognise(
    function: Function, formulas: dict[str, list[Formula]], remarks: Remarks
) -> Function:
    """Match from the results backwards, so that the largest formula wins; then rebuild once."""
    uses = count_uses((function.body,))
    order = list(post_order(function.body))
    found: dict[Expr, tuple[Formula, Match]] = {}
    taken: set[Call] = set()
    for node in reversed(order):
        if not isinstance(node, Call) or node in taken:
            continue
        for formula in formulas.get(node.name, ()):
            match = match_pattern(formula.pattern, node, uses)
            if match is not None and taken.isdisjoint(match.calls):
                if formula.build(match, _values(match)) is None:
                    continue
                found[node] = (formula, match)
                taken.update(match.calls)
                break
    renamed: dict[Expr, Expr] = {}
    for node in order:
        rebuilt: Expr | None = None
        if node in found:
            formula, match = found[node]
            rebuilt = formula.build(match, [renamed[value] for value in _values(match)])
            remarks.add("recognise", f"{len(match.calls)} calls are {formula.name}", node.span)
        if rebuilt is None:
            rebuilt = with_children(node, tuple(renamed[child] for child in children(node)))
        renamed[node] = rebuilt
    body = renamed[function.body]
    return function if body is function.body else replace(function, body=body)


def _values(match: Match) -> list[Expr]:
    """Return ``x``, and the bound constants by name."""
    return [match.bound[name] for name in sorted(match.bound, key=_x_first)]


def _x_first(name: str) -> tuple[bool, str]:
    return name != "x", name


def _near(expr: Expr, wanted: float) -> bool:
    """Whether a constant is ``wanted`` as exactly as its element type can say it."""
    value = scalar_value(expr)
    if value is None or not isinstance(expr.type, TensorType):
        return False
    loose = expr.type.dtype in (DType.FLOAT16, DType.BFLOAT16)
    return math.isclose(value, wanted, rel_tol=5e-3 if loose else 1e-6)


def _gelu(match: Match, values: Sequence[Expr], scale: float) -> Call | None:
    x, half, one, factor = values
    exact = _near(half, 0.5) and _near(one, 1.0) and _near(factor, scale)
    if not exact or x.type != match.root.type:
        return None
    return call(Gelu, x, attrs=Gelu.Attrs(approximate=False), span=match.root.span)


def _gelu_divided(match: Match, values: Sequence[Expr]) -> Call | None:
    """x * 0.5 * (1 + erf(x / sqrt(2))) --> nn.gelu(x)"""
    return _gelu(match, values, math.sqrt(2.0))


def _gelu_multiplied(match: Match, values: Sequence[Expr]) -> Call | None:
    """x * 0.5 * (1 + erf(x * sqrt(0.5))) --> nn.gelu(x)"""
    return _gelu(match, values, math.sqrt(0.5))


def _gelu_tanh(match: Match, values: Sequence[Expr]) -> Call | None:
    """x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) --> nn.gelu(x, approximate=True)"""
    x, half, one, root, cubic, *power = values
    exact = _near(half, 0.5) and _near(one, 1.0) and _near(cubic, 0.044715)
    exact = exact and _near(root, math.sqrt(2.0 / math.pi)) and all(_near(p, 3.0) for p in power)
    if not exact or x.type != match.root.type:
        return None
    return call(Gelu, x, attrs=Gelu.Attrs(approximate=True), span=match.root.span)


def _silu(match: Match, values: Sequence[Expr]) -> Call | None:
    """x * sigmoid(x) --> nn.silu(x)"""
    return call(OPERATORS["nn.silu"], values[0], span=match.root.span)


def _mish(match: Match, values: Sequence[Expr]) -> Call | None:
    """x * tanh(softplus(x)) --> nn.mish(x)"""
    return call(OPERATORS["nn.mish"], values[0], span=match.root.span)


def _hard_swish(match: Match, values: Sequence[Expr]) -> Call | None:
    """x * hard_sigmoid(x, 1/6, 1/2) --> nn.hard_swish(x)"""
    inner = next(c for c in match.calls if c.name == "nn.hard_sigmoid").attrs
    match inner:
        case HardSigmoid.Attrs(alpha=alpha, beta=0.5) if math.isclose(alpha, 1 / 6, rel_tol=1e-6):
            return call(OPERATORS["nn.hard_swish"], values[0], span=match.root.span)
        case _:
            return None


def _clipped_swish(match: Match, values: Sequence[Expr], scale: float) -> Call | None:
    x, three, six = values
    inner = next(c for c in match.calls if c.name == "clip").attrs
    exact = _near(three, 3.0) and _near(six, scale) and x.type == match.root.type
    if not exact or inner != Clip.Attrs(min=0.0, max=6.0):
        return None
    return call(OPERATORS["nn.hard_swish"], x, span=match.root.span)


def _swish_divided(match: Match, values: Sequence[Expr]) -> Call | None:
    """x * clip(x + 3, 0, 6) / 6 --> nn.hard_swish(x)"""
    return _clipped_swish(match, values, 6.0)


def _swish_multiplied(match: Match, values: Sequence[Expr]) -> Call | None:
    """x * clip(x + 3, 0, 6) * (1 / 6) --> nn.hard_swish(x)"""
    return _clipped_swish(match, values, 1.0 / 6.0)


def _layer_norm(match: Match, values: Sequence[Expr]) -> Call | None:
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + e) * scale + bias --> nn.layer_norm(x)"""
    x, epsilon, scale, bias = values
    means = [c.attrs for c in match.calls if c.name == "mean"]
    small = scalar_value(epsilon)
    match (x.type, means[0]):
        case TensorType() as type_, ReduceOp.Attrs(axes=axes, keepdims=True):
            pass
        case _:
            return None
    last = axes == tuple(range(type_.rank - len(axes), type_.rank))
    if not last or not axes or means[1] != means[0] or small is None or small < 0:
        return None
    inner = type_.with_shape(type_.shape[axes[0] :])
    if scale.type != inner or bias.type != inner or match.root.type != type_:
        return None
    attrs = LayerNorm.Attrs(axis=axes[0], epsilon=small)
    return call(LayerNorm, x, scale, bias, attrs=attrs, span=match.root.span)


def _tanh_formulas() -> list[Formula]:
    """GELU by way of tanh: three ways to write the cube, three to multiply."""
    cubes = (
        op("multiply", X, op("multiply", X, op("multiply", X, D))),
        op("multiply", D, op("multiply", X, op("multiply", X, X))),
        op("multiply", D, op("power", X, E)),
    )
    found: list[Formula] = []
    for cube in cubes:
        spread = op("add", op("tanh", op("multiply", op("add", X, cube), C)), B)
        found += [
            Formula("nn.gelu", op("multiply", op("multiply", X, spread), A), _gelu_tanh),
            Formula("nn.gelu", op("multiply", op("multiply", X, A), spread), _gelu_tanh),
            Formula("nn.gelu", op("multiply", X, op("multiply", spread, A)), _gelu_tanh),
        ]
    return found


def _formulas() -> list[Formula]:
    """Every formula, larger ones first."""
    found = _tanh_formulas()
    for scaled, gelu in (
        (op("divide", X, C), _gelu_divided),
        (op("multiply", X, C), _gelu_multiplied),
    ):
        spread = op("add", op("erf", scaled), B)
        found += [
            Formula("nn.gelu", op("multiply", op("multiply", X, spread), A), gelu),
            Formula("nn.gelu", op("multiply", op("multiply", X, A), spread), gelu),
            Formula("nn.gelu", op("multiply", X, op("multiply", spread, A)), gelu),
        ]
    clipped = op("clip", op("add", X, A))
    found += [
        Formula("nn.hard_swish", op("divide", op("multiply", X, clipped), B), _swish_divided),
        Formula("nn.hard_swish", op("multiply", X, op("divide", clipped, B)), _swish_divided),
        Formula("nn.hard_swish", op("multiply", op("multiply", X, clipped), B), _swish_multiplied),
        Formula("nn.hard_swish", op("multiply", X, op("nn.hard_sigmoid", X)), _hard_swish),
        Formula("nn.mish", op("multiply", X, op("tanh", op("nn.softplus", X))), _mish),
        Formula("nn.silu", op("multiply", X, op("sigmoid", X)), _silu),
    ]
    centred = op("subtract", X, op("mean", X))
    variance = op("mean", op("multiply", centred, centred))
    normal = op("divide", centred, op("sqrt", op("add", variance, A)))
    found.append(Formula("nn.layer_norm", op("add", op("multiply", normal, B), C), _layer_norm))
    return found


RECOGNISE = Pass("recognise", recognise)
