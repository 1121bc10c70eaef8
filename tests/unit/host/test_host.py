# SPDX-License-Identifier: Apache-2.0
"""The host: settings, conflicts, lazy activation, targets."""

from __future__ import annotations

import sys
import tomllib
import types
from pathlib import Path

import pytest

from intarsia.host.activation import new_hooks
from intarsia.host.host import Host
from intarsia.host.manager import PluginManager
from intarsia.host.manifest import AliasRow
from intarsia.plugin import Role, SupportTable, TargetKind, hookimpl
from intarsia_runtime.errors import DuplicateName, PluginError, TargetError, UsageError

from .installed import install
from .local_plugins import LOOPS, NPU, Loops, Npu, Options, host_of, local


def states(host: Host) -> dict[str, str]:
    return {plugin.distribution: plugin.state for plugin in host.plugins()}


def test_a_kind_is_loaded_when_it_is_used() -> None:
    host = host_of(NPU, LOOPS)
    assert states(host) == {"acme-npu": "discovered", "acme-loops": "discovered"}
    assert [(k.name, k.role, k.plugin, k.summary) for k in host.kinds()] == [
        ("loops", "backend", "loops", "words"),
        ("npu", "accelerator", "npu", "words"),
    ]
    assert host.kind("npu").name == "npu"
    assert host.kind("npu") is host.kind("npu")
    assert states(host) == {"acme-npu": "loaded", "acme-loops": "discovered"}
    assert host.owner("loops").version == "0"


@pytest.mark.parametrize(
    "disabled, env, reason, remedy",
    [
        (("npu",), {}, "--no-plugin names it", "leave --no-plugin out"),
        (("acme-npu",), {}, "--no-plugin names it", "leave"),
        (
            (),
            {"INTARSIA_DISABLE_PLUGINS": " npu ,x"},
            "INTARSIA_DISABLE_PLUGINS names it",
            "take it out",
        ),
        (("Acme_NPU",), {}, "--no-plugin names it", "leave"),
        ((), {"INTARSIA_DISABLE_PLUGINS": "acme-npu"}, "INTARSIA_DISABLE_PLUGINS names it", "take"),
        ((), {"INTARSIA_PLUGINS": "loops"}, "INTARSIA_PLUGINS does not name it", "add npu to"),
    ],
)
def test_a_setting_blocks_a_plugin(
    disabled: tuple[str, ...], env: dict[str, str], reason: str, remedy: str
) -> None:
    host = host_of(NPU, LOOPS, disabled=disabled, **env)
    assert states(host) == {"acme-npu": "blocked", "acme-loops": "discovered"}
    info = host.plugin("npu")[0]
    assert reason in info.reason
    assert remedy in info.remedy
    assert [kind.name for kind in host.kinds()] == ["loops"]
    assert "npu-auto" not in host.aliases()
    with pytest.raises(PluginError, match=r"belongs to plugin 'npu' .* is blocked") as caught:
        host.target("npu, loops")
    assert remedy in caught.value.hint


def test_empty_settings_are_none() -> None:
    assert set(
        states(host_of(NPU, INTARSIA_PLUGINS=" ", INTARSIA_DISABLE_PLUGINS="")).values()
    ) == {"discovered"}


def test_names_in_settings_that_are_nobodys_are_told() -> None:
    host = host_of(NPU, LOOPS, INTARSIA_PLUGINS="loop,NPU,", INTARSIA_DISABLE_PLUGINS="Acme_NPU,zz")
    assert host.strange_settings() == [
        "INTARSIA_PLUGINS names 'loop', which is not installed: "
        "did you mean 'loops' or 'acme-loops'?",
        "INTARSIA_DISABLE_PLUGINS names 'zz', which is not installed: "
        "no plugin or distribution is called that",
    ]
    assert host_of(NPU, INTARSIA_PLUGINS=" ").strange_settings() == []


def test_two_claims_are_reported_and_refused_until_a_setting_decides(tmp_path: Path) -> None:
    install(tmp_path, "npu", distribution="intarsia-npu")
    install(tmp_path, "other", distribution="acme-npu", kind="npu", alias="other-auto")
    install(tmp_path, "fine")
    host = Host(env={}, path=[str(tmp_path)])
    reasons = {p.distribution: p.reason for p in host.plugins()}
    assert reasons["intarsia-npu"] == reasons["acme-npu"] != ""
    assert reasons["intarsia-fine"] == ""
    with pytest.raises(DuplicateName) as caught:
        host.kind("npu")
    assert caught.value.message == (
        "target kind 'npu' is claimed by both 'acme-npu' and 'intarsia-npu'"
    )
    assert "INTARSIA_DISABLE_PLUGINS=acme-npu or INTARSIA_DISABLE_PLUGINS=intarsia-npu" in (
        caught.value.hint
    )
    host = Host(env={"INTARSIA_DISABLE_PLUGINS": "acme-npu"}, path=[str(tmp_path)])
    assert host.owner("npu").distribution == "intarsia-npu"


