# SPDX-License-Identifier: Apache-2.0
"""Values that loops append to get room for more rows than they have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.text import parse_module, print_module
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.control import CONTROL
from intarsia_ir.ops.evaluate import evaluate
from intarsia_loops.append_rows import AppendRows
from intarsia_loops.reserve_rows import reserve_rows
from intarsia_runtime.errors import TypeRuleError

LOOP = """
def @main(%x: Tensor[(2, 3), float32], %t: Tensor[(), int64]) -> Tensor[("y#1", 3), float32] {
  %0 = control.loop(%t, const([2], int64), %x, %x, body="body", results=(Tensor[(1,), int64],
    Tensor[("y#1", 3), float32]), carried=2, has_trip=True, takes_iteration=True,
    sizes=(`"y#1"`,), iteration_sizes=(`"y#0"`,));
  %1 = %0[1];
  %1
}

def @body(%i: Tensor[(), int64], %"y#0": Tensor[(1,), int64],
    %rows: Tensor[("y#0", 3), float32], %x: Tensor[(2, 3), float32])
    -> (Tensor[(1,), int64], Tensor[(`"y#0" + 2`, 3), float32]) {
  %0 = sizes(sizes=(`"y#0" + 2`,));
  %1 = cast(%i, dtype=float32);
  %2 = multiply(%x, %1);
  %3 = concatenate(%rows, %2, axis=0);
  (%0, %3)
}
"""

RESERVED = """\
def @main(%x: Tensor[(2, 3), float32], %t: Tensor[(), int64]) -> Tensor[("y#1", 3), float32] {
  %0 = const([2], int64);
  %1 = control.loop(%t, %0, %0, %x, %x, body="body", results=(Tensor[(1,), int64], \
Tensor[(1,), int64], Tensor[("y#1 room", 3), float32]), carried=3, has_trip=True, \
takes_iteration=True, sizes=(`"y#1"`, `"y#1 room"`), iteration_sizes=(`"y#0"`, `"y#0 room"`), \
rooms=1);
  %2 = %1[2];
  %3 = strided_slice(%2, begin=(0, 0), end=(`"y#1"`, 3), strides=(1, 1));
  %3
}

def @body(%i: Tensor[(), int64], %"y#0": Tensor[(1,), int64], %"y#0 room": Tensor[(1,), int64], \
%rows: Tensor[("y#0 room", 3), float32], %x: Tensor[(2, 3), float32]) -> (Tensor[(1,), int64], \
Tensor[(1,), int64], Tensor[(`ROOM`, 3), float32]) {
  %0 = sizes(sizes=(`"y#0" + 2`,));
  %1 = sizes(sizes=(`ROOM`,));
  %2 = sizes(sizes=(`OVER`,));
  %3 = cast(%2, dtype=bool);
  %4 = cast(%i, dtype=float32);
  %5 = multiply(%x, %4);
  %6 = append_rows(%rows, %3, %5, axis=0, start=`"y#0"`, room=`ROOM`);
  (%0, %1, %6)
}
""".replace("ROOM", 'max("y#0 room", 12*OVER + 2*OVER*"y#0")').replace(
    "OVER", 'min(1, max("y#0" - "y#0 room" + 2, 0))'
)


def module(text: str) -> IRModule:
    with collecting_guards():
        return parse_module(text, operators={**OPERATORS, **CONTROL})


def reserved(text: str) -> IRModule:
    return IRModule(reserve_rows(module(text).functions))


def test_rows_are_written_behind_the_others_where_there_is_room() -> None:
    assert print_module(reserved(LOOP)) == RESERVED


@pytest.mark.parametrize("trips", [0, 1, 2, 9])
def test_a_loop_gives_the_same_with_room(trips: int) -> None:
    given = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "t": np.array(trips)}
    results = [evaluate(one.main, given, one)[0] for one in (module(LOOP), reserved(LOOP))]
    assert results[0].shape == (2 + 2 * trips, 3)
    np.testing.assert_array_equal(*results)


OTHERS = {
    "rows that come first": LOOP.replace("(%rows, %2, axis", "(%2, %rows, axis"),
    "a value that is read": LOOP.replace("(%x, %1)", "(%x, %1)").replace(
        "%3 = concatenate(%rows, %2, axis=0);\n  (%0, %3)",
        "%3 = concatenate(%rows, %2, axis=0);\n  %4 = negative(%rows);\n"
        "  %5 = sum(%4, axes=(0, 1));\n  %6 = multiply(%2, %5);\n"
        "  %7 = concatenate(%rows, %6, axis=0);\n  (%0, %7)",
    ),
    "rows of a middle dimension": LOOP.replace("(2, 3), float32", "(4, 2, 3), float32")
    .replace('"y#1", 3', '4, "y#1", 3')
    .replace('"y#0", 3', '4, "y#0", 3')
    .replace('`"y#0" + 2`, 3', '4, `"y#0" + 2`, 3')
    .replace("axis=0", "axis=1"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_loops_stay_as_they_are(name: str) -> None:
    made = module(OTHERS[name])
    assert print_module(IRModule(reserve_rows(made.functions))) == print_module(made)


def test_a_function_that_two_loops_carry_out_stays() -> None:
    made = module(LOOP)
    functions = dict(made.functions)
    functions["other"] = replace(functions["main"])
    assert reserve_rows(functions)["body"] is functions["body"]


def test_what_is_appended_must_be_there() -> None:
    with pytest.raises(TypeRuleError, match="append_rows"):
        AppendRows.type_rule(AppendRows.Attrs(axis=0, start=0, room=1))
