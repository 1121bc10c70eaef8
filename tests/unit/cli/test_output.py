# SPDX-License-Identifier: Apache-2.0
"""All commands print through one function, which shows control characters as their escapes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import intarsia_tools
from intarsia import cli
from intarsia.cli.output import echo

FOLDER = Path(cli.__file__).parent
TOOLS = Path(intarsia_tools.__file__).parent


def direct_output(tree: ast.AST) -> list[int]:
    """Lines that print past :func:`intarsia.cli.output.echo`, other than to a given file."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = [node for node in calls if all(word.arg != "file" for word in node.keywords)]
    return [node.lineno for node in calls if ast.unparse(node.func) in {"click.echo", "print"}]


def test_no_command_prints_past_the_one_function() -> None:
    commands = [*FOLDER.rglob("*.py"), *TOOLS.rglob("*.py")]
    programs = {FOLDER / "output.py", TOOLS / "inductor.py"}
    files = [path for path in commands if path not in programs]
    assert len(files) > 50
    found = {path.name: direct_output(ast.parse(path.read_text("utf-8"))) for path in files}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_output_does_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    echo("wrote \x1b]0;title\x07.svg", nl=False)
    assert capsys.readouterr().out == "wrote \\x1b]0;title\\x07.svg"
