# SPDX-License-Identifier: Apache-2.0
"""Runs the compiler that a user names."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_runtime.errors import ToolchainError

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_SECONDS = 600
MESSAGE_LINES = 8


def run_compiler(
    argv: Sequence[str], folder: str | Path | None, *, language: str, need: str = "", hint: str
) -> str:
    """Run a compiler to its end; return what it prints.

    Args:
        argv: The compiler, and its arguments.
        folder: Where it runs.
        language: What it compiles, for messages: ``C++``.
        need: What the message of a missing compiler goes on with.
        hint: What to do if it is missing.

    Raises:
        ToolchainError: It is missing, fails or takes too long.
    """
    compiler = argv[0]
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            text=True,
            errors="replace",
        )
    except FileNotFoundError:
        raise ToolchainError(
            f"the {language} compiler '{compiler}' is not installed{need}", hint=hint
        ) from None
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise ToolchainError(
            f"the {language} compiler '{compiler}' did not run: {cause}"
        ) from cause
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()[:MESSAGE_LINES]
        text = "\n".join(lines)
        raise ToolchainError(
            f"the {language} compiler '{compiler}' failed ({done.returncode}):\n{text}"
        )
    return done.stdout
