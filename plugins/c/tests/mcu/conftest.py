# SPDX-License-Identifier: Apache-2.0
"""Prints what the runs on boards cost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .boards import BOARDS

_BOTH = ("c", "llvm")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the lines of the report as a table, sorted by net and processor."""
    path = Path(os.environ.get("INTARSIA_MCU_REPORT", ""))
    if not path.is_file():
        return
    costs: dict[tuple[str, str], dict[str, list[str]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        net, processor, backend, *numbers = line.split()
        costs.setdefault((net, processor), {})[backend] = [f"{int(n):,}" for n in numbers]
    heads = [f"{what}, {backend}" for what in ("flash", "RAM", "instructions") for backend in _BOTH]
    lines = [f"| net | processor | {' | '.join(heads)} |", f"|---|---|{'--:|' * len(heads)}"]
    processors = [board.cpu for board in BOARDS]
    for net, processor in sorted(costs, key=lambda key: (key[0], processors.index(key[1]))):
        by = costs[net, processor]
        shown = [by.get(backend, ["-"] * 3)[column] for column in range(3) for backend in _BOTH]
        lines.append(f"| {net} | {processor} | {' | '.join(shown)} |")
    terminalreporter.write_line("\n".join(lines))
