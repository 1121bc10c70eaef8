# SPDX-License-Identifier: Apache-2.0
"""What is known of operators that change a shape: derivatives, batch axes, simplifications."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from ..graph.expr import Call, Expr, TupleGetItem, call, get_item, make_tuple
from ..graph.op import OpAttrs
from ..graph.types import TensorType
from ..tir.tensor import extents
from . import shape
from .derivative import derivative
from .generate import Full
from .integer_forms import INTEGER_FORMS, IntegerForm, each_operand, give_passing, real
from .rewriting import simplification
from .shape import Reshape, Split, Transpose
from .slicing import StridedSlice
from .stored import equal, stored
from .terms import Contributions, DerivativeStep, Term

_Item = TypeVar("_Item")

_MOST_PARTS = 512
"""Operands of a concatenation, or sections of a split, that one kernel has; real nets have 100."""

_GROUP = 128


@derivative(shape.Reshape)
def _reshape_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """The old shape."""
    return [step.adjoint.reshape(step.args[0].sizes)]


@derivative(shape.Transpose)
def _transpose_derivative(step: DerivativeStep, attrs: shape.Transpose.Attrs) -> Contributions:
    """The old order."""
    order = [attrs.axes.index(axis) for axis in range(len(attrs.axes))]
    return [step.adjoint.transpose(order)]


@derivative(shape.BroadcastTo)
def _broadcast_to_derivative(step: DerivativeStep, attrs: OpAttrs) -> Contributions:
    """The sum of all copies."""
    return [step.adjoint.summed_to(step.args[0].sizes)]


@derivative(shape.Flip)
def _flip_derivative(step: DerivativeStep, attrs: shape.Flip.Attrs) -> Contributions:
    """The old direction."""
    return [step.adjoint.apply(shape.Flip, attrs=attrs)]


@derivative(shape.Concatenate)
def _concatenate_derivative(step: DerivativeStep, attrs: shape.Concatenate.Attrs) -> Contributions:
    """Each operand's part."""
    begin = 0
    found: list[Term | None] = []
    for x, wanted in zip(step.args, step.needed, strict=True):
        end = begin + x.sizes[attrs.axis]
        found.append(step.adjoint.part(attrs.axis, begin, end) if wanted else None)
        begin = end
    return found


@derivative(shape.Split)
def _split_derivative(step: DerivativeStep, attrs: shape.Split.Attrs) -> Contributions:
    """The parts joined; zeros for those that nothing depends on."""
    x = step.args[0]
    parts: list[Term] = []
    for size, adjoint in zip(attrs.sections, step.adjoints, strict=True):
        sizes = (*x.sizes[: attrs.axis], size, *x.sizes[attrs.axis + 1 :])
        parts.append(x.full(0.0, sizes) if adjoint is None else adjoint)
    if len(parts) == 1:
        return parts
    joined = shape.Concatenate.Attrs(axis=attrs.axis)
    return [parts[0].apply(shape.Concatenate, *parts[1:], attrs=joined)]


@simplification(Reshape, shape.BroadcastTo)
def drop_unchanged(expr: Expr) -> Expr | None:
    """reshape(x), broadcast_to(x) --> x if the shape stays"""
    match expr:
        case Call(args=(x,)) if x.type == expr.type:
            return x
        case _:
            return None


@simplification(Reshape)
def merge_reshapes(expr: Expr) -> Expr | None:
    """reshape(reshape(x)) --> reshape(x)"""
    match expr:
        case Call("reshape", (Call("reshape", (x,)),), Reshape.Attrs() as attrs):
            return call(Reshape, x, attrs=attrs, span=expr.span)
        case _:
            return None


@simplification(Reshape, Transpose, shape.BroadcastTo, shape.Flip, StridedSlice)
def move_full(expr: Expr) -> Expr | None:
    """reshape(full(value)), or another move of its elements --> full(value)"""
    match expr:
        case Call(args=(Call("full", (), Full.Attrs() as attrs),), type=TensorType() as type_):
            return call(Full, attrs=replace(attrs, shape=type_.shape), span=expr.span)
        case _:
            return None


@simplification(shape.Copy)
def drop_copy(expr: Expr) -> Expr | None:
    """copy(x) --> x"""
    match expr:
        case Call("copy", (x,)):
            return x
        case _:
            return None


@simplification(Transpose)
def drop_identity_transpose(expr: Expr) -> Expr | None:
    """transpose(x, axes=(0, 1, 2)) --> x"""
    match expr:
        case Call("transpose", (x,), Transpose.Attrs(axes=axes)) if list(axes) == sorted(axes):
            return x
        case _:
            return None


