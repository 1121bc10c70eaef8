# SPDX-License-Identifier: Apache-2.0
"""The work of a call: arithmetic and traffic, counted from its types."""

from __future__ import annotations

from ..graph.expr import Call
from ..graph.op import OpKind
from ..graph.types import TensorType, TupleType, Type

HEAVY = frozenset({OpKind.ANCHOR, OpKind.REDUCTION, OpKind.OPAQUE})


def is_heavy(call: Call) -> bool:
    """Whether an accelerator can gain anything from this call alone."""
    return call.op.kind in HEAVY


def count_flops(call: Call) -> int:
    """Return the arithmetic operations of a call; 0 for light ones and for symbolic sizes.

    A product with its sum counts two; an operator that does not count its products does one
    operation for each element that it reads.
    """
    if not is_heavy(call):
        return 0
    if call.op.products is not None:
        return 2 * count_products(call)
    types = [arg.type for arg in call.args if isinstance(arg.type, TensorType)]
    if not all(kind.is_static for kind in types):
        return 0
    return max((kind.elements for kind in types), default=0)


def count_products(call: Call) -> int:
    """Return the multiplications of a convolution or a product of matrices; 0 for other calls.

    Symbolic sizes count as nothing.
    """
    types = [arg.type for arg in call.args if isinstance(arg.type, TensorType)]
    result = call.type
    if call.op.products is None or len(types) < len(call.args):
        return 0
    if not isinstance(result, TensorType) or not all(k.is_static for k in (result, *types)):
        return 0
    return call.op.products(call.attrs, result, *types)


def count_bytes(*types: Type) -> int:
    """Return the size of values; symbolic sizes count as nothing."""
    total = 0
    todo = [*types]
    while todo:
        match todo.pop():
            case TupleType(fields=fields):
                todo.extend(fields)
            case TensorType() as tensor:
                total += tensor.bytes if tensor.is_static else 0
    return total
