# SPDX-License-Identifier: Apache-2.0
"""Read expressions of loop IR: a stack of open brackets in place of recursion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from intarsia_runtime.dtype import DType

from ...tokens import Token
from ..expr import (
    COMPARISONS,
    INDEX,
    Binary,
    BinaryOp,
    Broadcast,
    CallTarget,
    CastExpr,
    FloatImm,
    IfThenElse,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    ReduceLanes,
    Select,
    intrinsic,
)
from ..intrinsic import Intrinsic
from .reader import LoopReader, VisibleNames
from .words import FUNCTIONS, INFIX, PRECEDENCE

_INTRINSICS = {function.value: function for function in Intrinsic}
_FUNCTIONS = {op.value: op for op in FUNCTIONS}
_DTYPES = {dtype.value: dtype for dtype in DType}
_REDUCERS = {op.value: op for op in BinaryOp}

BuildExpr: TypeAlias = Callable[[Token, Sequence[PrimExpr]], PrimExpr]


class _Bracket(Struct):
    """An open bracket, or the whole expression.

    Attributes:
        token: What errors point at.
        close: The mark that ends it; empty for the whole expression.
        build: Makes its value of the operands between commas.
        operands: Those behind which a comma stood.
        values: Operands of the one being read.
        operators: Those between the values, not applied yet.
    """

    token: Token
    close: str
    build: BuildExpr
    operands: list[PrimExpr] = field(default_factory=list[PrimExpr])
    values: list[PrimExpr] = field(default_factory=list[PrimExpr])
    operators: list[tuple[Token, BinaryOp]] = field(default_factory=list[tuple[Token, BinaryOp]])

    def apply(self, level: int) -> None:
        """Apply the last operators that bind at least as tightly as ``level``."""
        while self.operators and PRECEDENCE[self.operators[-1][1]] >= level:
            token, op = self.operators.pop()
            right, left = self.values.pop(), self.values.pop()
            self.values.append(_binary(token, op, left, right))

    def next_operand(self) -> None:
        """End an operand."""
        self.apply(0)
        self.operands.append(self.values.pop())


def read_expr(reader: LoopReader, names: VisibleNames) -> PrimExpr:
    """Read an expression.

    Raises:
        ParseError: No expression stands there, or the types of its parts do not fit.
    """
    stack = [_Bracket(reader.token, "", _group)]
    while True:
        made = _operand(reader, names)
        if isinstance(made, _Bracket):
            stack.append(made)
            if not reader.at(made.close):
                continue
        else:
            stack[-1].values.append(made)
        while True:
            top = stack[-1]
            if top.close and reader.skip(top.close):
                if top.values:
                    top.next_operand()
                stack.pop()
                stack[-1].values.append(top.build(top.token, top.operands))
                continue
            op = INFIX.get(reader.token.text) if reader.token.kind == "mark" else None
            if op is not None and not (reader.ends_line and not top.close):
                top.apply(PRECEDENCE[op])
                top.operators.append((reader.take(), op))
                break
            if not top.close:
                top.apply(0)
                return top.values[0]
            if not reader.at(","):
                raise reader.token.fail(f"expected ',' or '{top.close}', found {reader.token}")
            reader.take()
            top.next_operand()
            break


def _operand(reader: LoopReader, names: VisibleNames) -> PrimExpr | _Bracket:
    """Read a constant, a variable or an alias, or what opens a bracket."""
    token = reader.take()
    if token.kind == "mark" and token.text == "(":
        return _Bracket(token, ")", _group)
    if token.kind == "mark" and token.text == "-" and reader.token.kind == "number":
        return _number(reader, reader.take(), "-")
    if token.kind == "number":
        return _number(reader, token, "")
    if token.kind == "alias":
        if token.text not in names.aliases:
            raise token.fail(f"'{token.text}' is not defined on a line before the statement")
        return names.aliases[token.text]
    if token.kind not in ("word", "string"):
        raise token.fail(f"expected an expression, found {token}")
    if token.text in ("true", "false"):
        dtype, lanes = _type_of(reader, DType.BOOL)
        return IntImm(int(token.text == "true"), dtype, lanes)
    return _named(reader, names, token)


def _named(reader: LoopReader, names: VisibleNames, token: Token) -> PrimExpr | _Bracket:
    """Read what begins with a name: a call, a load or a variable."""
    if token.text == "reduce_lanes":
        return _Bracket(token, ")", _reduction(reader))
    if token.kind == "word" and reader.at("("):
        reader.take()
        return _Bracket(token, ")", _function(token))
    reader.back()
    name = reader.name("a value")
    if reader.skip("::"):
        return _target_call(reader, token, name)
    if reader.skip("["):
        buffer = names.buffer(token, name)

        def load(at: Token, indices: Sequence[PrimExpr]) -> PrimExpr:
            if len(indices) != len(buffer.shape):
                rank = len(buffer.shape)
                raise at.fail(f"{len(indices)} indices for '{buffer.name}' of rank {rank}")
            lanes = indices[-1].lanes if indices else 1
            return Load(buffer, tuple(indices), buffer.dtype, lanes)

        return _Bracket(token, "]", load)
    return names.variable(token, name)


def _number(reader: LoopReader, token: Token, sign: str) -> PrimExpr:
    """Read the type behind a number, if any; a whole number is an index, another one float32."""
    text = sign + token.text
    whole = token.text.isdecimal()
    dtype, lanes = _type_of(reader, INDEX if whole else DType.FLOAT32)
    if dtype.is_float:
        return FloatImm(float(text), dtype, lanes)
    if not whole:
        raise token.fail(f"'{text}' is no value of {dtype}")
    return IntImm(int(text), dtype, lanes)


def _type_of(reader: LoopReader, default: DType) -> tuple[DType, int]:
    """Read ``:uint8`` or ``:uint8x16``; a mark at the end of a line belongs to the statement."""
    if not reader.at(":") or reader.marks_line_end():
        return default, 1
    reader.take()
    token = reader.take()
    name, x, lanes = token.text.partition("x")
    if name not in _DTYPES or (x and not (lanes.isdecimal() and int(lanes) > 1)):
        raise token.fail(f"expected an element type, found {token}")
    return _DTYPES[name], int(lanes) if x else 1


def _group(token: Token, operands: Sequence[PrimExpr]) -> PrimExpr:
    return _count(token, operands, 1)[0]


def _count(token: Token, operands: Sequence[PrimExpr], count: int) -> Sequence[PrimExpr]:
    if len(operands) != count:
        raise token.fail(f"{token} takes {count} operands, not {len(operands)}")
    return operands


def _function(token: Token) -> BuildExpr:
    """Return what makes the value of a function."""
    name = token.text
    if name in _FUNCTIONS:
        return _infix_function
    if name in _DTYPES:
        return _cast
    if name in _INTRINSICS:
        return _intrinsic
    known: dict[str, BuildExpr] = {
        "select": _choice,
        "if_then_else": _choice,
        "ramp": _ramp,
        "broadcast": _broadcast,
    }
    if name not in known:
        raise token.fail(f"no function is called '{name}'")
    return known[name]


def _infix_function(token: Token, operands: Sequence[PrimExpr]) -> PrimExpr:
    a, b = _count(token, operands, 2)
    return _binary(token, _FUNCTIONS[token.text], a, b)


def _binary(token: Token, op: BinaryOp, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Combine two operands as they are: nothing is folded, nothing converted."""
    if a.dtype is not b.dtype:
        raise token.fail(f"the operands of '{op.value}' are {a.dtype} and {b.dtype}")
    if a.lanes != b.lanes:
        raise token.fail(f"the operands of '{op.value}' have {a.lanes} and {b.lanes} lanes")
    return Binary(op, a, b, DType.BOOL if op in COMPARISONS else a.dtype, a.lanes)


