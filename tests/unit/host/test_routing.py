# SPDX-License-Identifier: Apache-2.0
"""Only the owner is asked; what it answers is checked; what it raises is named."""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable
from types import MappingProxyType

import pytest

from intarsia.host import routing
from intarsia.host.probe import Probe
from intarsia.plugin import (
    ANY,
    Match,
    Support,
    SupportRow,
    SupportTable,
    TargetKind,
    hookimpl,
    op,
)
from intarsia_ir.regions.region import Region
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.space import ScheduleSpaces
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.errors import (
    IntarsiaError,
    PluginError,
    ResourceError,
    ToolchainError,
    UnsupportedError,
)

from .local_plugins import LOOPS, Npu, host_of, local


class Answering(Npu):
    """Answers every hook with what a test says."""

    def __init__(self, answer: Callable[[], object]) -> None:
        self.answer = answer

    @hookimpl
    def annotate(self, target: object) -> object:
        return self.answer()

    @hookimpl
    def partition(self, regions: object) -> object:
        return self.answer()

    @hookimpl
    def relay_codegen(self, region: object) -> object:
        return self.answer()

    @hookimpl
    def lower_intrinsic(self, target: object) -> object:
        return self.answer()

    @hookimpl
    def rewrite_relay(self, function: object) -> object:
        return self.answer()

    @hookimpl
    def rewrite_tir(self, function: object) -> object:
        return self.answer()

    @hookimpl
    def schedule_spaces(self, target: object) -> object:
        return self.answer()

    @hookimpl
    def register_executor_kind(self) -> object:
        return self.answer()

    @hookimpl
    def probe(self, target: object) -> object:
        return self.answer()


ARGUMENTS = {
    "annotate": {"target": None},
    "partition": {"regions": (), "target": None},
    "relay_codegen": {"region": None, "target": None},
    "lower_intrinsic": {"target": None},
    "rewrite_relay": {"function": None, "target": None},
    "rewrite_tir": {"function": None, "target": None},
    "schedule_spaces": {"target": None},
    "register_executor_kind": {},
    "probe": {"target": None},
}


def ask(hook: str, answer: Callable[[], object], **arguments: object) -> object:
    host = host_of(local(Answering(answer)), LOOPS)
    return host.call(hook, "npu", **{**ARGUMENTS[hook], **arguments})


def takes(match: Match) -> Support:
    return Support.yes()


def rule(*args: object) -> object:
    return args


def unit(**changes: object) -> CompiledUnit:
    fields = {"name": "npu_0", "loader": "npu", "files": {"a/b.bin": b""}, **changes}
    return CompiledUnit(**fields)  # type: ignore[arg-type]


REGION = Region("npu_0", "npu", None, {}, ())  # type: ignore[arg-type]
ROW = SupportRow("add", op("add", ANY, ANY), takes)


@pytest.mark.parametrize(
    "hook, answer",
    [
        ("annotate", SupportTable([ROW])),
        ("relay_codegen", unit()),
        ("lower_intrinsic", MappingProxyType({Intrinsic.EXP: rule})),
        ("schedule_spaces", ScheduleSpaces("machine", ())),
        ("probe", Probe(True, sdk="x 1")),
    ],
)
def test_a_right_answer_is_handed_on(hook: str, answer: object) -> None:
    assert ask(hook, lambda: answer) == answer


def test_lists_come_back_as_tuples() -> None:
    assert ask("partition", lambda: [REGION]) == (REGION,)
    assert ask("register_executor_kind", list) == ()


@pytest.mark.parametrize(
    "hook, answer, problem",
    [
        ("annotate", "all", "str, not SupportTable"),
        (
            "annotate",
            SupportTable(iter(())),
            "SupportTable whose rows is tuple_iterator, not Sequence[SupportRow]",
        ),  # type: ignore[arg-type]
        ("annotate", SupportTable([7]), "SupportTable whose rows[0] is int, not SupportRow"),  # type: ignore[list-item]
        (
            "annotate",
            SupportTable([SupportRow("x", ANY, 7)]),
            "SupportTable whose rows[0].predicate is int, not Callable[",
        ),  # type: ignore[arg-type]
        ("annotate", SupportTable([ROW, ROW]), "two rows called 'add'"),
        ("partition", (r for r in ()), "generator, not a list of Region"),
        ("partition", [REGION, None], "a list that holds NoneType, not only Region"),
        ("relay_codegen", b"\x7fELF", "bytes, not CompiledUnit"),
        ("relay_codegen", unit(name="other"), "a unit called 'other' for region 'npu_0'"),
        ("relay_codegen", unit(loader=""), "a unit without a loader"),
        (
            "relay_codegen",
            unit(files=[]),
            "CompiledUnit whose files is list, not Mapping[str, bytes]",
        ),
        (
            "relay_codegen",
            unit(files={"a": "text"}),
            "CompiledUnit whose files['a'] is str, not bytes",
        ),
        ("relay_codegen", unit(files={"../a": b""}), "a file called '../a'"),
        ("relay_codegen", unit(files={"/a": b""}), "a file called '/a'"),
        ("lower_intrinsic", [], "list, not Mapping[Intrinsic, Callable["),
        ("lower_intrinsic", {"exp": rule}, "dict whose key 'exp' is str, not Intrinsic"),
        ("lower_intrinsic", {Intrinsic.EXP: "expf"}, "is str, not Callable["),
        ("rewrite_relay", 3, "int, not Function"),
        ("rewrite_tir", {}, "dict, not PrimFunc"),
        ("schedule_spaces", [], "list, not ScheduleSpaces"),
        ("register_executor_kind", 7, "int, not a list of ExecutorKind"),
        ("probe", True, "bool, not Probe"),
    ],
)
def test_a_wrong_answer_names_plugin_and_hook(hook: str, answer: object, problem: str) -> None:
    arguments = {"region": REGION} if hook == "relay_codegen" else {}
    with pytest.raises(PluginError) as caught:
        ask(hook, lambda: answer, **arguments)
    assert caught.value.message.startswith(f"plugin 'npu' (acme-npu 0) answered {hook}() with ")
    assert problem in caught.value.message
    assert "upgrade acme-npu" in caught.value.hint


