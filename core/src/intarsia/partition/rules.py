# SPDX-License-Identifier: Apache-2.0
"""What the user says about placement: ``'conv*=llvm'`` style rules that force or forbid."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from msgspec import Struct

from ..errors import UsageError
from ..ir.expr import Call
from .support import Code, Support


class PlaceRule(Struct, frozen=True):
    """One rule of the user.

    Attributes:
        nodes: Glob over node names.
        kind: Target kind the rule speaks of.
        forbid: The nodes may not go to ``kind``; else they may go nowhere but to ``kind``.
        text: The rule as the user wrote it.
        of_a_part: The model is one of several that are cut alone, and need not have such a node.
    """

    nodes: str
    kind: str
    forbid: bool
    text: str
    of_a_part: bool = False


def parse_place_rule(text: str) -> PlaceRule:
    """Parse ``NODES=KIND`` (nowhere else) or ``NODES!=KIND`` (anywhere else).

    Raises:
        UsageError: The text is no such rule.
    """
    nodes, equals, kind = text.rpartition("=")
    forbid = nodes.endswith("!")
    nodes = nodes.removesuffix("!").strip()
    kind = kind.strip()
    if not equals or not nodes or not kind:
        raise UsageError(
            f"placement rule '{text}' is not of the form NODES=KIND or NODES!=KIND",
            hint="for example --place 'conv*=cpu' or --place '/head/*!=npu'",
        )
    return PlaceRule(nodes, kind, forbid, text)


def excluded_by_rules(
    labels: dict[Call, str], kinds: Sequence[str], rules: Sequence[PlaceRule]
) -> dict[tuple[Call, str], Support]:
    """Return a verdict for each (call, accelerator) that the rules exclude.

    Args:
        labels: Name of each call.
        kinds: Accelerators of the target.
        rules: What the user says; all rules that name a node hold.

    Raises:
        UsageError: A rule names no node of the model.
    """
    found: dict[tuple[Call, str], Support] = {}
    for rule in rules:
        named = [call for call, label in labels.items() if fnmatchcase(label, rule.nodes)]
        if not named and not rule.of_a_part:
            raise _names_nothing(rule, labels.values())
        verdict = Support.no(Code.EXCLUDED_BY_USER, f"rule '{rule.text}'")
        barred = [kind for kind in kinds if (kind == rule.kind) is rule.forbid]
        found.update(((call, kind), verdict) for call in named for kind in barred)
    return found


def check_rules(rules: Sequence[PlaceRule], names: Collection[str]) -> None:
    """Refuse a rule that names no node of a model that is cut in parts.

    Args:
        rules: What the user says.
        names: Names of all nodes.

    Raises:
        UsageError: A rule names none of them.
    """
    for rule in rules:
        if not any(fnmatchcase(name, rule.nodes) for name in names):
            raise _names_nothing(rule, names)


def _names_nothing(rule: PlaceRule, names: Iterable[str]) -> UsageError:
    near = get_close_matches(rule.nodes, [*names], 1)
    return UsageError(
        f"placement rule '{rule.text}' names no node of the model",
        hint=f"did you mean '{near[0]}'?" if near else "explain lists the nodes",
    )
