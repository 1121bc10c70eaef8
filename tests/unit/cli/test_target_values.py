# SPDX-License-Identifier: Apache-2.0
"""`targets show --values`, and `targets parse` with settings and origins."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from intarsia.cli import session
from intarsia.cli.main import main
from intarsia.host.hookspecs import hookimpl
from intarsia.host.host import Host
from intarsia.host.manager import LocalPlugin
from intarsia.host.manifest import KindRow, Manifest
from intarsia.target.kind import KnownValue, KnownValues, Role, TargetKind
from intarsia.target.options import option
from intarsia.target.target import Target


@dataclass(frozen=True, kw_only=True)
class Options:
    """Of the only kind."""

    mcpu: str = option("generic", doc="processor")
    mtriple: str = option("here", doc="machine")
    mode: str = option("fast", doc="how", choices=("fast", "small"))
    old: int = option(1, doc="effort", minimum=0, maximum=3, deprecated="use -mode")


KIND = TargetKind("loops", Role.BACKEND, Options, known_flags=("mcpu",))


class Hooks:
    """Registers the kind."""

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [KIND]

    @hookimpl
    def known_values(self, flag: str, target: Target[Options]) -> KnownValues:
        rows = (KnownValue("a72", "quick"), KnownValue("m4"))
        source = f"generator 3 for {target.options.mtriple}"
        return KnownValues(rows, source, f"an a72, by {flag}")


@pytest.fixture(autouse=True)
def _host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    manifest = Manifest("p", ">=2.0,<3", "s", "", (KindRow("loops", Role.BACKEND, "s"),), (), ())

    def make(**_: object) -> Host:
        return Host(env={}, path=[str(tmp_path)], local=[LocalPlugin(manifest, Hooks(), "acme-p")])

    monkeypatch.setattr(session, "Host", make)
    monkeypatch.delenv("INTARSIA_TARGET", raising=False)
    monkeypatch.chdir(tmp_path)


def test_what_only_the_code_generator_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "show", "loops -mtriple=there", "--values", "mcpu"]) == 0
    assert capsys.readouterr().out == (
        "-MCPU  MEANING\n"
        "a72    quick\n"
        "m4\n"
        "2 values, from generator 3 for there\n"
        "this machine: an a72, by mcpu\n"
    )
    assert main(["targets", "show", "loops", "--values", "-mcpu", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["values"] == [{"value": "a72", "doc": "quick"}, {"value": "m4", "doc": ""}]
    assert said["source"] == "generator 3 for here"


def test_choices_are_values_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "show", "loops", "--values", "mode"]) == 0
    assert capsys.readouterr().out == "-MODE  MEANING\nfast\nsmall\n2 values, from loops\n"


@pytest.mark.parametrize(
    "words, message",
    [
        (("loops", "--values", "zzz"), "target kind 'loops' has no option '-zzz'"),
        (("loops", "--values", "mtriple"), "-mtriple of 'loops' is any str"),
        (("loops, loops", "--values", "mcpu"), "--values takes one kind, not 2"),
    ],
)
def test_values_that_cannot_be_listed(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["targets", "show", *words]) == 2
    assert message in capsys.readouterr().err


def test_show_says_everything_about_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "show", "loops"]) == 0
    said = capsys.readouterr().out
    assert "effort (at least 0, at most 3) (deprecated: use -mode)" in said
    assert "how (fast, small)" in said
    assert "values of -mcpu: intarsia targets show loops --values mcpu" in said


def test_a_deprecated_option_warns_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", "parse", "loops -old=2"]) == 0
    said = capsys.readouterr()
    assert said.out == "loops -old=2\n"
    assert said.err == ("warning: option -old of target kind 'loops' is deprecated: use -mode\n")


def test_parse_shows_the_target_that_is_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["targets", "parse"]) == 2
    assert "no target is set" in capsys.readouterr().err
    file = tmp_path / "intarsia.toml"
    file.write_text('target = "loops -mcpu=m4"\n[target-options.loops]\nmode = "small"\n')
    assert main(["targets", "parse", "--origin", "--target-loops-mtriple=x"]) == 0
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["loops", "-mcpu=m4", "-mtriple=x -mode=small"]
    assert lines[2:] == [
        ["target", str(file)],
        ["loops", "-mcpu", str(file)],
        ["loops", "-mtriple", "command line"],
        ["loops", "-mode", str(file)],
    ]
    assert main(["targets", "parse", "loops", "--origin", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["origin"], said["origins"]) == ("given", {"loops": {"mode": str(file)}})
