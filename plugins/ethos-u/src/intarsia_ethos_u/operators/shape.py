# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements: reshape, transpose, concatenation and cuts."""

from __future__ import annotations

from intarsia.plugin.accelerator import (
    Call,
    Code,
    Concatenate,
    StridedSlice,
    Support,
    Transpose,
    label_of,
    operator_row,
    sizes,
)

from ..draft import TO_IMAGE, TosaDraft, TosaValue
from ..tosa.program import Attr
from .row import YES


def _lower_reshape(draft: TosaDraft, call: Call) -> TosaValue:
    source = sizes(call.args[0])
    if draft.is_image(call.args[0]) and source[2:] == (1, 1):
        # One element a channel: the order of axes makes no difference.
        return TosaValue(draft.reshape(draft.image(call.args[0]), sizes(call)), image=False)
    return TosaValue(draft.reshape(draft.plain(call.args[0]), sizes(call)), image=False)


def _lower_transpose(draft: TosaDraft, call: Call) -> TosaValue:
    assert isinstance(call.attrs, Transpose.Attrs)
    value = draft.plain(call.args[0])
    attrs: dict[str, Attr] = {"perms": tuple(call.attrs.axes)}
    name = draft.add("TRANSPOSE", (value,), sizes(call), attrs=attrs, label=label_of(call))
    return TosaValue(name, image=False)


def _lower_concatenate(draft: TosaDraft, call: Call) -> TosaValue:
    assert isinstance(call.attrs, Concatenate.Attrs)
    image = any(draft.is_image(arg) for arg in call.args)
    axis = call.attrs.axis % len(sizes(call))
    shape = sizes(call)
    if image:
        axis, shape = TO_IMAGE.index(axis), tuple(shape[place] for place in TO_IMAGE)
    values = [draft.like(arg, image=image) for arg in call.args]
    attrs: dict[str, Attr] = {"axis": axis}
    return TosaValue(draft.add("CONCAT", values, shape, attrs=attrs, label=label_of(call)), image)


def _unit_strides(call: Call) -> Support:
    assert isinstance(call.attrs, StridedSlice.Attrs)
    if any(stride != 1 for stride in call.attrs.strides):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, f"strides {call.attrs.strides}, only 1 is taken"
        )
    return YES


def _lower_slice(draft: TosaDraft, call: Call) -> TosaValue:
    assert isinstance(call.attrs, StridedSlice.Attrs)
    image = draft.is_image(call.args[0])
    start, size = tuple(int(begin) for begin in call.attrs.begin), sizes(call)
    if image:
        start, size = (tuple(row[axis] for axis in TO_IMAGE) for row in (start, size))
    value = draft.like(call.args[0], image=image)
    attrs: dict[str, Attr] = {"start": start, "size": size}
    return TosaValue(draft.add("SLICE", (value,), size, attrs=attrs, label=label_of(call)), image)


ROWS = (
    operator_row("reshape", _lower_reshape, data=(0,), doc="at most four dimensions"),
    operator_row("transpose", _lower_transpose, data=(0,), doc="at most four dimensions"),
    operator_row("concatenate", _lower_concatenate, doc="tensors of one scale"),
    operator_row("strided_slice", _lower_slice, _unit_strides, data=(0,), doc="strides of 1"),
)
