# SPDX-License-Identifier: Apache-2.0
"""Sums, differences, products, limits, tables and changes of scale."""

from __future__ import annotations

import math

import numpy as np

from intarsia.plugin.accelerator import (
    Call,
    Clip,
    Code,
    Support,
    array_of,
    label_of,
    operator_row,
    sizes,
    tensor_type,
)

from ..draft import TosaDraft, TosaValue, scale_of, stored_bytes, zero_of
from ..tosa.program import Attr
from .row import YES, check_factors, check_tensor, wide

HEADROOM = 20
"""Bits by which the operands of a sum are moved up, so that their common scale loses nothing."""


def _common_scale(call: Call) -> float:
    """Return the real number that one of the sum's int32 units, moved up, stands for."""
    return 2.0 * max(scale_of(call.args[1]), scale_of(call.args[4]))


def _scales(call: Call) -> Support:
    a, b, result = (wide(call.args[index]) for index in (1, 4, 6))
    if call.name == "qnn.multiply":
        return check_factors(call.name, a * b / result)
    whole = 2.0 * np.maximum(a, b)
    factors = [a / whole * 2**HEADROOM, b / whole * 2**HEADROOM, whole / result / 2**HEADROOM]
    return check_factors(call.name, np.asarray(factors))


def _operands(draft: TosaDraft, call: Call) -> tuple[str, str, bool]:
    """Return both operands in one order of axes."""
    image = any(draft.is_image(call.args[index]) for index in (0, 3))
    a, b = (draft.like(call.args[index], image=image) for index in (0, 3))
    return a, b, image


def _ranks(call: Call) -> Support:
    a, b = sizes(call.args[0]), sizes(call.args[3])
    if len(a) == len(b):
        return YES
    return Support.no(
        Code.UNSUPPORTED_SHAPE, f"operands {list(a)} and {list(b)} must have the same rank"
    )


def _lower_sum(draft: TosaDraft, call: Call) -> TosaValue:
    a, b, image = _operands(draft, call)
    common = _common_scale(call)
    moved = [
        draft.rescale(
            name,
            (scale_of(call.args[index + 1]) / common * 2**HEADROOM,),
            (zero_of(call.args[index + 2]), 0),
            to="INT32",
        )
        for index, name in ((0, a), (3, b))
    ]
    op = "ADD" if call.name == "qnn.add" else "SUB"
    shape = np.broadcast_shapes(draft.shape(a), draft.shape(b))
    total = draft.add(op, moved, shape, dtype="INT32", label=label_of(call))
    factor = common / scale_of(call.args[6]) / 2**HEADROOM
    name = draft.rescale(total, (factor,), (0, zero_of(call.args[7])), label=label_of(call))
    return TosaValue(name, image)


def _lower_product(draft: TosaDraft, call: Call) -> TosaValue:
    a, b, image = _operands(draft, call)
    whole = [
        draft.rescale(name, (1.0,), (zero_of(call.args[index]), 0), to="INT32")
        for index, name in ((2, a), (5, b))
    ]
    shape = np.broadcast_shapes(draft.shape(a), draft.shape(b))
    operands = (*whole, draft.number(0))
    total = draft.add("MUL", operands, shape, dtype="INT32", label=label_of(call))
    factor = scale_of(call.args[1]) * scale_of(call.args[4]) / scale_of(call.args[6])
    name = draft.rescale(total, (factor,), (0, zero_of(call.args[7])), label=label_of(call))
    return TosaValue(name, image)


def _current(draft: TosaDraft, call: Call) -> tuple[str, bool]:
    """Return the first operand in whatever order it is."""
    image = draft.is_image(call.args[0])
    return draft.like(call.args[0], image=image), image


def _scalar_parameters(call: Call) -> Support:
    if any(array_of(call.args[index]).size > 1 for index in (1, 2, 3, 4)):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, "scales and zero points along an axis are not taken"
        )
    return check_factors(call.name, wide(call.args[1]) / wide(call.args[3]))


def _lower_requantize(draft: TosaDraft, call: Call) -> TosaValue:
    value, image = _current(draft, call)
    factor = scale_of(call.args[1]) / scale_of(call.args[3])
    zeros = zero_of(call.args[2]), zero_of(call.args[4])
    return TosaValue(draft.rescale(value, (factor,), zeros, label=label_of(call)), image)


def _lower_lookup(draft: TosaDraft, call: Call) -> TosaValue:
    value, image = _current(draft, call)
    table = draft.constant(stored_bytes(array_of(call.args[1])))
    shape = draft.shape(value)
    return TosaValue(draft.add("TABLE", (value, table), shape, label=label_of(call)), image)


def _lower_clip(draft: TosaDraft, call: Call) -> TosaValue:
    assert isinstance(call.attrs, Clip.Attrs)
    value, image = _current(draft, call)
    offset = 0 if tensor_type(call).dtype.is_signed else 128
    low, high = (
        int(np.clip(limit, -128 + offset, 127 + offset)) - offset
        for limit in (
            -math.inf if math.isinf(call.attrs.min) else math.ceil(call.attrs.min),
            math.inf if math.isinf(call.attrs.max) else math.floor(call.attrs.max),
        )
    )
    attrs: dict[str, Attr] = {"min_val": low, "max_val": high, "nan_mode": "PROPAGATE"}
    shape = draft.shape(value)
    return TosaValue(draft.add("CLAMP", (value,), shape, attrs=attrs, label=label_of(call)), image)


def _ordered(call: Call) -> Support:
    assert isinstance(call.attrs, Clip.Attrs)
    if call.attrs.min > call.attrs.max:
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, f"limits {call.attrs.min} and {call.attrs.max} cross"
        )
    return YES


def _table(call: Call) -> Support:
    return check_tensor(call.args[1])


_PAIR = (1, 2, 4, 5, 6, 7)
ROWS = (
    *(
        operator_row(
            name, lower, _ranks, _scales, data=(0, 3), constant=_PAIR, doc="operands of one rank"
        )
        for name, lower in (
            ("qnn.add", _lower_sum),
            ("qnn.subtract", _lower_sum),
            ("qnn.multiply", _lower_product),
        )
    ),
    operator_row(
        "qnn.requantize",
        _lower_requantize,
        _scalar_parameters,
        data=(0,),
        constant=(1, 2, 3, 4),
        doc="one scale and one zero point",
    ),
    operator_row(
        "qnn.lookup",
        _lower_lookup,
        _table,
        data=(0,),
        constant=(1,),
        doc="a constant table of 8-bit elements",
    ),
    operator_row("clip", _lower_clip, _ordered, data=(0,), doc="limits that do not cross"),
)
