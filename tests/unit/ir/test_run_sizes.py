# SPDX-License-Identifier: Apache-2.0
"""Sizes that a function computes: text, scopes, values."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.size_scopes import definitions
from intarsia_ir.graph.text.parser import parse_function
from intarsia_ir.graph.text.printer import print_function
from intarsia_ir.graph.verify import verify
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE
from intarsia_runtime.errors import ModelError, ParseError, VerifyError

FOUND = """\
fn(%x: Tensor[(N, 5), float32]) -> (Tensor[(2, "n#0"), int64], Tensor[("n#0",), float32]) {
  %0 = greater(%x, const(0.5, float32));
  %1 = cast(%0, dtype=int64);
  %2 = sum(%1, axes=(0, 1));
  %3 = size_of(%2, size=`"n#0"`);
  %4 = with_sizes(%0, %3);
  %5 = non_zero(%4, count=`"n#0"`);
  %6 = transpose(%5, axes=(1, 0));
  %7 = gather_nd(%x, %6);
  (%5, %7)
}
"""

FILLED = """\
fn(%n: Tensor[(), int64]) -> Tensor[("n#0",), float32] {
  %0 = size_of(%n, size=`"n#0"`);
  %1 = full(%0, shape=(`"n#0"`,), value=2.0, dtype=float32);
  %1
}
"""


def parsed(text: str) -> IRModule:
    """Read a function as a module."""
    return IRModule.from_function(parse_function(text, operators=OPERATORS))


@pytest.mark.parametrize("text", [FOUND, FILLED])
def test_text_round_trip(text: str) -> None:
    module = parsed(text)
    verify(module)
    assert print_function(module.main) == text


def test_a_function_says_which_sizes_it_defines() -> None:
    assert list(definitions(parsed(FOUND).main)) == ["n#0"]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("rows", [0, 1, 9])
def test_the_reference_finds_as_many_as_there_are(rows: int, share: float) -> None:
    rng = np.random.default_rng(rows)
    x = (rng.random((rows, 5)) < share).astype(np.float32)
    places, values = evaluate(parsed(FOUND).main, {"x": x})
    np.testing.assert_array_equal(places, np.stack(np.nonzero(x)))
    np.testing.assert_array_equal(values, x[x > 0.5])


def test_passes_leave_definitions_where_they_are_used() -> None:
    for text in (FOUND, FILLED):
        found = PREPARE.run(parsed(text), remarks=Remarks(), check=True)
        assert list(definitions(found.main)) == ["n#0"]


def test_a_size_of_a_constant_is_not_folded_away() -> None:
    text = FILLED.replace("%n: Tensor[(), int64]", "%x: Tensor[(), int64]")
    text = text.replace("size_of(%n", "size_of(const(3, int64)")
    found = PREPARE.run(parsed(text), remarks=Remarks(), check=True)
    (value,) = evaluate(found.main, {"x": np.array(0)})
    np.testing.assert_array_equal(value, np.full(3, 2, np.float32))


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ModelError, match=r"the model computes -1 for the size 'n#0'"):
        evaluate(parsed(FILLED).main, {"n": np.array(-1)})


def test_a_size_is_used_by_what_depends_on_its_definition() -> None:
    text = FOUND.replace("non_zero(%4", "non_zero(%0")
    with pytest.raises(VerifyError, match=r"size 'n#0' is used by what does not depend"):
        verify(parsed(text.replace("(%5, %7)", "%8 = with_sizes(%7, %3);\n  (%5, %8)")))


def test_a_size_is_defined_once() -> None:
    text = FOUND.replace(
        "%4 = with_sizes(%0, %3)", '%9 = size_of(%2, size=`"n#0"`);\n  %4 = with_sizes(%0, %3, %9)'
    )
    with pytest.raises(VerifyError, match=r"size 'n#0' is defined twice"):
        verify(parsed(text))
    with pytest.raises(VerifyError, match=r"size 'N' is defined twice"):
        verify(parsed(FOUND.replace('size=`"n#0"`', "size=`N`")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FOUND.replace("dtype=int64", "dtype=int32"), r"takes one element of int64"),
        (FOUND.replace('size=`"n#0"`', "size=3"), r"3 is no size variable"),
        (FOUND.replace('size=`"n#0"`', 'size=`2*"n#0"`'), r"is no size variable"),
        (FOUND.replace("with_sizes(%0, %3)", "with_sizes(%0, %x)"), r"is no size"),
        (FOUND.replace("with_sizes(%0, %3)", "with_sizes(%0)"), r"takes 2 operands, got 1"),
        (FOUND.replace("non_zero(%4", "non_zero(%x"), r"needs a bool tensor"),
    ],
)
def test_what_is_no_size_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parsed(text)
