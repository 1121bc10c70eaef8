# SPDX-License-Identifier: Apache-2.0
"""Compilers that a user names: what they say, and how they fail."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from intarsia_loops.codegen import external
from intarsia_loops.codegen.external import run_compiler
from intarsia_runtime.errors import ToolchainError


def run(*argv: str, folder: str | None = None) -> str:
    return run_compiler(argv, folder, language="Fortran", need=", which is a pity", hint="get one")


def test_returns_what_it_prints(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd())"
    assert run(sys.executable, "-c", code, folder=str(tmp_path)).strip() == str(tmp_path)


def test_missing() -> None:
    with pytest.raises(ToolchainError) as caught:
        run("no-such-compiler")
    found = caught.value
    want = "the Fortran compiler 'no-such-compiler' is not installed, which is a pity"
    assert (found.message, found.hint) == (want, "get one")


def test_no_program() -> None:
    with pytest.raises(ToolchainError, match="the Fortran compiler '/' did not run"):
        run("/")


def test_fails_with_the_first_lines() -> None:
    code = "import sys; [print(n, file=sys.stderr) for n in range(99)]; sys.exit(3)"
    with pytest.raises(ToolchainError, match=r"failed \(3\):\n0\n1\n") as caught:
        run(sys.executable, "-c", code)
    assert caught.value.message.endswith("\n7")


def test_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external, "TIMEOUT_SECONDS", 0.1)
    with pytest.raises(ToolchainError, match="timed out"):
        run(sys.executable, "-c", "import time; time.sleep(9)")
