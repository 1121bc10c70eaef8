# SPDX-License-Identifier: Apache-2.0
"""Fewer, longer dimensions: an element-wise kernel over (1, 64, 7, 7) runs over one of 3136."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..tir.expr import IntImm, PrimExpr, Read, TirVar
from ..tir.tensor import ArgReduction, Axis, Reduction, Tensor
from ..tir.walk import body_exprs, children, post_order, rewrite, rewrite_body
from .tensors import Stages


@dataclass(frozen=True, slots=True)
class _Layout:
    """How one tensor's dimensions combine: runs of dimensions that become one each."""

    runs: tuple[tuple[int, ...], ...]

    def shape(self, old: tuple[int, ...]) -> tuple[int, ...]:
        sizes: list[int] = []
        for run in self.runs:
            size = 1
            for dimension in run:
                size *= old[dimension]
            sizes.append(size)
        return tuple(sizes)


def collapse(stages: Stages) -> Stages:
    """Merge loops that every access of a kernel of one stage walks through in order.

    Kernels of several stages, and dimensions that any index computes with, stay as they are.
    """
    if len(stages.stages) != 1:
        return stages
    (stage,) = stages.stages
    if stage.body is None or isinstance(stage.body, ArgReduction) or 0 in stage.shape:
        return stages
    loops = list(stage.axes)
    inner = list(stage.body.axes) if isinstance(stage.body, Reduction) else []
    sites = _sites(stage)
    if sites is None:
        return stages
    merged = _Merger(stage, sites)
    return merged.apply(stages, merged.groups(loops), merged.groups(inner))


def _sites(stage: Tensor) -> dict[Tensor, Read] | None:
    """Return one read of each tensor; ``None`` if a tensor is read at several places."""
    found: dict[Tensor, Read] = {}
    for node in post_order(*body_exprs(stage.body)):
        if isinstance(node, Read):
            other = found.setdefault(node.tensor, node)
            pairs = zip(other.indices, node.indices, strict=True)
            if not all(a is b or _both_same_number(a, b) for a, b in pairs):
                return None
    return found


def _both_same_number(a: PrimExpr, b: PrimExpr) -> bool:
    return isinstance(a, IntImm) and isinstance(b, IntImm) and a.value == b.value


class _Merger:
    def __init__(self, stage: Tensor, sites: dict[Tensor, Read]) -> None:
        self._stage = stage
        self._sites = sites
        self._bound = self._computed_with()

    def _computed_with(self) -> set[TirVar]:
        """Return loop variables used other than as a whole index."""
        indices = {id(at) for site in self._sites.values() for at in site.indices}
        used: set[TirVar] = set()
        for node in post_order(*body_exprs(self._stage.body)):
            if isinstance(node, TirVar) and id(node) not in indices:
                used.add(node)
            if not isinstance(node, Read):
                used.update(child for child in children(node) if isinstance(child, TirVar))
        return used

    def groups(self, axes: list[Axis]) -> list[list[Axis]]:
        """Partition adjacent loops into runs that merge."""
        runs: list[list[Axis]] = []
        for axis in axes:
            if runs and self._merges(runs[-1][-1], axis):
                runs[-1].append(axis)
            else:
                runs.append([axis])
        return runs

    def _merges(self, outer: Axis, inner: Axis) -> bool:
        """Whether every access has both loops next to each other, or neither."""
        if outer.var in self._bound or inner.var in self._bound:
            return False
        for site in self._sites.values():
            at = [n for n, index in enumerate(site.indices) if index is outer.var]
            next_at = [n for n, index in enumerate(site.indices) if index is inner.var]
            if not at and not next_at:
                continue
            if len(at) != 1 or next_at != [at[0] + 1]:
                return False
            if site.tensor.shape[next_at[0]] != inner.extent:
                return False
        return True

    def apply(self, stages: Stages, loops: list[list[Axis]], inner: list[list[Axis]]) -> Stages:
        """Rebuild the stage over merged loops."""
        if all(len(run) == 1 for run in (*loops, *inner)):
            return stages
        absorbed = {axis.var for run in (*loops, *inner) for axis in run[1:]}
        new = {tensor: self._layout(tensor, absorbed) for tensor in stages.inputs}
        shaped = {
            tensor: replace(tensor, shape=layout.shape(tensor.shape))
            for tensor, layout in new.items()
        }

        def rule(node: PrimExpr) -> PrimExpr | None:
            if not isinstance(node, Read) or node.tensor not in new:
                return None
            indices = tuple(node.indices[run[0]] for run in new[node.tensor].runs)
            return replace(node, tensor=shaped[node.tensor], indices=indices)

        def on_expr(expr: PrimExpr) -> PrimExpr:
            return rewrite(expr, rule)

        stage = self._stage
        if stage.body is None:
            return stages
        body = rewrite_body(stage.body, on_expr)
        if isinstance(body, Reduction):
            body = replace(body, axes=_merged_axes(inner))
        axes = _merged_axes(loops)
        result = replace(stage, shape=tuple(a.extent for a in axes), axes=axes, body=body)
        return Stages(tuple(shaped[t] for t in stages.inputs), (result,), (result,))

    def _layout(self, tensor: Tensor, absorbed: set[TirVar]) -> _Layout:
        site = self._sites.get(tensor)
        if site is None:
            return _Layout(tuple((n,) for n in range(tensor.rank)))
        runs: list[tuple[int, ...]] = []
        for dimension, at in enumerate(site.indices):
            if isinstance(at, TirVar) and at in absorbed and runs:
                runs[-1] = (*runs[-1], dimension)
            else:
                runs.append((dimension,))
        return _Layout(tuple(runs))


def _merged_axes(runs: list[list[Axis]]) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    for run in runs:
        extent = 1
        for axis in run:
            extent *= axis.extent
        axes.append(Axis(run[0].var, extent))
    return tuple(axes)