@simplification(Transpose)
def merge_transposes(expr: Expr) -> Expr | None:
    """transpose(transpose(x, a), b) --> transpose(x, a after b)"""
    match expr:
        case Call(
            "transpose",
            (Call("transpose", (x,), Transpose.Attrs(axes=first)),),
            Transpose.Attrs(axes=second),
        ):
            axes = tuple(first[axis] for axis in second)
            return call(Transpose, x, attrs=Transpose.Attrs(axes=axes), span=expr.span)
        case _:
            return None


@simplification(Transpose)
def transpose_to_reshape(expr: Expr) -> Expr | None:
    """transpose(x) --> reshape(x) if only axes of size 1 move"""
    match expr:
        case Call("transpose", (x,), Transpose.Attrs(axes=axes)) if isinstance(
            x.type, TensorType
        ) and list(axes) != sorted(axes):
            shape = x.type.shape
            moved = [axis for axis in axes if shape[axis] != 1]
            if moved != sorted(moved):
                return None
            attrs = Reshape.Attrs(shape=extents([shape[axis] for axis in axes]))
            return call(Reshape, x, attrs=attrs, span=expr.span)
        case _:
            return None


@simplification(shape.Concatenate)
def drop_single_concatenate(expr: Expr) -> Expr | None:
    """concatenate(x) --> x"""
    match expr:
        case Call("concatenate", (x,)):
            return x
        case _:
            return None


@simplification(Split)
def drop_single_split(expr: Expr) -> Expr | None:
    """split(x, one section) --> (x,)"""
    match expr:
        case Call("split", (x,), Split.Attrs(sections=(_,))):
            return make_tuple((x,), span=expr.span)
        case _:
            return None


@simplification(shape.Concatenate)
def concatenate_in_groups(expr: Expr) -> Expr | None:
    """concatenate(thousands of x) --> concatenate(concatenate(128 of x), ...)

    A kernel has a branch for each operand. Of equal groups one kernel is made, so that compile
    time grows with the number of groups, at the price of a second copy.
    """
    match expr:
        case Call("concatenate", xs) if len(xs) > _MOST_PARTS:
            parts = [
                call(shape.Concatenate, *group, attrs=expr.attrs, span=expr.span)
                for group in _groups_of(xs)
            ]
            return call(shape.Concatenate, *parts, attrs=expr.attrs, span=expr.span)
        case _:
            return None


@simplification(Split)
def split_in_groups(expr: Expr) -> Expr | None:
    """split(x, thousands of sections) --> split(split(x, sums)[0], 128 of sections)[0], ..."""
    match expr:
        case Call("split", (x,), Split.Attrs(sections=sections, axis=axis)) if (
            len(sections) > _MOST_PARTS
        ):
            groups = list(_groups_of(sections))
            sums = Split.Attrs(sections=tuple(map(sum, groups)), axis=axis)
            whole = call(Split, x, attrs=sums, span=expr.span)
            fields: list[Expr] = []
            for number, group in enumerate(groups):
                attrs = Split.Attrs(sections=group, axis=axis)
                part = call(Split, get_item(whole, number), attrs=attrs, span=expr.span)
                fields += [get_item(part, index) for index in range(len(group))]
            return make_tuple(fields, span=expr.span)
        case _:
            return None


def _groups_of(items: tuple[_Item, ...]) -> list[tuple[_Item, ...]]:
    """Return consecutive groups of 128 items; the last one may be shorter."""
    return [items[start : start + _GROUP] for start in range(0, len(items), _GROUP)]


def _move_part(expr: Expr) -> Expr | None:
    """split(dequantize(x)).1 --> dequantize(split(x).1)"""
    match expr:
        case TupleGetItem(tuple=Call("split", (source,)) as split):
            found = stored(source)
            if found is None or found.scalars is None:
                return None
            parts = call(split.op, found.value, attrs=split.attrs, span=split.span)
            return real(get_item(parts, expr.index, span=expr.span), found, expr)
        case _:
            return None


def _move_join(expr: Expr) -> Expr | None:
    """concatenate(dequantize(x), dequantize(y)) --> dequantize(concatenate(x, y)), if scales are"""
    if not isinstance(expr, Call):
        return None
    parts = [stored(arg) for arg in expr.args]
    known = [part for part in parts if part is not None and part.scalars is not None]
    if len(known) != len(parts) or not known:
        return None
    first = known[0].scalars
    for part in known[1:]:
        other = part.scalars
        if first is None or other is None or not all(map(equal, first, other)):
            return None
    joined = call(expr.op, *(part.value for part in known), attrs=expr.attrs, span=expr.span)
    return real(joined, known[0], expr)


give_passing(shape.BroadcastTo, shape.Copy, shape.Flip, Reshape, Transpose)
INTEGER_FORMS.give(IntegerForm(move=_move_part), Split)
INTEGER_FORMS.give(IntegerForm(quantized=each_operand, move=_move_join), shape.Concatenate)
