# SPDX-License-Identifier: Apache-2.0
"""Parsing kernels: the inverse of printing them, and errors that say where."""

from __future__ import annotations

import math
import textwrap
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia_ir.tir.text
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
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
    TirVar,
    intrinsic,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.stmt import (
    Allocate,
    Barrier,
    For,
    ForKind,
    IfStmt,
    Invoke,
    LetStmt,
    Seq,
    Stmt,
    Store,
    Thread,
)
from intarsia_ir.tir.text import parse_func, parse_funcs, print_func
from intarsia_ir.tir.verify import verify_func
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ParseError
from intarsia_testkit.kernel_structure import kernel_structure

F32 = DType.FLOAT32
NAMES = st.sampled_from(["i", "i", "i_1", "x", "min", "true", "for", "float32", "odd name", "a.b"])
NUMBERS = st.floats(width=32) | st.sampled_from([0.0, -0.0, math.inf, -math.inf, 1e-45, 0.1])
PROCEDURE_KINDS = st.sampled_from(["loops", "my-kind"])


def roundtrip(func: PrimFunc) -> PrimFunc:
    """Print, parse, and hold that both the text and the program are the same."""
    text = print_func(func)
    again = parse_func(text)
    assert print_func(again) == text
    same = kernel_structure(again) == kernel_structure(func)
    assert same, text  # the structures themselves would be long to compare
    return again


def documented() -> str:
    """The kernels that the description of the format shows."""
    example = (intarsia_ir.tir.text.__doc__ or "").split("::\n", 1)[1].split("\nBlocks are told")[0]
    return textwrap.dedent(example).strip() + "\n"


def test_the_documented_kernels_print_as_they_are_written():
    softmax, copy, add_rows = parse_funcs(documented())
    for func in (softmax, copy, add_rows):
        verify_func(func)
        roundtrip(func)
    assert "\n".join(map(print_func, (softmax, copy, add_rows))) == documented()
    assert (softmax.outputs, softmax.scratch, copy.outputs, copy.scratch) == (1, 1, 1, 0)


