# SPDX-License-Identifier: Apache-2.0
"""Walking, rewriting and printing loop IR."""

from __future__ import annotations

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    Binary,
    BinaryOp,
    Broadcast,
    CallTarget,
    FloatImm,
    IfThenElse,
    IntImm,
    Load,
    Ramp,
    ReduceLanes,
    Select,
    TirVar,
    binary,
    cast,
    const,
    equal,
    intrinsic,
    select,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.stmt import Allocate, For, ForKind, IfStmt, LetStmt, Seq, Store
from intarsia_ir.tir.tensor import ArgReduction, compute, max_over, placeholder, reduce_axis
from intarsia_ir.tir.text.print import print_expr, print_func, print_tensor
from intarsia_ir.tir.walk import (
    post_order,
    reads,
    rewrite,
    rewrite_stmt,
    statements,
    substitute,
    substitute_stmt,
    tensors,
    variables,
)
from intarsia_runtime.dtype import DType

F32 = DType.FLOAT32
ROW, J = TirVar("i"), TirVar("j")
X = Buffer("x", (8, 8), F32)
AT = Load(X, (ROW, J), F32, 1)


def test_shared_nodes_are_visited_and_rewritten_once():
    value = AT
    for _ in range(200):
        value = value + value
    assert sum(1 for _ in post_order(value)) == 203
    changed = substitute(value, {ROW: IntImm(3)})
    assert sum(1 for _ in post_order(changed)) == 203
    assert variables(changed) == {J}


def test_nothing_changed_is_the_same_object():
    value = AT + 1.0
    assert substitute(value, {TirVar("k"): IntImm(0)}) is value
    assert substitute(value, {}) is value
    stmt = For(ROW, IntImm(2), ForKind.SERIAL, Store(X, (ROW, ROW), value))
    assert rewrite_stmt(stmt, lambda _: None) is stmt


def test_a_vector_for_a_variable_makes_vectors():
    lanes = Ramp(IntImm(0), 1, 4)
    value = select(AT < 0.0, intrinsic(Intrinsic.POW, AT, const(2.0, F32)), cast(J, F32))
    wide = substitute(value, {J: lanes})
    assert isinstance(wide, Select)
    assert {wide.lanes, wide.a.lanes, wide.b.lanes, wide.condition.lanes} == {4}
    guarded = IfThenElse(ROW < 2, AT, FloatImm(0.0), F32, 1)
    wide = substitute(guarded, {J: lanes})
    assert print_expr(wide) == "if_then_else(i < 2, x[i, ramp(0, 1, 4)], broadcast(0.0, 4))"
    same = substitute(IfThenElse(J < 2, AT, FloatImm(0.0), F32, 1), {J: lanes})
    assert isinstance(same, IfThenElse)
    assert same.condition.lanes == same.b.lanes == 4


def test_rewrites_bottom_up():
    def double(node):
        return FloatImm(node.value * 2) if isinstance(node, FloatImm) else None

    parts = (
        Broadcast(AT + 1.0, 4, F32),
        CallTarget("k", "f", (AT, FloatImm(3.0)), F32, 1),
        ReduceLanes(BinaryOp.ADD, Broadcast(FloatImm(1.0), 4, F32), F32),
        Ramp(ROW + 1, 2, 4),
    )
    got = [print_expr(rewrite(part, double)) for part in parts]
    assert got == [
        "broadcast(x[i, j] + 2.0, 4)",
        "k::f:float32(x[i, j], 6.0)",
        "reduce_lanes[+](broadcast(2.0, 4))",
        "ramp(i + 1, 2, 4)",
    ]
    assert print_expr(substitute(parts[3], {ROW: IntImm(4)})) == "ramp(5, 2, 4)"


def kernel() -> PrimFunc:
    """One of every statement."""
    t, n = Buffer("t", (2,), F32, MemoryScope.STACK), TirVar("i")
    branch = IfStmt(
        ROW < 4, Store(t, (IntImm(0),), AT), Seq((Store(t, (IntImm(1),), FloatImm(0.5)),))
    )
    plain = IfStmt(equal(ROW, 0), Seq(()))
    let = LetStmt(n, ROW * 2, Store(X, (n, IntImm(0)), Load(t, (IntImm(0),), F32, 1)))
    inner = For(J, IntImm(8), ForKind.UNROLLED, Seq((branch, plain, let)))
    y = Buffer("s", (1,), DType.BOOL)
    return PrimFunc("f", (X, y), 1, For(ROW, IntImm(8), ForKind.PARALLEL, Allocate(t, inner)), 1)


def test_prints_every_statement():
    assert (
        print_func(kernel())
        == """\
def f(x: float32[8, 8] out, s: bool[1] scratch):
  for i in parallel(8):
    t: float32[2] stack
    for j in unrolled(8):
      if i < 4:
        t[0] = x[i, j]
      else:
        t[1] = 0.5
      if i == 0:
        pass
      let i_1 = i * 2
      x[i_1, 0] = t[0]
"""
    )


def test_rewrites_every_statement():
    other = TirVar("other")
    body = substitute_stmt(kernel().body, {ROW: other, J: IntImm(1)})
    text = print_func(PrimFunc("f", (X,), 1, body))
    assert "t[0] = x[other, 1]" in text
    assert "let i_1 = other * 2" in text
    assert sum(1 for _ in statements(body)) == sum(1 for _ in statements(kernel().body)) == 12


def test_prints_tensor_expressions():
    x, k = placeholder("x", (4, 8), F32), reduce_axis(8)
    top = compute((4,), lambda i: max_over(x[i, k.var], [k]), name="top")
    low = compute((4,), lambda i: ArgReduction(False, x[i, k.var], k, last=True), name="low")
    sums = compute((4,), lambda i: top[i] + cast(low[i], F32), name="sums")
    assert (
        print_tensor(sums)
        == """\
x: float32[4, 8]
top[i0]: float32[4] = reduce[max](x[i0, k], k<8, -inf)
low[i0_1]: int64[4] = argmin_last(x[i0_1, k], k<8)
sums[i0_2]: float32[4] = top[i0_2] + float32(low[i0_2])
"""
    )
    assert reads(sums) == (top, low)
    assert list(tensors(sums)) == [x, top, low, sums]


def test_prints_numbers_with_their_type():
    assert print_expr(const(1, DType.UINT8)) == "1:uint8"
    assert print_expr(const(1, DType.BOOL)) == "true"
    assert print_expr(FloatImm(0.5, DType.FLOAT64)) == "0.5:float64"
    assert print_expr(FloatImm(0.5, F32, 4)) == "0.5:float32x4"
    nested = Binary(BinaryOp.MUL, AT + 1.0, binary(BinaryOp.MIN, AT, AT), F32, 1)
    assert print_expr(nested) == "(x[i, j] + 1.0) * min(x[i, j], x[i, j])"
    assert print_expr(intrinsic(Intrinsic.EXP, AT)) == "exp(x[i, j])"
