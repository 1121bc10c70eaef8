# SPDX-License-Identifier: Apache-2.0
"""Procedures that kernels share: as text, verified and interpreted."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.tir.forward import procedures
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.text import parse_func, parse_funcs, print_func, print_funcs
from intarsia_ir.tir.verify import verify_func
from intarsia_runtime.errors import VerifyError
from intarsia_testkit.kernel_structure import kernel_structure

SCALE = """\
procedure scale(x: float32[`elements`], y: float32[`rows`, 3] out, rows: size, factor: size):
  for i in serial(rows):
    for j in serial(3):
      y[i, j] = x[(i * 3) + j] * float32(factor)
"""

ONE = """\
def one(p0: float32[4, 3], out0: float32[4, 3] out):
  for i in parallel(2):
    kernel::scale(&p0[i * 2, 0], &out0[i * 2, 0], 2, i + 5)
"""

OTHER = """\
def other(p0: float32[6], out0: float32[2, 3] out):
  kernel::scale(&p0[0], &out0[0, 0], 2, 1)
"""

NESTED = """\
procedure twice(x: float32[`elements`], y: float32[6] out, factor: size):
  t: float32[2, 3] stack
  kernel::scale(&x[0], &t[0, 0], 2, factor)
  kernel::scale(&t[0, 0], &y[0], 2, factor)
"""

USING = """\
def using(p0: float32[2, 3], out0: float32[6] out):
  kernel::twice(&p0[0, 0], &out0[0], 3)
"""


def calling(call: str, procedure: str = SCALE) -> str:
    """Return a kernel that calls a procedure."""
    head = "def f(p0: float32[4, 3], p1: int8[12], out0: float32[4, 3] out, out1: float32[] out):"
    return f"{procedure}\n{head}\n  {call}\n"


def test_kernels_print_the_procedures_that_they_share_once() -> None:
    text = "\n".join((SCALE, ONE, OTHER))
    one, other = parse_funcs(text)
    assert procedures([one, other]) == procedures([one]) == procedures([other])
    assert print_funcs([one, other]) == text
    assert print_func(other) == f"{SCALE}\n{OTHER}"


def test_a_procedure_stands_behind_those_that_it_calls() -> None:
    text = "\n".join((SCALE, NESTED, USING))
    using = parse_func(text)
    assert [procedure.name for procedure in procedures([using])] == ["scale", "twice"]
    assert print_func(using) == text
    again = parse_func(print_func(using))
    assert kernel_structure(again) == kernel_structure(using)
    assert kernel_structure(again) != kernel_structure(
        parse_func(text.replace("* float32", "+ float32"))
    )


def test_a_call_of_what_is_no_procedure_keeps_its_name() -> None:
    other = parse_func(OTHER)
    assert procedures([other]) == ()
    assert print_func(other) == OTHER


@pytest.mark.parametrize("change", [lambda func: func, simplify], ids=["as it is", "simplified"])
def test_procedures_work_on_the_memory_of_their_callers(change) -> None:
    one, other = parse_funcs("\n".join((SCALE, ONE, OTHER)))
    using = parse_func("\n".join((SCALE, NESTED, USING)))
    x = np.arange(12, dtype=np.float32)
    rows, row, flat = (np.full(shape, np.nan, np.float32) for shape in ((4, 3), (2, 3), (6,)))
    for func, data, result in (
        (one, x.reshape(4, 3), rows),
        (other, x[:6], row),
        (using, x[:6].reshape(2, 3), flat),
    ):
        verify_func(func)
        run(change(func), data, result)
    np.testing.assert_array_equal(rows, x.reshape(4, 3) * [[5], [5], [6], [6]])
    np.testing.assert_array_equal(row, x[:6].reshape(2, 3))
    np.testing.assert_array_equal(flat, 9 * x[:6])


def test_a_procedure_writes_a_single_element() -> None:
    count = "procedure count(y: float32[] out, times: size):\n  y[] = float32(times)\n"
    func = parse_func(calling("kernel::count(&out1[], 7)", count))
    verify_func(func)
    arrays = [np.zeros(b.shape, b.dtype.value) for b in func.params]
    run(func, *arrays)
    assert arrays[-1] == 7


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("kernel::scale(&p0[0, 0], &out0[2, 0], 3, 1)", r"'y' is float32\[3, 3\], and 6 elements"),
        ("kernel::scale(&p0[3, 0], &out0[0, 0], 2, 1)", r"index 3 of dimension 0 of 'x'"),
        ("kernel::scale(&p0[4, 0], &out0[0, 0], 2, 1)", r"index 4 of dimension 0 of 'p0'"),
    ],
)
def test_a_procedure_stays_within_the_memory_of_its_caller(call: str, message: str) -> None:
    func = parse_func(calling(call))
    arrays = [np.zeros(b.shape, b.dtype.value) for b in func.params]
    with pytest.raises(VerifyError, match=message):
        run(func, *arrays)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("kernel::scale(&p0[0, 0], &out0[0, 0], 1)", "takes 2 places and 2 values, not 2 and 1"),
        ("kernel::scale(&p1[0], &out0[0, 0], 2, 1)", "'x' of 'scale' does not begin at an element"),
        (
            "kernel::scale(&p0[ramp(0, 1, 2), 0], &out0[0, 0], 2, 1)",
            "'x' of 'scale' does not|vector",
        ),
        ("kernel::scale(&out0[0, 0], &p0[0, 0], 2, 1)", "'scale' writes the input 'p0'"),
        ("kernel::scale(&p0[0, 0], &out0[0, 0], 2, 1.0)", "a value that 'scale' takes is not a"),
        ("kernel::scale(&p0[5, 0], &out0[0, 0], 2, 1)", "index 5 of dimension 0 of 'p0'"),
    ],
)
def test_calls_of_procedures_are_verified(call: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify_func(parse_func(calling(call)))


def test_procedures_are_verified_with_those_that_call_them() -> None:
    with pytest.raises(VerifyError, match="the input 'x' is written") as caught:
        verify_func(parse_func("\n".join((SCALE.replace("y[i, j] =", "x[i] ="), OTHER))))
    assert caught.value.where == "scale"
