# SPDX-License-Identifier: Apache-2.0
"""Cost of recomputing an element: cheap ones are inlined into every reader."""

from __future__ import annotations

from math import prod

from intarsia_ir.graph.expr import Call, tensor_type
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.indexing import Take
from intarsia_ir.tir.expr import Binary, BinaryOp, CallIntrinsic, CallTarget, PrimExpr, Read
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.tensor import ArgReduction, Reduction, Tensor, placeholder
from intarsia_ir.tir.walk import post_order, reads, tensors
from intarsia_runtime.size import product

from .typical import extents, typical

CHEAP_NODES = 24
"""Most nodes of an expression that is computed again rather than stored."""

MANY_ROWS = 4
"""Rows for which the indices of a gather are not computed again."""

_CHEAP_INTRINSICS = frozenset(
    {
        Intrinsic.ABS,
        Intrinsic.BITS,
        Intrinsic.FROM_BITS,
        Intrinsic.CEIL,
        Intrinsic.FLOOR,
        Intrinsic.TRUNC,
        Intrinsic.ROUND,
        Intrinsic.FMA,
    }
)
_EXPENSIVE_BINARIES = frozenset(
    {BinaryOp.DIV, BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD}
)


def is_cheap(call: Call) -> bool:
    """Whether computing an element of a call again costs little more than loading it."""
    types = [arg.type for arg in call.args]
    if call.op.compute is None or not all(isinstance(kind, TensorType) for kind in types):
        return False
    feeds = [
        placeholder("x", extents(kind), kind.dtype)
        for kind in types
        if isinstance(kind, TensorType)
    ]
    result = call.op.compute(call.attrs, *feeds)
    if not isinstance(result, Tensor):
        return False
    return all(is_cheap_tensor(tensor) for tensor in tensors(result))


def reads_once(call: Call) -> bool:
    """Whether a reduction reads every element of its first operand once: no overlapping windows."""
    kind = call.args[0].type
    if call.op.compute is None or not isinstance(kind, TensorType):
        return False
    source = placeholder("x", extents(kind), kind.dtype)
    result = call.op.compute(call.attrs, source) if len(call.args) == 1 else None
    if not isinstance(result, Tensor):
        return False
    touched = sum(points(tensor) for tensor in tensors(result) if source in reads(tensor))
    return touched <= typical(product(kind.shape))


def repeats_indices(call: Call, made: Call) -> bool:
    """Whether a gather along rows would compute its indices, ``made``, again for each of many rows.

    Along another dimension they are the same for a whole row, and compilers compute them once.
    """
    if not isinstance(call.attrs, Take.Attrs) or made is not call.args[1]:
        return False
    data, indices = (tensor_type(arg) for arg in call.args)
    is_last = call.attrs.axis == data.rank - 1
    return is_last and indices.rank == 1 and typical(prod(extents(data)[:-1])) >= MANY_ROWS


def points(tensor: Tensor) -> int:
    """Return how many times the body of a tensor is evaluated, for typical sizes."""
    match tensor.body:
        case Reduction(axes=axes):
            inner = prod(axis.extent for axis in axes)
        case ArgReduction(axis=axis):
            inner = axis.extent
        case _:
            inner = 1
    return typical(prod(tensor.shape) * inner)


def is_cheap_tensor(tensor: Tensor) -> bool:
    """Whether computing an element of a tensor again costs little more than loading it."""
    match tensor.body:
        case None:
            return True
        case Reduction() | ArgReduction():
            return False
        case body:
            return is_cheap_expr(body)


def is_cheap_expr(body: PrimExpr) -> bool:
    """Whether an expression has few nodes, and neither divisions nor transcendental functions.

    Index arithmetic counts too: it is what reshapes inside kernels cost.
    """
    for count, node in enumerate(post_order(body), start=1):
        if isinstance(node, CallTarget) or count > CHEAP_NODES:
            return False
        if isinstance(node, CallIntrinsic) and node.intrinsic not in _CHEAP_INTRINSICS:
            return False
        if isinstance(node, Binary) and node.op in _EXPENSIVE_BINARIES:
            return False
    return True


def has_long_function(body: PrimExpr) -> bool:
    """Whether an expression has a function that becomes a sequence of instructions, as ``exp``."""
    functions = [node.intrinsic for node in post_order(body) if isinstance(node, CallIntrinsic)]
    return not _CHEAP_INTRINSICS.issuperset(functions)


def operations(body: PrimExpr) -> int:
    """Return a rough number of machine operations of one evaluation."""
    total = 1
    for node in post_order(body):
        if isinstance(node, CallIntrinsic):
            total += 1 if node.intrinsic in _CHEAP_INTRINSICS else 16
        elif isinstance(node, Binary | Read):
            total += 1
    return total
