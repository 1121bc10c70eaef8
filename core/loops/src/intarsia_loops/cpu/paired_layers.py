# SPDX-License-Identifier: Apache-2.0
"""Two recurrent layers side by side: the directions of a bidirectional layer on two threads.

A layer goes along its sequence step by step, and its rows are often a single tile: nothing to share
between threads. The other direction does not wait for it. Both become one kernel, whose parallel
loops have the pieces of work of both. On one thread they follow one another, as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from msgspec import Struct, structs

from intarsia_ir.graph.expr import (
    Call,
    Expr,
    Function,
    If,
    Let,
    TupleGetItem,
    call,
    get_item,
    make_tuple,
)
from intarsia_ir.graph.op import Op, OpAttrs, OpKind, operator
from intarsia_ir.graph.types import TensorType, TupleType
from intarsia_ir.graph.walk import children, post_order, with_children
from intarsia_ir.ops.recurrent_rows import RowTile
from intarsia_ir.tir.build import load, parallel, seq
from intarsia_ir.tir.expr import PrimExpr, TirVar, index, size_variable
from intarsia_ir.tir.forward import KERNEL
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.passes.flatten_open import flatten_open
from intarsia_ir.tir.stmt import For, ForKind, IfStmt, Invoke, LetStmt, Seq, Stmt
from intarsia_runtime.size import Dim, Size, variable

from .loops import address_of
from .packed_layers import PackedLayer

Array = np.ndarray


@operator("cpu.recurrent_pair", OpKind.OPAQUE)
class PackedPair(Op):
    """Two layers that do not need each other: operands and results of one, then of the other."""

    fixed_sizes = PackedLayer.fixed_sizes

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``one`` and ``other``: attributes of the layers."""

        one: PackedLayer.Attrs
        other: PackedLayer.Attrs

    @staticmethod
    def type_rule(attrs: Attrs, *types: TensorType) -> TupleType:
        """Results of both."""
        half = len(types) // 2
        results = [
            PackedLayer.type_rule(own, *given)
            for own, given in ((attrs.one, types[:half]), (attrs.other, types[half:]))
        ]
        return TupleType((*results[0].fields, *results[1].fields))

    @staticmethod
    def reference(attrs: Attrs, *given: Array) -> tuple[Array, ...]:
        """One after the other."""
        half = len(given) // 2
        one = PackedLayer.reference(attrs.one, *given[:half])
        return (*one, *PackedLayer.reference(attrs.other, *given[half:]))

    @staticmethod
    def loops(attrs: Attrs, *types: TensorType) -> PrimFunc:
        """Loops for a machine without vectors."""
        return PackedPair.tiled(RowTile(), attrs, *types)

    @staticmethod
    def tiled(tile: RowTile, attrs: Attrs, *types: TensorType) -> PrimFunc:
        """The loops of both, for rows that go along together."""
        half = len(types) // 2
        one = PackedLayer.tiled(tile, attrs.one, *types[:half])
        other = PackedLayer.tiled(tile, attrs.other, *types[half:])
        inputs = (*one.input_params, *other.input_params)
        outputs = (*one.output_params, *other.output_params)
        first, second = one.body, other.body
        if attrs.one.kind == "lstm" or attrs.one.linear_before_reset:
            shared = _SharedRows(tile, structs.replace(attrs.one, reverse=False), types[:half])
            first, second = shared.called(one, attrs.one), shared.called(other, attrs.other)
        body = _side_by_side(first, second)  # other gates keep rows on the stack, as wide as states
        return PrimFunc("recurrent_pair", (*inputs, *outputs), len(outputs), body)


class _SharedRows(Struct, frozen=True):
    """What layers do with some rows as procedures, which all pairs of these types call.

    Attributes:
        tile: Rows and columns whose sums are in registers.
        attrs: Of the layers.
        types: Of their operands.
    """

    tile: RowTile
    attrs: PackedLayer.Attrs
    types: tuple[TensorType, ...]

    def called(self, layer: PrimFunc, attrs: PackedLayer.Attrs) -> Stmt:
        """Return the loops of a layer of some direction, which call the procedures."""
        sizes = dict(zip(("steps", "batch"), self.types[0].shape[:2], strict=True))
        general: dict[Size, Size] = {
            size: variable(name) for name, size in sizes.items() if isinstance(size, Dim)
        }
        types = [t.with_shape([general.get(size, size) for size in t.shape]) for t in self.types]
        made = iter(_procedures(self.tile, self.attrs, *types))
        values = {name: index(size) for name, size in sizes.items()}
        values["reverse"] = index(int(attrs.reverse))
        places = tuple(address_of(load(b, *[0] * len(b.shape))) for b in layer.params)

        def call_of(number: PrimExpr, _body: Stmt) -> Stmt:
            procedure, given = next(made), {**values, "piece": number}
            own = tuple(given[size.name] for size in procedure.sizes)
            return Invoke(KERNEL, procedure.name, places, own, procedure)

        return _with_pieces(layer.body, call_of)


