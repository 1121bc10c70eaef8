# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: every ``raise`` of core is run by some test.

An error path that never ran fails while failing. ``pytest -p tests.architecture.raises`` watches
the process of the tests (of every xdist worker), not the processes they start, and fails the
session when a ``raise`` was never reached. It says nothing useful of a part of the suite.
"""

from __future__ import annotations

import ast
from typing import Any

import coverage
import pytest

from .source_tree import CORE, CORE_SOURCES, Source

REPORT = "reached_raises"


def raise_lines(source: Source) -> dict[str, str]:
    """Return the text of every ``raise`` of a file by its place, ``path:line``."""
    lines = source.text.splitlines()
    return {
        f"{source.name}:{node.lineno}": lines[node.lineno - 1].strip()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Raise)
    }


class RaiseWatch:
    """Collects what the processes of one session reached."""

    def __init__(self, config: pytest.Config) -> None:
        self.reached: set[str] = set()
        self.missed: dict[str, str] = {}
        self.output: dict[str, Any] | None = getattr(config, "workeroutput", None)
        self.trace = coverage.Coverage(
            data_file=None, config_file=False, source=[str(folder) for folder in CORE]
        )
        # The controller of workers runs no test itself.
        self.trace.set_option("run:disable_warnings", ["no-data-collected"])
        self.trace.start()

    @pytest.hookimpl(optionalhook=True)  # it is xdist's
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker reached."""
        self.reached.update(node.workeroutput.get(REPORT, ()))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Compare what was reached with what is written."""
        self.trace.stop()
        data = self.trace.get_data()
        for source in CORE_SOURCES:
            self.reached.update(f"{source.name}:{n}" for n in data.lines(str(source.path)) or ())
        written = {place: text for s in CORE_SOURCES for place, text in raise_lines(s).items()}
        if self.output is not None:
            self.output[REPORT] = sorted(self.reached & written.keys())
            return
        self.missed = {place: text for place, text in written.items() if place not in self.reached}
        if self.missed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name every ``raise`` that was never reached."""
        for place, text in self.missed.items():
            terminalreporter.write_line(f"no test reaches {place}: {text}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    """Start watching before the package is imported."""
    config.pluginmanager.register(RaiseWatch(config), "raise-watch")
