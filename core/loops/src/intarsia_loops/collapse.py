# SPDX-License-Identifier: Apache-2.0
"""Fewer, longer dimensions: an element-wise kernel over (1, 64, 7, 7) runs over one of 3136.

Dimensions of size 1 are removed first. Then adjacent loops become one loop, if every access uses
them together over dimensions that are contiguous in memory. Buffers get the resulting shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import TypeAlias

from msgspec import Struct, field

from intarsia_ir.tir.expr import IntImm, PrimExpr, Read, TirVar
from intarsia_ir.tir.tensor import ArgReduction, Axis, Reduction, Tensor
from intarsia_ir.tir.walk import body_exprs, children, post_order, rewrite, rewrite_body

from .tensors import Stages

Keep: TypeAlias = Callable[[Tensor], tuple[int, ...]]
"""Which dimensions of a tensor survive: of merged ones the first."""


def collapse(stages: Stages) -> Stages:
    """Return the same computation with as few dimensions as its accesses allow."""
    if any(0 in tensor.shape for tensor in (*stages.inputs, *stages.stages)):
        return stages
    squeezed = _squeeze(stages)
    merger = _Merger()
    for stage in squeezed.stages:
        merger.add_stage(stage)
    return merger.apply(squeezed)


def _squeeze(stages: Stages) -> Stages:
    """Drop dimensions and loops of size 1; their index can only be 0."""
    replaced: dict[TirVar, PrimExpr] = {}
    for stage in stages.stages:
        replaced.update((axis.var, IntImm(0)) for axis in stage.axes if axis.extent == 1)
        if isinstance(stage.body, Reduction):
            dropped = [axis for axis in stage.body.axes if axis.extent == 1]
            replaced.update((axis.var, IntImm(0)) for axis in dropped)

    def kept(tensor: Tensor) -> tuple[int, ...]:
        return tuple(n for n, size in enumerate(tensor.shape) if size != 1)

    def axes(old: Iterable[Axis]) -> tuple[Axis, ...]:
        return tuple(axis for axis in old if axis.extent != 1)

    return _rebuilt(stages, kept, _sizes_of(kept), axes, replaced)


def _sizes_of(kept: Keep) -> Callable[[Tensor], tuple[int, ...]]:
    def sizes(tensor: Tensor) -> tuple[int, ...]:
        return tuple(tensor.shape[n] for n in kept(tensor))

    return sizes


def _rebuilt(
    stages: Stages,
    kept: Keep,
    sizes: Callable[[Tensor], tuple[int, ...]],
    axes: Callable[[Iterable[Axis]], tuple[Axis, ...]],
    replaced: dict[TirVar, PrimExpr],
) -> Stages:
    """Rebuild tensors with other shapes and loops, and every read to match."""
    new = {tensor: replace(tensor, shape=sizes(tensor)) for tensor in stages.inputs}

    def rule(node: PrimExpr) -> PrimExpr | None:
        if isinstance(node, TirVar):
            return replaced.get(node)
        if not isinstance(node, Read):
            return None
        indices = tuple(node.indices[n] for n in kept(node.tensor))
        return replace(node, tensor=new[node.tensor], indices=indices)

    def on_expr(expr: PrimExpr) -> PrimExpr:
        return rewrite(expr, rule)

    for stage in stages.stages:
        if stage.body is None:
            continue
        body = rewrite_body(stage.body, on_expr)
        if isinstance(body, Reduction):
            body = replace(body, axes=axes(body.axes) or body.axes[:1])
        new[stage] = replace(stage, shape=sizes(stage), axes=axes(stage.axes), body=body)
    return Stages(
        tuple(new[tensor] for tensor in stages.inputs),
        tuple(new[stage] for stage in stages.stages),
        tuple(new[tensor] for tensor in stages.outputs),
    )


class _Merger(Struct):
    """Finds the pairs of neighbouring dimensions and loops that merge, by ruling out all others.

    Attributes:
        merged: Inner loop to the loop around it, while they may merge.
        dims: For each tensor, the dimensions that may merge with the one before.
        sites: For each access, the tensor and its indices; a stage's own loops are one too.
    """

    merged: dict[TirVar, Axis] = field(default_factory=dict[TirVar, Axis])
    extents: dict[TirVar, int] = field(default_factory=dict[TirVar, int])
    dims: dict[Tensor, set[int]] = field(default_factory=dict[Tensor, set[int]])
    sites: list[tuple[Tensor, tuple[PrimExpr, ...]]] = field(
        default_factory=list[tuple[Tensor, tuple[PrimExpr, ...]]]
    )

    def add_stage(self, stage: Tensor) -> None:
        """Take in the loops of a stage and its accesses."""
        inner = stage.body.axes if isinstance(stage.body, Reduction) else ()
        for loops in (stage.axes, inner):
            for outer, axis in pairwise(loops):
                self.merged[axis.var] = outer
            self.extents.update((axis.var, axis.extent) for axis in loops)
        self._add_site(stage, tuple(axis.var for axis in stage.axes))
        computed: set[TirVar] = set()
        for expr in body_exprs(stage.body):
            if isinstance(expr, TirVar):
                computed.add(expr)
        for node in post_order(*body_exprs(stage.body)):
            if isinstance(node, Read):
                self._add_site(node.tensor, node.indices)
            else:
                computed.update(c for c in children(node) if isinstance(c, TirVar))
        if isinstance(stage.body, ArgReduction):
            computed.add(stage.body.axis.var)
        for axis in (*stage.axes, *inner):
            outer = self.merged.get(axis.var)
            if outer is not None and (axis.var in computed or outer.var in computed):
                del self.merged[axis.var]

    def _add_site(self, tensor: Tensor, indices: tuple[PrimExpr, ...]) -> None:
        self.sites.append((tensor, indices))
        self.dims.setdefault(tensor, set(range(1, tensor.rank)))

    def _settle(self) -> None:
        """Rule out pairs until every access agrees."""
        changed = True
        while changed:
            changed = False
            for tensor, indices in self.sites:
                changed |= self._check(tensor, indices)

    def _check(self, tensor: Tensor, indices: tuple[PrimExpr, ...]) -> bool:
        """Rule out what one access does not allow; whether anything was ruled out."""
        before = len(self.merged) + len(self.dims[tensor])
        for dimension in tuple(self.dims[tensor]):
            outer, inner = indices[dimension - 1], indices[dimension]
            outer_axis = self.merged.get(inner) if isinstance(inner, TirVar) else None
            full = isinstance(inner, TirVar) and self.extents.get(inner) == tensor.shape[dimension]
            if outer_axis is None or outer_axis.var is not outer or not full:
                self.dims[tensor].discard(dimension)
        seen = [at for at in indices if isinstance(at, TirVar)]
        for dimension, at in enumerate(indices):
            if not isinstance(at, TirVar):
                continue
            if seen.count(at) > 1 or dimension not in self.dims[tensor]:
                self.merged.pop(at, None)
            # The loop inside this one, if any, must sit at the next dimension.
            following = indices[dimension + 1] if dimension + 1 < len(indices) else None
            for inner in [v for v, outer in self.merged.items() if outer.var is at]:
                if inner is not following or dimension + 1 not in self.dims[tensor]:
                    del self.merged[inner]
        return len(self.merged) + len(self.dims[tensor]) != before

    def apply(self, stages: Stages) -> Stages:
        """Return the stages with the remaining ones merged."""
        self._settle()
        if not self.merged:
            return stages

        def kept(tensor: Tensor) -> tuple[int, ...]:
            merged = self.dims.get(tensor, set())
            return tuple(n for n in range(tensor.rank) if n not in merged)

        def sizes(tensor: Tensor) -> tuple[int, ...]:
            starts = (*kept(tensor), tensor.rank)
            return tuple(prod(tensor.shape[a:b]) for a, b in pairwise(starts))

        def axes(old: Iterable[Axis]) -> tuple[Axis, ...]:
            result: list[Axis] = []
            for axis in old:
                if axis.var in self.merged:
                    result[-1] = Axis(result[-1].var, result[-1].extent * axis.extent)
                else:
                    result.append(axis)
            return tuple(result)

        return _rebuilt(stages, kept, sizes, axes, {})
