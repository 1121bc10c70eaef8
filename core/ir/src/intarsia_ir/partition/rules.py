# SPDX-License-Identifier: Apache-2.0
"""What the user says about placement: ``'conv*=llvm'`` style rules that force or forbid."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.graph.expr import Call
from intarsia_ir.regions.support import Code, Support
from intarsia_runtime.errors import UsageError, did_you_mean


class PlaceRule(Struct, frozen=True):
    """One rule of the user.

    Attributes:
        nodes: Glob over node names.
        kind: Target kind the rule speaks of.
        forbid: The nodes may not go to ``kind``; else they must.
        text: The rule as the user wrote it.
        of_a_part: The model is one of several that are cut alone, and need not have such a node.
    """

    nodes: str
    kind: str
    forbid: bool
    text: str
    of_a_part: bool = False


def parse_place_rule(text: str) -> PlaceRule:
    """Parse ``NODES=KIND`` (there, whatever it costs) or ``NODES!=KIND`` (anywhere else).

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


class RuledCalls(Struct, frozen=True, eq=False):
    """What the rules say of the calls of one function.

    Attributes:
        excluded: A verdict for each (call, accelerator) that a rule excludes.
        forced: The kind that a call must go to, and the rule that says so.
    """

    excluded: Mapping[tuple[Call, str], Support]
    forced: Mapping[Call, PlaceRule]


def apply_rules(
    labels: Mapping[Call, str], kinds: Sequence[str], rules: Sequence[PlaceRule]
) -> RuledCalls:
    """Say which accelerators the rules exclude, and which calls they force.

    Args:
        labels: Name of each call.
        kinds: Accelerators of the target.
        rules: What the user says; all rules that name a node hold.

    Raises:
        UsageError: A rule names no node of the model, or two rules of a node contradict each other.
    """
    excluded: dict[tuple[Call, str], Support] = {}
    forced: dict[Call, PlaceRule] = {}
    forbidden: dict[tuple[Call, str], PlaceRule] = {}
    for rule in rules:
        named = [call for call, label in labels.items() if names_node(rule, label)]
        if not named and not rule.of_a_part:
            raise _names_nothing(rule, labels.values())
        verdict = Support.no(Code.EXCLUDED_BY_USER, f"rule '{rule.text}'")
        barred = [kind for kind in kinds if (kind == rule.kind) is rule.forbid]
        excluded.update(((call, kind), verdict) for call in named for kind in barred)
        for call in named:
            if rule.forbid:
                forbidden[call, rule.kind] = rule
            elif forced.setdefault(call, rule).kind != rule.kind:
                raise _contradict(forced[call], rule, labels[call])
    for call, rule in forced.items():
        if (call, rule.kind) in forbidden:
            raise _contradict(rule, forbidden[call, rule.kind], labels[call])
    return RuledCalls(excluded, forced)


def names_node(rule: PlaceRule, name: str) -> bool:
    """Whether the pattern of a rule names a node."""
    return fnmatchcase(name, rule.nodes)


def resolve_kinds(
    rules: Iterable[PlaceRule], kinds: Collection[str], aliases: Mapping[str, str]
) -> tuple[PlaceRule, ...]:
    """Return the rules with kinds of the target where they name aliases.

    Args:
        rules: What the user says; an alias means the first kind of what it stands for.
        kinds: Accelerators and backends of the target; their names come before aliases.
        aliases: Short names, and the target strings that they stand for.
    """
    found: list[PlaceRule] = []
    for rule in rules:
        if rule.kind not in kinds and rule.kind in aliases:
            first = aliases[rule.kind].replace(",", " ").split()[0]
            found.append(replace(rule, kind=first) if first in kinds else rule)
        else:
            found.append(rule)
    return tuple(found)


def check_kinds(rules: Sequence[PlaceRule], kinds: Collection[str]) -> None:
    """Refuse a rule of a kind that is not in the target.

    Args:
        rules: What the user says.
        kinds: Accelerators and backends of the target.

    Raises:
        UsageError: A rule names another kind.
    """
    for rule in rules:
        if rule.kind not in kinds:
            near = did_you_mean(rule.kind, kinds)
            raise UsageError(
                f"placement rule '{rule.text}' names '{rule.kind}', which is not in the target",
                hint=near or f"the target has {', '.join(kinds)}",
            )


def _contradict(first: PlaceRule, second: PlaceRule, node: str) -> UsageError:
    return UsageError(
        f"placement rules '{first.text}' and '{second.text}' contradict each other",
        where=node,
        hint="leave one of them out, or narrow its pattern",
    )


def check_rules(rules: Sequence[PlaceRule], names: Collection[str]) -> None:
    """Refuse a rule that names no node of a model that is cut in parts.

    Args:
        rules: What the user says.
        names: Names of all nodes.

    Raises:
        UsageError: A rule names none of them.
    """
    for rule in rules:
        if not any(names_node(rule, name) for name in names):
            raise _names_nothing(rule, names)


def _names_nothing(rule: PlaceRule, names: Iterable[str]) -> UsageError:
    near = get_close_matches(rule.nodes, [*names], 1)
    return UsageError(
        f"placement rule '{rule.text}' names no node of the model",
        hint=f"did you mean '{near[0]}'?" if near else "explain lists the nodes",
    )