class Programs:
    """Draws well-typed kernels that use every form of the loop IR."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.buffers = [
            Buffer(self.draw(NAMES), shape, dtype)
            for shape, dtype in (((4, 8), F32), ((), DType.INT8), ((16,), DType.BOOL))
        ]
        self.vars: list[TirVar] = []
        self.barred: list[tuple[Buffer | TirVar, ...]] = []

    def func(self) -> PrimFunc:
        params = tuple(self.buffers)
        return PrimFunc(self.draw(NAMES), params, 1, self.stmt(3), self.draw(st.integers(0, 1)))

    def index(self) -> PrimExpr:
        return self.expr(INDEX, 1, 1)

    def load(self, buffer: Buffer, lanes: int) -> Load:
        indices = [self.index() for _ in buffer.shape]
        if lanes > 1:
            indices[-1] = Ramp(indices[-1], self.draw(st.sampled_from([1, 2, -1])), lanes)
        return Load(buffer, tuple(indices), buffer.dtype, lanes)

    def expr(self, dtype: DType, lanes: int, depth: int) -> PrimExpr:
        """An expression of a type."""
        leaves = ["constant", "load", "variable"]
        inner = ["binary", "select", "guard", "cast", "target", "vector"]
        inner += ["compare"] if dtype is DType.BOOL else ["call"]
        form = self.draw(st.sampled_from(leaves if depth == 0 else [*leaves, *inner]))
        match form:
            case "load":
                alike = [b for b in self.buffers if b.dtype is dtype and (b.shape or lanes == 1)]
                return (
                    self.load(self.draw(st.sampled_from(alike)), lanes)
                    if alike
                    else self.constant(dtype, lanes)
                )
            case "variable":
                alike = [v for v in self.vars if (v.dtype, v.lanes) == (dtype, lanes)]
                return self.draw(st.sampled_from(alike)) if alike else self.constant(dtype, lanes)
            case "binary":
                op = self.draw(st.sampled_from([op for op in BinaryOp if op not in COMPARISONS]))
                a = self.expr(dtype, lanes, depth - 1)
                b = a if self.draw(st.booleans()) else self.expr(dtype, lanes, depth - 1)
                return Binary(op, a, b, dtype, lanes)
            case "compare":
                op = self.draw(st.sampled_from(sorted(COMPARISONS, key=str)))
                a, b = (self.expr(F32, lanes, depth - 1) for _ in "ab")
                return Binary(op, a, b, DType.BOOL, lanes)
            case "select" | "guard":
                make = Select if form == "select" else IfThenElse
                wide = self.draw(st.sampled_from([1, lanes]))
                a, b = (self.expr(dtype, lanes, depth - 1) for _ in "ab")
                return make(self.expr(DType.BOOL, wide, depth - 1), a, b, dtype, lanes)
            case "cast":
                other = self.draw(st.sampled_from([F32, INDEX, DType.INT8]))
                return CastExpr(self.expr(other, lanes, depth - 1), dtype, lanes)
            case "call":
                function, count = self.draw(
                    st.sampled_from([(Intrinsic.EXP, 1), (Intrinsic.POW, 2), (Intrinsic.FMA, 3)])
                )
                return intrinsic(
                    function, *(self.expr(dtype, lanes, depth - 1) for _ in range(count))
                )
            case "target":
                kind = self.draw(PROCEDURE_KINDS)
                return CallTarget(
                    kind, "loops.f", (self.expr(F32, lanes, depth - 1),), dtype, lanes
                )
            case "vector" if lanes > 1:
                return Broadcast(self.expr(dtype, 1, depth - 1), lanes, dtype)
            case "vector":
                return ReduceLanes(BinaryOp.MAX, self.expr(dtype, 4, depth - 1), dtype)
            case _:
                return self.constant(dtype, lanes)

    def constant(self, dtype: DType, lanes: int) -> PrimExpr:
        if dtype.is_float:
            return FloatImm(self.draw(NUMBERS), dtype, lanes)
        high = 1 if dtype is DType.BOOL else 2**62
        return IntImm(self.draw(st.integers(-high if dtype is INDEX else 0, high)), dtype, lanes)

    def stmt(self, depth: int) -> Stmt:
        """A statement."""
        leaves = ["store", "pass", "barrier", "invoke"]
        inner = ["for", "if", "seq", "seq", "allocate", "let"]
        match self.draw(st.sampled_from(leaves if depth == 0 else [*leaves, *inner])):
            case "store":
                lanes = self.draw(st.sampled_from([1, 4]))
                place = self.load(self.buffers[0], lanes)
                return Store(place.buffer, place.indices, self.expr(F32, lanes, 3))
            case "barrier":
                return Barrier()
            case "invoke":
                places = tuple(
                    self.load(self.buffers[0], 1) for _ in range(self.draw(st.integers(0, 2)))
                )
                values = (self.index(),) if self.draw(st.booleans()) else ()
                return Invoke(self.draw(PROCEDURE_KINDS), "odd name", places, values)
            case "for":
                kind = self.draw(st.sampled_from(ForKind))
                thread = self.draw(st.sampled_from(Thread)) if kind is ForKind.BOUND else None
                extent, var = self.index(), TirVar(self.draw(NAMES))
                return For(var, extent, kind, self.inside(self.vars, var, depth), thread)
            case "if":
                condition = self.expr(DType.BOOL, 1, 2)
                orelse = self.stmt(depth - 1) if self.draw(st.booleans()) else None
                return IfStmt(condition, self.stmt(depth - 1), orelse)
            case "seq":
                parts = [self.stmt(depth - 1) for _ in range(self.draw(st.integers(1, 3)))]
                again = parts[:1] if self.draw(st.booleans()) else []
                return Seq((*parts, *again))
            case "allocate":
                scope = self.draw(
                    st.sampled_from([MemoryScope.STACK, MemoryScope.SHARED, MemoryScope.REGISTER])
                )
                buffer = Buffer(self.draw(NAMES), (4,), self.draw(st.sampled_from(DType)), scope)
                return Allocate(buffer, self.inside(self.buffers, buffer, depth))
            case "let":
                dtype, lanes = self.draw(st.sampled_from([(F32, 1), (F32, 4), (INDEX, 1)]))
                value = self.expr(dtype, lanes, 2)
                var = TirVar(self.draw(NAMES), dtype, lanes)
                return LetStmt(var, value, self.inside(self.vars, var, depth))
            case _:
                return Seq(())

    def inside(self, visible: list, made: Buffer | TirVar, depth: int) -> Stmt:
        visible.append(made)
        body = self.stmt(depth - 1)
        visible.pop()
        return body


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_every_program_is_read_back(data: st.DataObject):
    roundtrip(Programs(data).func())


def test_shared_expressions_are_printed_once():
    x = Buffer("x", (8,), F32)
    value: PrimExpr = Load(x, (IntImm(0),), F32, 1)
    for _ in range(300):
        value = Binary(BinaryOp.ADD, value, value, F32, 1)
    func = PrimFunc("f", (x,), 1, Store(x, (IntImm(1),), value))
    text = print_func(func)
    assert len(text) < 12_000
    again = roundtrip(func)
    assert isinstance(again.body, Store)


def test_a_long_chain_does_not_recurse():
    x = Buffer("x", (8,), F32)
    value: PrimExpr = Load(x, (IntImm(0),), F32, 1)
    for number in range(5_000):
        value = Binary(
            BinaryOp.ADD, FloatImm(float(number)), intrinsic(Intrinsic.ABS, value), F32, 1
        )
    text = print_func(PrimFunc("f", (x,), 1, Store(x, (IntImm(1),), value)))
    assert len(text) < 100_000
    assert print_func(parse_func(text)) == text
    deep = f"def f(x: float32[8] out):\n  x[0] = {'abs((' * 5000}x[1]{'))' * 5000}\n"
    assert isinstance(parse_func(deep).body, Store)


def test_a_declaration_in_the_middle_has_a_block_of_its_own():
    text = """\
