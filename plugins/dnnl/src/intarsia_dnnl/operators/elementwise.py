# SPDX-License-Identifier: Apache-2.0
"""Element-wise functions of one operand, and of two with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from intarsia.plugin.accelerator import (
    Call,
    Code,
    Expr,
    Match,
    Support,
    extents,
    label_of,
    op,
    scalar,
)

from ..draft import DnnlDraft
from .row import DnnlRow, shape_text


class _Function(Struct, frozen=True):
    """An element-wise function of the library with fixed parameters."""

    operator: str
    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0

    def lower(self, draft: DnnlDraft, match: Match) -> int:
        """Append it."""
        (arg,) = match.root.args
        value = draft.value(arg)
        return draft.eltwise(
            self.algorithm, value, self.alpha, self.beta, label=label_of(match.root)
        )


_FIXED = (
    _Function("nn.relu", "relu"),
    _Function("tanh", "tanh"),
    _Function("sigmoid", "logistic"),
    _Function("sqrt", "sqrt"),
    _Function("rsqrt", "pow", 1.0, -0.5),
    _Function("reciprocal", "pow", 1.0, -1.0),
    _Function("abs", "abs"),
    _Function("negative", "linear", -1.0, 0.0),
    _Function("round", "round"),
    _Function("nn.hard_swish", "hardswish", 1 / 6, 0.5),
    _Function("nn.softplus", "soft_relu", 1.0),
    _Function("nn.silu", "swish", 1.0),
    _Function("nn.mish", "mish"),
)


def _attr_function(algorithm: str, *names: str) -> Callable[[DnnlDraft, Match], int]:
    """Return a lowering whose parameters are attributes of the operator."""

    def lower(draft: DnnlDraft, match: Match) -> int:
        attrs: Any = match.attrs
        numbers = [float(getattr(attrs, name)) for name in names]
        value = draft.value(match.root.args[0])
        return draft.eltwise(algorithm, value, *numbers, label=label_of(match.root))

    return lower


def _lower_gelu(draft: DnnlDraft, match: Match) -> int:
    attrs: Any = match.attrs
    algorithm = "gelu_tanh" if attrs.approximate else "gelu_erf"
    return draft.eltwise(algorithm, draft.value(match.root.args[0]), label=label_of(match.root))


def _supports_clip(match: Match) -> Support:
    attrs: Any = match.attrs
    if math.isnan(attrs.min) or math.isnan(attrs.max) or attrs.min > attrs.max:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"an empty range: {attrs.min} to {attrs.max}")
    return Support.yes()


GELU = "infinity becomes NaN"
"""What AVX-512 kernels of GELU do."""

_BINARY = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
}
_COMMUTATIVE = ("add", "multiply")


def _folded(call: Call) -> tuple[Expr, str, float, float] | None:
    """Return operand, function and parameters if one operand is a constant scalar."""
    left, right = call.args
    number, first = scalar(right), scalar(left)
    if number is not None and extents(left) == extents(call) and math.isfinite(number):
        match call.name:
            case "add":
                return (left, "linear", 1.0, number)
            case "subtract":
                return (left, "linear", 1.0, -number)
            case "multiply":
                return (left, "linear", number, 0.0)
            case "divide" if number != 0 and math.isfinite(1 / number):
                return (left, "linear", 1 / number, 0.0)
            case "power":
                return (left, "pow", 1.0, number)
            case _:
                return None
    if first is not None and extents(right) == extents(call) and math.isfinite(first):
        match call.name:
            case "add":
                return (right, "linear", 1.0, first)
            case "subtract":
                return (right, "linear", -1.0, first)
            case "multiply":
                return (right, "linear", first, 0.0)
            case "divide":
                return (right, "pow", first, -1.0)
            case _:
                return None
    return None


def _aligned(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (*(1,) * (rank - len(shape)), *shape)


def fast_broadcast(shape: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Whether a fast kernel broadcasts ``shape``, of the same rank, to ``result``."""
    rank = len(result)
    kept = [axis for axis, size in enumerate(shape) if size != 1]
    full = [axis for axis, size in enumerate(result) if size != 1]
    if kept == full or not kept:
        return True
    if kept == [1] or kept == ([0] if rank == 2 else [0, 1]):
        return True  # one number for each channel, or for each channel of each image
    inner = [axis for axis in kept if axis != 0]
    # The innermost axes, shared by all images or not.
    return bool(inner) and inner == list(range(inner[0], rank))


