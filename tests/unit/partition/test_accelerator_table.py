# SPDX-License-Identifier: Apache-2.0
"""An accelerator's table: limits, verdicts, order of rules, documentation, lowering."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import Call, Expr, Var, call, constant
from intarsia_ir.graph.match import match_pattern
from intarsia_ir.graph.pattern import Match, op
from intarsia_ir.graph.types import Size, TensorType, variable
from intarsia_ir.graph.walk import count_uses
from intarsia_ir.ops import OPERATORS
from intarsia_ir.regions.draft import (
    Draft,
    array_of,
    extents,
    label_of,
    scalar,
    sizes,
    typical_sizes,
)
from intarsia_ir.regions.support import Code, Support
from intarsia_ir.regions.table import (
    AcceleratorTable,
    Limits,
    Row,
    Sentences,
    operator_row,
)
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import PluginError

F32, F16, I8 = DType.FLOAT32, DType.FLOAT16, DType.INT8
LIMITS = Limits(
    dtypes=(F32,),
    ranks=range(1, 4),
    sizes=range(1, 100),
    reasons=((F16, "halves are slow"),),
    sentences=Sentences(dtype="only {taken}, not {dtype}", rank="rank {rank}", size="{shape}"),
)


def var(*shape: Size, dtype: DType = F32, name: str = "x") -> Var:
    return Var(name, TensorType(shape, dtype))


def made(name: str, *args: Expr) -> Call:
    return call(OPERATORS[name], *args)


def matched(row: Row[object, object], body: Call) -> Match:
    found = match_pattern(row.pattern, body, count_uses((body,)))
    assert found is not None
    return found


def verdict(body: Call, *, limits: Limits = LIMITS, **fields: object) -> Support:
    row = Row(body.name, op(body.name), **fields)
    return AcceleratorTable((row,), limits).check(row, matched(row, body))


@pytest.mark.parametrize(
    ("body", "code", "detail"),
    [
        (made("nn.relu", var(2, 3)), Code.OK, ""),
        (made("nn.relu", var(2, dtype=I8)), Code.UNSUPPORTED_DTYPE, "only float32, not int8"),
        (made("nn.relu", var(2, dtype=F16)), Code.UNSUPPORTED_DTYPE, "halves are slow"),
        (made("nn.relu", var(1, 1, 1, 1)), Code.UNSUPPORTED_SHAPE, "rank 4"),
        (made("nn.relu", var(2, 100)), Code.UNSUPPORTED_SHAPE, "[2, 100]"),
        (made("nn.relu", var(2, 0)), Code.UNSUPPORTED_SHAPE, "has no elements"),
    ],
)
def test_limits_refuse_tensors_in_words(body: Call, code: Code, detail: str) -> None:
    support = verdict(body)
    assert support.code is code
    assert detail in support.detail


def test_a_scalar_of_the_run_may_be_refused_and_a_constant_one_taken() -> None:
    limits = Limits(scalars=False)
    body = made("add", var(3), var(name="y"))
    assert "computed at run time" in verdict(body, limits=limits).detail
    assert verdict(made("add", var(3), constant(np.float32(1))), limits=limits)


def test_arguments_may_have_to_be_constant() -> None:
    body = made("add", var(3), var(3, name="y"))
    support = verdict(body, constant=(1,))
    assert support.code is Code.UNSUPPORTED_ATTRIBUTE
    assert support.detail == "argument 1 of add must be known at compile time"
    assert verdict(made("add", var(3), constant(np.ones(3, np.float32))), constant=(1,))


def test_limits_may_be_for_some_arguments_only() -> None:
    indices = var(2, dtype=DType.INT64, name="i")
    body = call(OPERATORS["take"], var(3), indices, attrs=OPERATORS["take"].Attrs(axis=0))
    assert not verdict(body)
    assert verdict(body, data=(0,))
    assert verdict(body, others=(DType.INT64,))
    assert verdict(body, checks_dtypes=False)


def test_tuples_are_refused_or_checked_field_by_field() -> None:
    attrs = OPERATORS["split"].Attrs(sections=(2, 2), axis=0)
    body = call(OPERATORS["split"], var(4), attrs=attrs)
    assert verdict(body).detail == "tuples are not taken"
    assert verdict(body, limits=Limits(tuples=True))


def test_rules_are_asked_around_the_limits_in_order() -> None:
    asked: list[str] = []

    def rule(name: str, answer: Support) -> object:
        def ask(*_given: object) -> Support:
            asked.append(name)
            return answer

        return ask

    yes, no = Support.yes(seconds=1.0), Support.no("outvoted", "last")
    row = Row("nn.relu", op("nn.relu"), accepts=rule("accepts", yes))
    table = AcceleratorTable((row,), Limits(rule=rule("limits", Support.yes())))
    found = matched(row, made("nn.relu", var(3)))
    (made_row,) = table.support(first=rule("first", yes), last=rule("last", no)).rows
    assert made_row.predicate(found) is no
    assert asked == ["first", "limits", "accepts", "last"]
    (made_row,) = table.support(last=rule("last", Support.yes())).rows
    assert made_row.predicate(found).seconds == 1.0
    (made_row,) = table.support(first=rule("first", no)).rows
    assert made_row.predicate(found) is no


def test_the_first_rule_of_an_operator_that_says_no_counts() -> None:
    row = operator_row(
        "nn.relu",
        lambda draft, node: (draft, node.name),
        lambda _call: Support.yes(),
        lambda _call: Support.no("unsupported-attribute", "second"),
        lambda _call: Support.no("unsupported-attribute", "third"),
    )
    found = matched(row, made("nn.relu", var(3)))
    assert AcceleratorTable((row,)).check(row, found).detail == "second"
    assert row.lower("draft", found) == ("draft", "nn.relu")


def test_a_refused_row_says_why_and_is_never_lowered() -> None:
    row = Row.refused("exp", "it is wrong for NaN")
    found = matched(row, made("exp", var(3)))
    assert AcceleratorTable((row,)).check(row, found).detail == "it is wrong for NaN"
    with pytest.raises(PluginError, match="exp is never taken: it is wrong for NaN"):
        row.lower(None, found)
    assert row.asks_for() == "never: it is wrong for NaN"


def test_a_row_without_a_lowering_is_not_lowered() -> None:
    row = Row("nn.relu", op("nn.relu"))
    with pytest.raises(PluginError, match=r"takes nn\.relu has no lowering"):
        row.lower(None, matched(row, made("nn.relu", var(3))))


def test_two_rows_of_one_name_are_an_error() -> None:
    row = Row("add", op("add"))
    with pytest.raises(PluginError, match="two rows of the table are called 'add'"):
        AcceleratorTable((row, row))


def test_the_documentation_derives_from_the_rows() -> None:
    table = AcceleratorTable(
        (
            Row("nn.relu", op("nn.relu"), doc="any rank", dtypes=(F32, I8)),
            Row("nn.conv", op("nn.conv"), constant=(2, 1), doc="images"),
            Row.refused("exp", "wrong"),
        ),
        LIMITS,
    )
    assert table.markdown() == (
        "| operator or pattern | element types | asks for |\n|---|---|---|\n"
        "| `nn.relu` | float32, int8 | any rank |\n"
        "| `nn.conv` | float32 | images; arguments 1, 2 constant |\n"
        "| `exp` |  | never: wrong |\n"
    )


def compares_rows(match: Match) -> Support:
    return Support.yes() if extents(match.root)[0] > 3 else Support.no(Code.TOO_SMALL, "few")


@pytest.mark.parametrize(
    ("fields", "code", "detail"),
    [
        ({}, Code.UNSUPPORTED_SHAPE, "axis 0 of Tensor[(N, 3), float32] has the open size N, and"),
        ({"symbolic": True}, Code.OK, ""),
        ({"symbolic": (0,)}, Code.OK, ""),
        ({"symbolic": (-2,)}, Code.OK, ""),
        ({"symbolic": (1, 2)}, Code.UNSUPPORTED_SHAPE, "axis 0 of Tensor[(N, 3), float32]"),
        ({"symbolic": False}, Code.UNSUPPORTED_SHAPE, "needs a number"),
        (
            {"symbolic": True, "accepts": compares_rows},
            Code.UNSUPPORTED_SHAPE,
            "what it asks for depends on the open size N",
        ),
    ],
)
def test_a_row_says_which_sizes_may_be_open(
    fields: dict[str, object], code: Code, detail: str
) -> None:
    said = verdict(made("nn.relu", var(variable("N"), 3)), **fields)
    assert said.code is code
    assert detail in said.detail
    assert said.open_sizes == (frozenset() if said else {"N"})


def test_limits_hold_for_the_numbers_of_an_open_shape() -> None:
    opened = Limits(symbolic=True, ranks=(2,), sizes=range(1, 9))
    body = made("nn.relu", var(variable("N"), 9))
    assert verdict(body, limits=opened).detail == "sizes [N, 9] are not taken"
    deep = made("nn.relu", var(variable("N"), 2, 2))
    assert verdict(deep, limits=opened).detail == "rank 3 is not taken"
    assert Support.no_open_size(3, "why").open_sizes == frozenset()


def test_rows_document_their_open_sizes() -> None:
    asked = [Row("add", op("add"), symbolic=which).asks_for() for which in (None, True, False)]
    assert asked == ["", "", "no open size"]
    assert Row("add", op("add"), symbolic=(0, -1)).asks_for() == "open sizes on axes 0, -1 only"


class Numbered(Draft[int]):
    def constant(self, data: np.ndarray) -> int:
        return self.keep(100 + len(self.constants), data)


def test_a_draft_takes_in_constants_once_and_names_them() -> None:
    draft, one = Numbered("region"), constant(np.ones(3, np.float32))
    assert draft.value(one) == draft.value(one) == 100
    assert draft.weights({100}) == {100: "region.0"}
    assert draft.weights(()) == {}


def test_what_drafts_read_of_expressions() -> None:
    body = made("nn.relu", var(2, 3))
    assert (sizes(body), label_of(body)) == ((2, 3), "nn.relu")
    opened = var(variable("N"), 3)
    assert extents(opened) == (variable("N"), 3)
    assert typical_sizes(opened, {"N": 5}) == (5, 3)
    assert scalar(constant(np.float32(2))) == 2.0
    assert scalar(body) is None
    with pytest.raises(PluginError, match="not known at compile time"):
        array_of(body)
