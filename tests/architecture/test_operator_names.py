# SPDX-License-Identifier: Apache-2.0
"""Facts of operators stand with the operators: nobody else lists operators by name."""

from __future__ import annotations

import ast

import pytest

from intarsia_ir.ops import OPERATORS

from .source_tree import CORE, Source

LEAST = 3
"""Names from which on it is a list: two may be a choice that a pass makes."""
SOURCES = [
    Source(path)
    for package in CORE
    for path in sorted(package.rglob("*.py"))
    if path.parent.name != "aten"  # the names there are those of PyTorch's operators
]


def lists_of_operators(tree: ast.AST) -> list[tuple[int, list[str]]]:
    """Line and names of each tuple, list, set or dictionary of nothing but operator names."""
    found: list[tuple[int, list[str]]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                pass
            case ast.Dict(keys=keys):
                elements = [key for key in keys if key is not None]
            case _:
                continue
        words = [element.value for element in elements if isinstance(element, ast.Constant)]
        names = [word for word in words if isinstance(word, str) and word in OPERATORS]
        if len(set(names)) >= LEAST and len(names) == len(elements):
            found.append((node.lineno, names))
    return found


def test_no_module_lists_operators_by_name() -> None:
    found = {
        f"{source.name}:{line}": names
        for source in SOURCES
        for line, names in lists_of_operators(source.tree)
    }
    assert found == {}, "register the fact by the operator's class, see intarsia_ir.ops"


@pytest.mark.parametrize(
    "text", ["('add', 'sum', 'tanh')", "{'add', 'sum', 'tanh'}", "{'add': 1, 'sum': 2, 'tanh': 3}"]
)
def test_a_list_of_operators_is_found(text: str) -> None:
    assert lists_of_operators(ast.parse(text)) == [(1, ["add", "sum", "tanh"])]
    assert lists_of_operators(ast.parse("('add', 'sum', 'linear')")) == []
