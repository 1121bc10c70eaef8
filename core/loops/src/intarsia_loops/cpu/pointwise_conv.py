# SPDX-License-Identifier: Apache-2.0
"""An isolated 1x1 convolution becomes a matrix product in the model's layout (NCHW).

In a chain of convolutions it runs channels last, and the data is transposed once before the first
and once after the last. An isolated 1x1 convolution would pay for both transposes. Batch, height
and width may be open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from msgspec import Struct, field

from intarsia_ir.graph.expr import Call, Constant, Expr, Function, Var, call, tensor_type
from intarsia_ir.graph.op import OpKind
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import children, post_order, with_children
from intarsia_ir.ops.binary import Add
from intarsia_ir.ops.nn import Conv, Matmul
from intarsia_ir.ops.shape import Reshape
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim, product

from .bf16_storage import runs_in_bf16x2
from .packed_operands import Bf16x2
from .relayout import reshaped

_COLUMNS = 32
"""Columns of a product that wide machines compute together."""

_MOST_COLUMNS = 1.25
"""Columns computed for each one that is wanted."""

_MOST_WEIGHTS = 1024 * 1024
"""Bytes of weights for an open number of positions: those of every 32 read all weights, from the
second-level cache. Channels last, the weights are read once (512 to 2048 channels of 7x7 pixels
take 0.74 of the time so)."""

_DEEP = 64
"""Channels that a matrix unit multiplies in bfloat16, at least."""

_SHARED = 32
"""Products for each element that is transposed, at least. Channels, and time by float32's on AMX:
256 to 256 of 14x14 pixels 0.32, 96 to 576 0.43, 256 to 64 of 56x56 0.57, 64 to 256 0.81, 64 to 64
as long, 96 to 24 1.39, and of fewer channels 40 to 160 1.23."""

_INDIFFERENT = (Reshape, Matmul)
"""Operators that gain nothing if what they take or give is channels last."""


def pointwise_conv_to_matmul(function: Function, bf16x2: Bf16x2 | None = None) -> Function:
    """Return an equivalent function with products for 1x1 convolutions that stand alone.

    Alone is one between inputs, outputs, products and changes of shape, with nothing but
    element-wise operators between.

    Args:
        function: The function.
        bf16x2: How bfloat16 is multiplied where convolutions shall be; products are in float32.
    """
    nodes = tuple(post_order(function.body))
    standalone = {node for node in nodes if _is_pointwise(node)}
    if bf16x2 is not None and bf16x2.unit is not None:
        standalone = {node for node in standalone if not _is_deep(node, bf16x2)}
    if standalone:
        standalone &= _plain(nodes, standalone) & _wanted_plain(nodes, function.body, standalone)
    if not standalone:
        return function
    flat = _FlatGraph(frozenset(standalone))
    for node in nodes:
        flat.visit(node)
    return replace(function, body=flat.with_spatial_dims(function.body))


def _is_pointwise(node: Expr) -> bool:
    if not isinstance(node, Call) or not isinstance(node.attrs, Conv.Attrs):
        return False
    weight, attrs = node.args[1], node.attrs
    batch, *sizes = tensor_type(node).shape
    if isinstance(sizes[0], Dim) or not tensor_type(weight).is_static:
        return False
    positions = product(sizes[1:])
    if isinstance(positions, Dim):
        suits = tensor_type(weight).bytes <= _MOST_WEIGHTS
    else:
        # Samples of few positions are rows of one product, whose weights are read once for all.
        is_image = not isinstance(batch, Dim) or positions >= _COLUMNS
        suits = is_image and _fills_vectors(positions)
    return (
        tensor_type(node).dtype is DType.FLOAT32
        and set(tensor_type(weight).shape[2:]) == {1}
        and {attrs.groups, *attrs.strides} == {1}
        and not any(map(any, attrs.padding))
        and suits
    )


def _is_deep(node: Expr, bf16x2: Bf16x2) -> bool:
    """Whether a convolution gains more by a matrix unit than transposes cost."""
    outputs, inner, *_ = tensor_type(children(node)[1]).static_shape
    is_deep = inner >= _DEEP and outputs * inner >= _SHARED * (outputs + inner)
    return is_deep and runs_in_bf16x2(node, bf16x2)


def _fills_vectors(positions: int) -> bool:
    """Whether columns that are no whole number of vectors are few beside all of them.

    Where they are not, positions are better rows, which cost as much as there are of them.
    """
    columns = -(-positions // _COLUMNS) * _COLUMNS
    return positions < _COLUMNS or columns <= _MOST_COLUMNS * positions


def _plain(nodes: Iterable[Expr], standalone: set[Expr]) -> set[Expr]:
    """Return what is in the model's layout if those convolutions are products."""
    plain: set[Expr] = set()
    for node in nodes:
        begins = isinstance(node, Var | Constant) or _is_indifferent(node)
        follows = node in standalone or _is_elementwise(node)
        if begins or (follows and plain.issuperset(children(node))):
            plain.add(node)
    return plain


