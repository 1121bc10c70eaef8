# SPDX-License-Identifier: Apache-2.0
"""``intarsia completion``: a shell that runs its script completes commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from intarsia.cli.main import main
from intarsia_runtime.errors import UsageError
from intarsia_tools.commands.completion import shell_of_user


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert f"_INTARSIA_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_the_shell_of_the_user_is_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert main(["completion"]) == 0
    assert "fish_complete" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["", "/bin/tcsh"])
def test_a_shell_that_is_not_known_is_a_usage_error(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", value)
    with pytest.raises(UsageError, match="no shell is given, and SHELL is") as caught:
        shell_of_user()
    assert caught.value.hint == "name one: bash, zsh, fish"


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
def test_bash_completes_a_command(tmp_path: Path) -> None:
    program = tmp_path / "intarsia"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m intarsia "$@"\n')
    program.chmod(0o755)
    script = (
        f'PATH="{tmp_path}:$PATH"; eval "$(intarsia completion bash)"\n'
        "COMP_WORDS=(intarsia expl); COMP_CWORD=1; _intarsia_completion intarsia\n"
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "explain", done.stderr
