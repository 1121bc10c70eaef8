# SPDX-License-Identifier: Apache-2.0
"""Runs commands of this program in child processes with a time limit, and reads what they said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import cast

from msgspec import Struct, field

LATE = "late"

_WORDS = {
    0: "ok", 1: "bug", 2: "usage", 3: "model", 4: "unsupported", 5: "plugin", 6: "toolchain",
    7: "artifact", 8: "resource", 9: "lost", 10: "gate",
}  # fmt: skip


def how_it_ended(code: int | None) -> str:
    """Say how a child ended: by its exit code, or by the signal whose number is minus that."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name} ({signal.strsignal(-code)})"
    except ValueError:
        return f"was ended by signal {-code}"


class Ended(Struct, frozen=True):
    """How a command ended.

    Attributes:
        code: Its exit code, negative for a signal; ``None`` beyond the time limit.
        document: What ``--json`` printed; empty without.
        error: The first line on stderr that is an error.
    """

    code: int | None
    document: Mapping[str, object] = field(default_factory=dict[str, object])
    error: str = ""

    @property
    def state(self) -> str:
        """The exit code in a word: ``ok``, ``unsupported``, ``gate``, ``late``, ``crash``..."""
        if self.code is None:
            return LATE
        return _WORDS.get(self.code, "crash")


def run_command(words: Sequence[str], seconds: float) -> Ended:
    """Run ``intarsia WORDS`` in a process group of its own.

    Args:
        words: Behind ``intarsia``; with ``--json`` among them, the output is read.
        seconds: When the group is ended.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "intarsia", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    code: int | None = None
    try:
        out, err = child.communicate(timeout=seconds)
        code = child.returncode
    except subprocess.TimeoutExpired:
        out, err = b"", b""
    finally:
        if child.returncode is None:
            with suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
    return Ended(code, _parsed(out), _first_error(err.decode(errors="replace")))


def _parsed(out: bytes) -> Mapping[str, object]:
    with suppress(ValueError):
        value: object = json.loads(out)
        if isinstance(value, dict):
            return cast("dict[str, object]", value)
    return {}


def _first_error(text: str) -> str:
    lines = text.splitlines()
    found = [line for line in lines if line.startswith(("error:", "internal error:"))]
    return (found or lines or [""])[0]
