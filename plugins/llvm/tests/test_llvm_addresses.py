# SPDX-License-Identifier: Apache-2.0
"""Where elements lie, and that a block reads each of them once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import INDEX, IntImm, PrimExpr, TirVar, index, minimum, size_variable
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.module import TensorModule
from intarsia_ir.tir.passes.vectorize import vectorize
from intarsia_ir.tir.stmt import Allocate, IfStmt, LetStmt
from intarsia_ir.tir.walk import substitute
from intarsia_llvm.codegen import llvm_text
from intarsia_llvm.emit.positions import position
from intarsia_llvm.emit.scheduled import is_scheduled
from intarsia_llvm.optimize import SCHEDULED
from intarsia_llvm.target import LlvmOptions
from intarsia_loops.cpu.loops import load, parallel, seq, serial, store, unrolled, vectorized
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import variable

ROW, COLUMN = TirVar("i"), TirVar("j")


def whole_text_of(function: PrimFunc) -> str:
    module = TensorModule((function,), CallPlan((), (), (), (), 0, ()))
    return llvm_text(module, LlvmOptions(mtriple="x86_64-unknown-linux-gnu", mcpu="haswell"))


def text_of(function: PrimFunc) -> str:
    whole = whole_text_of(function)
    start = whole.index(f"void @{function.name}(")
    return whole[start : whole.index("}", start)]


def agree(load_module, function: PrimFunc, *inputs: np.ndarray) -> None:
    """Compare machine code with the interpreter."""
    shape = function.params[-1].shape
    want, got = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    run(function, *inputs, want)
    load_module([function]).get_function(function.name)(*inputs, got)
    np.testing.assert_array_equal(got, want)


def rows_of_three(width: int) -> PrimFunc:
    """Copy the first three of the elements of each row."""
    a, b = Buffer("a", (4, width), DType.FLOAT32), Buffer("b", (12,), DType.FLOAT32)
    loop = serial(12, lambda i: store(b, (i,), load(a, i // 3, i % 3)))
    return PrimFunc("rows", (a, b), 1, loop)


def test_rows_without_gaps_are_one_row(load_module) -> None:
    assert "udiv i64" not in text_of(rows_of_three(3))
    agree(load_module, rows_of_three(3), np.arange(12, dtype=np.float32).reshape(4, 3))


def test_rows_with_gaps_are_not(load_module) -> None:
    assert "udiv i64" in text_of(rows_of_three(5))
    agree(load_module, rows_of_three(5), np.arange(20, dtype=np.float32).reshape(4, 5))


def index_of(size: int, draw: st.DrawFn) -> PrimExpr:
    """An index that is at least 0, made of sums, quotients and remainders of two variables."""
    whole = (
        ROW * draw(st.integers(0, 9)) + COLUMN * draw(st.integers(0, 9)) + draw(st.integers(0, 9))
    )
    quotient = whole // draw(st.sampled_from([1, 2, 3, 4, 6, 12]))
    return draw(st.sampled_from([whole, quotient, quotient % size, whole % size, IntImm(0)]))


@st.composite
def places(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[PrimExpr, ...]]:
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 12]), min_size=1, max_size=4)))
    return shape, tuple(index_of(size, draw) for size in shape)


@settings(deadline=None)  # other work shares the machine
@given(places(), st.integers(0, 40), st.integers(0, 40))
def test_a_position_is_the_sum_of_its_parts(place, i: int, j: int) -> None:
    shape, indices = place

    def at(expr: PrimExpr) -> int:
        number = substitute(expr, {ROW: IntImm(i), COLUMN: IntImm(j)})
        return _number(number)

    want = 0
    for size, one in zip(shape, indices, strict=True):
        want = want * size + at(one)
    found = position(shape, indices)
    assert found.constant + sum(at(part) * factor for part, factor in found.parts) == want


def test_a_remainder_that_is_added_twice_stays_once() -> None:
    rest = ROW % 3
    found = position((16,), (rest + ROW // 3 * 3 + rest,))
    assert (found.constant, set(found.parts)) == (0, {(ROW, 1), (rest, 1)})


def _number(expr: PrimExpr) -> int:
    if isinstance(expr, IntImm):
        return expr.value
    a, b = _number(expr.a), _number(expr.b)
    return {"+": a + b, "*": a * b, "//": a // (b or 1), "%": a % (b or 1)}[expr.op.value]


def squares() -> PrimFunc:
    """Write the square of an element twice, and of what was written the square again."""
    a, b = Buffer("a", (4,), DType.FLOAT32), Buffer("b", (3, 4), DType.FLOAT32)

    def body(i: PrimExpr):
        return seq(
            store(b, (0, i), load(a, i) * load(a, i)),
            store(b, (1, i), load(a, i) * load(a, i)),
            store(b, (2, i), load(b, 0, i) * load(b, 1, i)),
            store(b, (0, i), load(b, 2, i) + load(a, i)),
            store(b, (1, i), load(b, 0, i) + load(b, 2, i)),
        )

    return PrimFunc("squares", (a, b), 1, serial(4, body))


def test_a_block_reads_an_element_once_until_its_buffer_is_written(load_module) -> None:
    text = text_of(squares())
    assert text.count("load float") == 6  # a; b 0 and 1; b 2; b 0 and 2
    agree(load_module, squares(), np.arange(4, dtype=np.float32))


def test_what_threads_wrote_is_read_again(load_module) -> None:
    """The loop is a function of its own: its call ends no block."""
    a, b, c = (Buffer(name, (20_000,), DType.FLOAT32) for name in "abc")
    body = seq(
        store(b, (7,), load(a, 0)),
        store(c, (1,), load(b, 7)),
        parallel(20_000, lambda i: store(b, (i,), load(a, i))),
        store(c, (2,), load(b, 7)),
    )
    function = PrimFunc("shared", (a, c), 1, Allocate(b, body))
    text = text_of(function)
    assert "@intarsia.parallel(" in text
    agree(load_module, function, np.arange(20_000, dtype=np.float32))


def product(into: MemoryScope) -> PrimFunc:
    """The product of a matrix and a vector, summed up in a register or in memory."""
    a, x = Buffer("a", (3, 5), DType.FLOAT32), Buffer("x", (5,), DType.FLOAT32)
    y, cell = Buffer("y", (3,), DType.FLOAT32), Buffer("sum", (1,), DType.FLOAT32, into)

    def row(i: PrimExpr):
        def add(k: PrimExpr):
            return unrolled(
                1, lambda u: store(cell, (u,), load(cell, u) + load(a, i, k) * load(x, k))
            )

        body = seq(store(cell, (0,), IntImm(0).value * load(x, 0)), serial(5, add))
        return Allocate(cell, seq(body, store(y, (i,), load(cell, 0))))

    return PrimFunc("product", (a, x, y), 1, serial(3, row))


@pytest.mark.parametrize(("into", "opaque"), [(MemoryScope.REGISTER, 2), (MemoryScope.STACK, 0)])
def test_sums_in_registers_start_at_pointers_of_unknown_origin(
    load_module, into: MemoryScope, opaque: int
) -> None:
    assert text_of(product(into)).count('call ptr asm ""') == opaque
    drawn = np.random.default_rng(0)
    a, x = (drawn.integers(-9, 9, size).astype(np.float32) for size in ((3, 5), 5))
    agree(load_module, product(into), a, x)


def copy_rows(inside: PrimExpr | None = None) -> PrimFunc:
    """Copy every second row; where something is tested, inside a branch."""
    a, b = Buffer("a", (6, 5), DType.FLOAT32), Buffer("b", (3, 5), DType.FLOAT32)

    def row(i: PrimExpr):
        def column(j: PrimExpr):
            one = store(b, (i, j), load(a, i * 2, j))
            return one if inside is None else IfStmt(i < inside, one)

        return serial(5, column)

    return PrimFunc("rows", (a, b), 1, serial(3, row))


def test_what_does_not_change_in_a_loop_stands_before_it(load_module) -> None:
    inner = text_of(copy_rows()).split("\nb")[2]
    assert inner.count("mul") == 1  # of the column, which gives both addresses
    assert inner.count("getelementptr") == 2
    agree(load_module, copy_rows(), np.arange(30, dtype=np.float32).reshape(6, 5))


def test_what_a_branch_computes_stays_in_it(load_module) -> None:
    function = copy_rows(inside=IntImm(2))
    branch = text_of(function).split("br i1")[1]
    assert branch.count("mul") == 3
    agree(load_module, function, np.arange(30, dtype=np.float32).reshape(6, 5))


@pytest.mark.parametrize(
    ("body", "known"),
    [
        (lambda b: serial(8, lambda i: store(b, (i,), IntImm(1).value * load(b, i))), False),
        (lambda b: serial(4, lambda i: store(b, (i,), load(b, i))), True),
        (lambda b: vectorized(8, lambda i: store(b, (i,), load(b, i))), True),
        (lambda b: unrolled(8, lambda i: store(b, (i,), load(b, i))), True),
        (
            lambda b: serial(
                2, lambda i: vectorized(4, lambda j: store(b, (i * 4 + j,), load(b, j)))
            ),
            True,
        ),
        (
            lambda b: serial(
                8,
                lambda i: seq(
                    store(b, (i,), load(b, 0)), serial(3, lambda j: store(b, (j,), load(b, i)))
                ),
            ),
            True,
        ),
    ],
)
def test_loops_over_single_elements_are_llvms(body, known: bool) -> None:
    buffer = Buffer("b", (8,), DType.FLOAT32)
    function = PrimFunc("f", (buffer,), 1, body(buffer))
    assert is_scheduled(vectorize(function)) is known
    assert (SCHEDULED in whole_text_of(function)) is known


@pytest.mark.parametrize(("dtype", "known"), [(DType.BOOL, True), (DType.INT32, False)])
def test_whether_all_are_true_is_no_loop_for_llvm(dtype: DType, known: bool) -> None:
    given, total = Buffer("given", (99,), dtype), Buffer("total", (1,), dtype, MemoryScope.STACK)
    loop = serial(99, lambda i: store(total, (0,), minimum(load(total, 0), load(given, i))))
    assert is_scheduled(PrimFunc("f", (given,), 1, Allocate(total, loop))) is known


@pytest.mark.parametrize(("most", "known"), [(31, True), (32, False)])
def test_a_loop_of_fewer_elements_than_a_block_has_is_a_remainder(most: int, known: bool) -> None:
    buffer, few = Buffer("b", (8,), DType.FLOAT32), TirVar("few")
    loop = serial(few, lambda i: store(buffer, (i,), load(buffer, i)))
    body = LetStmt(few, minimum(index(variable("N")), most), loop)
    function = PrimFunc("f", (buffer,), 1, body, sizes=(size_variable("N"),))
    assert is_scheduled(function) is known


def test_positions_that_a_loop_steps_on_are_no_elements() -> None:
    buffer = Buffer("b", (8,), DType.FLOAT32)
    cursor = Buffer("cursor", (1,), INDEX, MemoryScope.REGISTER)
    body = serial(8, lambda i: store(cursor, (0,), i))
    assert is_scheduled(PrimFunc("f", (buffer,), 1, Allocate(cursor, body)))


@pytest.mark.parametrize(("dtype", "known"), [(DType.FLOAT32, True), (DType.INT32, False)])
def test_a_sum_of_floats_has_an_order(dtype: DType, known: bool) -> None:
    buffer = Buffer("b", (8,), dtype)
    total = Buffer("total", (1,), dtype, MemoryScope.REGISTER)
    body = serial(8, lambda i: store(total, (0,), load(total, 0) + load(buffer, i)))
    assert is_scheduled(PrimFunc("f", (buffer,), 1, Allocate(total, body))) is known


def test_copies_that_are_written_out_stay_as_they_are() -> None:
    buffer = Buffer("b", (64,), DType.FLOAT32)

    def some(part: PrimExpr):
        return unrolled(8, lambda u: store(buffer, (part * 8 + u,), load(buffer, (part + u) * 2)))

    assert is_scheduled(PrimFunc("f", (buffer,), 1, serial(8, some)))


@pytest.mark.parametrize(("lanes", "hidden"), [(4, 2), (1, 0)])
def test_neighbours_in_scheduled_loops_have_one_origin(
    load_module, lanes: int, hidden: int
) -> None:
    """Three rows are copied side by side: a pointer for each buffer; LLVM's own loops have none."""
    a, b = (Buffer(name, (3, 8 * lanes), DType.FLOAT32) for name in "ab")

    def column(i: PrimExpr):
        def element(row: PrimExpr, j: PrimExpr):
            return store(b, (row, i * lanes + j), load(a, row, i * lanes + j))

        if lanes == 1:
            return seq(*(element(IntImm(row), IntImm(0)) for row in range(3)))
        return unrolled(3, lambda row: vectorized(lanes, lambda j: element(row, j)))

    function = PrimFunc("rows", (a, b), 1, serial(8, column))
    assert text_of(function).count("freeze ptr") == hidden
    agree(load_module, function, np.arange(24 * lanes, dtype=np.float32).reshape(a.shape))
