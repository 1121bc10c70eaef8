# SPDX-License-Identifier: Apache-2.0
"""How models spell activation functions out: GELU, hard swish, mish and SiLU as formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence

from intarsia_runtime.dtype import DType

from ..graph.expr import Call, Expr, call
from ..graph.pattern import Match, Pattern, Wildcard, op
from ..graph.types import TensorType
from . import activation
from .activation import Gelu, HardSigmoid
from .constants import scalar_value
from .rewriting import spelled
from .unary import Clip

X = Wildcard("x")
A, B, C, D, E = (Wildcard(f"k{n}", constant=True) for n in range(5))


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
    return call(activation.Silu, values[0], span=match.root.span)


def _mish(match: Match, values: Sequence[Expr]) -> Call | None:
    """x * tanh(softplus(x)) --> nn.mish(x)"""
    return call(activation.Mish, values[0], span=match.root.span)


def _hard_swish(match: Match, values: Sequence[Expr]) -> Call | None:
    """x * hard_sigmoid(x, 1/6, 1/2) --> nn.hard_swish(x)"""
    inner = next(c for c in match.calls if c.name == "nn.hard_sigmoid").attrs
    match inner:
        case HardSigmoid.Attrs(alpha=alpha, beta=0.5) if math.isclose(alpha, 1 / 6, rel_tol=1e-6):
            return call(activation.HardSwish, values[0], span=match.root.span)
        case _:
            return None


def _clipped_swish(match: Match, values: Sequence[Expr], scale: float) -> Call | None:
    x, three, six = values
    inner = next(c for c in match.calls if c.name == "clip").attrs
    exact = _near(three, 3.0) and _near(six, scale) and x.type == match.root.type
    if not exact or inner != Clip.Attrs(min=0.0, max=6.0):
        return None
    return call(activation.HardSwish, x, span=match.root.span)


def _swish_divided(match: Match, values: Sequence[Expr]) -> Call | None:
    """x * clip(x + 3, 0, 6) / 6 --> nn.hard_swish(x)"""
    return _clipped_swish(match, values, 6.0)


def _swish_multiplied(match: Match, values: Sequence[Expr]) -> Call | None:
    """x * clip(x + 3, 0, 6) * (1 / 6) --> nn.hard_swish(x)"""
    return _clipped_swish(match, values, 1.0 / 6.0)


def _halved(spread: Pattern) -> tuple[Pattern, ...]:
    """x * spread * 0.5, in three orders"""
    return (
        op("multiply", op("multiply", X, spread), A),
        op("multiply", op("multiply", X, A), spread),
        op("multiply", X, op("multiply", spread, A)),
    )


def _tanh_patterns() -> list[Pattern]:
    """GELU by way of tanh: three ways to write the cube, three to multiply."""
    cubes = (
        op("multiply", X, op("multiply", X, op("multiply", X, D))),
        op("multiply", D, op("multiply", X, op("multiply", X, X))),
        op("multiply", D, op("power", X, E)),
    )
    found: list[Pattern] = []
    for cube in cubes:
        found += _halved(op("add", op("tanh", op("multiply", op("add", X, cube), C)), B))
    return found


def _erf_patterns(scaled: Pattern) -> tuple[Pattern, ...]:
    return _halved(op("add", op("erf", scaled), B))


_CLIPPED = op("clip", op("add", X, A))

spelled(Gelu, _gelu_tanh, *_tanh_patterns())
spelled(Gelu, _gelu_divided, *_erf_patterns(op("divide", X, C)))
spelled(Gelu, _gelu_multiplied, *_erf_patterns(op("multiply", X, C)))
spelled(
    activation.HardSwish,
    _swish_divided,
    op("divide", op("multiply", X, _CLIPPED), B),
    op("multiply", X, op("divide", _CLIPPED, B)),
)
spelled(activation.HardSwish, _swish_multiplied, op("multiply", op("multiply", X, _CLIPPED), B))
spelled(activation.HardSwish, _hard_swish, op("multiply", X, op("nn.hard_sigmoid", X)))
spelled(activation.Mish, _mish, op("multiply", X, op("tanh", op("nn.softplus", X))))
spelled(activation.Silu, _silu, op("multiply", X, op("sigmoid", X)))
