# SPDX-License-Identifier: Apache-2.0
"""No callable of a plugin is called without a guard: every door into the core is watched.

A value of a plugin comes in as the answer of a hook, as what an entry point names, as the result of
a guarded callable, or as an operator that its package defines. The tests show that there are no
other doors, and that what comes through one is checked and guarded before anyone else sees it. Then
whatever the core calls on a value of the contract is guarded, wherever that happens.

They do not see: methods and properties of a plugin's own classes (its options, subclasses of the
contract's classes), values that a class of the contract holds as ``Any``, modules taken from
``sys.modules``, and names that are bound to a door through a container.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterator
from typing import get_args, get_origin

import pytest

from intarsia.host.frontend import Frontend
from intarsia.host.received import hints_of
from intarsia_ir.regions.support import SupportRow
from intarsia_ir.tir.space import ScheduleSpace

from .source_tree import CORE_SOURCES, Source

HOOKS = {"hook", "subset_hook_caller", "call_extra", "call_historic", "get_hookimpls"}
FOUND = {"find_loader", "find_executor", "find_runtime"}
GUARDS = {"_asked", "_made", "Guarded", "_loaded", "formats_of", "cast", "getattr", "isinstance"}
"""What may take something that an entry point names: it guards it, or does not call it."""

DOORS = {
    ("host/activation.py", "_imported"),  # the module with the hooks, which go to pluggy
    ("host/trial_child.py", "_load_contract"),  # modules of the contract, named beside it
    ("intarsia_runtime/discovery.py", "load"),  # what an entry point names
    ("cli/main.py", "get_command"),
    ("host/trial_child.py", "_load_contract"),  # modules of the contract by their names
    ("intarsia_runtime/lazy.py", "get"),  # modules of Intarsia by their names
    ("intarsia_ir/passes/prepare.py", "load_pass"),  # passes by the names of their modules
}
"""Functions that import what is known at run time only."""


def scopes(source: Source) -> Iterator[tuple[str, ast.AST]]:
    """Return every node with the name of the innermost function that it stands in."""
    pending: list[tuple[str, ast.AST]] = [("", source.tree)]
    while pending:
        name, node = pending.pop()
        yield name, node
        inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else name
        pending += [(inner, child) for child in ast.iter_child_nodes(node)]


def called(node: ast.AST) -> str:
    """Return the last name of what a node calls; empty if it calls nothing."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def place(source: Source) -> str:
    return source.module.removeprefix("intarsia/")


def test_hooks_are_called_in_one_place() -> None:
    found = {
        (place(source), scope)
        for source in CORE_SOURCES
        for scope, node in scopes(source)
        if isinstance(node, ast.Attribute) and node.attr in HOOKS
    }
    assert found == {("host/routing.py", "ask"), ("host/routing.py", "implements")}


def test_answers_of_hooks_are_received() -> None:
    (ask,) = (
        node
        for source in CORE_SOURCES
        if place(source) == "host/routing.py"
        for node in source.functions()
        if node.name == "ask"
    )
    given = {"answers": {"len", "_listed"}, "answer": {"receive"}}
    for name, takers in given.items():
        users = {
            called(node)
            for node in ast.walk(ask)
            if isinstance(node, ast.Call)
            and any(
                isinstance(n, ast.Name) and n.id == name for a in node.args for n in ast.walk(a)
            )
        }
        assert users == takers, name
    returned = [node.value for node in ast.walk(ask) if isinstance(node, ast.Return)]
    assert [ast.unparse(value) for value in returned if value is not None] == ["received", "None"]


def test_modules_that_are_known_at_run_time_come_in_through_the_doors() -> None:
    found = {
        (place(source), scope)
        for source in CORE_SOURCES
        for scope, node in scopes(source)
        if isinstance(node, ast.Call)
        and called(node) in {"import_module", "__import__", "run_module", "run_path"}
        and not (node.args and isinstance(node.args[0], ast.Constant))
    }
    assert found == DOORS


@pytest.mark.parametrize("source", CORE_SOURCES, ids=place)
def test_what_an_entry_point_names_is_called_by_a_guard(source: Source) -> None:
    """It, and the names it is bound to, are arguments of guards, and never called."""
    if place(source) == "runtime/discovery.py":
        return
    for function in source.functions():
        names = bound(function)
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        for call in calls:
            assert called(call.func) not in FOUND, f"{function.name} calls what it has found"
            if called(call) in names and isinstance(call.func, ast.Name):
                pytest.fail(f"{function.name} calls {called(call)}, line {call.lineno}")
            for argument in call.args:
                is_found = called(argument) in FOUND
                is_named = isinstance(argument, ast.Name) and argument.id in names
                if is_found or is_named:
                    assert called(call) in GUARDS, f"{function.name} gives it to {called(call)}"


def bound(function: ast.AST) -> set[str]:
    """Return the names that are bound to what an entry point names."""
    return {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
        and any(called(part) in FOUND for part in ast.walk(node.value))
        and called(node.value) in {*FOUND, "cast"}
    }


def test_nobody_takes_a_guard_off() -> None:
    found = {
        place(source)
        for source in CORE_SOURCES
        for node in ast.walk(source.tree)
        if (isinstance(node, ast.Attribute) and node.attr == "__wrapped__")
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "inspect.unwrap")
    }
    assert found == {"intarsia_runtime/guarded.py"}


def test_answers_of_callables_hold_no_callables() -> None:
    """A guard does not guard what is in an answer; ``Host.received`` would, at every call."""
    fields = {
        (kind.__name__, name): hints_of(kind)[name]
        for kind in (Frontend, SupportRow, ScheduleSpace)
        for name in callables_of(kind)
    }
    answers = {result for hint in fields.values() for result in results_of(hint)}
    assert len(answers) >= 3
    assert {a.__name__ for a in answers if any(map(has_callable, hints_of(a).values()))} == set()


def callables_of(kind: type) -> list[str]:
    """Return the fields of a class that hold a callable, or several by name."""
    return [name for name, hint in hints_of(kind).items() if has_callable(hint)]


def is_callable(hint: object) -> bool:
    return get_origin(hint) is Callable


def has_callable(hint: object) -> bool:
    """Whether a hint, or a part of it, is of a callable."""
    parts = [part for part in get_args(hint) if not isinstance(part, list)]
    return is_callable(hint) or any(map(has_callable, parts))


def results_of(hint: object) -> list[type]:
    """Return the classes with fields that callables of a hint may answer with."""
    args = get_args(hint)
    if is_callable(hint):
        results = get_args(args[-1]) or (args[-1],)
        return [one for one in results if isinstance(one, type) and has_fields(one)]
    return [found for arg in args if not isinstance(arg, list) for found in results_of(arg)]


def has_fields(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_fields__")
