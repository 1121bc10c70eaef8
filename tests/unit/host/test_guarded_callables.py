# SPDX-License-Identifier: Apache-2.0
"""Whatever a callable of a plugin does, the error names plugin, distribution and callable.

The callables are read off the classes of the plugin contract, so a new field is tested too.
"""

from __future__ import annotations

import dataclasses
import inspect
import signal
import time
from collections.abc import Callable
from typing import Any, get_args, get_origin

import msgspec
import pytest

from intarsia.host import hookspecs
from intarsia.host.answers import COMPILING, OPTIONAL, SEVERAL, hint_of, item_of
from intarsia.host.discovery import Found
from intarsia.host.frontend import Frontend
from intarsia.host.host import Host
from intarsia.host.received import hints_of, problem_of, receive
from intarsia.host.routing import owner_of
from intarsia.host.time_limit import LIMIT
from intarsia.plugin import hookimpl, op
from intarsia.target.kind import Role, TargetKind
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.op import Op, OpAttrs, operator
from intarsia_ir.regions.support import SupportRow, SupportTable
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.space import ScheduleSpace, ScheduleSpaces
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.errors import IntarsiaError, PluginError, UnsupportedError
from intarsia_runtime.guarded import Guarded, LateOwner, Owner, is_plugins_own

from .local_plugins import local


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """No options."""


def divide(*_: object, **__: object) -> object:
    return 1 / 0


def leave(*_: object, **__: object) -> object:
    raise SystemExit(0)


def interrupt(*_: object, **__: object) -> object:
    raise KeyboardInterrupt


def recurse(*arguments: object, **named: object) -> object:
    return recurse(*arguments, **named)


def answer_nonsense(*_: object, **__: object) -> object:
    return object()


def hang(*_: object, **__: object) -> object:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        time.sleep(0.01)
    return None


FAULTS = {
    "ZeroDivisionError": divide,
    "SystemExit": leave,
    "KeyboardInterrupt": interrupt,
    "RecursionError": recurse,
    "object": answer_nonsense,
}
OWNER = owner_of(Found("npu", "acme-npu", "1.0"))


def callables_of(kind: type) -> list[str]:
    """Return the fields of a class that hold a callable, or several by name."""
    return [name for name, hint in hints_of(kind).items() if has_callable(hint)]


def has_callable(hint: object) -> bool:
    """Whether a hint, or a part of it, is of a callable."""
    parts = [part for part in get_args(hint) if not isinstance(part, list)]
    is_one = get_origin(hint) is get_origin(Callable[..., Any])
    return is_one or any(has_callable(part) for part in parts)


def sample(kind: type, field: str, fault: Callable[..., object]) -> tuple[object, type]:
    """Return an answer with a faulty callable in one field, and what it must be."""
    if kind is Frontend:
        given = Frontend(name="acme", suffixes=(".acme",), importer=lambda *_: IRModule({}))
        return dataclasses.replace(given, **{field: fault}), Frontend
    if kind is SupportRow:
        return SupportTable([SupportRow("add", op("add"), fault)]), SupportTable  # type: ignore[arg-type]
    assert kind is ScheduleSpace
    return ScheduleSpaces("here", (ScheduleSpace("add", 1, (), fault),)), ScheduleSpaces  # type: ignore[arg-type]


CASES = [
    (kind, field) for kind in (Frontend, SupportRow, ScheduleSpace) for field in callables_of(kind)
]


def guarded_in(value: object) -> list[Guarded]:
    """Return every guarded callable in a value."""
    if isinstance(value, Guarded):
        return [value]
    if isinstance(value, list | tuple):
        return [found for item in value for found in guarded_in(item)]
    if hasattr(value, "items"):
        return [found for item in value.values() for found in guarded_in(item)]  # type: ignore[attr-defined]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return [found for name in names for found in guarded_in(getattr(value, name))]
    if isinstance(value, msgspec.Struct):
        names = list(value.__struct_fields__)
        return [found for name in names for found in guarded_in(getattr(value, name))]
    return []