def test_two_plugins_of_one_name_are_refused(tmp_path: Path) -> None:
    install(tmp_path, "npu", kind="npu-a")
    install(tmp_path, "npu", distribution="acme-npu", kind="npu-b")
    host = Host(env={}, path=[str(tmp_path)])
    assert len(host.plugin("npu")) == 2
    with pytest.raises(DuplicateName, match="plugin 'npu' is claimed by both"):
        host.kind("npu-b")
    with pytest.raises(UsageError, match="no plugin is called 'npx'") as caught:
        host.plugin("npx")
    assert caught.value.hint == "did you mean 'npu'?"


def test_an_alias_with_two_owners_is_refused_when_it_is_used() -> None:
    other = local(Loops(), "loops", Role.BACKEND, aliases=(AliasRow("npu-auto", "loops"),))
    host = host_of(NPU, other)
    assert host.aliases() == {"npu-auto": "npu, loops"}
    assert (len(host.alias_table()), "npu-auto" in host.alias_table()) == (1, True)
    assert str(host.target("npu, loops")) == "npu, loops"
    with pytest.raises(DuplicateName, match="alias 'npu-auto' is claimed by both"):
        host.target("npu-auto")


def test_a_kind_wins_over_an_alias_of_its_name_and_the_list_says_so() -> None:
    other = local(Loops(), "loops", Role.BACKEND, aliases=(AliasRow("npu", "loops"),))
    host = host_of(NPU, other)
    assert str(host.target("npu, loops")) == "npu, loops"
    assert host.plugin("loops")[0].reason == (
        "its alias 'npu' is hidden: plugin 'npu' (acme-npu 0) has a kind of that name"
    )


def test_targets_come_in_every_form() -> None:
    host = host_of(NPU, LOOPS)
    target = host.target("npu -level=2, loops")
    assert host.target(target) == target
    assert host.target(target.to_json()) == target
    assert host.target(target.json_text()) == target
    assert str(host.target("npu-auto")) == "npu, loops"
    assert host.target(target.fallback).fallback == target.fallback
    for spec in (
        "loops",
        '{"kind": "loops"}',
        {"kind": "loops"},
        target.fallback,
        host.target("loops"),
    ):
        assert host.target("npu", spec) == host.target("npu, loops")
    assert host_of(NPU, LOOPS).target(str(target)) == target
    with pytest.raises(TargetError, match="a string, a dict, a Target or a list, not int"):
        host.target(7)  # type: ignore[arg-type]
    with pytest.raises(TargetError, match="target_host is one backend, not 2 targets"):
        host.target("npu", "npu, loops")
    with pytest.raises(TargetError, match="called 'lops'"):
        host.target("lops")


def test_a_device_keeps_its_host() -> None:
    class Gpu:
        @hookimpl
        def register_target_kind(self) -> list[TargetKind]:
            return [TargetKind("gpu", Role.BACKEND, Options, device_type=2, host="loops")]

    host = host_of(LOOPS, local(Gpu(), "gpu", Role.BACKEND))
    target = host.target("gpu, loops -level=3")
    assert host.target(target) == target
    assert str(host.target("gpu")) == "gpu, loops"
    assert host.backends() == ["gpu", "loops"]


class Misspelt(Npu):
    """Has a hook that does not exist."""

    @hookimpl
    def anotate(self, target: object) -> None: ...


class WrongArgument:
    """Wants an argument that the host does not give."""

    @hookimpl
    def annotate(self, target: object, module: object) -> None: ...


class OtherKind:
    """Registers another kind than its manifest declares."""

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [TargetKind("npux", Role.ACCELERATOR, Options)]


class OtherRole:
    """Registers its kind in another role."""

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [TargetKind("npu", Role.BACKEND, Options)]


class BadOptions:
    """Has options that break the rules."""

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [TargetKind("npu", Role.ACCELERATOR, int)]


class NoKinds:
    """Registers nothing at all."""


