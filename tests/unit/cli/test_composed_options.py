# SPDX-License-Identifier: Apache-2.0
"""Options of kinds on the command line, settings of the environment and of a file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from intarsia.cli import session
from intarsia.cli.composed import ComposedCommand
from intarsia.cli.main import cli, main
from intarsia.cli.model_options import BuildSettings, build_options
from intarsia.cli.target_options import read_targets
from intarsia.driver.configured import read_settings
from intarsia.host.hookspecs import hookimpl
from intarsia.host.host import Host
from intarsia.host.manager import LocalPlugin
from intarsia.host.manifest import AliasRow, KindRow, Manifest
from intarsia.target.kind import Role, TargetKind
from intarsia_runtime.errors import UsageError

from ..target.target_kinds import CpuOptions, NpuOptions

Run = Callable[..., tuple[int, str]]


def plugin(kind: TargetKind, *aliases: AliasRow) -> LocalPlugin:
    class Registering:
        @hookimpl
        def register_target_kind(self) -> list[TargetKind]:
            return [kind]

    rows = (KindRow(kind.name, kind.role, f"about {kind.name}"),)
    manifest = Manifest(kind.name, ">=2.0,<3", "s", "", rows, aliases, ())
    return LocalPlugin(manifest, Registering(), f"acme-{kind.name}")


class Broken:
    """Fails when it is asked."""

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        raise ZeroDivisionError


BROKEN = LocalPlugin(
    Manifest("bad", ">=1", "s", "", (KindRow("bad", Role.ACCELERATOR, "s"),), (), ()), Broken()
)


ODD = TargetKind("odd_npu", Role.ACCELERATOR, NpuOptions)


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Host]:
    """Every host that a command makes; the plugins are those of this file."""
    made: list[Host] = []

    def make(*, disabled: tuple[str, ...], **_: object) -> Host:
        plugins = (
            plugin(TargetKind("loops", Role.BACKEND, CpuOptions)),
            plugin(ODD, AliasRow("odd", "odd_npu, loops")),
            BROKEN,
        )
        made.append(Host(env={}, disabled=disabled, path=[str(tmp_path)], local=plugins))
        return made[-1]

    monkeypatch.setattr(session, "Host", make)
    for name in ("TARGET", "TARGET_HOST", "EXECUTOR", "RUNTIME"):
        monkeypatch.delenv(f"INTARSIA_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def run(
    hosts: list[Host], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run ``compile`` without compiling; returns the exit code and what it would compile for."""

    @click.command("compile", cls=ComposedCommand)
    @click.argument("model")
    @build_options()
    def command(model: str, settings: BuildSettings) -> None:
        """Compile."""
        target = settings.target.read(settings.host)
        click.echo(f"{model}: {target} | {settings.executor} | {settings.runtime}")

    def get(self: Any, ctx: click.Context, name: str) -> click.Command:
        return command

    monkeypatch.setattr(type(cli), "get_command", get)

    def call(*words: str) -> tuple[int, str]:
        code = main(["compile", *words])
        said = capsys.readouterr()
        return code, said.out + said.err

    return call


@pytest.mark.parametrize(
    "words, said",
    [
        (("--target", "loops", "--target-loops-num-threads", "2"),
         "loops -num-threads=2 | aot | cpp"),
        (("--target", "loops", "--target-loops-fast-math"), "loops -fast-math=true"),
        (("--target", "loops", "--target-loops-fast-math=0"), "m: loops | aot"),
        (("--target", "loops", "--target-loops-vectorize", "False"), "loops -vectorize=false"),
        (("--target-loops-fast-math", "--target", "loops"), "loops -fast-math=true"),
        (("--target", "loops", "--target-loops-mattr", "+a,+b"), "loops -mattr=+a,+b"),
        (("--target", "odd", "--target-odd-npu-level=2"), "odd_npu -level=2, loops |"),
        (("--target", "odd", "--target-odd_npu-sram-size", "8"), "odd_npu -sram-size=8, loops |"),
        (("--target", "loops", "--executor", "graph", "--runtime", "cpp"), "| graph | cpp"),
        (("--target", "loops", "--executor", "aot -interface-api=c"), "| aot -interface-api=c |"),
        (("--target", "loops", "--executor-aot-unpacked-api", "--runtime=crt",
          "--runtime-c-system-lib", "--executor-aot-interface-api", "c"),
         "| aot -unpacked-api=true -interface-api=c | c -system-lib=true"),
        (("--target", "loops", "--executor-aot-unpacked-api=false"), "| aot | cpp"),
    ],
)  # fmt: skip
def test_options_of_kinds_are_options(run: Run, words: tuple[str, ...], said: str) -> None:
    code, text = run("m", *words)
    assert code == 0, text
    assert said in text


