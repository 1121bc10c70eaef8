# SPDX-License-Identifier: Apache-2.0
"""Operators on integers: the form of an operator, or a table of element-wise ones."""

from __future__ import annotations

import numpy as np

from ..graph.expr import Call, Constant, Expr, call, constant, tensor_type
from ..graph.op import OpKind
from ..graph.types import TensorType
from ..graph.walk import post_order
from ..ops.arrays import Array
from ..ops.integer_forms import INTEGER_FORMS, Parameters, requantized
from ..ops.qnn import Lookup, quantized, table_inputs
from ..ops.qnn_elements import QuantizedBinary
from ..ops.stored import Stored, stored

MAX_TABLE_NODES = 64
"""Most calls that one table stands for."""


def as_integers(expr: Expr, result: Parameters) -> Expr | None:
    """quantize(expr) --> an operator on integers"""
    if not isinstance(expr, Call):
        return None
    source = stored(expr)
    if source is not None:
        return requantized(expr, source, result)
    form = INTEGER_FORMS.get(expr.op)
    found = None if form is None or form.quantized is None else form.quantized(expr, result)
    if found is None and expr.op.kind is OpKind.ELEMWISE:
        found = _as_table(expr, result)
    return None if found is None else (_as_one_table(found) or found)


def _as_table(expr: Call, result: Parameters) -> Expr | None:
    """quantize(f(dequantize(x))) --> qnn.lookup(x, f of all 256 numbers)"""
    nodes: list[Call] = []
    leaf: Expr | None = None
    todo: list[Expr] = [expr]
    seen: set[Expr] = set()
    while todo:
        node = todo.pop()
        if node in seen or (isinstance(node, Constant) and node.data.size == 1):
            continue
        seen.add(node)
        if stored(node) is not None:
            if leaf is not None:
                return None
            leaf = node
            continue
        if not isinstance(node, Call) or node.op.kind is not OpKind.ELEMWISE:
            return None
        nodes.append(node)
        todo.extend(node.args)
        if len(nodes) > MAX_TABLE_NODES:
            return None
    source = None if leaf is None else stored(leaf)
    if leaf is None or source is None or source.scalars is None or not source.is_byte:
        return None
    if not isinstance(leaf.type, TensorType) or tensor_type(expr).shape != leaf.type.shape:
        return None
    table = _table(expr, leaf, source, set(nodes))
    packed = constant(quantized(table, result[0].data, result[1].data), span=expr.span)
    return call(Lookup, source.value, packed, span=expr.span)


def _as_one_table(root: Expr) -> Expr | None:
    """f(x, g(x)) --> qnn.lookup(x, f of all 256 numbers and what g makes of them)

    A hard swish is a product of a tensor and what is added to it, each quantized: ``f`` and ``g``
    are operators on bytes that have one tensor of 8 bits below them.
    """
    nodes: dict[Expr, None] = {}
    leaves: dict[Expr, None] = {}
    todo = [root]
    while todo:
        node = todo.pop()
        if node in nodes or (isinstance(node, Constant) and node.data.size == 1):
            continue
        if not isinstance(node, Call) or not _is_on_bytes(node) or len(nodes) == MAX_TABLE_NODES:
            leaves[node] = None
            continue
        nodes[node] = None
        todo.extend(node.args[:1] if node.op is Lookup else node.args)
    if len(leaves) != 1 or len(nodes) < 2:
        return None
    (leaf,) = leaves
    kind, whole = leaf.type, tensor_type(root)
    if isinstance(leaf, Constant) or not isinstance(kind, TensorType):
        return None
    if kind.dtype.bits != 8 or kind.shape != whole.shape:
        return None
    values: dict[Expr, Array] = {leaf: table_inputs(kind.dtype)}
    table = np.broadcast_to(_value(root, values), (256,))
    return call(Lookup, leaf, constant(table.copy(), span=root.span), span=root.span)


def _value(node: Expr, values: dict[Expr, Array]) -> Array:
    """Evaluate at most ``MAX_TABLE_NODES`` calls over values that are known, each once."""
    if node not in values:
        if isinstance(node, Constant):
            values[node] = node.data if node.data.size > 1 else node.data.reshape(())
        else:
            assert isinstance(node, Call)  # others are known
            args = [_value(arg, values) for arg in node.args]
            values[node] = np.asarray(node.op.reference(node.attrs, *args))
    return values[node]


def _is_on_bytes(node: Call) -> bool:
    """Whether a call is element-wise on numbers of 8 bits, and gives such numbers."""
    return node.op is Lookup or issubclass(node.op, QuantizedBinary)


def _table(root: Call, leaf: Expr, source: Stored, inside: set[Call]) -> Array:
    """Evaluate an element-wise expression of one quantized tensor for all its numbers."""
    scale, zero = source.scale.data.reshape(()), source.zero.data.reshape(())
    whole = table_inputs(source.dtype).astype(np.int32) - zero.astype(np.int32)
    values: dict[Expr, Array] = {leaf: np.asarray(whole.astype(np.float32) * scale)}
    for node in post_order(root):
        if isinstance(node, Constant) and node.data.size == 1:
            values[node] = node.data.reshape(())
        elif isinstance(node, Call) and node in inside:
            with np.errstate(all="ignore"):
                found = node.op.reference(node.attrs, *(values[arg] for arg in node.args))
            values[node] = np.asarray(found)
    return np.broadcast_to(values[root], (256,))
