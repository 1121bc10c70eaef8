# SPDX-License-Identifier: Apache-2.0
"""Equal graphs have one digest; whatever decides what is compiled changes it."""

from __future__ import annotations

import pytest

from intarsia_ir.graph.digest import module_digest
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.text.parser import parse_module
from intarsia_ir.ops import OPERATORS

TEXT = """
def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(2, 3), float32]) -> \
(Tensor[(2, 3), float32], Tensor[(2, 3), float32]) {
  %0 = add(%x, %y);
  %1 = nn.softmax(%0, axis=1);
  (%1, %0)
}
"""


def module(text: str = TEXT) -> IRModule:
    return parse_module(text, operators=OPERATORS)


def test_the_same_graph_has_the_same_digest() -> None:
    assert module_digest(module()) == module_digest(module())


@pytest.mark.parametrize(
    "old, new",
    [
        ("add(", "subtract("),
        ("add(%x, %y)", "add(%y, %x)"),
        ("axis=1", "axis=0"),
        ("(2, 3)", "(3, 3)"),
        ("float32", "float64"),
        ("%x", "%z"),
        ("(%1, %0)", "(%0, %1)"),
    ],
)
def test_another_graph_has_another_digest(old: str, new: str) -> None:
    changed = TEXT.replace(old, new)
    assert changed != TEXT
    assert module_digest(module(changed)) != module_digest(module())


def test_several_functions_have_no_digest() -> None:
    main = module().main
    assert module_digest(IRModule({"main": main, "other": main})) is None
