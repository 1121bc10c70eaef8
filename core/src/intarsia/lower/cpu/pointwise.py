# SPDX-License-Identifier: Apache-2.0
"""A 1x1 convolution that stands alone is a product of matrices, and no picture is turned round.

Among other convolutions it runs channels last as they do, and pictures are turned round before the
first and after the last. One that stands alone would pay for both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from msgspec import Struct, field

from ...dtype import DType
from ...ir.expr import Call, Constant, Expr, Function, Var, call, tensor_type
from ...ir.op import OpKind
from ...ir.types import TensorType
from ...ir.walk import children, post_order, with_children
from ...ops.binary import Add
from ...ops.nn import Conv, Matmul
from ...ops.shape import Reshape
from .moves import reshaped

_COLUMNS = 32
"""Columns of a product that wide machines compute together."""

_MOST_COLUMNS = 1.25
"""Columns computed for each one that is wanted."""

_INDIFFERENT = (Reshape, Matmul)
"""Operators that gain nothing if what they take or give is channels last."""


def flatten_pointwise(function: Function) -> Function:
    """Return an equivalent function with products for 1x1 convolutions that stand alone.

    Alone is one between inputs, outputs, products and changes of shape, with nothing but
    element-wise operators between.
    """
    nodes = tuple(post_order(function.body))
    alone = {node for node in nodes if _is_pointwise(node)}
    if alone:
        alone &= _plain(nodes, alone) & _wanted_plain(nodes, function.body, alone)
    if not alone:
        return function
    flat = _Flat(frozenset(alone))
    for node in nodes:
        flat.visit(node)
    return replace(function, body=flat.picture(function.body))


def _is_pointwise(node: Expr) -> bool:
    if not isinstance(node, Call) or not isinstance(node.attrs, Conv.Attrs):
        return False
    weight, attrs = node.args[1], node.attrs
    return (
        tensor_type(node).dtype is DType.FLOAT32
        and tensor_type(node).is_static
        and set(tensor_type(weight).shape[2:]) == {1}
        and {attrs.groups, *attrs.strides} == {1}
        and not any(map(any, attrs.padding))
        and _fills_vectors(prod(tensor_type(node).static_shape[2:]))
    )


def _fills_vectors(positions: int) -> bool:
    """Whether columns that are no whole number of vectors are few beside all of them.

    Where they are not, positions are better rows, which cost as much as there are of them.
    """
    columns = -(-positions // _COLUMNS) * _COLUMNS
    return positions < _COLUMNS or columns <= _MOST_COLUMNS * positions


def _plain(nodes: Iterable[Expr], alone: set[Expr]) -> set[Expr]:
    """Return what is in the model's layout if those convolutions are products."""
    plain: set[Expr] = set()
    for node in nodes:
        begins = isinstance(node, Var | Constant) or _is_indifferent(node)
        follows = node in alone or _is_elementwise(node)
        if begins or (follows and plain.issuperset(children(node))):
            plain.add(node)
    return plain


def _wanted_plain(nodes: tuple[Expr, ...], body: Expr, alone: set[Expr]) -> set[Expr]:
    """Return what nobody would rather have channels last."""
    turned: set[Expr] = set()
    for node in reversed(nodes):
        passes_on = node in alone or _is_elementwise(node)
        ends = _is_indifferent(node) or (node is body and not isinstance(node, Call))
        if not ends and (node in turned or not passes_on):
            turned.update(children(node))
    return {node for node in nodes if node not in turned}


def _is_indifferent(node: Expr) -> bool:
    return isinstance(node, Call) and node.op in _INDIFFERENT


def _is_elementwise(node: Expr) -> bool:
    return isinstance(node, Call) and node.op.kind is OpKind.ELEMWISE


class _Flat(Struct):
    """Both forms of the nodes so far.

    Attributes:
        alone: Convolutions to replace.
        pictures: Node to its equivalent with all spatial dimensions.
        lines: Node to its equivalent ``[batch, channels, positions]``, if one was made. Behind a
            product these are element-wise operators too, which then fuse with it.
    """

    alone: frozenset[Expr]
    pictures: dict[Expr, Expr] = field(default_factory=dict)
    lines: dict[Expr, Expr] = field(default_factory=dict)

    def visit(self, node: Expr) -> None:
        """Build the equivalent of a node whose operands have been visited."""
        if isinstance(node, Call) and node in self.alone:
            self.lines[node] = self._product(node)
        elif isinstance(node, Call) and self._is_behind(node):
            args = [self._line(arg) for arg in node.args]
            self.lines[node] = call(node.op, *args, attrs=node.attrs, span=node.span)
        else:
            operands = tuple(self.picture(operand) for operand in children(node))
            self.pictures[node] = with_children(node, operands)

    def picture(self, node: Expr) -> Expr:
        """Return a node's equivalent with all its dimensions."""
        if node not in self.pictures:
            self.pictures[node] = reshaped(self.lines[node], tensor_type(node).static_shape)
        return self.pictures[node]

    def _is_behind(self, node: Call) -> bool:
        if not _is_elementwise(node) or self.lines.keys().isdisjoint(node.args):
            return False
        shape = tensor_type(node).shape
        return all(
            isinstance(arg.type, TensorType) and (arg.type.shape == shape or not arg.type.shape)
            for arg in node.args
        )

    def _line(self, node: Expr) -> Expr:
        kind = tensor_type(node)
        if kind.shape and node not in self.lines:
            batch, channels, *sizes = kind.static_shape
            self.lines[node] = reshaped(self.picture(node), (batch, channels, prod(sizes)))
        return self.lines[node] if kind.shape else self.picture(node)

    def _product(self, node: Call) -> Expr:
        data, weight, *bias = node.args
        outputs, inner, *_ = tensor_type(weight).static_shape
        matrix = reshaped(self.picture(weight), (outputs, inner))
        made = call(Matmul, matrix, self._line(data), attrs=Matmul.Attrs(), span=node.span)
        for term in bias:
            column = reshaped(self.picture(term), (outputs, 1))
            made = call(Add, made, column, span=node.span)
        return made
