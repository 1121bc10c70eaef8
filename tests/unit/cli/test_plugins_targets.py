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
from intarsia.host.host import Host
from intarsia.host.manager import LocalPlugin
from intarsia.host.manifest import AliasRow, KindRow, Manifest
from intarsia.target.kind import Role, TargetKind

from ..target.target_kinds import CpuOptions, NpuOptions


class Hooks:
    """Registers one kind."""

    def __init__(self, kind: TargetKind) -> None:
        self.kind = kind


def plugin(kind: TargetKind, aliases: tuple[AliasRow, ...] = ()) -> LocalPlugin:
    from intarsia.host.markers import hookimpl

    class Registering(Hooks):
        @hookimpl
        def register_target_kind(self) -> list[TargetKind]:
            return [self.kind]

    rows = (KindRow(kind.name, kind.role, f"about {kind.name}"),)
    manifest = Manifest(kind.name, ">=1.0,<2", f"plugin {kind.name}", "", rows, aliases, ())
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
        "api": ">=1.0,<2",
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
        "hook api:     >=1.0,<2\n"
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
    assert "-variant             str   n78      hardware (n77, n78)\n" in text
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
