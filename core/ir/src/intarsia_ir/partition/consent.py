# SPDX-License-Identifier: Apache-2.0
"""Consent: what plugins say of the regions that they are offered, region by region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from intarsia_ir.graph.expr import Call
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import Code, Support
from intarsia_runtime.errors import PluginError

from .annotate import Annotated
from .joined import CyclicPart
from .merge import Merged, merge

AskPlugin: TypeAlias = "Callable[[str, Sequence[Region]], Sequence[Region]]"

Dropped: TypeAlias = "dict[tuple[Call, str], Support]"
"""A verdict for each (call, kind) that a plugin gives back."""


class Consent:
    """The answers to the ``partition`` hook. A plugin is asked of each region once.

    Args:
        kinds: Accelerators in the target's order.
        ask: Asks the plugin of a kind; ``None`` if no plugin has a say.
        overruled: Whether what is given back as ``slower`` is kept all the same.
        forced: Calls that are kept in any case if they are given back as ``slower``.

    Attributes:
        pinned: Calls of parts that are built as they are, with their kind.
        is_settled: Whether the last answer left everything as it was.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        ask: AskPlugin | None,
        *,
        overruled: bool = False,
        forced: frozenset[Call] = frozenset(),
    ) -> None:
        self._kinds = tuple(kinds)
        self._ask = ask
        self._overruled = overruled
        self._forced = forced
        self._kept: dict[str, list[frozenset[Call]]] = {kind: [] for kind in kinds}
        self._parts: list[tuple[str, frozenset[Call]]] = []
        self.pinned: dict[Call, str] = {}
        self.is_settled = False

    def for_greedy(self) -> Consent:
        """Return the say on another placement of the same function, in which cost is overruled."""
        return Consent(self._kinds, self._ask, overruled=True, forced=self._forced)

    def merge(self, annotated: Annotated) -> Merged:
        """Merge, with the parts that plugins made as groups of their own.

        Raises:
            PluginError: A part cannot be a region.
        """
        try:
            return merge(annotated, parts=[calls for _, calls in self._parts])
        except CyclicPart as error:
            kind, calls = self._parts[error.numbers[0]]
            names = sorted({call.span.name or call.name for call in calls})
            raise PluginError(
                f"'{kind}' returned a region of {', '.join(repr(name) for name in names[:5])} in "
                "partition() that needs a result of something that needs its own: a cycle",
                hint=f"report it to the plugin of '{kind}'",
            ) from None

    def hear(self, annotated: Annotated, regions: Sequence[Region]) -> Dropped:
        """Ask each kind about its regions that it has not seen.

        Args:
            annotated: Whose calls are in the regions.
            regions: All regions.

        Returns:
            What is given back.

        Raises:
            PluginError: An answer breaks the contract.
        """
        dropped: Dropped = {}
        before = len(self._parts)
        for kind in self._kinds if self._ask is not None else ():
            offered = [region for region in regions if region.kind == kind]
            new = [region for region in offered if not self._is_kept(region)]
            if new:
                dropped.update(self._answer(kind, new, annotated))
        self.is_settled = not dropped and len(self._parts) == before
        return dropped

    def _is_kept(self, region: Region) -> bool:
        """Whether an answer kept all of it already; reduced regions may fall into several."""
        calls = set(region.origins.values())
        return any(calls <= kept for kept in self._kept[region.kind])

    def _answer(self, kind: str, offered: Sequence[Region], annotated: Annotated) -> Dropped:
        assert self._ask is not None  # hear() has looked
        answer = self._ask(kind, tuple(offered))
        known = {call for region in offered for call in region.origins.values()}
        _check_answer(kind, known, answer)
        given_back = {region.name: region for region in answer}
        kept = {call for region in answer for call in region.origins.values()}
        dropped: Dropped = {}
        overruled: set[Call] = set()
        for region in offered:
            support = given_back.get(region.name)
            lost = [call for call in region.origins.values() if call not in kept]
            if support is not None and support.code == Code.SLOWER.value:
                stay = set(lost) if self._overruled else self._held(annotated, lost)
                overruled |= stay
                lost = [call for call in lost if call not in stay]
            verdict = _verdict(kind, support)
            dropped.update(((call, kind), verdict) for call in lost)
        for region in answer:
            calls = frozenset(region.origins.values())
            if region.is_exact and calls:
                _check_whole(kind, region, annotated)
                self._parts.append((kind, calls))
                self.pinned.update(dict.fromkeys(calls, kind))
            self._kept[kind].append(calls)
        for region in offered:
            whole = frozenset(region.origins.values())
            if whole & overruled:
                self._kept[kind].append(whole - {call for call, _ in dropped})
        return dropped

    def _held(self, annotated: Annotated, calls: Sequence[Call]) -> set[Call]:
        """Return those of ``calls`` whose match holds a call that the user forces."""
        held: set[Call] = set()
        for call in calls:
            match = annotated.claimed[call].match
            if not self._forced.isdisjoint(match.calls):
                held.add(call)
        return held


def _verdict(kind: str, support: Region | None) -> Support:
    why = support.why if support is not None else ""
    why = why or f"'{kind}' gave it back after seeing its region"
    if support is not None and support.code == Code.SLOWER.value:
        return Support.no(Code.SLOWER, f"slower on '{kind}': {why}")
    return Support.no(Code.DROPPED if support is None else support.code, why)


def _check_answer(kind: str, known: set[Call], answer: Sequence[Region]) -> None:
    """Refuse an answer that holds something that was not offered, or the same call twice."""
    kept: set[Call] = set()
    codes = {code.value for code in Code} - {Code.OK.value}
    for region in answer:
        calls = set(region.origins.values())
        if not calls <= known:
            raise _broken(kind, f"added calls to region '{region.name}'")
        if calls & kept:
            raise _broken(kind, f"returned a call of region '{region.name}' twice")
        if region.kind != kind:
            raise _broken(kind, f"gave region '{region.name}' to '{region.kind}'")
        if region.code not in codes:
            raise _broken(kind, f"gives region '{region.name}' back as '{region.code}', no code")
        kept |= calls


def _check_whole(kind: str, part: Region, annotated: Annotated) -> None:
    """Refuse a part that holds some calls of a match and not all."""
    calls = set(part.origins.values())
    for call in calls:
        taken = annotated.claimed[call]
        if not calls.issuperset(taken.match.calls):
            raise _broken(kind, f"cut a match of row '{taken.row}' apart in '{part.name}'")


def _broken(kind: str, what: str) -> PluginError:
    return PluginError(
        f"'{kind}' {what} in partition()", hint=f"report it to the plugin of '{kind}'"
    )
