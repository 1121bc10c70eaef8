# SPDX-License-Identifier: Apache-2.0
"""Calls of control flow: what does not fit is refused, and passes work on bodies."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import Constant, Function, Var, call, constant, get_item, make_tuple
from intarsia_ir.graph.guards import Guard
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.outline import outline
from intarsia_ir.graph.text import parse_module, print_module
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.graph.verify import verify
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.control import CONTROL, SIZE, If, Loop, flat_guards, guards_of
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.specialize_bodies import specialize_bodies
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError, VerifyError

ALL = {**OPERATORS, **CONTROL}
F3 = TensorType((3,), DType.FLOAT32)
I64 = TensorType((), DType.INT64)
N = variable("n")

BRANCHES = """
def @main(%c: Tensor[(), bool], %x: Tensor[(3,), float32]) -> Tensor[(3,), float32] {
  %0 = control.if(%c, %x, then="p", orelse="q", results=(Tensor[(3,), float32],));
  %1 = %0[0];
  %1
}

def @p(%a: Tensor[(3,), float32]) -> (Tensor[(3,), float32],) {
  %0 = sin(%a);
  (%0,)
}

def @q(%b: Tensor[(3,), float32]) -> (Tensor[(3,), float32],) {
  %0 = cos(%b);
  (%0,)
}
"""

LOOP = """
def @main(%k: Tensor[(), int64], %x: Tensor[(3,), float32]) -> Tensor[(3,), float32] {
  %0 = control.loop(%k, %x, body="b", results=(Tensor[(3,), float32],), carried=1, has_trip=True);
  %1 = %0[0];
  %1
}

