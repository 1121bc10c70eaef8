# SPDX-License-Identifier: Apache-2.0
"""Sizes read from their text, an expression of Python: see :mod:`~intarsia_runtime.size`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from .errors import ArtifactError, UnsupportedError
from .size import Size, floor_divide, maximum, minimum, remainder, variable

MOST_CHARACTERS = 1 << 16
"""Longest text of a size that is read: artifacts and models come from outside."""


def parse_size(text: str) -> Size:
    """Read a size from its text.

    Raises:
        ArtifactError: The text is no size.
    """
    wrong = ArtifactError(f"{text[:80]!r} is no size", hint="for example (N + 2) // 2")
    if len(text) > MOST_CHARACTERS:
        raise wrong
    try:
        return _parsed(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError, UnsupportedError):
        raise wrong from None


_ARITHMETIC: Mapping[type[ast.operator], Callable[[Size, Size], Size]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floor_divide,
    ast.Mod: remainder,
}


def _parsed(node: ast.expr) -> Size:
    match node:
        case ast.Constant(value=bool()):
            raise ValueError
        case ast.Constant(value=int(number)):
            return number
        case ast.Constant(value=str(name)):
            return variable(name)
        case ast.Name(id=name):
            return variable(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return 0 - _parsed(operand)
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[a, b], keywords=[]):
            return (minimum if name == "min" else maximum)(_parsed(a), _parsed(b))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](_parsed(left), _parsed(right))
        case _:
            raise ValueError
