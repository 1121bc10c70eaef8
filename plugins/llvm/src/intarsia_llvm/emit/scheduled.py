# SPDX-License-Identifier: Apache-2.0
"""Whether a kernel's loops are as they should run, so that LLVM has none to vectorize.

Such kernels have vectors where vectors pay, sums in registers, and before a loop what does not
change in it. Of LLVM's passes only those that work on single instructions find something to do.
"""

from __future__ import annotations

from intarsia_ir.tir.expr import IntImm
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import For, ForKind, Store
from intarsia_ir.tir.walk import statements

_SHORT = 4  # iterations that a vector would not make faster


def is_scheduled(function: PrimFunc) -> bool:
    """Say whether no innermost loop of a kernel writes single elements.

    Args:
        function: The kernel, with its VECTORIZED loops replaced by vectors.
    """
    return not any(
        isinstance(stmt, For) and _writes_elements(stmt) for stmt in statements(function.body)
    )


def _writes_elements(loop: For) -> bool:
    """Whether this is an innermost loop over single elements, and not a short one."""
    if loop.kind is ForKind.UNROLLED:
        return False
    if isinstance(loop.extent, IntImm) and loop.extent.value <= _SHORT:
        return False
    found = False
    for stmt in statements(loop.body):
        if isinstance(stmt, For) and stmt.kind is not ForKind.UNROLLED:
            return False
        found = found or (isinstance(stmt, Store) and stmt.value.lanes == 1)
    return found
