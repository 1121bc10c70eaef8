# SPDX-License-Identifier: Apache-2.0
"""Decision trees: which leaf of each tree a row of features ends in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.buffer import Buffer
from ..tir.build import allocate, cell, get, load, parallel, put, seq, serial, store
from ..tir.expr import (
    INDEX,
    BinaryOp,
    PrimExpr,
    binary,
    cast,
    index,
    intrinsic,
    maximum,
    select,
)
from ..tir.func import PrimFunc
from ..tir.intrinsic import Intrinsic
from ..tir.stmt import Stmt
from ..tir.tensor import extents
from .arrays import Array
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .type_rules import check_dtype, is_float, operands, same_dtype, shape_text

FEATURE, BELOW, ABOVE, MISSING = range(4)
"""Columns of the nodes: a feature, and where a row goes on if it is at most the split, if it is
larger, and if it is not a number. A leaf goes on with itself."""

ROOT, DEPTH = range(2)
"""Columns of the trees: the first node, and how many nodes the longest path has before a leaf."""


WALKS = 8
"""Trees that are walked at a time.

On an AMD Zen 5 a forest takes 0.3 of the time of one tree at a time; with 4 it takes 0.5, and with
16, for twice the code, 0.28.
"""


@operator("tree_leaves", OpKind.OPAQUE)
class TreeLeaves(Op):
    """The leaf of every tree that each row of features ends in.

    Operands are rows of features ``[N, F]``, splits ``[K]`` of the same element type, nodes
    ``[K, 4]`` and trees ``[T, 2]``, both int32, with the columns that this module names. The result
    is ``[N, T]``, int32: numbers of nodes.
    """

    fixed_sizes = "the last of the nodes' and the trees': they are 4 and 2"

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """``[N, T]``."""
        x, splits, nodes, trees = operands(cls.name, types, 4)
        check_dtype(cls.name, is_float, "floating-point", x)
        same_dtype(cls.name, x, splits)
        fits = x.rank == 2 and splits.rank == 1 and nodes.rank == trees.rank == 2
        if (
            not fits
            or {nodes.dtype, trees.dtype} != {DType.INT32}
            or (nodes.shape[1], trees.shape[1]) != (4, 2)
        ):
            raise TypeRuleError(
                f"{cls.name}: {splits}, {nodes} and {trees} are no trees for rows"
                f" {shape_text(x.shape)}"
            )
        return TensorType((x.shape[0], trees.shape[0]), DType.INT32)

    @staticmethod
    def reference(attrs: OpAttrs, x: Array, splits: Array, nodes: Array, trees: Array) -> Array:
        """Let all rows take a step in all trees at once, as often as the deepest tree has nodes."""
        at = np.broadcast_to(trees[:, ROOT], (len(x), len(trees))).copy()
        rows = np.arange(len(x))[:, None]
        for _ in range(int(trees[:, DEPTH].max(initial=0))):
            value = x[rows, nodes[at, FEATURE]]
            way = np.where(value <= splits[at], BELOW, np.where(np.isnan(value), MISSING, ABOVE))
            at = nodes[at, way]
        return at.astype(np.int32)

    @staticmethod
    def loops(
        attrs: OpAttrs, x: TensorType, splits: TensorType, nodes: TensorType, trees: TensorType
    ) -> PrimFunc:
        """Walk some trees at a time for a row, whose features stay in the cache.

        A step waits for four loads, one after the other; the walks of other trees fill that time.
        """
        given = [
            Buffer(name, extents(kind.shape), kind.dtype)
            for name, kind in (("x", x), ("splits", splits), ("nodes", nodes), ("trees", trees))
        ]
        data, values, table, roots = given
        out = Buffer("out", extents((x.shape[0], trees.shape[0])), DType.INT32)
        count = trees.shape[0]
        together = WALKS if isinstance(count, int) else 1
        cells = [cell(f"at{number}", INDEX) for number in range(together)]

        def row(number: PrimExpr) -> Stmt:
            def step(at: Buffer) -> Stmt:
                def column(place: int) -> PrimExpr:
                    return cast(load(table, get(at), place), INDEX)

                value = load(data, number, column(FEATURE))
                lost = intrinsic(Intrinsic.ISNAN, value)
                above = select(lost, column(MISSING), column(ABOVE))
                below = binary(BinaryOp.LE, value, load(values, get(at)))
                return put(at, select(below, column(BELOW), above))

            def some(first: PrimExpr, used: Sequence[Buffer]) -> Stmt:
                """Walk as many trees as there are cells; a leaf leads to itself."""
                depths = [cast(load(roots, first + n, DEPTH), INDEX) for n in range(len(used))]
                deepest = reduce(maximum, depths)
                begin = [
                    put(at, cast(load(roots, first + n, ROOT), INDEX)) for n, at in enumerate(used)
                ]
                end = [
                    store(out, (number, first + n), cast(get(at), DType.INT32))
                    for n, at in enumerate(used)
                ]
                steps = serial(deepest, lambda _: seq(*map(step, used)), "step")
                return seq(*begin, steps, *end)

            groups = out.shape[1] // together
            parts = [serial(groups, lambda group: some(group * together, cells), "trees")]
            rest = count % together if isinstance(count, int) else 0
            if rest:
                parts.append(some(index(count - rest), cells[:rest]))
            return allocate(tuple(cells), seq(*parts))

        body = parallel(out.shape[0], row)
        return PrimFunc("tree_leaves", (*given, out), 1, body)


DERIVATIVES.refuse("a leaf has no slope", TreeLeaves)
INTEGER_FORMS.refuse("splits are real numbers", TreeLeaves)