def guard_of(field: str, value: object) -> Guarded:
    """The guard of what a field of a value holds."""
    (found,) = (one for one in guarded_in(value) if one.doing.partition(" ")[0] == field)
    return found


def test_the_contract_has_these_callables() -> None:
    assert {field for _, field in CASES} >= {
        *("importer", "sniff", "digests", "predicate", "schedule"),
    }


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("kind", "field"), CASES)
def test_a_callable_that_fails_names_its_plugin(kind: type, field: str, fault: str) -> None:
    given, wanted = sample(kind, field, FAULTS[fault])
    function = guard_of(field, receive(given, wanted, OWNER, doing="the hook"))
    if fault == "object" and not function.answers:
        assert field in ("digests",), f"{field} may answer anything"
        return  # a mapping, which its caller checks
    with pytest.raises(PluginError) as caught:
        function()
    assert caught.value.exit_code == 5
    assert "plugin 'npu' (acme-npu 1.0)" in caught.value.message
    assert field in caught.value.message
    assert fault in caught.value.message
    assert "acme-npu" in caught.value.hint


@pytest.mark.parametrize(("kind", "field"), CASES)
def test_a_callable_that_never_ends_is_ended(
    kind: type, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIMIT, "0.004")  # sixty times that for what compiles
    given, wanted = sample(kind, field, hang)
    function = guard_of(field, receive(given, wanted, OWNER, doing="the hook"))
    with pytest.raises(PluginError, match=rf"npu.* failed in {field}.*: OutOfTime: it took longer"):
        function()
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


HOOKS = [name for name, hook in vars(hookspecs).items() if hasattr(hook, "intarsia_spec")]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_fails_names_its_plugin(hook: str, fault: str) -> None:
    names = list(inspect.signature(getattr(hookspecs, hook)).parameters)
    scope: dict[str, Any] = {"fault": FAULTS[fault], "hookimpl": hookimpl}
    exec(f"@hookimpl\ndef {hook}({', '.join(names)}):\n    return fault()\n", scope)

    class Hooks:
        """One hook, and the kinds that every plugin registers."""

        @staticmethod
        @hookimpl
        def register_target_kind() -> object:
            return [TargetKind("npu", Role.ACCELERATOR, Options)]

    setattr(Hooks, hook, staticmethod(scope[hook]))
    host = Host(env={}, path=[], local=[local(Hooks(), name="npu", distribution="acme-npu")])
    with pytest.raises(PluginError) as caught:
        host.call(hook, "npu", **dict.fromkeys(names))
    assert "plugin 'npu' (acme-npu 0)" in str(caught.value)
    assert fault in str(caught.value)


def test_every_hook_has_a_type_of_its_answer() -> None:
    for hook in HOOKS:
        assert hint_of(hook), hook
        assert (hook in SEVERAL) == hasattr(item_or_none(hook), "__mro__")
    assert set(HOOKS) >= SEVERAL | OPTIONAL | COMPILING
    for ask in (hint_of, item_of):
        with pytest.raises(KeyError):
            ask("annotated")


def item_or_none(hook: str) -> type | None:
    return item_of(hook) if hook in SEVERAL else None


