# SPDX-License-Identifier: Apache-2.0
"""`plugins` and `targets`: text and JSON, without any installed plugin but those of the test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from intarsia.cli import session
from intarsia.cli.main import main
from intarsia.cli.output import progress, table
from intarsia.host.discovery import Found, State
from intarsia.host.examine import PluginFinding
from intarsia.host.host import Host
from intarsia.host.manager import LocalPlugin
from intarsia.host.manifest import AliasRow, KindRow, Manifest
from intarsia.target.kind import Role, TargetKind

from ..host.installed import install
from ..target.target_kinds import CpuOptions, NpuOptions


class Hooks:
    """Registers one kind."""

    def __init__(self, kind: TargetKind) -> None:
        self.kind = kind


def plugin(kind: TargetKind, aliases: tuple[AliasRow, ...] = ()) -> LocalPlugin:
    from intarsia.host.hookspecs import hookimpl

    class Registering(Hooks):
        @hookimpl
        def register_target_kind(self) -> list[TargetKind]:
            return [self.kind]

    rows = (KindRow(kind.name, kind.role, f"about {kind.name}"),)
    manifest = Manifest(kind.name, ">=2.0,<3", f"plugin {kind.name}", "", rows, aliases, ())
    return LocalPlugin(manifest, Registering(kind), f"acme-{kind.name}")


PLUGINS = (
    plugin(TargetKind("loops", Role.BACKEND, CpuOptions, summary="compiles loops")),
    plugin(TargetKind("npu", Role.ACCELERATOR, NpuOptions), (AliasRow("fast", "npu, loops"),)),
)


@pytest.fixture(autouse=True)
def _host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def make(*, disabled: tuple[str, ...], **_: object) -> Host:
        return Host(env={}, disabled=disabled, path=[str(tmp_path)], local=PLUGINS)

    monkeypatch.setattr(session, "Host", make)


def test_plugins_list_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "list"]) == 0
    assert capsys.readouterr().out == (
        "NAME   VERSION  STATE       KINDS  DISTRIBUTION\n"
        "loops  0        discovered  loops  acme-loops\n"
        "npu    0        discovered  npu    acme-npu\n"
    )


def test_settings_that_name_nobody_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(**_: object) -> Host:
        return Host(env={"INTARSIA_DISABLE_PLUGINS": "loop"}, path=[], local=PLUGINS)

    monkeypatch.setattr(session, "Host", make)
    assert main(["plugins", "list", "--json"]) == 0
    said = capsys.readouterr()
    assert said.err == (
        "warning: INTARSIA_DISABLE_PLUGINS names 'loop', which is not installed: "
        "did you mean 'loops' or 'acme-loops'?\n"
    )
    assert len(json.loads(said.out)["plugins"]) == 2


def test_plugins_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--no-plugin", "npu", "plugins", "list", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert list(value) == ["schema", "plugins"]
    assert value["schema"] == 1
    assert value["plugins"][1] == {
        "name": "npu",
        "distribution": "acme-npu",
        "version": "0",
        "api": ">=2.0,<3",
        "kinds": ["npu"],
        "state": "blocked",
        "reason": "--no-plugin names it",
        "remedy": "leave --no-plugin out",
    }


def test_a_reason_is_printed_beside_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--no-plugin", "npu", "plugins", "list"]) == 0
    assert capsys.readouterr().err == (
        "\nnpu (acme-npu): --no-plugin names it\n  hint: leave --no-plugin out\n"
    )


def test_a_plugin_to_leave_out_must_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--no-plugin", "npx", "plugins", "list"]) == 2
    assert "no plugin is called 'npx'\n  hint: did you mean 'npu'?" in capsys.readouterr().err


def test_plugins_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "show", "npu"]) == 0
    assert capsys.readouterr().out == (
        "name:         npu\n"
        "summary:      plugin npu\n"
        "distribution: acme-npu 0\n"
        "hook api:     >=2.0,<3\n"
        "kinds:        npu\n"
        "aliases:      fast\n"
        "state:        discovered\n"
    )
    assert main(["plugins", "show", "acme-npu", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["plugins"]
    assert (row["aliases"], row["summary"]) == (["fast"], "plugin npu")
    assert main(["plugins", "show", "npx"]) == 2
    assert (
        capsys.readouterr().err == "error: no plugin is called 'npx'\n  hint: did you mean 'npu'?\n"
    )


def test_targets_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "list"]) == 0
    assert capsys.readouterr().out == (
        "KIND   ROLE         FROM        SUMMARY\n"
        "loops  backend      acme-loops  about loops\n"
        "npu    accelerator  acme-npu    about npu\n"
        "\n"
        "ALIAS  STANDS FOR\n"
        "fast   npu, loops\n"
    )
    assert main(["targets", "list", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["aliases"] == {"fast": "npu, loops"}
    assert value["targets"][1]["role"] == "accelerator"


def test_targets_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "show", "npu"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("npu: accelerator, from acme-npu 0\n")
    assert "-variant             str          n78      hardware (n77, n78)\n" in text
    assert "-hardware            str          ''       the device, by any name of its tag" in text
    assert main(["targets", "show", "loops", "--json"]) == 0
    target = json.loads(capsys.readouterr().out)["target"]
    assert target["options"][2] == {
        "flag": "num-threads",
        "type": "int",
        "default": 0,
        "choices": [],
        "minimum": 0,
        "maximum": 1024,
        "doc": "threads",
        "deprecated": "",
    }
    assert main(["targets", "show", "lops"]) == 2
    assert "did you mean 'loops'" in capsys.readouterr().err


def test_targets_show_says_what_an_alias_stands_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "show", "fast"]) == 0
    assert capsys.readouterr().out == (
        "fast: alias, from acme-npu 0\n"
        "stands for: npu, loops\n"
        "here: npu, loops\n"
        "options of npu: intarsia targets show npu\n"
        "options of loops: intarsia targets show loops\n"
    )
    assert main(["targets", "show", "fast", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["alias"]
    assert (row["stands_for"], row["distribution"]) == ("npu, loops", "acme-npu")
    assert row["target"]["accelerators"] == [{"kind": "npu"}]
    assert main(["targets", "parse", '{"kind": "fast"}']) == 2
    assert "'fast' is an alias of 'npu, loops', not a kind" in capsys.readouterr().err


def test_targets_parse_takes_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "parse", '["npu -variant=n77", {"kind": "loops"}]']) == 0
    assert capsys.readouterr().out == "npu -variant=n77, loops\n"
    assert main(["targets", "parse", '["npu", 3]']) == 2
    assert "target[1]: expected an object, not int" in capsys.readouterr().err


def test_options_of_every_kind_are_options_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["targets", "parse", "loops", "--target-loops-keys", "mine"]) == 0
    assert capsys.readouterr().out == "loops -keys=mine\n"
    assert main(["targets", "parse", "loops", "--target-loops-hardware", "nobody"]) == 2
    assert "no hardware is called 'nobody'" in capsys.readouterr().err


def test_plugins_show_lists_all_that_a_plugin_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """schema = 1
name = "all"
api = ">=2.0,<3"
summary = "one of each"
hooks = "intarsia_all.plugin"
executor-kind = [{ name = "wasm", summary = "s", aliases = ["web"] }]
runtime-kind = [{ name = "page", summary = "s" }]
hardware = [{ file = "tags.toml" }]
kind-attribute = [{ name = "acme.power", kind = "loops", summary = "s" }]
"""
    install(tmp_path, "all", manifest=text)
    entries = tmp_path / "intarsia_all-1.0.dist-info" / "entry_points.txt"
    entries.write_text(entries.read_text() + "[intarsia.loaders]\nall-loader = x:y\n")
    monkeypatch.setattr(session, "Host", lambda **_: Host(env={}, path=[str(tmp_path)]))
    assert main(["plugins", "show", "all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[4:9]] == [
        ["executors:", "wasm,", "web"],
        ["runtimes:", "page"],
        ["hardware:", "tags.toml"],
        ["attributes:", "acme.power", "of", "loops"],
        ["loaders:", "all-loader"],
    ]
    assert main(["plugins", "show", "all", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["plugins"]
    assert (row["executors"], row["loaders"]) == (["wasm", "web"], ["all-loader"])


@pytest.mark.parametrize("usable", [True, False])
def test_plugins_why_says_what_doctor_says(
    usable: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"usable": usable, "sdk": "sdk 3", "device": "", "detail": "no device"}
    finding = PluginFinding(
        *("npu", "acme-npu", "1", ">=1", True, ("npu",), "discovered", "", ""),
        probes={"npu": answer},
    )
    monkeypatch.setattr(Host, "examine", lambda *_: (finding,))
    said = []
    for command in (["plugins", "why", "npu"], ["doctor", "npu"]):
        assert main(command) == 0
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        said.append([line for line in lines if line.startswith("npu: ")])
        if command[0] == "plugins":
            assert any("it can be used" in line for line in lines) is usable
    assert (
        said[0]
        == said[1]
        == [f"npu: {'usable' if usable else 'not usable here'}, sdk 3, no device"]
    )


def test_targets_parse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "parse", "fast"]) == 0
    assert capsys.readouterr().out == "npu, loops\n"
    assert main(["targets", "parse", "npu -variant=n77", "--target-host", "loops", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "target": {
            "kind": "composite",
            "accelerators": [{"kind": "npu", "variant": "n77"}],
            "fallback": {"kind": "loops"},
            "target_host": {"kind": "loops"},
        },
    }
    assert main(["targets", "parse", "loops -mcpu=x", "--origin"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["loops", "-mcpu", "given"]
    assert main(["targets", "parse", "loops -mcpu=x", "--origin", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["origins"] == {"loops": {"mcpu": "given"}}
    assert main(["targets", "parse", "npu"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: 'npu' is an accelerator")
    assert "'npu, loops'" in err


def test_nothing_installed_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def empty(**_: object) -> Host:
        return Host(env={}, path=[str(tmp_path)])

    monkeypatch.setattr(session, "Host", empty)
    for command in ("plugins", "targets"):
        assert main([command, "list"]) == 0
        assert capsys.readouterr().out.startswith("no plugin is installed")


def test_a_table_on_a_terminal_is_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    table([("[red]x", 1)], ("name", "size"))
    assert "[red]x" in capsys.readouterr().out


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_goes_to_stderr_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    with progress("working", 3) as advance:
        advance(3)
    assert capsys.readouterr().out == ""


def test_states_are_the_five_of_the_documentation() -> None:
    assert [state.value for state in State] == [
        "discovered",
        "blocked",
        "incompatible",
        "broken",
        "loaded",
    ]
    assert Found("a", "b", "1").state is State.DISCOVERED