def @b(%a: Tensor[(3,), float32]) -> (Tensor[(3,), float32],) {
  %0 = sin(%a);
  (%0,)
}
"""


def read(text: str) -> IRModule:
    return parse_module(text, operators=ALL)


@pytest.mark.parametrize("text", [BRANCHES, LOOP])
def test_the_text_reads_back(text: str) -> None:
    module = read(text)
    verify(module)
    assert print_module(module).strip() == text.strip()


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (BRANCHES, 'then="p"', 'then="r"', "no function '@r'"),
        (BRANCHES, "@q(%b: Tensor[(3,)", "@q(%b: Tensor[(4,)", r"'@q' takes .*gives"),
        (BRANCHES, "control.if(%c, %x,", "control.if(%c,", r"'@p' takes"),
        (LOOP, 'body="b"', 'body="main"', "takes|calls itself"),
    ],
)
def test_functions_that_do_not_fit_a_call_are_refused(
    text: str, old: str, new: str, message: str
) -> None:
    text = text.replace(old, new)
    if "(4,)" in new:
        text = text.replace(
            "-> (Tensor[(3,), float32],) {\n  %0 = cos", "-> (Tensor[(4,), float32],) {\n  %0 = cos"
        )
    with pytest.raises(VerifyError, match=message):
        verify(read(text))


def test_results_that_do_not_fit_are_refused() -> None:
    text = BRANCHES.replace("%0 = cos(%b);\n  (%0,)", "%0 = cos(%b);\n  (%0, %0)")
    text = text.replace(
        "@q(%b: Tensor[(3,), float32]) -> (",
        "@q(%b: Tensor[(3,), float32]) -> (Tensor[(3,), float32], ",
    )
    text = text.replace(
        "(Tensor[(3,), float32], Tensor[(3,), float32],)",
        "(Tensor[(3,), float32], Tensor[(3,), float32])",
    )
    with pytest.raises(VerifyError, match="'@q' gives"):
        verify(read(text))


X, C, K = Var("x", F3), Var("c", TensorType((), DType.BOOL)), Var("k", TensorType((), DType.INT64))
ROWS = Var("r", TensorType((5, 3), DType.FLOAT32))


def test_a_call_states_what_its_operands_allow() -> None:
    with pytest.raises(TypeRuleError, match="not one bool"):
        call(If, X, attrs=If.Attrs(then="p", orelse="q", results=()))
    with pytest.raises(TypeRuleError, match="is no size variable"):
        call(If, C, attrs=If.Attrs(then="p", orelse="q", results=(SIZE,), sizes=(3,)))
    sized = If.Attrs(then="p", orelse="q", results=(F3,), sizes=(N,))  # type: ignore[arg-type]
    with pytest.raises(TypeRuleError, match="no result is the value of n"):
        call(If, C, attrs=sized)
    with pytest.raises(TypeRuleError, match="needs one int64"):
        call(Loop, X, attrs=Loop.Attrs(body="b", results=(), has_trip=True))
    with pytest.raises(TypeRuleError, match="hands on"):
        call(Loop, X, attrs=Loop.Attrs(body="b", results=(), carried=1))
    unequal = Loop.Attrs(body="b", results=(), iteration_sizes=(N,))  # type: ignore[arg-type]
    with pytest.raises(TypeRuleError, match="sizes in the body"):
        call(Loop, attrs=unequal)
    with pytest.raises(TypeRuleError, match="has no number of iterations"):
        call(Loop, ROWS, attrs=Loop.Attrs(body="b", results=(), sliced=1))
    with pytest.raises(TypeRuleError, match="has not 4 slices"):
        call(Loop, ROWS, attrs=Loop.Attrs(body="b", results=(), sliced=1, most=4))


def test_a_known_condition_puts_a_branch_in() -> None:
    module = read(BRANCHES.replace("control.if(%c,", "control.if(const(False, bool),"))
    found = specialize_bodies(module, Remarks())
    assert [*found.functions] == ["main"]
    assert "cos" in print_module(found)


def test_a_loop_of_constants_is_computed() -> None:
    text = LOOP.replace("%k, %x,", "const(3, int64), const([0.5, 1.0, 2.0], float32),")
    found = specialize_bodies(read(text), Remarks())
    assert [*found.functions] == ["main"]
    (value,) = found.main.outputs
    assert isinstance(value, Constant)
    wanted = np.sin(np.sin(np.sin(np.float32([0.5, 1, 2]))))
    np.testing.assert_allclose(value.data, wanted, rtol=1e-6)


def test_a_loop_of_constants_over_an_open_size_stays() -> None:
    text = LOOP.replace("%k, %x,", "const([0.5, 1.0, 2.0], float32),").replace(
        "has_trip=True", "most=`N`"
    )
    found = specialize_bodies(read(text), Remarks())
    assert [*found.functions] == ["main", "b"]


CONSTANTS = (
    LOOP.replace("%k, %x,", "%k, %x, const([1.0, 2.0, 3.0], float32), %x, %x, %k,")
    .replace(
        "%a: Tensor[(3,), float32])", f"{', '.join(f'%{n}: {F3}' for n in 'awst')}, %u: {I64})"
    )
    .replace("sin(%a)", "add(%a, %w);\n  %1 = add(%s, %t);\n  %2 = add(%0, %1)")
    .replace("(%0,)", "(%2,)")
)


def test_constants_move_into_bodies_and_unused_operands_go() -> None:
    found = specialize_bodies(read(CONSTANTS), Remarks())
    verify(found)
    (body,) = [f for name, f in found.functions.items() if name != "main"]
    assert [param.name for param in body.params] == ["a", "s"]
    assert "const([1.0, 2.0, 3.0], float32)" in print_module(found)


def test_a_function_of_two_calls_is_kept_for_the_other() -> None:
    text = BRANCHES.replace(
        "  %1 = %0[0];\n  %1\n",
        '  %1 = control.if(%c, const([1.0, 2.0, 3.0], float32), then="p", orelse="q", '
        "results=(Tensor[(3,), float32],));\n  %2 = %0[0];\n  %3 = %1[0];\n"
        "  %4 = add(%2, %3);\n  %4\n",
    )
    found = specialize_bodies(read(text), Remarks())
    verify(found)
    assert len(found.functions) == 5


def test_what_does_not_vary_stays_outside_of_a_loop() -> None:
    state, outer = Var("s", F3), Var("o", F3)
    fixed = call(OPERATORS["sin"], outer)
    again = call(OPERATORS["add"], state, call(OPERATORS["cos"], fixed))
    made = outline([state], [again], outside={outer}, hoist=True)
    assert [value.name for value in made.captured if hasattr(value, "name")] == ["cos"]
    inside = outline([state], [again], outside={outer}, hoist=False)
    assert inside.captured == (outer,)
    weight = constant(np.float32([1, 2, 3]))
    scaled = outline([state], [call(OPERATORS["multiply"], state, weight)], outside=(), hoist=True)
    assert not scaled.captured


def test_names_of_captured_values_are_unique() -> None:
    state, outer = Var("s", F3), Var("s", F3)
    made = outline([state], [call(OPERATORS["add"], state, outer)], outside=(), hoist=False)
    assert [param.name for param in made.function.params] == ["s", "s_2"]


def test_guards_are_attributes() -> None:
    guards = (Guard(N, 3, "why"), Guard(N * 2, N, "other"))
    assert guards_of(flat_guards(guards)) == guards


def test_fields_of_a_call_are_tensors() -> None:
    module = read(BRANCHES)
    (value,) = module.main.outputs
    assert value.type == F3
    function = Function((X,), make_tuple([get_item(make_tuple([X]), 0)]))
    assert function.outputs == (X,)
