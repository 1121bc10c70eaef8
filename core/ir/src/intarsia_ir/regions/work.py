# SPDX-License-Identifier: Apache-2.0
"""The work of a call: arithmetic and traffic, counted from its types.

Of sizes that only the run knows, values that are typical of them count.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..graph.expr import Call, CallFunction, Function
from ..graph.op import OpKind, closed_attrs
from ..graph.types import TensorType, TupleType, Type
from ..graph.typical import TYPICAL_VALUES, fitting_values, typical_type
from ..graph.walk import post_order

HEAVY = frozenset({OpKind.ANCHOR, OpKind.REDUCTION, OpKind.OPAQUE})


def is_heavy(call: Call) -> bool:
    """Whether an accelerator can gain anything from this call alone."""
    return call.op.kind in HEAVY


def count_flops(call: Call, values: Mapping[str, int] = TYPICAL_VALUES) -> int:
    """Return the arithmetic operations of a call; 0 for light ones.

    A product with its sum counts two; an operator that does not count its products does one
    operation for each element that it reads.

    Args:
        call: What is counted.
        values: What size variables are taken for.
    """
    if not is_heavy(call):
        return 0
    if call.op.products is not None:
        return 2 * count_products(call, values)
    return max((kind.elements for kind in _operands(call, values)), default=0)


def count_products(call: Call, values: Mapping[str, int] = TYPICAL_VALUES) -> int:
    """Return the multiplications of a convolution or a product of matrices; 0 for other calls.

    Args:
        call: What is counted.
        values: What size variables are taken for.
    """
    types, result = _operands(call, values), typical_type(call.type, values)
    if call.op.products is None or len(types) < len(call.args):
        return 0
    attrs = closed_attrs(call.attrs, values)
    return call.op.products(attrs, result, *types) if isinstance(result, TensorType) else 0


def _operands(call: Call, values: Mapping[str, int]) -> list[TensorType]:
    """Return the types of the operands that are tensors."""
    types = (typical_type(arg.type, values) for arg in call.args)
    return [kind for kind in types if isinstance(kind, TensorType)]


def count_bytes(*types: Type, values: Mapping[str, int] = TYPICAL_VALUES) -> int:
    """Return the size of values.

    Args:
        types: Of the values.
        values: What size variables are taken for.
    """
    total = 0
    todo = [typical_type(kind, values) for kind in types]
    while todo:
        match todo.pop():
            case TupleType(fields=fields):
                todo.extend(fields)
            case TensorType() as tensor:
                total += tensor.bytes
    return total


def border_bytes(main: Function) -> int:
    """Return the bytes that calls of regions read and return in one run of ``main``."""
    total, typical = 0, fitting_values(main)
    for node in post_order(main.body):
        if isinstance(node, CallFunction):
            types = (node.type, *(arg.type for arg in node.args))
            total += count_bytes(*types, values=typical)
    return total