def test_a_switch_takes_no_other_word(run: Run) -> None:
    code, text = run("--target", "loops", "--target-loops-fast-math", "model.onnx")
    assert (code, text) == (0, "model.onnx: loops -fast-math=true | aot | cpp\n")
    code, text = run("--target", "loops", "--", "--target-loops-fast-math")
    assert (code, text) == (0, "--target-loops-fast-math: loops | aot | cpp\n")


@pytest.mark.parametrize(
    "words, message",
    [
        (("--target", "loops", "--target-odd-npu-level=2"),
         "-level of 'odd_npu' is set on the command line, but 'odd_npu' is not in"),
        (("--target", "loops", "--target-lops-mcpu=2"),
         "--target-lops-mcpu names no installed target"),
        (("--target", "loops", "--target-loops-mpcu=2"), "did you mean '--target-loops-mcpu'"),
        (("--target", "loops", "--target-loops-zzz"), "--help-all lists them all"),
        (("--target", "loops", "--target-loops-num-threads=x"),
         "--target-loops-num-threads: -num-threads is an integer, not 'x'"),
        (("--target", "loops", "--target-loops-fast-math=maybe"), "is true or false, not 'maybe'"),
        (("--target", "loops", "--target-loops-mcpu"), "requires an argument"),
        (("--target", "loops -mcpu=a", "--target-loops-mcpu=b"), "leave one of"),
        (("--target", "loops", "--executor-lisp-x=1"), "--executor-lisp-x names no installed exec"),
        (("--target", "loops", "--executor", "graph", "--executor-aot-unpacked-api"),
         "--executor-aot-unpacked-api is set, but the executor is 'graph'"),
        (("--target", "loops", "--executor", "aot -unpacked-api=0",
          "--executor-aot-unpacked-api"),
         "given twice, with two values"),
        (("--target", "loops", "--executor", "aott"), "there is no executor 'aott'"),
        (("--target", "loops", "--target-bad-x=1"), "ZeroDivisionError"),
        ((), "no target is set"),
    ],
)  # fmt: skip
def test_wrong_options_of_kinds_are_told(run: Run, words: tuple[str, ...], message: str) -> None:
    code, text = run("m", *words)
    assert code == (5 if "ZeroDivision" in message else 2)
    assert message in text


def test_help_imports_no_plugin(run: Run, hosts: list[Host]) -> None:
    code, text = run("--help")
    assert code == 0
    assert "Target:" in text
    assert "--target-KIND-OPTION    bad, loops, odd_npu\n" in text
    assert "--executor-KIND-OPTION  aot, graph, vm\n" in text
    assert "--target-loops-mcpu" not in text
    assert {p.state for host in hosts for p in host.plugins()} == {"discovered"}
    assert len(text.splitlines()) < 56


