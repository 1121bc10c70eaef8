# SPDX-License-Identifier: Apache-2.0
"""What is known of normalizations: derivatives, batch axes, the formula that models write."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.expr import Call, Expr, call
from ..graph.pattern import Match, Pattern, Wildcard, op
from ..graph.types import TensorType
from . import normalization, unary
from .constants import scalar_value
from .derivative import expansion
from .integer_forms import INTEGER_FORMS
from .normalization import LayerNorm
from .reduce import ReduceOp
from .rewriting import spelled
from .terms import Term


def _standard(x: Term, axes: Sequence[int], epsilon: float, *, centre: bool = True) -> Term:
    """Return ``x`` with zero mean and unit variance over some dimensions."""
    shifted = x - x.mean(axes) if centre else x
    return shifted * ((shifted * shifted).mean(axes) + epsilon).apply(unary.Rsqrt)


def _by_channel(vector: Term, x: Term) -> Term:
    """Reshape a vector so that it broadcasts along dimension 1 of ``x``."""
    return vector.reshape((vector.sizes[0], *[1] * (x.type.rank - 2)))


@expansion(normalization.LayerNorm)
def _layer_norm_expansion(args: Sequence[Term], attrs: normalization.LayerNorm.Attrs) -> Term:
    """Standardize, scale and shift."""
    x, scale, *bias = args
    found = _standard(x, range(attrs.axis, x.type.rank), attrs.epsilon) * scale
    return found + bias[0] if bias else found


@expansion(normalization.RmsNorm)
def _rms_norm_expansion(args: Sequence[Term], attrs: normalization.RmsNorm.Attrs) -> Term:
    """Divide by the root mean square, and scale."""
    x, scale = args
    axes = range(attrs.axis, x.type.rank)
    return _standard(x, axes, attrs.epsilon, centre=False) * scale


@expansion(normalization.BatchNorm)
def _batch_norm_expansion(args: Sequence[Term], attrs: normalization.BatchNorm.Attrs) -> Term:
    """(x - mean) / sqrt(var + epsilon) * scale + bias, per channel."""
    x = args[0]
    scale, bias, mean, var = (_by_channel(vector, x) for vector in args[1:])
    return (x - mean) * (var + attrs.epsilon).apply(unary.Rsqrt) * scale + bias


@expansion(normalization.InstanceNorm)
def _instance_norm_expansion(args: Sequence[Term], attrs: normalization.InstanceNorm.Attrs) -> Term:
    """Standardize each channel, scale and shift."""
    x, scale, bias = args
    found = _standard(x, range(2, x.type.rank), attrs.epsilon)
    return found * _by_channel(scale, x) + _by_channel(bias, x)


@expansion(normalization.GroupNorm)
def _group_norm_expansion(args: Sequence[Term], attrs: normalization.GroupNorm.Attrs) -> Term:
    """Standardize each group of channels, scale and shift."""
    x, scale, bias = args
    batch, channels, *spatial = x.sizes
    grouped = x.reshape((batch, attrs.groups, channels // attrs.groups, *spatial))
    found = _standard(grouped, range(2, x.type.rank + 1), attrs.epsilon).reshape(x.sizes)
    return found * _by_channel(scale, x) + _by_channel(bias, x)


@expansion(normalization.L2Normalize)
def _l2_normalize_expansion(args: Sequence[Term], attrs: normalization.L2Normalize.Attrs) -> Term:
    """Divide by the length; by 1 where it is 0."""
    (x,) = args
    parts = x.apply(unary.Abs) if attrs.p == 1 else x * x
    total = parts.sum((attrs.axis,), keepdims=True)
    divisor = total.number(1.0).where(total.equals(0.0), total)
    return x / (divisor if attrs.p == 1 else divisor.apply(unary.Sqrt))


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


def _layer_norm_patterns() -> list[Pattern]:
    x, epsilon, scale, bias = Wildcard("x"), *(Wildcard(f"k{n}", constant=True) for n in range(3))
    centred = op("subtract", x, op("mean", x))
    variance = op("mean", op("multiply", centred, centred))
    normal = op("divide", centred, op("sqrt", op("add", variance, epsilon)))
    return [op("add", op("multiply", normal, scale), bias)]


spelled(LayerNorm, _layer_norm, *_layer_norm_patterns())


INTEGER_FORMS.refuse(
    "its sums and roots are taken of real numbers",
    normalization.RmsNorm,
    normalization.InstanceNorm,
    normalization.GroupNorm,
    normalization.L2Normalize,
)
