# SPDX-License-Identifier: Apache-2.0
"""What a module keeps in memory: whether it fits, and its weights put back into their files."""

from __future__ import annotations

from intarsia_runtime.errors import ResourceError

from ..budget import physical_memory
from ..writing.mapped import release
from .expr import Constant
from .module import IRModule
from .types import TupleType, Type
from .walk import post_order


def release_files(module: IRModule) -> None:
    """Take weights that lie in mapped files out of memory until they are read again."""
    release(
        node.data
        for function in module.functions.values()
        for node in post_order(function.body)
        if isinstance(node, Constant)
    )


def check_budget(module: IRModule, budget: int | None = None) -> None:
    """Refuse a model that cannot fit in memory, before anything is allocated.

    Args:
        module: Any module of static shapes.
        budget: Bytes; ``None`` means the memory of this machine.

    Raises:
        ResourceError: One tensor, or all weights together, need more.
    """
    limit = physical_memory() if budget is None else budget
    weights = 0
    for function in module.functions.values():
        for node in post_order(function.body):
            size = _bytes(node.type)
            weights += size if isinstance(node, Constant) else 0
            if size > limit or weights > limit:
                what = "the weights need" if weights > limit else "one tensor needs"
                raise ResourceError(
                    f"{what} {max(size, weights):,} bytes, the budget is {limit:,}",
                    hint="use smaller inputs, or a machine with more memory; "
                    "--memory-limit sets the budget (in Python memory_limit=...)",
                    where=str(node.span),
                )


def _bytes(type_: Type) -> int:
    """Bytes of a value; what is not static counts as nothing, a later stage refuses it."""
    if isinstance(type_, TupleType):
        return sum(_bytes(field) for field in type_.fields)  # tuples of tuples do not nest deep
    return type_.bytes if type_.is_static else 0