def _wanted_plain(nodes: tuple[Expr, ...], body: Expr, standalone: set[Expr]) -> set[Expr]:
    """Return what nobody would rather have channels last."""
    transposed: set[Expr] = set()
    for node in reversed(nodes):
        passes_on = node in standalone or _is_elementwise(node)
        ends = _is_indifferent(node) or (node is body and not isinstance(node, Call))
        if not ends and (node in transposed or not passes_on):
            transposed.update(children(node))
    return {node for node in nodes if node not in transposed}


def _is_indifferent(node: Expr) -> bool:
    return isinstance(node, Call) and node.op in _INDIFFERENT


def _is_elementwise(node: Expr) -> bool:
    return isinstance(node, Call) and node.op.kind is OpKind.ELEMWISE


class _FlatGraph(Struct):
    """Both forms of the nodes so far.

    Attributes:
        standalone: Convolutions to replace.
        spatial: Node to its equivalent with all spatial dimensions.
        flattened: Node to its equivalent ``[batch, channels, positions]``, if one was made. After a
            product these are element-wise operators too, which then fuse with it.
    """

    standalone: frozenset[Expr]
    spatial: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])
    flattened: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])

    def visit(self, node: Expr) -> None:
        """Build the equivalent of a node whose operands have been visited."""
        if isinstance(node, Call) and node in self.standalone:
            self.flattened[node] = self._product(node)
        elif isinstance(node, Call) and self._is_behind(node):
            args = [self._flattened(arg) for arg in node.args]
            self.flattened[node] = call(node.op, *args, attrs=node.attrs, span=node.span)
        else:
            operands = tuple(self.with_spatial_dims(operand) for operand in children(node))
            self.spatial[node] = with_children(node, operands)

    def with_spatial_dims(self, node: Expr) -> Expr:
        """Return a node's equivalent with all its dimensions."""
        if node not in self.spatial:
            self.spatial[node] = reshaped(self.flattened[node], tensor_type(node).shape)
        return self.spatial[node]

    def _is_behind(self, node: Call) -> bool:
        if not _is_elementwise(node) or self.flattened.keys().isdisjoint(node.args):
            return False
        shape = tensor_type(node).shape
        return all(
            isinstance(arg.type, TensorType) and (arg.type.shape == shape or not arg.type.shape)
            for arg in node.args
        )

    def _flattened(self, node: Expr) -> Expr:
        kind = tensor_type(node)
        if kind.shape and node not in self.flattened:
            batch, channels, *sizes = kind.shape
            self.flattened[node] = reshaped(
                self.with_spatial_dims(node), (batch, channels, product(sizes))
            )
        return self.flattened[node] if kind.shape else self.with_spatial_dims(node)

    def _product(self, node: Call) -> Expr:
        data, weight, *bias = node.args
        outputs, inner, *_ = tensor_type(weight).static_shape
        matrix = reshaped(self.with_spatial_dims(weight), (outputs, inner))
        made = call(Matmul, matrix, self._flattened(data), attrs=Matmul.Attrs(), span=node.span)
        for term in bias:
            column = reshaped(self.with_spatial_dims(term), (outputs, 1))
            made = call(Add, made, column, span=node.span)
        return made