def test_no_answer_is_wrong_too() -> None:
    with pytest.raises(PluginError, match=r"gave no answer to rewrite_relay\(\)"):
        ask("rewrite_relay", lambda: None)


def test_a_hook_that_is_not_there_is_told() -> None:
    host = host_of(local(Npu()))
    assert host.has_hook("npu", "annotate")
    assert not host.has_hook("npu", "probe")
    with pytest.raises(PluginError, match=r"does not implement relay_codegen\(\)"):
        host.call("relay_codegen", "npu", region=None, target=None)
    with pytest.raises(PluginError, match=r"there is no hook explode\(\)"):
        host.call("explode", "npu")


@pytest.mark.parametrize(
    "error, kind, text",
    [
        (ZeroDivisionError("x"), PluginError, "failed in probe(): ZeroDivisionError: x"),
        (SystemExit(3), PluginError, "failed in probe(): SystemExit: 3"),
        (RuntimeError(), PluginError, "RuntimeError: no message"),
        (IntarsiaError("bare"), PluginError, "IntarsiaError: bare"),
        (OSError(errno.ENOENT, "gone"), PluginError, "FileNotFoundError"),
        (OSError(errno.ENOSPC, "full"), ResourceError, "ran out of memory or disk in probe()"),
        (MemoryError(), ResourceError, "ran out of memory or disk"),
        (ToolchainError("ld failed", hint="install ld"), ToolchainError, "ld failed"),
        (UnsupportedError("no", where="node a"), UnsupportedError, "node a, plugin 'npu'"),
    ],
)
def test_an_error_names_the_plugin_and_keeps_its_meaning(
    error: BaseException, kind: type[IntarsiaError], text: str
) -> None:
    def fail() -> object:
        raise error

    with pytest.raises(IntarsiaError) as caught:
        ask("probe", fail)
    assert type(caught.value) is kind
    assert text in str(caught.value)
    assert "plugin 'npu' (acme-npu 0)" in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.usefixtures("heeds_interrupts")
def test_an_interrupt_in_a_hook_is_not_swallowed() -> None:
    def interrupt() -> object:
        signal.raise_signal(signal.SIGINT)
        return Probe(False)

    with pytest.raises(KeyboardInterrupt):
        ask("probe", interrupt)


def test_a_hook_that_raises_an_interrupt_is_named() -> None:
    def pretend() -> object:
        raise KeyboardInterrupt

    with pytest.raises(PluginError, match=r"acme-npu 0\) failed in probe\(\): KeyboardInterrupt"):
        ask("probe", pretend)


@pytest.mark.parametrize("hook", ["relay_codegen", "rewrite_relay", "rewrite_tir"])
def test_a_compiling_hook_that_hangs_is_cut_at_its_limit(
    hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang() -> object:
        while True:
            pass

    monkeypatch.setenv("INTARSIA_PLUGIN_TIMEOUT", "0.05")
    monkeypatch.setattr(routing, "_COMPILING_FACTOR", 2)
    with pytest.raises(PluginError, match=rf"{hook}\(\): OutOfTime: it took longer than 0\.1 s"):
        ask(hook, hang)


def test_what_a_plugin_prints_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    def talk() -> object:
        print("noise")
        return Probe(False)

    ask("probe", talk)
    assert capsys.readouterr() == ("", "noise\n")


def test_a_greedy_plugin_is_asked_about_its_own_kind_only() -> None:
    class Greedy(Answering):
        @hookimpl(tryfirst=True)
        def register_target_kind(self) -> list[TargetKind]:
            return [TargetKind("greedy", npu.role, npu.options)]

        @hookimpl(tryfirst=True)
        def annotate(self, target: object) -> object:
            raise AssertionError("asked about a kind of another plugin")

    npu = Npu().register_target_kind()[0]
    host = host_of(local(Greedy(lambda: 1), "greedy"), local(Npu()))
    host.kind("greedy")
    assert host.call("annotate", "npu", target=None) == SupportTable(())
    with pytest.raises(PluginError, match=r"'greedy'.*asked about a kind"):
        host.call("annotate", "greedy", target=None)
