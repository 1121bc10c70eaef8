# SPDX-License-Identifier: Apache-2.0
"""Every error has one shape and its exit code; only a bug of ours leaves a report."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from intarsia.cli import session
from intarsia.cli.main import COMMANDS, cli, main
from intarsia.cli.output import echo, emit_json, table
from intarsia_runtime import errors


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch):
    """Make every command fail with an error."""

    def install(error: BaseException) -> None:
        def fail(**_: object) -> None:
            raise error

        monkeypatch.setattr(session, "Host", fail)

    return install


@pytest.mark.parametrize(
    "error, code, text",
    [
        (errors.UsageError("u", hint="h", where="w"), 2, "error: w: u\n  hint: h\n"),
        (errors.ModelError("m"), 3, "error: m\n"),
        (errors.UnsupportedError("m"), 4, "error: m\n"),
        (errors.PluginError("m"), 5, "error: m\n"),
        (errors.ToolchainError("m"), 6, "error: m\n"),
        (errors.ArtifactError("m"), 7, "error: m\n"),
        (errors.ResourceError("m"), 8, "error: m\n"),
        (errors.WorkerLost("m"), 9, "error: m\n"),
        (errors.GateFailed("m"), 10, "error: m\n"),
        (MemoryError(), 8, "error: out of memory\n"),
        (OSError(errno.ENOSPC, "disk full"), 8, "disk full"),
        (OSError(errno.EFBIG, "File too large", "/x/y"), 8, "error: '/x/y': File too large\n"),
        (OSError(errno.ENOENT, "gone"), 3, "error: gone\n"),
        (OSError("odd"), 3, "error: odd\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (click.FileError("x", "cannot be opened"), 3, "cannot be opened"),
    ],
)
def test_exit_codes(
    raising, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, text: str
) -> None:
    raising(error)
    assert main(["plugins", "list"]) == code
    shown = capsys.readouterr()
    assert text in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("oops"), errors.IntarsiaError("oops"), SystemExit("oops")]
)
def test_a_bug_leaves_a_report(
    raising,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    raising(error)
    assert main(["plugins", "list"]) == 1
    (report,) = tmp_path.iterdir()
    err = capsys.readouterr().err
    assert err.startswith(f"error: internal error: {type(error).__name__}: oops")
    assert str(report) in err
    text = report.read_text()
    assert "Traceback (most recent call last)" in text
    assert "arguments ['plugins', 'list']" in text
    assert sys.version in text


def test_a_bug_without_room_for_a_report_is_still_told(
    raising, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    raising(ZeroDivisionError("oops"))
    assert main(["plugins", "list"]) == 1
    assert "no report" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["plugns"], "no command is called 'plugns'. did you mean 'plugins'?"),
        (["plugins", "lst"], "Did you mean 'list'?"),
        (["plugins", "list", "--jsn"], "--json"),
        (["--no-plugn", "x", "plugins"], "--no-plugin"),
        (["plugins", "show"], "Missing argument"),
        (["plugins", "show", "a", "b"], "unexpected extra argument"),
    ],
)
def test_usage_errors_say_what_was_meant(
    capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert text in err
    assert "hint: intarsia" in err


def test_help_lists_every_command_without_importing_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name, (_, line) in COMMANDS.items():
        assert f"  {name} " in text
        assert line in text
    assert cli.list_commands(click.Context(cli))[: len(COMMANDS)] == list(COMMANDS)
    assert cli.get_command(click.Context(cli), "nothing") is None


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("intarsia ")


def test_a_closed_pipe_seen_by_a_command_is_no_error(
    raising, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    raising(BrokenPipeError())
    moved: list[int] = []
    monkeypatch.setattr(os, "dup2", lambda source, to: moved.append(to))
    assert main(["plugins", "list"]) == 141
    assert capfd.readouterr() == ("", "")
    assert len(moved) == 1


def test_a_closed_pipe_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run(
        [sys.executable, "-m", "intarsia", "--help"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert run.stderr == ""
    assert run.returncode == 141


def test_what_files_hold_does_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "a\x1b[31m\x07\x9b\u202e\ud800\r"
    echo(evil)
    table([(evil, "b\nc")], ("x", "y"))
    emit_json({"name": evil})
    printed = capsys.readouterr().out
    assert printed.encode()
    assert not [c for c in printed if not c.isprintable() and c not in "\n\u202e"]
    assert "a\\x1b[31m\\x07\\x9b\\u202e\\ud800\\r" in printed
    assert json.loads(printed[printed.index("{") :])["name"] == evil
    assert "b\\nc" in printed


def test_an_error_does_nothing_to_a_terminal(raising, capsys: pytest.CaptureFixture[str]) -> None:
    raising(errors.ModelError("\x1b]0;title\x07 is wrong"))
    assert main(["targets", "list"]) == 3
    assert capsys.readouterr().err == "error: \\x1b]0;title\\x07 is wrong\n"