def test_help_loads_no_compiler() -> None:
    code = (
        "import sys; from intarsia.cli.main import main; main(['compile', '--help']); "
        "print({'numpy', 'onnx', 'llvmlite', 'rich'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.endswith("set()\n")


def test_all_help_has_every_option(run: Run) -> None:
    code, text = run("--help-all")
    assert code == 0
    for words in (
        "Options of target loops:",
        "--target-loops-fast-math [true|false]",
        "--target-odd-npu-variant, --target-odd_npu-variant [n77|n78]",
        "--runtime-c-system-lib [true|false]",
        "[at least 0; at most 1024;",
        "--target-loops-tiles N,...",
        "--target-loops-scale X",
    ):
        assert words in text
    assert "--target-bad" not in text, "a broken plugin spoils no help"


@pytest.mark.parametrize(
    "args, incomplete, found",
    [
        (["compile", "m"], "--target-loops-n", ["--target-loops-num-threads"]),
        (["compile", "m"], "--runtime-", ["--runtime-c-system-lib", "--runtime-c-link-params"]),
        (["compile", "m", "--executor-aot-interface-api"], "", ["packed", "c"]),
        (["compile", "m", "--target-loops-fast-math"], "t", ["true"]),
        (["compile", "m", "--executor"], "g", ["graph"]),
    ],
)
def test_completion_knows_options_and_choices(
    run: Run, args: list[str], incomplete: str, found: list[str]
) -> None:
    completed = ShellComplete(cli, {}, "intarsia", "_X").get_completions(args, incomplete)
    assert [item.value for item in completed] == found


def test_the_last_target_of_a_list_is_completed(run: Run) -> None:
    shell = ShellComplete(cli, {}, "intarsia", "_X")
    found = shell.get_completions(["compile", "m", "--target"], "odd_npu,lo")
    assert [item.value for item in found] == ["odd_npu,loops"]
    found = shell.get_completions(["compile", "m", "--target"], "od")
    assert [item.value for item in found] == ["odd_npu", "odd"]


@pytest.mark.parametrize("command", [["plugins", "show"], ["plugins", "why"], ["doctor"]])
def test_names_of_plugins_are_completed_from_manifests(
    hosts: list[Host], command: list[str]
) -> None:
    shell = ShellComplete(cli, {}, "intarsia", "_X")
    shell.get_completions(command, "")
    names = [plugin.name for plugin in hosts[0].plugins()]
    assert len(names) == 3
    assert [item.value for item in shell.get_completions(command, "")] == names
    begun = shell.get_completions(command, names[0][:2])
    assert [i.value for i in begun] == [n for n in names if n.startswith(names[0][:2])]
    assert {plugin.state for plugin in hosts[-1].plugins()} == {"discovered"}


def test_kinds_to_show_are_completed(hosts: list[Host]) -> None:
    shell = ShellComplete(cli, {}, "intarsia", "_X")
    found = [item.value for item in shell.get_completions(["targets", "show"], "lo")]
    assert found == ["loops"]


FILE = """
target = "odd"
executor = { kind = "aot", unpacked-api = true }
runtime = "c"
[target-options.loops]
num-threads = 3
mattr = ["+a"]
[target-options.elsewhere]
x = 1
"""


def test_a_file_and_the_environment_say_what_the_command_line_does_not(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "intarsia.toml").write_text(FILE)
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    whole = "m: odd_npu, loops -mattr=+a -num-threads=3 | aot -unpacked-api=true | c\n"
    assert run("m") == (0, whole)
    assert "loops -mattr=+a -num-threads=2 |" in run("m", "--target-loops-num-threads=2")[1]
    assert "m: loops -mattr=+b -num-threads=3 |" in run("m", "--target", "loops -mattr=+b")[1]
    monkeypatch.setenv("INTARSIA_TARGET", "loops -fast-math")
    monkeypatch.setenv("INTARSIA_EXECUTOR", "graph")
    monkeypatch.setenv("INTARSIA_RUNTIME", "cpp")
    assert run("m")[1] == ("m: loops -mattr=+a -num-threads=3 -fast-math=true | graph | cpp\n")
    assert "| aot | cpp" in run("m", "--executor", "aot")[1]
    monkeypatch.setenv("INTARSIA_TARGET", "lops")
    code, text = run("m")
    assert code == 2
    assert "error: environment variable INTARSIA_TARGET, target, column 1: no target kind" in text


@pytest.mark.parametrize(
    "name, text, message",
    [
        (
            "intarsia.toml",
            "taget = 1",
            "there is no setting 'taget'\n  hint: did you mean 'target'",
        ),
        ("intarsia.toml", "target = 1", "'target' is a string or a table, not int"),
        ("intarsia.toml", "executor = ['aot']", "'executor' is a string or a table, not list"),
        ("intarsia.toml", "target = ", "is not valid TOML"),
        ("intarsia.toml", "target-options = 1", "'target-options' is not a table of tables"),
        ("intarsia.toml", "target-options.loops = 1", "'target-options' is not a table of tables"),
        ("pyproject.toml", "tool.intarsia = 1", r"\[tool.intarsia\] is not a table"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=f"(?s){name}: .*{message}"):
        read_settings({}, tmp_path)


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "intarsia.toml").write_text('target = "loops"')
    (inner / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert read_settings({}, inner).settings["target"].value == "loops"
    (inner / "pyproject.toml").write_text('[tool.intarsia]\ntarget = ["npu", "loops"]\n')
    found = read_settings({}, inner)
    assert found.settings["target"].value == "npu, loops"
    assert found.origin == str(inner / "pyproject.toml")
    named = read_settings({}, inner, tmp_path / "intarsia.toml")
    assert named.settings["target"].value == "loops"
    nothing: Mapping[str, object] = read_settings({}, Path("/")).settings
    assert nothing == {}
    with pytest.raises(UsageError, match="cannot be read"):
        read_settings({}, inner, inner)


def test_several_targets_share_the_options_of_their_kinds(
    hosts: list[Host], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command("explain", cls=ComposedCommand, families=("target",))
    @click.option("--target", "targets", multiple=True)
    @click.pass_context
    def command(ctx: click.Context, targets: tuple[str, ...]) -> None:
        for text, parts in read_targets(ctx, targets).items():
            click.echo(f"{text} is {parts}")

    def get(self: Any, ctx: click.Context, name: str) -> click.Command:
        return command

    monkeypatch.setattr(type(cli), "get_command", get)
    both = ["explain", "--target", "odd", "--target", "loops"]
    assert main([*both, "--target-loops-num-threads", "2", "--target-odd-npu-level=2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "odd is odd_npu -level=2, loops -num-threads=2",
        "loops is loops -num-threads=2",
    ]
    assert main(["explain", "--target", "loops", "--target-odd-npu-level=2"]) == 2
    said = capsys.readouterr().err
    assert "--target-odd_npu-level is set, but no target has 'odd_npu'" in said
    assert main([*both, "--executor-aot-unpacked-api"]) == 2
    assert "No such option '--executor-aot-unpacked-api'" in capsys.readouterr().err