def test_a_kind_is_data() -> None:
    assert callables_of(TargetKind) == []


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("constants", {"c": 5}, r"CompiledUnit whose constants\['c'\] is int, not ndarray"),
        ("cpu_features", 5, r"CompiledUnit whose cpu_features is int, not tuple\[str, \.\.\.\]"),
        ("cpu_features", (5,), r"CompiledUnit whose cpu_features\[0\] is int, not str"),
        ("versions", {"a": 5}, r"CompiledUnit whose versions\['a'\] is int, not str"),
        ("files", {"a": "text"}, r"CompiledUnit whose files\['a'\] is str, not bytes"),
        ("format", "1", "CompiledUnit whose format is str, not int"),
        ("format", True, "CompiledUnit whose format is bool, not int"),
        ("loader", None, "CompiledUnit whose loader is NoneType, not str"),
    ],
)
def test_a_unit_of_wrong_type_names_its_plugin(field: str, value: object, problem: str) -> None:
    unit = dataclasses.replace(CompiledUnit("npu_0", "npu", {}), **{field: value})
    with pytest.raises(
        PluginError, match=rf"acme-npu 1\.0\) answered relay_codegen\(\) with {problem}"
    ):
        receive(unit, CompiledUnit, OWNER, doing="relay_codegen()")


def test_a_good_value_is_the_same_object() -> None:
    unit = CompiledUnit("npu_0", "npu", {"a": b""}, versions={"sdk": "1"})
    assert receive(unit, CompiledUnit, OWNER, doing="relay_codegen()") is unit
    assert problem_of(3, int | None) == ""
    assert problem_of("x", int | None) == "str, not int | None"


def test_expressions_that_are_keys_are_not_written_out() -> None:
    """The text of an expression has every path to its operands: it may take for ever."""

    class Node:
        def __repr__(self) -> str:
            pytest.fail("was written out")

    assert problem_of({Node(): 1}, dict[Node, int]) == ""
    assert problem_of({Node(): "x"}, dict[Node, int]) == "dict whose [Node] is str, not int"
    assert problem_of({"a": "x"}, dict[str, int]) == "dict whose ['a'] is str, not int"


def test_errors_raised_on_purpose_keep_their_class() -> None:
    def refuse() -> object:
        raise UnsupportedError("no such kernel")

    with pytest.raises(UnsupportedError, match="no such kernel"):
        Guarded(refuse, OWNER, doing="schedule")()

    def bare() -> object:
        raise IntarsiaError("unknown")

    with pytest.raises(PluginError, match="IntarsiaError: unknown"):
        Guarded(bare, OWNER, doing="schedule")()


@pytest.mark.usefixtures("heeds_interrupts")
def test_an_interrupt_of_the_user_stays_one() -> None:
    def work() -> object:
        signal.raise_signal(signal.SIGINT)
        return sum(range(1000))

    with pytest.raises(KeyboardInterrupt):
        Guarded(work, OWNER, doing="schedule")()


def test_an_error_that_was_never_raised_is_nobodys() -> None:
    assert not is_plugins_own(KeyboardInterrupt())


def test_the_trace_shows_every_call() -> None:
    lines: list[str] = []
    owner = Owner("plugin 'npu' (acme-npu 1.0)", say=lines.append)
    assert Guarded(lambda: 3, owner, doing="schedule of 'add'")() == 3
    with pytest.raises(PluginError):
        Guarded(divide, owner, doing="predicate of 'add'")()
    assert "schedule of 'add' done after" in lines[0]
    assert "predicate of 'add' raised PluginError after" in lines[1]


def test_rules_of_an_operator_of_another_package_are_guarded() -> None:
    @operator("acme.add")
    class Add(Op):
        """An operator of a plugin."""

        Attrs = OpAttrs
        type_rule = staticmethod(divide)
        compute = staticmethod(divide)

    assert isinstance(Add.type_rule, LateOwner)
    with pytest.raises(PluginError, match=r"failed in type_rule of operator 'acme\.add'"):
        Add.type_rule(None)
    assert Add.compute is not None
    with pytest.raises(PluginError, match=r"package 'tests'.*ZeroDivisionError"):
        Add.compute(None)


def test_guards_are_equal_to_their_functions() -> None:
    guard = Guarded(divide, OWNER, doing="x")
    assert guard == divide
    assert {guard} == {Guarded(divide, OWNER, doing="y")}
    assert repr(guard) == "<x of plugin 'npu' (acme-npu 1.0)>"
    assert Intrinsic.EXP not in {guard}
