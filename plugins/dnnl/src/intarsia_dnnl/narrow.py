# SPDX-License-Identifier: Apache-2.0
"""Which values of a region are kept in bfloat16, if fp32 products may compute in it.

Without matrix units, kernels for fp32 operands compute in fp32 whatever they may do; and operands
that are converted for each product cost memory traffic. So between products, values stay narrow;
a value is narrow if whoever writes and whoever reads it can work on bfloat16.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from .isa import hides_tiles, usable_features
from .program import PrimitiveNode, PrimitiveProgram

PRODUCTS = frozenset({"conv", "matmul"})
"""Kinds of nodes that multiply in bfloat16; their results have either width."""
_SAME = frozenset({"pool", "eltwise", "binary", "concat", "reshape", "transpose", "slice"})
"""Kinds of nodes whose results are as wide as their operands."""
_FEATURES = frozenset({"avx512_bf16", "amx_bf16"})


def gains_by_bfloat16(fpmath_mode: str) -> bool:
    """Whether products may be computed in bfloat16, and are not slower by it.

    Where the matrix unit is there and may not be used, vectors would multiply, at less than half of
    their rate in fp32. (Measured, one thread, time by that in fp32: ResNet-50 1.59, BERT 1.42,
    VGG-16 2.26.)
    """
    return fpmath_mode in ("bf16", "any") and not hides_tiles()


def multiplies_narrow(program: PrimitiveProgram) -> bool:
    """Whether products of the region are to be computed in bfloat16, natively on this machine."""
    return gains_by_bfloat16(program.fpmath_mode) and not _FEATURES.isdisjoint(usable_features())


def has_matrix_unit() -> bool:
    """Whether the library may use a matrix unit for bfloat16."""
    return "amx_bf16" in usable_features()


def narrow_values(program: PrimitiveProgram) -> frozenset[int]:
    """Return the values that are kept in bfloat16: none at the region's border, no constants."""
    wide = {*program.inputs, *program.outputs}
    constant = set(program.constants)
    keeping: list[PrimitiveNode] = []
    for node in program.nodes:
        if node.kind in _SAME and constant.issuperset(node.reads):
            constant.add(node.result)
        elif node.kind in _SAME:
            keeping.append(node)
        elif node.kind not in PRODUCTS:
            wide.update((*node.reads, node.result))
    _spread(wide, keeping, constant)
    wide |= constant
    results = (node.result for node in program.nodes if node.result not in wide)
    return frozenset(value for value in results if program.dtypes[value] == "float32")


def _spread(wide: set[int], keeping: list[PrimitiveNode], constant: AbstractSet[int]) -> None:
    """Make wide all operands and results of nodes that keep the width and have one wide already."""
    links: dict[int, list[int]] = {}
    for node in keeping:
        group = [value for value in (*node.args, node.result) if value not in constant]
        for value in group:
            links.setdefault(value, []).extend(group)
    pending = list(wide)
    while pending:
        for value in links.pop(pending.pop(), ()):
            if value not in wide:
                wide.add(value)
                pending.append(value)
