# SPDX-License-Identifier: Apache-2.0
"""Products of one row in bfloat16.

Each weight is used once, so that how fast they are read is all that matters. The library's kernel
for matrix units reads blocks of columns at a third of the speed at which its kernel for an inner
product reads columns one behind the other.
"""

from __future__ import annotations

from .assembly import Assembly, Home, MemoryTensor
from .names import BF16, FORWARD_INFERENCE, Arg, Query
from .program import PrimitiveNode


def is_row_product(a: Assembly, node: PrimitiveNode) -> bool:
    """Whether a product is of one row and constant weights, in bfloat16."""
    weights = a.values[node.args[1]]
    shape = a.shapes[node.args[0]]
    return a.products == BF16 and weights.buffer.home is Home.CONSTANT and shape[:-1] == (1,)


def build_row_product(a: Assembly, node: PrimitiveNode) -> None:
    """Make the primitive of a product of one row."""
    dnnl = a.dnnl
    right = node.args[1]
    depth, columns = a.shapes[right]
    bias = dnnl.plain((columns,)) if len(node.args) > 2 else None
    row, result = dnnl.plain((1, depth), BF16), a.row_major(node.result)
    by_columns = dnnl.plain((columns, depth), BF16)

    def create(_candidate: tuple[int, ...], attribute: int) -> int | None:
        return dnnl.try_make(
            "inner_product_forward_primitive_desc_create",
            *(dnnl.engine, FORWARD_INFERENCE, row, by_columns, bias, result, attribute),
        )

    def operands(made: int) -> list[tuple[int, MemoryTensor]]:
        given = a.values[right]
        weights = MemoryTensor(dnnl.permuted(given.desc, (1, 0)), given.buffer, given.offset)
        return product_operands(a, node, made, weights, bias)

    a.build(node, create, operands, [()])


def product_operands(
    a: Assembly, node: PrimitiveNode, made: int, weights: MemoryTensor, bias: int | None
) -> list[tuple[int, MemoryTensor]]:
    """Return the inputs of a product in the layouts that its primitive wants.

    Args:
        a: Where the inputs are.
        node: The product.
        made: Its primitive descriptor.
        weights: Its second operand, as the primitive sees it.
        bias: Layout of its third, if there is one.
    """
    queried = a.dnnl.queried
    arguments: list[tuple[int, MemoryTensor]] = [
        (Arg.SRC, a.in_layout(a.values[node.args[0]], queried(made, Query.SRC))),
        (Arg.WEIGHTS, a.in_layout(weights, queried(made, Query.WEIGHTS))),
    ]
    if bias is not None:
        row = a.plain(node.args[2])
        arguments.append((Arg.BIAS, MemoryTensor(bias, row.buffer, row.offset)))
    return arguments