def _operands(call: Call) -> tuple[Expr, Expr] | None:
    """Return the operands, the one as large as the result first; ``None`` if neither can be."""
    result, (left, right) = extents(call), call.args
    if _aligned(extents(left), len(result)) == result:
        return (left, right)
    if call.name in _COMMUTATIVE and _aligned(extents(right), len(result)) == result:
        return (right, left)
    return None


def _supports_binary(match: Match) -> Support:
    call = match.root
    if all(scalar(arg) is not None for arg in call.args):
        return Support.no(Code.TOO_SMALL, "both operands are constant scalars")
    if _folded(call) is not None:
        return Support.yes()
    if call.name not in _BINARY:
        return Support.no(Code.UNSUPPORTED_OP, f"{call.name} is taken with a constant scalar only")
    operands = _operands(call)
    if operands is None:
        return Support.no(
            Code.UNSUPPORTED_SHAPE,
            f"oneDNN broadcasts only the second operand of {call.name}, not the first",
        )
    result = extents(call)
    shape = _aligned(extents(operands[1]), len(result))
    if not fast_broadcast(shape, result):
        return Support.no(
            Code.UNSUPPORTED_SHAPE,
            f"no fast kernel broadcasts {shape_text(shape)} to {shape_text(result)}",
        )
    return Support.yes()


def _lower_binary(draft: DnnlDraft, match: Match) -> int:
    call = match.root
    folded = _folded(call)
    if folded is not None:
        operand, algorithm, alpha, beta = folded
        return draft.eltwise(algorithm, draft.value(operand), alpha, beta, label=label_of(call))
    operands = _operands(call) or (call.args[0], call.args[1])
    result = extents(call)
    values = tuple(
        draft.view(draft.value(arg), _aligned(draft.shape(draft.value(arg)), len(result)))
        for arg in operands
    )
    attrs = {"algorithm": _BINARY[call.name]}
    return draft.add("binary", values, result, attrs, label=label_of(call))


def _supports_prelu(match: Match) -> Support:
    data, slope = (extents(arg) for arg in match.root.args)
    if scalar(match.root.args[1]) is not None:
        return Support.yes()
    if not 2 <= len(data) <= 5:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"rank {len(data)} (2 to 5 are)")
    aligned = _aligned(slope, len(data))
    by_channel = tuple(size if axis == 1 else 1 for axis, size in enumerate(data))
    if aligned not in (data, by_channel):
        return Support.no(
            Code.UNSUPPORTED_SHAPE,
            f"a slope {shape_text(slope)} for {shape_text(data)}"
            " (one for each channel or element is)",
        )
    return Support.yes()


def _lower_prelu(draft: DnnlDraft, match: Match) -> int:
    data, label = draft.value(match.root.args[0]), label_of(match.root)
    number = scalar(match.root.args[1])
    if number is not None:
        return draft.eltwise("relu", data, number, label=label)
    slope = draft.value(match.root.args[1])
    weights = draft.view(slope, _aligned(draft.shape(slope), len(draft.shape(data))))
    return draft.add("prelu", (data, weights), extents(match.root), label=label)


ROWS = (
    *(DnnlRow(f.operator, op(f.operator), f.lower) for f in _FIXED),
    DnnlRow.refused("exp", "the library gives infinity for NaN"),
    DnnlRow.refused("log", "the library is off by 2e-4 near 1, and wrong for denormal numbers"),
    DnnlRow("nn.leaky_relu", op("nn.leaky_relu"), _attr_function("relu", "alpha")),
    DnnlRow("nn.elu", op("nn.elu"), _attr_function("elu", "alpha")),
    DnnlRow(
        "nn.hard_sigmoid",
        op("nn.hard_sigmoid"),
        _attr_function("hardsigmoid", "alpha", "beta"),
        special="NaN becomes 1",
    ),
    DnnlRow(
        "clip",
        op("clip"),
        _attr_function("clip_v2", "min", "max"),
        _supports_clip,
        special="NaN becomes the minimum",
    ),
    DnnlRow("nn.gelu", op("nn.gelu"), _lower_gelu, special=GELU),
    *(DnnlRow(name, op(name), _lower_binary, _supports_binary) for name in (*_BINARY, "power")),
    DnnlRow("nn.prelu", op("nn.prelu"), _lower_prelu, _supports_prelu, constant=(1,)),
)
