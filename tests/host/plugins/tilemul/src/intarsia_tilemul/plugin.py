# SPDX-License-Identifier: Apache-2.0
"""The compiling half: products become loops over tiles, and those become a program."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intarsia.plugin import (
    Call,
    Code,
    CodegenSignature,
    CompiledUnit,
    Constant,
    DType,
    Function,
    Match,
    Region,
    Role,
    Support,
    SupportRow,
    SupportTable,
    Target,
    TargetKind,
    TensorModule,
    hookimpl,
    op,
)
from intarsia_ir.graph.expr import Expr, call, constant
from intarsia_ir.graph.walk import rewrite_function
from intarsia_ir.tir.build import load, seq, serial
from intarsia_ir.tir.expr import Binary, BinaryOp, IntImm, PrimExpr, TirVar
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import Lowered
from intarsia_ir.tir.space import Tuned
from intarsia_ir.tir.stmt import For, Invoke, Seq, Stmt
from intarsia_ir.tir.walk import expr_nodes, statements
from intarsia_loops.lower import lower as lower_function

TILE = 4
OPERATORS = {BinaryOp.ADD: "+", BinaryOp.MUL: "*"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Nothing to set."""


@hookimpl
def target_function(name: str, target: Target[Options]) -> CodegenSignature | None:
    """The instructions: ``tile.zero(c)`` and ``tile.mma(c, a, b)``, c += a @ b."""
    return {"tile.zero": CodegenSignature(1), "tile.mma": CodegenSignature(3)}.get(name)


@hookimpl
def lower(
    main: Function,
    regions: Sequence[Region],
    target: Target[Options],
    alignment: int,
    tuned: Tuned | None,
    name: str,
) -> Lowered:
    """The default loops; ``rewrite_tir`` replaces those of products."""
    return lower_function(main, regions, target=target, alignment=alignment, name=name)


@hookimpl
def tir_codegen(module: TensorModule, target: Target[Options]) -> CompiledUnit:
    """Write every kernel as a Python function."""
    source = "\n".join(_function(func) for func in module.functions)
    return CompiledUnit(module.name, "tilemul", {"kernels.py": source.encode()})


KIND = TargetKind("tilemul", Role.ACCELERATOR, Options)


@hookimpl
def register_target_kind() -> list[TargetKind]:
    """The one kind."""
    return [KIND]


@hookimpl
def annotate(target: Target) -> SupportTable:
    """Products of two float32 matrices."""

    def takes(match: Match) -> Support:
        types = (*match.types, match.root.type)
        if any(t.dtype is not DType.FLOAT32 or t.rank != 2 for t in types):
            return Support.no(Code.UNSUPPORTED_SHAPE, "matrices of float32 only")
        if match.root.attrs != match.root.op.Attrs():
            return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "no transposed operands")
        return Support.yes()

    return SupportTable([SupportRow("matmul", op("matmul"), takes)])


@hookimpl
def rewrite_relay(function: Function, target: Target) -> Function:
    """Transpose weights now where a product would do so each time it runs."""
    return rewrite_function(function, _transpose_weights)


def _transpose_weights(node: Expr) -> Expr:
    if not isinstance(node, Call) or node.name != "matmul":
        return node
    data, weights = node.args
    if not isinstance(weights, Constant) or not node.attrs.transpose_b:
        return node
    rows = constant(np.ascontiguousarray(np.swapaxes(weights.data, -1, -2)), name=weights.name)
    attrs = node.op.Attrs(transpose_a=node.attrs.transpose_a)
    return call(node.op, data, rows, attrs=attrs, span=node.span)


@hookimpl
def rewrite_tir(function: PrimFunc, target: Target) -> PrimFunc:
    """Replace the loops of a product by loops over tiles."""
    if not _is_product(function):
        return function
    a, b, c = function.params
    depth, columns = b.shape
    rows = c.shape[0] if len(c.shape) == 2 else 1  # a single row has no dimension of its own

    def tile(i: PrimExpr, j: PrimExpr) -> Stmt:
        row = (i * TILE,) if len(c.shape) == 2 else ()
        at = load(c, *row, j * TILE)

        def step(k: PrimExpr) -> Stmt:
            parts = (at, load(a, *row, k * TILE), load(b, k * TILE, j * TILE))
            return Invoke("tilemul", "tile.mma", parts)

        zero = Invoke("tilemul", "tile.zero", (at,))
        return seq(zero, serial(-(-depth // TILE), step, "k"))

    body = serial(
        -(-rows // TILE), lambda i: serial(-(-columns // TILE), lambda j: tile(i, j), "j"), "i"
    )
    return dataclasses.replace(function, body=body)


def _is_product(function: PrimFunc) -> bool:
    """Whether something sums up products of elements of the first two matrices."""
    products = [
        node
        for node in expr_nodes(list(statements(function.body)))
        if isinstance(node, Binary) and node.op is BinaryOp.MUL
    ]
    return len(function.params) == 3 and bool(products)


def _function(func: PrimFunc) -> str:
    names = ", ".join(buffer.name for buffer in func.params)
    return f"def {func.name}({names}):\n" + "\n".join(_lines(func.body, 1)) + "\n"


def _lines(stmt: Stmt, depth: int) -> list[str]:
    indent = "    " * depth
    match stmt:
        case For(var, extent, _, body):
            head = f"{indent}for {var.name} in range({_text(extent)}):"
            return [head, *_lines(body, depth + 1)]
        case Seq(body):
            return [line for part in body for line in _lines(part, depth)]
        case Invoke(_, function, places):
            args = (f"({p.buffer.name}, {', '.join(map(_text, p.indices))})" for p in places)
            return [f"{indent}{function.replace('.', '_')}({', '.join(args)})"]
        case _:
            raise NotImplementedError(f"no {type(stmt).__name__} in a program of tiles")


def _text(expr: PrimExpr) -> str:
    match expr:
        case IntImm(value):
            return str(value)
        case TirVar(name):
            return name
        case Binary(operator, a, b):
            return f"({_text(a)} {OPERATORS[operator]} {_text(b)})"
        case _:
            raise NotImplementedError(f"no {type(expr).__name__} in a program of tiles")
