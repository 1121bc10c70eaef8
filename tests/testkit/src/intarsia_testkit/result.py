# SPDX-License-Identifier: Apache-2.0
"""What a run of the kit found: rows, tiers, JSON, badge. A declined check is not a passed one."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest

from .badge import badge
from .marks import COMPILED, TIERS

SCHEMA = 1
"""Version of the JSON form."""

OUTCOMES = ("passed", "failed", "declined", "exempt")


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check.

    Attributes:
        check: Its name; with the operator in brackets for a numeric one.
        tier: 1 to 3.
        outcome: One of :data:`OUTCOMES`.
        detail: What was wrong, or why it was declined or exempted.
        seconds: How long it took.
    """

    check: str
    tier: int
    outcome: str
    detail: str
    seconds: float


@dataclass(slots=True)
class Result:
    """Everything one run found, in the order in which the checks ran."""

    plugin: str = ""
    rows: dict[str, CheckRow] = field(default_factory=dict[str, CheckRow])

    def add(self, facts: Mapping[str, Any], outcome: str, detail: str, seconds: float) -> None:
        """Take a report: of the phases of one check the worst counts."""
        self.plugin = self.plugin or str(facts["plugin"])
        known = self.rows.get(facts["check"])
        spent = seconds + (known.seconds if known else 0.0)
        if known is not None and known.outcome != "passed":
            outcome, detail = known.outcome, known.detail
        self.rows[facts["check"]] = CheckRow(facts["check"], facts["tier"], outcome, detail, spent)

    def tiers(self) -> dict[str, str]:
        """Verdict on each tier: ``passed``, ``failed``, ``compiled``, or ``not run``.

        A tier is ``compiled`` if nothing failed, but checks of it were not run on this machine.
        """
        return {str(tier): self._verdict(tier) for tier in TIERS}

    def tier(self) -> int:
        """The highest tier such that it and all below are passed; 0 if there is none."""
        return self._reached("passed")

    def compiled_tier(self) -> int:
        """As :meth:`tier`, where it is enough that what was to be run is compiled."""
        return self._reached("passed", "compiled")

    def _reached(self, *verdicts: str) -> int:
        reached = 0
        for tier in sorted(TIERS):
            if self._verdict(tier) not in verdicts:
                break
            reached = tier
        return reached

    def _verdict(self, tier: int) -> str:
        rows = [row for row in self.rows.values() if row.tier == tier]
        outcomes = [row.outcome for row in rows]
        if "failed" in outcomes:
            return "failed"
        if any(row.outcome == "exempt" and row.detail.startswith(COMPILED) for row in rows):
            return "compiled"
        return "passed" if "passed" in outcomes else "not run"

    def count(self, outcome: str) -> int:
        """How many checks ended so."""
        return sum(row.outcome == outcome for row in self.rows.values())

    def to_json(self) -> dict[str, object]:
        """The result as a value that prints as JSON."""
        return {
            "schema": SCHEMA,
            "plugin": self.plugin,
            "distribution": _distribution(self.plugin),
            "kit": _version("intarsia-testkit"),
            "intarsia": _version("intarsia"),
            "python": platform.python_version(),
            "tier": self.tier(),
            "compiled_tier": self.compiled_tier(),
            "tiers": self.tiers(),
            "counts": {outcome: self.count(outcome) for outcome in OUTCOMES},
            "checks": [
                {
                    "check": row.check,
                    "tier": row.tier,
                    "outcome": row.outcome,
                    "detail": row.detail,
                    "seconds": round(row.seconds, 3),
                }
                for row in sorted(self.rows.values(), key=_tier_of)
            ],
        }

    def badge(self) -> str:
        """An SVG that says which tier was reached, and how many checks are exempt."""
        exempt, tier, compiled = self.count("exempt"), self.tier(), self.compiled_tier()
        text = f"tier {tier}" if tier else "not conformant"
        if compiled > tier:
            text = f"tier {compiled} compiled, not run"
        colour = ("#c0392b", "#b7791f", "#2b7bb9", "#2e7d32")[tier or min(compiled, 1)]
        return badge("intarsia", f"{text}, {exempt} exempt" if exempt else text, colour)


def _tier_of(row: CheckRow) -> int:
    return row.tier


def outcome_of(report: pytest.TestReport, exempt: str) -> tuple[str, str]:
    """Outcome and detail of a phase of a test."""
    if report.passed:
        return "passed", ""
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        text = reason.removeprefix("Skipped: ")
        if exempt:
            return "exempt", exempt
        if text.startswith("exempt: "):
            return "exempt", text.removeprefix("exempt: ")
        return "declined", text.removeprefix("declined: ")
    crash = vars(report.longrepr).get("reprcrash") if report.longrepr else None
    text = crash.message if crash is not None else str(report.longrepr)
    return "failed", text.removeprefix("Failed: ")


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _distribution(plugin: str) -> str:
    from intarsia.host.discovery import find_plugins

    for found in find_plugins():
        if plugin in (found.name, found.distribution):
            return f"{found.distribution} {found.version}"
    return ""