@pytest.mark.parametrize(
    "hooks, reason",
    [
        (Misspelt(), "has an unknown hook, or one with other arguments: .*anotate"),
        (WrongArgument(), "has an unknown hook, or one with other arguments: .*module"),
        (OtherKind(), "registers the kinds npux, but its manifest declares npu"),
        (OtherRole(), "registers the kinds npu, but"),
        (BadOptions(), "options class int is not a dataclass"),
        (NoKinds(), r"does not implement register_target_kind\(\)"),
    ],
)
def test_a_plugin_that_breaks_a_rule_is_undone_and_others_work(hooks: object, reason: str) -> None:
    host = host_of(local(hooks), LOOPS)
    with pytest.raises(PluginError, match=reason):
        host.kind("npu")
    info = host.plugin("npu")[0]
    assert info.state == "broken"
    assert info.remedy
    with pytest.raises(PluginError, match="which is broken: "):
        host.target("npu, loops")
    assert str(host.target("loops")) == "loops"
    assert not host.has_hook("loops", "annotate")
    manager: PluginManager = host._manager
    assert [name for name, plugin in manager.hooks().list_name_plugin()] == ["loops"]


@pytest.mark.parametrize(
    "source, reason",
    [
        ("import missing_vendor_sdk", "ModuleNotFoundError: No module named 'missing_vendor_sdk'"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("def (", "SyntaxError"),
        ("class Odd(BaseException): ...\nraise Odd('odd')", "Odd: odd"),
        ("raise MemoryError()", "ran out of memory"),
    ],
)
def test_a_module_that_cannot_be_imported_breaks_only_its_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    package = install(tmp_path, "frail", distribution="acme-frail")
    (tmp_path / package / "plugin.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    for name in (package, f"{package}.plugin"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    host = Host(env={}, path=[str(tmp_path)])
    with pytest.raises(PluginError, match="frail") as caught:
        host.kind("frail")
    assert reason in str(caught.value)
    assert host.plugin("acme-frail")[0].state == "broken"


@pytest.mark.usefixtures("heeds_interrupts")
def test_an_interrupt_during_an_import_is_not_swallowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = install(tmp_path, "slow", distribution="acme-slow")
    (tmp_path / package / "plugin.py").write_text(
        "import signal; signal.raise_signal(signal.SIGINT)"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        Host(env={}, path=[str(tmp_path)]).kind("slow")


def test_no_hooks_before_the_first_activation() -> None:
    with pytest.raises(PluginError, match="no plugin is activated"):
        PluginManager({}, path=[]).hooks()


def test_unknown_kinds_get_the_nearest_name() -> None:
    with pytest.raises(TargetError) as caught:
        host_of(LOOPS).kind("loop")
    assert "loops" in caught.value.hint
    with pytest.raises(TargetError) as caught:
        host_of().kind("loop")
    assert "no plugin is installed" in caught.value.hint


def test_hook_specifications_are_complete() -> None:
    from intarsia.host import hookspecs

    pm = new_hooks()
    specs = {
        n
        for n, f in vars(hookspecs).items()
        if isinstance(f, types.FunctionType) and n != "hookspec"
    }
    assert {name for name in specs if vars(pm.hook).get(name)} == specs
    assert len(specs) == 23
    assert SupportTable(()).rows == ()


def test_a_kind_that_is_released_with_the_host_says_what_to_install() -> None:
    host = host_of(LOOPS)
    with pytest.raises(TargetError, match="hint: pip install intarsia-dnnl"):
        host.target("dnnl, loops")
    with pytest.raises(TargetError, match="hint: pip install intarsia-arm-acl"):
        host.target({"kind": "arm_acl"})
    with pytest.raises(TargetError, match="hint: known: loops"):
        host.target("vulkan")


def test_every_kind_and_alias_of_ours_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = Path(__file__).parents[3]
    core = tomllib.loads((root / "core" / "host" / "pyproject.toml").read_text("utf-8"))["project"]
    requires = [
        f"{text} ; extra == '{extra}'"
        for extra, texts in core["optional-dependencies"].items()
        for text in texts
    ]

    def read(_name: str) -> list[str]:
        return requires

    monkeypatch.setattr("importlib_metadata.requires", read)
    host = host_of(LOOPS)
    for path in root.glob("plugins/*/src/*/plugin.toml"):
        manifest = tomllib.loads(path.read_text("utf-8"))
        for row in (*manifest.get("target-kind", ()), *manifest.get("alias", ())):
            wanted = f"pip install {path.parent.name.replace('_', '-')}"
            with pytest.raises(TargetError) as caught:
                host.target({"kind": row["name"]})
            assert caught.value.hint == wanted, row["name"]
    for extra in ("tune", "all", "onnx"):
        with pytest.raises(TargetError, match="hint: known: loops"):
            host.target(extra)
