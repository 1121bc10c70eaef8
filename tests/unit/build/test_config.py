# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from intarsia.build.config import Executor, Runtime, check_combination, config_kinds
from intarsia.errors import UsageError


def test_the_default_is_compiled_and_in_process() -> None:
    executor, runtime = Executor(), Runtime()
    assert (executor.kind, runtime.kind) == ("aot", "cpp")
    assert executor.to_json() == {
        "kind": "aot",
        "unpacked-api": False,
        "interface-api": "packed",
        "workspace-byte-alignment": 64,
    }
    check_combination(executor, runtime)


def test_equal_by_value() -> None:
    assert Executor("aot", {"unpacked-api": False}) == Executor("aot")
    assert len({Executor("aot"), Executor("aot"), Executor("graph")}) == 2
    assert Executor("aot") != Runtime("cpp")
    assert Runtime("c", {"system-lib": True}) != Runtime("c")
    assert eval(repr(Executor("aot", {"unpacked-api": True}))) == Executor(
        "aot", {"unpacked-api": True}
    )


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("aott", {}, "there is no executor 'aott'\n  hint: did you mean 'aot'"),
        ("", {}, "there is no executor ''\n  hint: one of aot, graph"),
        (
            "aot",
            {"unpacked": True},
            "has no option 'unpacked'\n  hint: did you mean 'unpacked-api'",
        ),
        ("aot", {"unpacked-api": 1}, "option 'unpacked-api' takes bool, not 1"),
        ("aot", {"workspace-byte-alignment": True}, "takes int, not True"),
        ("aot", {"workspace-byte-alignment": 3}, "cannot be 3\n  hint: one of 1, 2, 4"),
        ("aot", {"interface-api": "rust"}, "cannot be 'rust'\n  hint: one of packed, c"),
        ("graph", {"unpacked-api": True}, "executor 'graph' has no option.*\n  hint: it has none"),
    ],
)
def test_what_is_not_in_the_registry_is_refused(
    kind: str, options: dict[str, bool | int | str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Executor(kind, options)


def test_runtimes_have_a_registry_of_their_own() -> None:
    with pytest.raises(UsageError, match="there is no runtime 'aot'"):
        Runtime("aot")
    assert Runtime("c").options == {"system-lib": False, "link-params": False}
    assert all(option.doc for row in config_kinds("runtime") for option in row.options)


@pytest.mark.parametrize(
    ("executor", "runtime", "rule"),
    [
        (
            Executor("graph"),
            Runtime("c"),
            "'graph' walks the plan in a process, runtime 'c' has none",
        ),
        (
            Executor("aot", {"unpacked-api": True}),
            Runtime("cpp"),
            "unpacked-api needs a freestanding",
        ),
        (
            Executor("aot", {"interface-api": "c"}),
            Runtime("c"),
            "interface-api 'c' needs unpacked-api",
        ),
    ],
)
def test_invalid_combinations_are_refused_with_the_rule(
    executor: Executor, runtime: Runtime, rule: str
) -> None:
    with pytest.raises(UsageError, match=rule):
        check_combination(executor, runtime)


def test_valid_combinations_pass() -> None:
    check_combination(Executor("graph"), Runtime("cpp"))
    check_combination(Executor("aot", {"unpacked-api": True, "interface-api": "c"}), Runtime("c"))
