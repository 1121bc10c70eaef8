# SPDX-License-Identifier: Apache-2.0
"""Tier 2: what the plugin takes, it computes as NumPy defines it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from intarsia.driver.artifact import Artifact
from intarsia.host.host import Host
from intarsia_ir.graph.match import inner_operators
from intarsia_ir.graph.module import IRModule
from intarsia_ir.ops import OPERATORS
from intarsia_runtime.errors import IntarsiaError, UnsupportedError

from ..blocks import Blocks
from ..cases.case import Case
from ..fused import fused_graph
from ..marks import check, decline, refuse
from ..running import Batch, compile_module, not_run, run_artifact, why, wrong_results
from ..subject import Subject
from ..verdicts import accepted


class NumericChecks:
    """Every operator with every element type and rank that the support table accepts."""

    @check(tier=2)
    @pytest.mark.parametrize("operator", sorted(OPERATORS))
    def test_numeric_operator(self, subject: Subject, operator: str) -> None:
        """Build, load, run and compare each accepted case; declined if there is none."""
        host = subject.shared
        table = subject.own_table if subject.is_accelerator else None
        cases = subject.cases().get(operator, ())
        problems: list[str] = []
        ran, refusal = 0, ""
        for fixed in (False, True):
            some = [c for c in cases if not fixed or len(c.operands) > 1]
            if not some:
                continue
            if table is not None:
                some, reason = accepted(table, some, fixed=fixed)
                refusal = refusal or reason
            count, found, reason = _run(subject, host, some, fixed=fixed)
            ran, refusal = ran + count, refusal or reason
            problems += found
        refuse(problems)
        if not ran:
            decline(refusal or "the host computes it before it asks")
        not_run(subject)

    @check(tier=2)
    def test_numeric_something_is_taken(self, subject: Subject) -> None:
        """The plugin takes at least one case of one operator."""
        if not subject.is_accelerator:
            decline("a backend takes all")
        table = subject.own_table
        taken = any(
            accepted(table, cases, fixed=fixed)[0]
            for cases in subject.cases().values()
            for fixed in (False, True)
        )
        refuse([] if taken else ["every case of every operator is declined"])

    @check(tier=2)
    def test_numeric_fused_patterns(self, subject: Subject) -> None:
        """Patterns of several operators compute what their operators compute."""
        if not subject.is_accelerator:
            decline("a backend has no support table")
        host, table = subject.shared, subject.own_table
        rows = [row for row in table.rows if _is_fused(row.pattern)]
        problems: list[str] = []
        unreached: list[str] = []
        for row in rows:
            made = fused_graph(table, row)
            if made is None:
                unreached.append(row.name)
                continue
            module, _ = made
            try:
                message = _run_fused(subject, compile_module(subject, module, host=host), *made)
            except IntarsiaError as error:
                message = why(error)
            problems += [f"row '{row.name}': {message}"] if message else []
        refuse(problems)
        if not rows:
            decline("no pattern has several operators")
        if unreached:
            decline(f"no graph of the kit reaches the rows {', '.join(unreached)}")
        not_run(subject)


def _run_fused(subject: Subject, artifact: Artifact, module: IRModule, blocks: Blocks) -> str:
    """What is wrong with the results of a fused graph; nothing where it can only be compiled."""
    if subject.compile_only:
        return ""
    inputs = {p.name: blocks.random(i) for i, p in enumerate(module.main.params)}
    found = run_artifact(subject, artifact, inputs)
    return wrong_results(module, inputs, found)


def _is_fused(pattern: object) -> bool:
    args = getattr(pattern, "args", None) or ()
    return hasattr(pattern, "inner") or any(inner_operators(arg) for arg in args)


def _run(
    subject: Subject, host: Host, cases: Sequence[Case], *, fixed: bool
) -> tuple[int, list[str], str]:
    """Run cases together; how many reached the plugin, what is wrong, and a refusal."""
    if not cases:
        return 0, [], ""
    try:
        artifact, results = Batch(cases, fixed=fixed).run(subject, host)
    except IntarsiaError as error:
        if len(cases) == 1:
            if isinstance(error, UnsupportedError) and not subject.is_accelerator:
                return 0, [], why(error)
            return 0, [f"{cases[0]}: {why(error)}"], ""
        half = len(cases) // 2
        parts = [_run(subject, host, part, fixed=fixed) for part in (cases[:half], cases[half:])]
        return sum(p[0] for p in parts), parts[0][1] + parts[1][1], parts[0][2] or parts[1][2]
    taken = {v.node for v in artifact.placement.verdicts if v.verdict == "yes"}
    problems: list[str] = []
    reached = 0
    for number, (case, found) in enumerate(zip(cases, results, strict=True)):
        if not subject.is_accelerator or f"case{number}" in taken:
            reached += 1
        message = case.differs(found, subject.tolerances) if not subject.compile_only else ""
        problems += [message] if message else []
    return reached, problems, ""
