# SPDX-License-Identifier: Apache-2.0
"""Every operator has every rule, or a refusal in words; each rule is registered once."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType

import numpy as np
import pytest

from intarsia_ir.graph.op import Op, OpKind, operator
from intarsia_ir.graph.rule_table import Refusal, RuleLists, RuleTable, guarded_rule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.binary import Add, BitwiseAnd, ElementwiseBinaryOp
from intarsia_ir.ops.derivative import DERIVATIVES
from intarsia_ir.ops.integer_forms import INTEGER_FORMS
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import DuplicateName, PluginError, TypeRuleError
from intarsia_testkit.cases import cases_by_operator
from intarsia_testkit.cases.case import Case

TABLES: tuple[RuleTable[object], ...] = (DERIVATIVES, INTEGER_FORMS)  # type: ignore[assignment]
ELEMENTWISE_BY_KIND = (INTEGER_FORMS,)
"""Tables in which an element-wise operator needs no answer of its own: its kind is the rule."""


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.subject)
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_rule_is_given_or_refused_in_words(name: str, table: RuleTable[object]) -> None:
    op = OPERATORS[name]
    answer = table.answer(op)
    if answer is None:
        assert op.kind is OpKind.ELEMWISE
        assert table in ELEMENTWISE_BY_KIND
    elif isinstance(answer, Refusal):
        assert len(answer.reason.split()) >= 3
        assert not answer.reason.endswith(".")
        assert table.get(op) is None
        assert table.reason(op) == answer.reason
    else:
        assert table.get(op) is answer
        assert table.reason(op) == ""


def symbolic_types(case: Case) -> Iterator[list[TensorType]]:
    """Types of a call's operands with one size of one of them, and all equal sizes, left open."""
    types = [TensorType(x.shape, DType(x.dtype.name)) for x in case.operands]
    for open_size in {size for x in case.operands for size in x.shape if size > 1}:
        dim = variable("N")
        yield [t.with_shape(dim if s == open_size else s for s in t.shape) for t in types]


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_a_shape_function_takes_symbolic_sizes_or_says_why_not(name: str) -> None:
    op = OPERATORS[name]
    refused: list[str] = []
    for case in cases_by_operator()[name][:12]:
        for types in symbolic_types(case):
            try:
                op.type_rule(op.Attrs(**case.attrs), *types)
            except TypeRuleError as error:
                refused.append(str(error))
    assert bool(refused) == bool(op.fixed_sizes), refused[:3]


@pytest.mark.parametrize("name", ["add", "equal", "where"])
def test_operators_that_broadcast_say_so(name: str) -> None:
    assert OPERATORS[name].broadcasts
    assert not OPERATORS["nn.prelu"].broadcasts


def test_a_commutative_operator_has_two_operands_of_one_type() -> None:
    names = [name for name, op in OPERATORS.items() if op.commutative]
    assert {"add", "multiply", "maximum", "minimum"} <= set(names)
    for name in names:
        for case in cases_by_operator()[name]:
            op, (a, b) = OPERATORS[name], case.operands
            with np.errstate(all="ignore"):
                found, wanted = op.reference(op.Attrs(), b, a), op.reference(op.Attrs(), a, b)
            same = (found == wanted) | (found != found) & (wanted != wanted)
            assert same.all()


class Family(Op):
    """Stands for its operators, having no name."""


@operator("test.one")
class One(Family):
    """An operator."""


@operator("test.two")
class Two(One):
    """An operator made from another: it does not take over that one's rules."""


def test_a_table_refuses_a_second_answer() -> None:
    table: RuleTable[str] = RuleTable("colour")
    table.give("red", One)
    table.refuse("it has no colour of its own", Family)
    with pytest.raises(DuplicateName, match=r"colour of 'test.one' is given twice"):
        table.give("blue", One)
    with pytest.raises(DuplicateName, match="colour of 'Family' is given twice"):
        table.refuse("twice", Family)
    assert table.get(One) == "red"
    assert table.get(Two) is None
    assert table.reason(Two) == "it has no colour of its own"
    assert table.answer(Add) is None


def test_rules_in_a_list_keep_their_order_and_refuse_doubles() -> None:
    rules: RuleLists[str] = RuleLists("colour")
    rules.give("red", One)
    rules.give("green", Family)
    rules.give("blue", One)
    assert rules.of(One) == ("red", "green", "blue")
    assert rules.of(Two) == ("green",)
    assert [rule for _, rule in rules.all()] == ["red", "green", "blue"]
    with pytest.raises(DuplicateName, match=r"a colour of 'test.one' is given twice: red"):
        rules.give("red", One)


def test_a_family_answers_for_its_operators() -> None:
    assert BitwiseAnd.__mro__.index(ElementwiseBinaryOp) > 0
    assert DERIVATIVES.reason(BitwiseAnd) == "integers have no slope"


def test_a_rule_of_another_package_is_guarded() -> None:
    namespace: dict[str, object] = {"__name__": "acme.rules"}
    exec("def rule(step):\n    return 1 / 0", namespace)
    rule = namespace["rule"]
    assert isinstance(rule, FunctionType)
    with pytest.raises(PluginError, match="package 'acme' failed in the derivative of an operator"):
        guarded_rule(rule, "the derivative of an operator")(None)
    assert guarded_rule(symbolic_types, "x") is not symbolic_types
    assert guarded_rule(guarded_rule, "x") is guarded_rule
