# SPDX-License-Identifier: Apache-2.0
"""Prints what the runs on boards cost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the lines of the report as a table, sorted by net and processor."""
    path = Path(os.environ.get("INTARSIA_MCU_REPORT", ""))
    if not path.is_file():
        return
    rows = sorted(line.split() for line in path.read_text(encoding="utf-8").splitlines())
    lines = ["| net | processor | flash | RAM | instructions |", "|---|---|--:|--:|--:|"]
    for net, processor, *numbers in rows:
        shown = " | ".join(f"{int(number):,}" for number in numbers)
        lines.append(f"| {net} | {processor} | {shown} |")
    terminalreporter.write_line("\n".join(lines))
