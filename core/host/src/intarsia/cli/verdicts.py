# SPDX-License-Identifier: Apache-2.0
"""Verdicts as text: a line for each node, or, of a large model, a line for each kind of verdict."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_ir.partition.report import Verdict

from .output import echo, table

MOST = 40
"""Rows that are still read one by one."""


def print_verdicts(verdicts: Sequence[Verdict], *, chosen: bool) -> None:
    """Print verdicts below column names.

    Args:
        verdicts: One for every node and accelerator.
        chosen: Whether the user named the nodes, and so wants each of them.
    """
    if not verdicts:
        return
    if chosen or len(verdicts) <= MOST:
        rows = [(v.node, v.op, v.accelerator, v.verdict, v.code, _detail(v)) for v in verdicts]
        table(rows, ("node", "op", "accelerator", "verdict", "code", "detail"))
    else:
        table(
            grouped(verdicts), ("nodes", "op", "accelerator", "verdict", "code", "detail", "first")
        )
        echo(f'\n{len(verdicts)} verdicts; name nodes to see them one by one: "*" for all')
    echo("")


def grouped(verdicts: Sequence[Verdict]) -> list[tuple[int, str, str, str, str, str, str]]:
    """Count verdicts that say the same of the same operator: each no first, then by number."""
    groups: dict[tuple[str, str, str, str, str], list[str]] = {}
    for v in verdicts:
        key = (v.op, v.accelerator, v.verdict, v.code, _detail(v))
        groups.setdefault(key, []).append(v.node)
    rows = [(len(nodes), *key, nodes[0]) for key, nodes in groups.items()]
    return sorted(rows, key=_by_verdict_and_number)


def _by_verdict_and_number(row: tuple[int, str, str, str, str, str, str]) -> tuple[str, int]:
    number, _op, _accelerator, verdict, *_rest = row
    return (verdict, -number)


def _detail(verdict: Verdict) -> str:
    return f"{verdict.detail}; {verdict.caution}" if verdict.caution else verdict.detail