def _cast(token: Token, operands: Sequence[PrimExpr]) -> PrimExpr:
    (value,) = _count(token, operands, 1)
    return CastExpr(value, _DTYPES[token.text], value.lanes)


def _intrinsic(token: Token, operands: Sequence[PrimExpr]) -> PrimExpr:
    function = _INTRINSICS[token.text]
    args = _count(token, operands, function.operands)
    if len({(arg.dtype, arg.lanes) for arg in args}) != 1:
        raise token.fail(f"the operands of {token} differ in type")
    return intrinsic(function, *args)


def _choice(token: Token, operands: Sequence[PrimExpr]) -> PrimExpr:
    condition, a, b = _count(token, operands, 3)
    if condition.dtype is not DType.BOOL:
        raise token.fail(f"the condition of {token} is {condition.dtype}, not bool")
    if (a.dtype, a.lanes) != (b.dtype, b.lanes):
        raise token.fail(f"the sides of {token} differ in type")
    make = Select if token.text == "select" else IfThenElse
    return make(condition, a, b, a.dtype, a.lanes)


def _ramp(token: Token, operands: Sequence[PrimExpr]) -> PrimExpr:
    base, stride, lanes = _count(token, operands, 3)
    return Ramp(base, _literal(token, stride), _literal(token, lanes))


def _broadcast(token: Token, operands: Sequence[PrimExpr]) -> PrimExpr:
    value, lanes = _count(token, operands, 2)
    return Broadcast(value, _literal(token, lanes), value.dtype)


def _literal(token: Token, value: PrimExpr) -> int:
    if not isinstance(value, IntImm) or value.dtype is not INDEX:
        raise token.fail(f"the stride and lanes of {token} are whole numbers")
    return value.value


def _reduction(reader: LoopReader) -> BuildExpr:
    """Read ``[op](`` behind ``reduce_lanes``."""
    reader.expect("[")
    token = reader.take()
    op = _REDUCERS.get(token.text)
    if op is None:
        raise token.fail(f"expected an operator such as +, found {token}")
    reader.expect("]")
    reader.expect("(")

    def reduce(at: Token, operands: Sequence[PrimExpr]) -> PrimExpr:
        (value,) = _count(at, operands, 1)
        return ReduceLanes(op, value, value.dtype)

    return reduce


def _target_call(reader: LoopReader, token: Token, kind: str) -> _Bracket:
    """Read ``function:dtype(`` behind ``kind::``."""
    function = reader.name("a function")
    reader.expect(":")
    dtype = reader.dtype()
    reader.expect("(")

    def make(at: Token, args: Sequence[PrimExpr]) -> PrimExpr:
        if len({arg.lanes for arg in args}) != 1:
            raise at.fail(f"'{function}' of '{kind}' has no arguments, or they differ in lanes")
        return CallTarget(kind, function, tuple(args), dtype, args[0].lanes)

    return _Bracket(token, ")", make)
