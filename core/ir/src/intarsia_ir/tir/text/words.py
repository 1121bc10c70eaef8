# SPDX-License-Identifier: Apache-2.0
"""Words and marks that mean something of their own in the text of loop IR."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from intarsia_runtime.size import Size

from ...tokens import STRING, WORD, name_text, quote
from ..expr import BinaryOp

FUNCTIONS = frozenset({BinaryOp.MIN, BinaryOp.MAX, BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD})
"""Binary operators that are written as functions."""

RESERVED = frozenset(
    {
        "def",
        "procedure",
        "for",
        "if",
        "else",
        "let",
        "pass",
        "barrier",
        "true",
        "false",
        "inf",
        "nan",
    }
    | {"reduce_lanes"}
)
"""Words that are no names unless they stand in quotes."""

_LEVELS = (
    (BinaryOp.EQ, BinaryOp.NE, BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE),
    (BinaryOp.OR,),
    (BinaryOp.XOR,),
    (BinaryOp.AND,),
    (BinaryOp.SHL, BinaryOp.SHR),
    (BinaryOp.ADD, BinaryOp.SUB),
    (BinaryOp.MUL, BinaryOp.DIV, BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD),
)
PRECEDENCE: Mapping[BinaryOp, int] = MappingProxyType(
    {op: level for level, ops in enumerate(_LEVELS) for op in ops}
)
"""How tightly an operator between two operands binds, as in Python; all group from the left."""

INFIX: Mapping[str, BinaryOp] = MappingProxyType({op.value: op for op in PRECEDENCE})
"""Operators between two operands, by their marks."""

TOKEN = re.compile(
    rf"""[ \t\r]*(?:(?P<newline>\n)
    | (?P<comment>\#[^\n]*)
    | (?P<string>{STRING})
    | (?P<number>inf(?![\w.])|nan(?![\w.])|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
    | (?P<size>`[^`\n]*`)
    | (?P<alias>\$\d+)
    | (?P<word>{WORD})
    | (?P<mark>::|//|<<|>>|==|!=|<=|>=|[][(),:=+*/%&|^<>-])
    | (?P<end>\Z))
    """,
    re.VERBOSE,
)
"""One token with the blanks before it."""


def size_text(size: Size) -> str:
    """Return a size as it stands in text: a number, or an expression in backquotes."""
    return str(size) if isinstance(size, int) else f"`{size}`"


def spell(name: str) -> str:
    """Return a name as it stands in the text: in quotes if it is not a word, or a reserved one."""
    return quote(name) if name in RESERVED else name_text(name)
