# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: options, exemptions, and the result as JSON and badge.

pytest imports this in every run of an environment that has the kit, so it imports little.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, cast

import pytest

from .marks import MARK, TIERS
from .result import Result, outcome_of


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that start with ``--intarsia-``."""
    group = parser.getgroup("intarsia", "conformance of an Intarsia plugin")
    group.addoption("--intarsia-plugin", default="", metavar="NAME", help="plugin to check")
    group.addoption(
        "--intarsia-target", default="", metavar="TARGET",
        help="target to check it with; '<kind>, <first installed backend>' by default",
    )  # fmt: skip
    group.addoption(
        "--intarsia-tier", type=int, default=max(TIERS), choices=sorted(TIERS),
        help="run the checks up to this tier",
    )  # fmt: skip
    group.addoption(
        "--intarsia-cases", type=int, default=0, metavar="N",
        help="a sample: at most N cases of each operator, evenly from all",
    )  # fmt: skip
    group.addoption(
        "--intarsia-exempt", action="append", default=[], type=_exemption, metavar="CHECK=REASON",
        help="do not run a check; it counts as exempt, not as passed",
    )  # fmt: skip
    group.addoption(
        "--intarsia-compile-only", default=None, type=_reason, metavar="REASON",
        help="compile and run nothing: what is compiled cannot run on this machine",
    )  # fmt: skip
    group.addoption(
        "--intarsia-context", action="append", default=[], metavar="OPTIONS",
        help="options of the kind beside which others are tried for an effect",
    )  # fmt: skip
    group.addoption("--intarsia-json", default="", metavar="FILE", help="write the result")
    group.addoption("--intarsia-badge", default="", metavar="FILE", help="write an SVG badge")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark and the collector of results."""
    config.addinivalue_line("markers", f"{MARK}(tier): a check of the Intarsia conformance kit")
    config.pluginmanager.register(Recorder(), "intarsia-recorder")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out higher tiers, mark exempt checks, and note what every check belongs to."""
    most = cast("int", config.getoption("--intarsia-tier"))
    chosen = [item for item in items if _tier(item) <= most]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
    for item in items:
        if item.get_closest_marker(MARK) is None:
            continue
        name = item.name.removeprefix("test_")
        exemptions = _exemptions(item, config)
        reason = exemptions.get(name, exemptions.get(name.partition("[")[0]))
        facts = {
            "check": name, "tier": _tier(item), "exempt": reason or "", "plugin": _plugin(item),
        }  # fmt: skip
        item.user_properties.append((MARK, facts))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"exempt: {reason}"))


class Recorder:
    """Collects the reports of checks and writes what was asked for at the end."""

    def __init__(self) -> None:
        self.result = Result()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a report; under xdist this runs in the controlling process too."""
        facts: Any = dict(report.user_properties).get(MARK)
        if facts is not None:
            self.result.add(facts, *outcome_of(report, facts["exempt"]), report.duration)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files, in the controlling process only."""
        config = session.config
        if hasattr(config, "workerinput"):
            return
        if path := config.getoption("--intarsia-json"):
            text = json.dumps(self.result.to_json(), indent=2, ensure_ascii=False)
            Path(path).write_text(text + "\n", encoding="utf-8")
        if path := config.getoption("--intarsia-badge"):
            Path(path).write_text(self.result.badge(), encoding="utf-8")


def _tier(item: pytest.Item) -> int:
    mark = item.get_closest_marker(MARK)
    return 0 if mark is None else int(mark.kwargs["tier"])


def _plugin(item: pytest.Item) -> str:
    cls = item.getparent(pytest.Class)
    own = "" if cls is None else str(getattr(cls.obj, "plugin", ""))
    return own or str(item.config.getoption("--intarsia-plugin"))


def _exemptions(item: pytest.Item, config: pytest.Config) -> dict[str, str]:
    cls = item.getparent(pytest.Class)
    own: dict[str, str] = {} if cls is None else dict(getattr(cls.obj, "exempt", {}))
    pairs = cast("list[tuple[str, str]]", config.getoption("--intarsia-exempt"))
    every = {**own, **dict(pairs)}
    for name, reason in every.items():
        if not reason.strip():
            raise pytest.UsageError(f"the exemption from '{name}' has no reason")
    return every


def _reason(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("say why what is compiled cannot run here")
    return text.strip()


def _exemption(text: str) -> tuple[str, str]:
    name, _, reason = text.partition("=")
    if not name.strip() or not reason.strip():
        raise argparse.ArgumentTypeError(f"'{text}' is not CHECK=REASON")
    return name.strip(), reason.strip()