@lru_cache(maxsize=16)  # a process may build layers of any number of lengths
def _procedures(
    tile: RowTile, attrs: PackedLayer.Attrs, *types: TensorType
) -> tuple[PrimFunc, ...]:
    """Return a procedure for each piece of a layer's body, in their order.

    Their sizes are ``piece``, the number of the piece of work; ``reverse``, which is 1 from the
    last step to the first; and the sizes of the types that are variables.
    """
    layer = PackedLayer.tiled(tile, attrs, *types, reverse=size_variable("reverse"))
    pieces: list[Stmt] = []

    def keep(number: PrimExpr, body: Stmt) -> Stmt:
        is_loop = isinstance(number, TirVar)
        pieces.append(LetStmt(number, size_variable("piece"), body) if is_loop else body)
        return body

    _with_pieces(layer.body, keep)
    words = (attrs.kind, *types[0].shape, tile.rows, tile.width, tile.sums, tile.ends)
    name = "rows_" + "_".join(map(str, words))
    return tuple(
        flatten_open(replace(layer, name=f"{name}_{number}", body=body))
        for number, body in enumerate(pieces)
    )


def _with_pieces(loops: Stmt, do: Callable[[PrimExpr, Stmt], Stmt]) -> Stmt:
    """Return loops over rows with ``do(number, body)`` in the place of each piece of work."""
    match loops:
        case Seq():
            return seq(*(_with_pieces(part, do) for part in loops.body))
        case IfStmt() if loops.orelse is not None:
            few = _with_pieces(loops.body, do)
            return IfStmt(loops.condition, few, _with_pieces(loops.orelse, do))
        case For(kind=ForKind.PARALLEL):
            return replace(loops, body=do(loops.var, loops.body))
        case _:
            return do(index(0), loops)


def _side_by_side(one: Stmt, other: Stmt) -> Stmt:
    """Return what does both, with the pieces of work of both in each parallel loop.

    Layers of the same types have the same loops over rows.
    """
    match one, other:
        case Seq(), Seq():
            return seq(*(_side_by_side(a, b) for a, b in zip(one.body, other.body, strict=True)))
        case IfStmt(), IfStmt() if one.orelse is not None and other.orelse is not None:
            few = _side_by_side(one.body, other.body)
            return IfStmt(one.condition, few, _side_by_side(one.orelse, other.orelse))
        case For(kind=ForKind.PARALLEL), For(kind=ForKind.PARALLEL):
            extent = one.extent

            def piece(p: PrimExpr) -> Stmt:
                first = LetStmt(one.var, p, one.body)
                return IfStmt(p < extent, first, LetStmt(other.var, p - extent, other.body))

            return parallel(extent * 2, piece)
        case _:
            return parallel(2, lambda p: IfStmt(p < 1, one, other))


def pair_layers(function: Function) -> Function:
    """Return a function in which packed layers that do not need each other are pairs.

    Those of the same types and as many layers before them are, in their order: neither can need
    the other.
    """
    nodes = list(post_order(function.body))
    if any(isinstance(node, Let | If) for node in nodes):
        return function  # what a variable stands for is no operand of what reads it
    depths: dict[Expr, int] = {}
    alike: dict[object, list[Call]] = {}
    for node in nodes:
        depth = max((depths[child] for child in children(node)), default=0)
        depths[node] = depth
        if isinstance(node, Call) and isinstance(node.attrs, PackedLayer.Attrs):
            depths[node] = depth + 1
            kind = (depth, node.attrs.kind, node.attrs.linear_before_reset)
            types = tuple(arg.type for arg in node.args)
            alike.setdefault((*kind, *types), []).append(node)
    pairs: list[tuple[Call, Call]] = []
    for layers in alike.values():
        pairs += zip(layers[::2], layers[1::2], strict=False)  # the last of an odd number is alone
    if not pairs:
        return function
    return replace(function, body=_paired(function, sorted(nodes, key=depths.__getitem__), pairs))


def _paired(function: Function, nodes: Sequence[Expr], pairs: Sequence[tuple[Call, Call]]) -> Expr:
    """Return a function's body with pairs; ``nodes`` of fewer layers before them come first."""
    partners = {layer: pair for pair in pairs for layer in pair}
    new: dict[Expr, Expr] = {}
    for node in nodes:
        if node in new:
            continue
        operands = tuple(new[child] for child in children(node))
        if isinstance(node, TupleGetItem):
            new[node] = get_item(operands[0], node.index, span=node.span)
        elif isinstance(node, Call) and node in partners:
            new.update(_pair(partners[node], new))
        else:
            new[node] = with_children(node, operands)
    return new[function.body]


def _pair(layers: tuple[Call, Call], new: Mapping[Expr, Expr]) -> dict[Expr, Expr]:
    """Return what two layers become, whose operands are there: results of their pair."""
    one, other = (layer.attrs for layer in layers)
    assert isinstance(one, PackedLayer.Attrs)
    assert isinstance(other, PackedLayer.Attrs)
    operands = [new[arg] for layer in layers for arg in layer.args]
    attrs = PackedPair.Attrs(one=one, other=other)
    pair = call(PackedPair, *operands, attrs=attrs, span=layers[0].span)
    assert isinstance(pair.type, TupleType)
    items = [get_item(pair, number) for number in range(len(pair.type.fields))]
    half = len(items) // 2
    return {layers[0]: make_tuple(items[:half]), layers[1]: make_tuple(items[half:])}
