# SPDX-License-Identifier: Apache-2.0
"""Graphs that a pattern matches, made from the pattern itself."""

from __future__ import annotations

from collections.abc import Iterator

from intarsia_ir.graph.expr import Expr, Function, Var, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.pattern import OpPattern, Optional, Pattern, Wildcard
from intarsia_ir.graph.types import TensorType
from intarsia_ir.partition.annotate import annotate
from intarsia_ir.regions.support import Code, SupportRow, SupportTable

from .blocks import DTYPES, SHAPES, Block, Blocks, candidates

ATTEMPTS = 24
"""Graphs tried for one pattern and tensor type."""


def fused_graph(table: SupportTable, row: SupportRow) -> tuple[IRModule, Blocks] | None:
    """A graph that ``row`` takes, or ``None`` if none of those tried is taken by it."""
    for dtype in DTYPES:
        for shape in SHAPES:
            type_ = TensorType(shape, dtype)
            blocks = candidates(type_)
            for body, params in _Grower(type_, blocks).graphs(row.pattern):
                main = Function(tuple(params), body)
                verdicts = annotate(main, [("subject", table)]).verdicts.get(body)  # type: ignore[arg-type]
                if (
                    verdicts is not None
                    and verdicts[0].code is Code.OK
                    and verdicts[0].detail == row.name
                ):
                    return IRModule.from_function(main), Blocks(type_, (), ())
    return None


class _Grower:
    """Grows expressions that a pattern matches, every tensor of one type."""

    def __init__(self, type_: TensorType, blocks: list[Block]) -> None:
        self.type = type_
        self.blocks = blocks
        self.params: list[Var] = []

    def graphs(self, pattern: Pattern) -> Iterator[tuple[Expr, list[Var]]]:
        """Yield some expressions with the parameters they use."""
        for turn in range(ATTEMPTS):
            self.params = []
            made = self._grow(pattern, turn)
            if made is None:
                return
            yield made, self.params

    def _grow(self, pattern: Pattern, turn: int) -> Expr | None:
        match pattern:
            case Wildcard(constant=True):
                return constant(Blocks(self.type, (), ()).random(turn))
            case Wildcard():
                self.params.append(Var(f"p{len(self.params)}", self.type))
                return self.params[-1]
            case Optional(inner=inner, outer=outer):
                return self._grow(outer(inner) if turn % 2 == 0 else inner, turn)
            case OpPattern(op=name, args=args):
                return self._call(name, args, turn)

    def _call(self, name: str, args: tuple[Pattern, ...] | None, turn: int) -> Expr | None:
        fitting = [
            block
            for block in self.blocks
            if block.name == name and (args is None or _fits(block, args))
        ]
        if not fitting:
            return None
        block = fitting[turn // 2 % len(fitting)]
        patterns = (Wildcard(),) * block.arity if args is None else args[: block.arity]
        operands = [self._grow(pattern, turn) for pattern in patterns]
        known = [operand for operand in operands if operand is not None]
        if len(known) != len(operands):
            return None
        return block.apply(*known, at=f"fused{len(self.params)}{name}")


def _fits(block: Block, args: tuple[Pattern, ...]) -> bool:
    """Whether the block's weights stand where the pattern wants any value or a constant."""
    rest = args[block.arity :]
    return len(rest) == len(block.weights) and all(isinstance(arg, Wildcard) for arg in rest)