def f(x: float32[2] out):
  let a = 1.0:
    t: float32[1] stack
    t[0] = a
    x[0] = t[0]
  let a = 1.0:
    x[1] = a
  x[0] = 2.0
"""
    func = parse_func(text)
    verify_func(func)
    assert print_func(func) == text
    assert isinstance(func.body, Seq)
    first, second, _ = func.body.body
    assert isinstance(first, LetStmt)
    assert isinstance(second, LetStmt)
    assert first.var is second.var


def test_operators_bind_as_in_python():
    text = """\
# people write fewer brackets
def f(x: bool[9] out):
  for i in serial(9):
    x[i] = i + 1 * 2 - 3 < -i0 | true  # not an index
"""
    with pytest.raises(ParseError, match="expected an expression, found '-'"):
        parse_func(text)
    func = parse_func(text.replace("-i0 | true", "i << 1 & 7 ^ 1"))
    want = "x[i] = ((i + (1 * 2)) - 3) < (((i << 1) & 7) ^ 1)"
    assert want in print_func(func)
    assert parse_funcs("# nothing\n") == ()


HEAD = "def f(x: float32[4, 8], y: float32[8] out):\n  "
BODY = HEAD + "for i in serial(8):\n    "
WRONG = [
    ("", "", "expected one kernel, found 0"),
    ("fed f():", "line 1, column 1", "expected 'def', found 'fed'"),
    ("procedure f():\n  pass", "", "expected one kernel, found 0"),
    ("procedure f():\n  pass\nprocedure f():\n  pass", "line 3", "'f' is defined twice"),
    ("def f(x: float33[4]):", "column 10", "expected an element type, found 'float33'"),
    ("def f(x: float32[n]):", "column 18", "expected a whole number, found 'n'"),
    ("def f(x: int8[4] out, y: int8[4]):", "column 23", "inputs, then outputs"),
    ("def f(x: int8[4], x: int8[4]):", "column 19", "'x' is defined twice"),
    ("def f(x: int8[4]) -> y:", "column 19", "expected ':', found '-'"),
    ("def f(): pass", "line 1, column 10", "expected the end of the line, found 'pass'"),
    ("def f():\npass", "line 2, column 1", "stands deeper than the line before"),
    ("def f():\n", "line 2, column 1", "stands deeper than the line before"),
    (HEAD + "pass pass", "line 2, column 8", "expected the end of the line"),
    (HEAD + "pass\n   pass", "line 3, column 4", "aligned with no block"),
    (BODY + "pass\n   pass", "line 4, column 4", "aligned with no block"),
    (BODY + "pass\n pass", "line 4, column 2", "expected 'def', found 'pass'"),
    (HEAD + "for i in sequel(8):", "line 2, column 12", "how the loop runs, found 'sequel'"),
    (HEAD + "for for in serial(8):", "column 7", "expected the name of a loop variable"),
    (HEAD + "for i in serial(8)", "column", "expected ':', found the end of the text"),
    (HEAD + "for i in serial(8:", "column 20", "expected ')', found ':'"),
    (HEAD + "y[0] = z", "line 2, column 10", "'z' is not defined"),
    (HEAD + "y[0] = x", "column 10", "'x' is a buffer"),
    (HEAD + "y[0] = $0", "column 10", "'$0' is not defined on a line before"),
    (BODY + "y[i] = i[0]", "line 3, column 12", "'i' is a variable, not a buffer"),
    (BODY + "pass\n  y[i] = 1.0", "line 4, column 5", "'i' is not visible here"),
    (BODY + "for i in serial(2):\n      pass", "line 3, column 9", "'i' is defined twice"),
    (HEAD + "y[0] = x[0]", "column 10", "1 indices for 'x' of rank 2"),
    (HEAD + "y[0] = x[0, 0", "column", "expected ',' or ']', found the end of the text"),
    (HEAD + "y[0] = (x[0, 0] x[0, 0])", "column 19", "expected ',' or ')', found 'x'"),
    (HEAD + "y[0] = 1", "column 8", "int64 of 1 lanes goes into float32 of 1"),
    (HEAD + "y[0] = broadcast(1.0, 4)", "column 8", "float32 of 4 lanes goes into"),
    (HEAD + "y[0] = x[0, 0] + 1", "column 18", "operands of '+' are float32 and int64"),
    (HEAD + "y[0] = 1.0 + 1.0:float32x4", "column 14", "have 1 and 4 lanes"),
    (HEAD + "y[0] = 1.5:int8", "column 10", "'1.5' is no value of int8"),
    (HEAD + "y[0] = 1.5:float32x1", "column 14", "expected an element type"),
    (HEAD + "y[0] = min(1.0)", "column 10", "'min' takes 2 operands, not 1"),
    (HEAD + "y[0] = pow(1.0, 2)", "column 10", "the operands of 'pow' differ in type"),
    (HEAD + "y[0] = select(1.0, 2.0, 3.0)", "column 10", "condition of 'select' is float32"),
    (HEAD + "y[0] = select(true, 2, 3.0)", "column 10", "sides of 'select' differ in type"),
    (HEAD + "y[ramp(0, 1.0, 4)] = 1.0", "column 5", "lanes of 'ramp' are whole numbers"),
    (HEAD + "y[0] = reduce_lanes[?](1.0)", "column 23", "unexpected character '?'"),
    (HEAD + "y[0] = reduce_lanes[x](1.0)", "column 23", "expected an operator such as +"),
    (HEAD + "y[0] = loops::f:float32()", "column 10", "'f' of 'loops' has no arguments"),
    (HEAD + "y[0] = expo(1.0)", "column 10", "no function is called 'expo'"),
    (HEAD + "y[0] = ()", "column 10", "'(' takes 1 operands, not 0"),
    (HEAD + "y[0] =", "column", "expected an expression, found the end of the text"),
    (HEAD + '"y\\q"[0] = 1.0', "column 3", "bad string literal"),
    (HEAD + "min(1.0, 2.0) = 1.0", "column 3", "begins with an element of a buffer"),
    (HEAD + "let a = 1.0", "column 7", "no statement follows 'a'"),
    (HEAD + "t: float32[8] global\n  pass", "column 17", "expected register, shared, stack"),
    (HEAD + "loops::f(1, &y[0])", "column 15", "come before values"),
    (HEAD + "loops::f(&1)", "column 12", "places are elements of buffers"),
]


@pytest.mark.parametrize(("text", "where", "message"), WRONG, ids=range(len(WRONG)))
def test_wrong_text_is_told_where_it_is_wrong(text: str, where: str, message: str):
    with pytest.raises(ParseError) as caught:
        parse_func(text)
    assert message in caught.value.message
    assert where in caught.value.where


def test_too_many_blocks_are_refused():
    lines = [f"{' ' * n}if true:" for n in range(1, 150)]
    with pytest.raises(ParseError, match="more than 100 blocks in blocks"):
        parse_func("\n".join(["def f():", *lines]))


def test_near_misses_are_named():
    with pytest.raises(ParseError) as caught:
        parse_func("def f(data: int8[1]):\n  dat[0] = 1:int8")
    assert caught.value.hint == "did you mean 'data'?"


@given(text=st.text(alphabet='procedure def f():\n  x[0]=1.5+min,::$&#"%-<>|let ifor', max_size=60))
def test_any_text_is_read_or_refused(text: str):
    with suppress(ParseError):
        for func in parse_funcs(text):
            roundtrip(func)
