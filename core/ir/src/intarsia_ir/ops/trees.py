# SPDX-License-Identifier: Apache-2.0
"""Decision trees: which leaf of each tree a row of features ends in."""

from __future__ import annotations

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.buffer import Buffer
from ..tir.build import allocate, cell, get, load, parallel, put, seq, serial, store
from ..tir.expr import INDEX, BinaryOp, PrimExpr, binary, cast, intrinsic, select
from ..tir.func import PrimFunc
from ..tir.intrinsic import Intrinsic
from ..tir.stmt import Stmt
from ..tir.tensor import extents
from .arrays import Array
from .batch_axis import BATCH_AXES
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .type_rules import check_dtype, is_float, operands, same_dtype, shape_text

FEATURE, BELOW, ABOVE, MISSING = range(4)
"""Columns of the nodes: a feature, and where a row goes on if it is at most the split, if it is
larger, and if it is not a number. A leaf goes on with itself."""

ROOT, DEPTH = range(2)
"""Columns of the trees: the first node, and how many nodes the longest path has before a leaf."""


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
        """Walk tree after tree for a row: its features stay in the cache, and so do the trees."""
        given = [
            Buffer(name, extents(kind.shape), kind.dtype)
            for name, kind in (("x", x), ("splits", splits), ("nodes", nodes), ("trees", trees))
        ]
        data, values, table, roots = given
        out = Buffer("out", extents((x.shape[0], trees.shape[0])), DType.INT32)
        at = cell("at", INDEX)

        def column(number: int) -> PrimExpr:
            return cast(load(table, get(at), number), INDEX)

        def row(number: PrimExpr) -> Stmt:
            def step(_: PrimExpr) -> Stmt:
                value = load(data, number, column(FEATURE))
                lost = intrinsic(Intrinsic.ISNAN, value)
                above = select(lost, column(MISSING), column(ABOVE))
                below = binary(BinaryOp.LE, value, load(values, get(at)))
                return put(at, select(below, column(BELOW), above))

            def tree(which: PrimExpr) -> Stmt:
                depth = cast(load(roots, which, DEPTH), INDEX)
                return seq(
                    put(at, cast(load(roots, which, ROOT), INDEX)),
                    serial(depth, step, "step"),
                    store(out, (number, which), cast(get(at), DType.INT32)),
                )

            return allocate((at,), serial(out.shape[1], tree, "tree"))

        body = parallel(out.shape[0], row)
        return PrimFunc("tree_leaves", (*given, out), 1, body)


BATCH_AXES.refuse("rows of any number need no chunks", TreeLeaves)
DERIVATIVES.refuse("a leaf has no slope", TreeLeaves)
INTEGER_FORMS.refuse("splits are real numbers", TreeLeaves)
