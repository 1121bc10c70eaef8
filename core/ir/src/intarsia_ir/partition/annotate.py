# SPDX-License-Identifier: Apache-2.0
"""Annotate: ask every accelerator about every call; the first that says yes gets the call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from types import MappingProxyType

from msgspec import Struct, field

from intarsia_ir.budget import budget
from intarsia_ir.graph.expr import Call, Expr, Function, TupleGetItem
from intarsia_ir.graph.match import inner_operators, match_pattern, root_operators
from intarsia_ir.graph.pattern import Match
from intarsia_ir.graph.types import TupleType
from intarsia_ir.graph.walk import children, count_uses, post_order
from intarsia_ir.regions.support import Code, Support, SupportRow, SupportTable
from intarsia_runtime.errors import IntarsiaError

from .shape_hints import ShapeHints


class ClaimedMatch(Struct, frozen=True, eq=False):
    """A match that an accelerator takes.

    Attributes:
        kind: Target kind of the accelerator.
        row: Name of the support row.
        match: What it takes.
        support: Its answer, with the cost that it states.
    """

    kind: str
    row: str
    match: Match
    support: Support = field(default_factory=Support.yes)


class Annotated(Struct, frozen=True, eq=False):
    """A function with the answer of every accelerator to every call.

    Attributes:
        function: The function asked about.
        kinds: Accelerators in the target's order.
        calls: Every call, operands before users.
        claimed: For each call that an accelerator takes, the match it is in.
        verdicts: For each call, one verdict for each of ``kinds``.
    """

    function: Function
    kinds: tuple[str, ...]
    calls: tuple[Call, ...]
    claimed: Mapping[Call, ClaimedMatch]
    verdicts: Mapping[Call, tuple[Support, ...]]


class _Question(Struct):
    """The state while one accelerator is asked."""

    kind: str
    rows: Mapping[str | None, Sequence[SupportRow]]
    parts: Mapping[str, str]
    uses: Mapping[Expr, int]
    whole: frozenset[Call]
    excluded: Mapping[tuple[Call, str], Support]
    pinned: frozenset[Call] = frozenset()
    only_pinned: bool = False
    takes_slower: bool = False
    claimed: dict[Call, ClaimedMatch] = field(default_factory=dict[Call, ClaimedMatch])


def annotate(
    function: Function,
    tables: Sequence[tuple[str, SupportTable]],
    *,
    excluded: Mapping[tuple[Call, str], Support] = MappingProxyType({}),
    pinned: Mapping[Call, str] = MappingProxyType({}),
    takes_slower: bool = False,
) -> Annotated:
    """Give each call to the first accelerator whose table takes it, and keep every reason for a no.

    Matches with pinned calls come first, whatever the order of the target.

    Args:
        function: The function to place, usually ``main``.
        tables: Kind and support table of each accelerator, in the target's order.
        excluded: Verdicts already known, for (call, kind): what the user forbids, or what an
            earlier round dropped. No match may hold such a call.
        pinned: Calls that go to one kind, if it can take them.
        takes_slower: Whether a row that objects with ``slower`` takes its match all the same.
    """
    order = tuple(post_order(function.body))
    calls = tuple(node for node in order if isinstance(node, Call))
    uses = count_uses((function.body,))
    whole = _tuples_used_whole(order, function.body)
    claimed: dict[Call, ClaimedMatch] = {}
    columns: list[dict[Call, Support]] = []
    questions: list[_Question] = []
    for kind, table in tables:
        mine = frozenset(call for call, owner in pinned.items() if owner == kind)
        row = (kind, *_by_root(table), uses, whole, excluded, mine)
        if mine:
            first = _Question(*row, only_pinned=True, takes_slower=True, claimed=claimed)
            for call in reversed(calls):
                _ask(first, call)
        shy = table.only_forced
        questions.append(
            _Question(*row, only_pinned=shy, takes_slower=takes_slower, claimed=claimed)
        )
    for question in questions:
        columns.append({call: _ask(question, call) for call in reversed(calls)})
    kinds = tuple(kind for kind, _ in tables)
    helpful = ShapeHints(function)
    verdicts = {
        call: tuple(
            _final(kind, claimed.get(call), helpful.added(column[call]), kinds)
            for kind, column in zip(kinds, columns, strict=True)
        )
        for call in calls
    }
    return Annotated(function, kinds, calls, claimed, verdicts)


def _final(
    kind: str, taken: ClaimedMatch | None, support: Support, kinds: tuple[str, ...]
) -> Support:
    """The verdict once all have spoken: a yes that came too late is outvoted."""
    if taken is not None and taken.kind == kind:
        return Support(Code.OK, taken.row, caution=taken.support.caution)
    if not support:
        return support
    if taken is None:
        return Support.no(
            Code.OUTVOTED, "taken by no one: its pattern lost a part to another match"
        )
    place = kinds.index(taken.kind)
    return Support.no(Code.OUTVOTED, f"'{taken.kind}' comes {'first' if place == 0 else 'earlier'}")


def _ask(question: _Question, call: Call) -> Support:
    """Return what the accelerator says of ``call``; record the match it takes."""
    budget().check(call.span)
    known = question.excluded.get((call, question.kind))
    if known is not None:
        return known
    if call in question.whole:
        return Support.no(Code.UNSUPPORTED_OP, "its tuple result is used as a whole")
    mine = question.claimed.get(call)
    if mine is not None and mine.kind == question.kind:
        return Support(Code.OK, mine.row)
    refusal: tuple[int, Support] | None = None
    willing: Support | None = None
    for row in _rows_for(question, call):
        found, verdict = _judge(question, row, call)
        if found is None:
            if verdict is not None:
                refusal = _closest(refusal, 1, verdict)
            continue
        if question.only_pinned and question.pinned.isdisjoint(found.calls):
            continue
        if verdict is not None and verdict.code is Code.SLOWER and question.takes_slower:
            verdict = replace(verdict, code=Code.OK)
        if verdict is None or not verdict:
            # A no is false, so `verdict or ...` would lose its reason.
            support = Support.yes() if verdict is None else verdict
            refusal = _closest(refusal, len(found.calls), support)
            continue
        barred = _barred(question, found)
        if barred is not None:
            willing = barred if willing is None else willing
            continue
        taken = ClaimedMatch(question.kind, row.name, found, verdict)
        question.claimed.update(dict.fromkeys(found.calls, taken))
        return Support(Code.OK, row.name)
    if willing is not None:
        return willing
    if refusal is not None:
        return refusal[1]
    return _no_row(question, call)


def _rows_for(question: _Question, call: Call) -> Sequence[SupportRow]:
    return question.rows.get(call.name, question.rows[None])


def _judge(question: _Question, row: SupportRow, call: Call) -> tuple[Match | None, Support | None]:
    """Match one row and ask its predicate; what a plugin raises becomes a verdict."""
    found: Match | None = None
    try:
        found = match_pattern(row.pattern, call, question.uses)
        if found is None:
            return None, None
        return found, _checked(question.kind, row, row.predicate(found))
    except Exception as error:  # a predicate is plugin code: it may raise anything
        return found, _plugin_error(question.kind, row, error)


def _checked(kind: str, row: SupportRow, answer: object) -> Support:
    if isinstance(answer, Support):
        stated = [cost for cost in (answer.seconds, answer.flops) if cost is not None]
        if all(0 <= cost < inf for cost in stated):
            return answer
        detail = f"row '{row.name}' of '{kind}' states a cost of {stated[0]!r}"
        return Support.no(Code.PLUGIN_ERROR, detail)
    detail = f"row '{row.name}' of '{kind}' answered {answer!r}, not a Support"
    return Support.no(Code.PLUGIN_ERROR, detail)


def _plugin_error(kind: str, row: SupportRow, error: Exception) -> Support:
    message = error.message if isinstance(error, IntarsiaError) else str(error)
    detail = f"row '{row.name}' of '{kind}' raised {type(error).__name__}: {message}"
    return Support.no(Code.PLUGIN_ERROR, detail)


def _closest(known: tuple[int, Support] | None, size: int, verdict: Support) -> tuple[int, Support]:
    """Keep the refusal of the smallest match: it speaks of the call and not of its surroundings."""
    if known is None or size < known[0]:
        return (size, verdict)
    return known


def _barred(question: _Question, found: Match) -> Support | None:
    """Return why a willing match may not take all its calls, or ``None``."""
    for call in found.calls:
        known = question.excluded.get((call, question.kind))
        if known is not None:
            return known
        if call in question.whole:
            return Support.no(Code.UNSUPPORTED_OP, "a tuple result inside is used as a whole")
    return Support.yes() if any(call in question.claimed for call in found.calls) else None


def _no_row(question: _Question, call: Call) -> Support:
    if question.only_pinned:
        return Support.no(Code.OUTVOTED, f"'{question.kind}' gets only what --place sends there")
    part = question.parts.get(call.name)
    if part is None:
        return Support.no(Code.UNSUPPORTED_OP, f"no row for '{call.name}'")
    return Support.no(Code.UNSUPPORTED_OP, f"'{call.name}' is taken only as part of row '{part}'")


def _by_root(
    table: SupportTable,
) -> tuple[dict[str | None, list[SupportRow]], dict[str, str]]:
    """Index rows by the operator they end in, in order; and say where operators occur."""
    named: list[tuple[frozenset[str] | None, SupportRow]] = []
    parts: dict[str, str] = {}
    for row in table.rows:
        named.append((root_operators(row.pattern), row))
        for name in sorted(inner_operators(row.pattern)):
            parts.setdefault(name, row.name)
    rows: dict[str | None, list[SupportRow]] = {
        None: [row for roots, row in named if roots is None]
    }
    for name in {name for roots, _ in named if roots is not None for name in roots}:
        rows[name] = [row for roots, row in named if roots is None or name in roots]
    return rows, parts


def _tuples_used_whole(order: Sequence[Expr], body: Expr) -> frozenset[Call]:
    """Return the calls with several results that something else than a field access uses."""
    users = [(node, child) for node in order for child in children(node)]
    found = {
        child
        for node, child in users
        if isinstance(child, Call)
        and isinstance(child.type, TupleType)
        and not isinstance(node, TupleGetItem)
    }
    if isinstance(body, Call) and isinstance(body.type, TupleType):
        found.add(body)
    return frozenset(found)
