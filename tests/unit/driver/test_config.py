# SPDX-License-Identifier: Apache-2.0
"""Executors and runtimes: how they are written, what is refused, and the rules between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from intarsia.driver.config import Executor, Runtime, check_combination, check_served
from intarsia.host.hookspecs import hookimpl
from intarsia.host.host import Host
from intarsia.host.manager import LocalPlugin
from intarsia.host.manifest import ConfigRow, KindRow, Manifest, parse_manifest
from intarsia.target.config_kind import ConfigKind, ExecutorKind, Rule, RuntimeKind, core_kinds
from intarsia.target.kind import Role, TargetKind
from intarsia.target.options import option
from intarsia_runtime.errors import DuplicateName, PluginError, UnsupportedError, UsageError

from ..target.target_kinds import CpuOptions, NpuOptions


def test_the_default_is_compiled_and_in_process() -> None:
    executor, runtime = Executor(), Runtime()
    assert (executor.kind, runtime.kind) == ("aot", "cpp")
    assert executor.to_json() == {
        "kind": "aot",
        "unpacked-api": False,
        "interface-api": "packed",
        "workspace-byte-alignment": 64,
        "constant-byte-alignment": 64,
    }
    assert str(executor) == "aot"
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
    "words, named",
    [
        (("aot", {"unpacked-api": True}), {}),
        (({"kind": "aot", "unpacked-api": True},), {}),
        (('{"kind": "aot", "unpacked_api": true}',), {}),
        (("aot",), {"unpacked_api": True}),
        (("aot -unpacked-api",), {}),
        (("aot --unpacked-api=1",), {}),
        (("aot -unpacked_api true", {"unpacked-api": True}), {}),
    ],
)
def test_every_spelling_is_one_value(words: tuple[Any, ...], named: dict[str, Any]) -> None:
    executor = Executor(*words, **named)
    assert executor == Executor("aot", {"unpacked-api": True})
    assert str(executor) == "aot -unpacked-api=true"
    assert Executor(str(executor)) == executor
    assert Executor(executor.to_json()) == executor


@pytest.mark.parametrize(
    "kind, options, message",
    [
        ("aott", {}, "there is no executor 'aott'\n  hint: did you mean 'aot'"),
        ("zzz", {}, "there is no executor 'zzz'\n  hint: one of aot, graph, vm"),
        ("", {}, "the target is empty"),
        ("aot, graph", {}, "expected one executor, not 2"),
        ("aot -", {}, "an option is one or two dashes and a name"),
        ("aot unpacked", {}, "'unpacked' is neither an option of executor 'aot'"),
        ("aot -unpacked=1", {}, "column 5: executor 'aot' has no option '-unpacked'"),
        ("aot -unpacked-api=maybe", {}, "is true or false, not 'maybe'"),
        ("aot -unpacked-api", {"unpacked-api": False}, "given twice, with two values"),
        ("aot", {"unpacked": True}, "has no option '-unpacked'\n.*did you mean '-unpacked-api"),
        ("aot", {"unpacked-api": 1}, "executor 'aot': -unpacked-api is true or false, not 1"),
        ("aot", {"workspace-byte-alignment": True}, "is an integer, not True"),
        ("aot", {"workspace-byte-alignment": 3}, "cannot be 3\n  hint: one of 1, 2, 4"),
        ("aot", {"interface-api": "rust"}, "cannot be 'rust'\n  hint: one of packed, c"),
        ("graph", {"unpacked-api": True}, "executor 'graph' has no option.*\n.*no options at all"),
        ({"kind": 1}, {}, "the executor has no 'kind', or it is not a string"),
        ({"unpacked-api": True}, {}, "the executor has no 'kind'"),
        (7, {}, "is a string or a dict, not int"),
    ],
)  # fmt: skip
def test_what_is_not_in_the_registry_is_refused(
    kind: Any, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Executor(kind, options)


def test_runtimes_have_a_registry_of_their_own() -> None:
    with pytest.raises(UsageError, match="there is no runtime 'aot'"):
        Runtime("aot")
    assert Runtime("c").options == {"system-lib": False, "link-params": False}
    assert Runtime("crt") == Runtime("c")
    assert Runtime("crt").to_json() == {"kind": "c", "system-lib": False, "link-params": False}
    assert all(row.doc for kind in core_kinds("runtime") for row in kind.rows)


@pytest.mark.parametrize(
    "executor, runtime, rule",
    [
        ("graph", "c", "rule a-walk-needs-a-process: executor 'graph' walks.*runtime 'c' has none"),
        ("aot -unpacked-api", "cpp", "rule unpacked-needs-freestanding: unpacked-api needs"),
        ("aot -interface-api=c", "cpp", "rule interface-needs-freestanding: interface-api 'c'"),
        ("aot -interface-api=c", "c", "rule interface-needs-unpacked: interface-api 'c' needs un"),
    ],
)
def test_invalid_combinations_are_refused_with_the_rule(
    executor: str, runtime: str, rule: str
) -> None:
    with pytest.raises(UsageError, match=rule):
        check_combination(Executor(executor), Runtime(runtime))


@pytest.mark.parametrize(
    "executor, runtime",
    [
        ("graph", "cpp"),
        ("aot -unpacked-api -interface-api=c", "c"),
        ("aot -unpacked-api", "c"),
        ("aot", "c -system-lib -link-params"),
    ],
)
def test_valid_combinations_pass(executor: str, runtime: str) -> None:
    check_combination(Executor(executor), Runtime(runtime))


@dataclass(frozen=True, kw_only=True)
class WasmOptions:
    threads: int = option(1, doc="how many", minimum=1)


@dataclass(frozen=True, kw_only=True)
class Broken:
    threads: int = 1


WASM = ExecutorKind(
    "wasm",
    "bytecode of the web",
    WasmOptions,
    traits=frozenset({"compiled"}),
    rules=(
        Rule("wasm-in-pages", {"executor": "wasm", "runtime": "cpp"}, "'{executor}' needs a page"),
    ),
)  # fmt: skip
PAGE = RuntimeKind("page", "in a browser", missing="a browser")


class Hooks:
    """Registers what it is given."""

    def __init__(self, executors: list[Any], runtimes: list[Any]) -> None:
        self.executors, self.runtimes = executors, runtimes

    @hookimpl
    def register_executor_kind(self) -> list[ConfigKind]:
        return self.executors

    @hookimpl
    def register_runtime_kind(self) -> list[ConfigKind]:
        return self.runtimes


def plugin(
    executors: list[Any], runtimes: list[Any], *, name: str = "web", promised: str = "wasm"
) -> LocalPlugin:
    row = (ConfigRow(promised, "words"),)
    manifest = Manifest(
        name, ">=2.0,<3", "s", "", (), (), (), row, (ConfigRow("page", "p"),) if runtimes else ()
    )
    return LocalPlugin(manifest, Hooks(executors, runtimes), f"acme-{name}")


def host(*plugins: LocalPlugin) -> Host:
    return Host(env={}, path=["/nowhere"], local=plugins)


def test_a_plugin_adds_kinds_and_rules() -> None:
    web = host(plugin([WASM], [PAGE]))
    assert list(web.config_names("executor")) == ["aot", "graph", "vm", "wasm"]
    assert web.plugins()[0].state == "discovered"
    executor = Executor("wasm -threads=2", host=web)
    assert web.plugins()[0].state == "loaded"
    assert executor == Executor("wasm", host=web, threads=2)
    with pytest.raises(UsageError, match="rule wasm-in-pages: 'wasm' needs a page"):
        check_combination(executor, Runtime("cpp"))
    check_combination(executor, Runtime("page", host=web))
    with pytest.raises(UsageError, match="no executor 'wasn'\n  hint: did you mean 'wasm'"):
        Executor("wasn", host=web)


def test_a_plugins_kind_has_other_names() -> None:
    row = (ConfigRow("wasm", "words", ("web-assembly",)),)
    manifest = Manifest("web", ">=2.0,<3", "s", "", (), (), (), row)
    kind = replace(WASM, aliases=("web-assembly",))
    web = host(LocalPlugin(manifest, Hooks([kind], []), "acme-web"))
    assert Executor("web-assembly -threads=2", host=web) == Executor("wasm -threads=2", host=web)
    with pytest.raises(UsageError, match="did you mean 'web-assembly'"):
        Executor("web-asembly", host=web)
    unsaid = host(LocalPlugin(manifest, Hooks([WASM], []), "acme-web"))
    with pytest.raises(PluginError, match="kinds wasm, but its manifest declares wasm/web-assem"):
        Executor("web-assembly", host=unsaid)


@pytest.mark.parametrize(
    "bad, promised, message",
    [
        ([ExecutorKind("other", "o")], "wasm", "kinds other, but its manifest declares wasm"),
        ([], "wasm", "kinds none, but its manifest declares wasm"),
        (
            [ExecutorKind("aot", "o")],
            "aot",
            "registers an executor 'aot', which the host already has",
        ),
        ([ExecutorKind("wasm", "o", Broken)], "wasm", "Broken.threads is not declared with option"),
        ([RuntimeKind("wasm", "o")], "wasm", "holds RuntimeKind, not only ExecutorKind"),
    ],
)
def test_a_plugin_with_wrong_kinds_is_broken(bad: list[Any], promised: str, message: str) -> None:
    web = host(plugin(bad, [PAGE], promised=promised))
    for _ in range(2):  # the second time it is known to be broken
        with pytest.raises(PluginError, match=message):
            Runtime("page", host=web)


def test_two_plugins_with_one_kind_are_named() -> None:
    both = host(plugin([WASM], []), plugin([WASM], [], name="net"))
    with pytest.raises(DuplicateName, match="'wasm' is claimed by both 'acme-net' and 'acme-web'"):
        Executor("wasm", host=both)


def test_a_manifest_declares_kinds() -> None:
    text = """
        schema = 1
        name = "web"
        api = ">=1"
        summary = "s"
        hooks = "web"
        [[executor-kind]]
        name = "wasm"
        summary = "bytecode"
        [[runtime-kind]]
        name = "wasm"
        summary = "in a page"
        """
    manifest = parse_manifest(text)
    assert manifest.executors == (ConfigRow("wasm", "bytecode"),)
    assert manifest.runtimes == (ConfigRow("wasm", "in a page"),)
    with pytest.raises(PluginError, match="the name 'wasm' twice"):
        parse_manifest(text.replace("runtime-kind", "executor-kind"))


def test_what_cannot_be_made_is_said_before_anything_is_compiled() -> None:
    class Kinds:
        @hookimpl
        def register_target_kind(self) -> list[TargetKind]:
            return [
                TargetKind("loops", Role.BACKEND, CpuOptions),
                TargetKind("firm", Role.BACKEND, NpuOptions, runtimes=("cpp", "c")),
            ]

    rows = tuple(KindRow(name, Role.BACKEND, "s") for name in ("loops", "firm"))
    made = host(LocalPlugin(Manifest("p", ">=2.0,<3", "s", "", rows, (), ()), Kinds()))
    with pytest.raises(UnsupportedError, match="'loops' makes no code for runtime 'c'"):
        check_served(Executor(), Runtime("c"), made.target("loops"))
    check_served(Executor(), Runtime("c"), made.target("firm"))
    check_served(Executor("vm"), Runtime(), made.target("loops"))
    planned = Executor("vm")
    planned.row = replace(planned.row, missing="a second brain")
    with pytest.raises(UnsupportedError, match="executor 'vm' needs a second brain"):
        check_served(planned, Runtime(), made.target("loops"))
