# SPDX-License-Identifier: Apache-2.0
"""Sink reshapes: work on an anchor's result before its shape changes, so that the two can fuse.

Exporters write a convolution of a line as one of an image of height 1, drop the axis, and only
then add the bias; classifiers drop the axes of an image of one pixel before the activation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import Struct

from ..graph.expr import Call, Constant, Expr, Function, call, constant
from ..graph.module import IRModule
from ..graph.op import OpKind
from ..graph.types import Size, TensorType
from ..graph.walk import children, count_uses, post_order, with_children
from ..ops.reduce import ReduceOp
from ..ops.shape import Reshape
from ..tir.tensor import extents
from .base import Pass, Remarks, map_functions

_MOVABLE = (OpKind.ANCHOR, OpKind.ELEMWISE, OpKind.REDUCTION)


class _View(Struct, frozen=True):
    """A reshape of what an anchor, or work on its result, computes.

    Attributes:
        source: What is reshaped.
        before: Its shape.
        after: The shape it gets.
    """

    source: Call
    before: tuple[Size, ...]
    after: tuple[Size, ...]

    def origins(self) -> tuple[int | None, ...] | None:
        """Return for each new axis the old one, or ``None`` for a new axis of size 1.

        ``None`` if more changes than axes of size 1 that come and go.
        """
        found: list[int | None] = []
        old = 0
        for size in self.after:
            while old < len(self.before) and self.before[old] == 1 != size:
                old += 1
            if old < len(self.before) and self.before[old] == size:
                found.append(old)
                old += 1
            elif size == 1:
                found.append(None)
            else:
                return None
        return tuple(found) if all(size == 1 for size in self.before[old:]) else None


def sink_reshapes(module: IRModule, _remarks: Remarks) -> IRModule:
    """Move reshapes of what anchors compute behind element-wise calls and reductions."""
    return map_functions(module, _sink)


def _sink(function: Function) -> Function:
    uses = count_uses((function.body,))
    new: dict[Expr, Expr] = {}
    for node in post_order(function.body):
        rebuilt = with_children(node, tuple(new[child] for child in children(node)))
        sunk = _moved(node, rebuilt, uses) if isinstance(rebuilt, Call) else None
        new[node] = rebuilt if sunk is None else sunk
    body = new[function.body]
    return function if body is function.body else replace(function, body=body)


def _moved(node: Expr, rebuilt: Call, uses: Mapping[Expr, int]) -> Expr | None:
    """Return a call on a view as a view of the call."""
    computed = [(at, arg) for at, arg in enumerate(rebuilt.args) if not isinstance(arg, Constant)]
    if len(computed) != 1 or uses.get(children(node)[computed[0][0]]) != 1:
        return None
    at, view = computed[0][0], _view(computed[0][1])
    if view is None or not isinstance(rebuilt.type, TensorType):
        return None
    made = None
    alone = rebuilt.op.kind is OpKind.ELEMWISE and len(rebuilt.args) == 1
    if (alone or rebuilt.op.broadcasts) and rebuilt.type.shape == view.after:
        made = _elementwise(rebuilt, at, view)
    elif isinstance(rebuilt.attrs, ReduceOp.Attrs):
        made = _reduction(rebuilt, rebuilt.attrs, view)
    if made is None:
        return None
    shape = Reshape.Attrs(shape=extents(rebuilt.type.shape))
    return call(Reshape, made, attrs=shape, span=rebuilt.span)


def _view(expr: Expr) -> _View | None:
    match expr:
        case Call("reshape", (Call() as source,)) if source.op.kind in _MOVABLE:
            before, after = source.type, expr.type
        case _:
            return None
    match before, after:
        case TensorType() as old, TensorType() as new:
            return _View(source, old.shape, new.shape)
        case _:
            return None


def _elementwise(node: Call, at: int, view: _View) -> Expr | None:
    args: list[Expr] = []
    for position, arg in enumerate(node.args):
        other = view.source if position == at else _unviewed(arg, view)
        if other is None:
            return None
        args.append(other)
    return call(node.op, *args, attrs=node.attrs, span=node.span)


def _unviewed(arg: Expr, view: _View) -> Expr | None:
    """Return a constant operand as it broadcasts against what is viewed."""
    if not isinstance(arg, Constant):
        return None
    if arg.type.elements == 1:
        return constant(arg.data.reshape(()), name=arg.name, span=arg.span)
    origins = view.origins()
    sizes = arg.type.static_shape
    if origins is None or len(sizes) > len(origins):
        return None
    shape = [1] * len(view.before)
    for size, origin in zip(reversed(sizes), reversed(origins), strict=False):
        if origin is not None:
            shape[origin] = size
    return constant(arg.data.reshape(shape), name=arg.name, span=arg.span)


def _reduction(node: Call, attrs: ReduceOp.Attrs, view: _View) -> Expr | None:
    origins = view.origins()
    if origins is None or len(node.args) != 1:
        return None
    axes = [origins[axis] for axis in attrs.axes]
    known = tuple(axis for axis in axes if axis is not None)
    if not known:
        return None
    over = ReduceOp.Attrs(axes=known, keepdims=True)
    return call(node.op, view.source, attrs=over, span=node.span)


SINK_RESHAPES = Pass("sink-reshapes", sink_reshapes)
