# SPDX-License-Identifier: Apache-2.0
"""The user's rules for single nodes, and the placement of a program from that of its pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from intarsia_ir.partition.annotate import annotate
from intarsia_ir.partition.functions import join_placements
from intarsia_ir.partition.labels import label_calls
from intarsia_ir.partition.report import HostRow, Placement, Verdict
from intarsia_ir.partition.rules import PlaceRule, check_rules, names_node, parse_place_rule
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE
from intarsia_ir.regions.support import Code
from intarsia_runtime.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from intarsia_onnx.dynamic import DynamicModel


def rules_of(place: Mapping[str, str]) -> tuple[PlaceRule, ...]:
    """Return the rules that a mapping of node names or patterns to target kinds stands for.

    Args:
        place: ``{"softmax*": "npu"}`` sends nodes to a kind, ``{"conv1": "!npu"}`` forbids it.

    Raises:
        UsageError: A key or a value is no text, or an empty one.
    """
    rules: list[PlaceRule] = []
    for nodes, kind in place.items():
        if not isinstance(nodes, str) or not isinstance(kind, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller's dictionary may hold anything
            raise UsageError(
                f"place={{{nodes!r}: {kind!r}}} is not a mapping of nodes to a kind",
                hint="for example place={'softmax*': 'npu'}",
            )
        text = f"{nodes}!={kind[1:]}" if kind.startswith("!") else f"{nodes}={kind}"
        rules.append(parse_place_rule(text))
    return tuple(rules)


def check_host_rules(model: DynamicModel, rules: Sequence[PlaceRule]) -> None:
    """Refuse a rule that sends a node of a program to a target kind, but the host runs that node.

    Raises:
        UnsupportedError: A rule does; it says why the node is not compiled.
    """
    for rule in rules:
        for node in () if rule.forbid else model.on_host:
            name = node.span.name
            if names_node(rule, name):
                why = model.reasons.get(name, "") or "it is carried out on the host"
                raise UnsupportedError(
                    f"'{name}' cannot go to '{rule.kind}', where rule '{rule.text}' sends it: "
                    f"it runs in NumPy on the host: {why}",
                    where=str(node.span),
                    hint=f"narrow the pattern, or leave '{name}' on the host",
                )


def check_place_rules(
    model: DynamicModel, placement: Placement, rules: Sequence[PlaceRule]
) -> None:
    """Refuse a rule that names no node of a program.

    Args:
        model: The program.
        placement: Its report; accelerators say something of every node.
        rules: What the user says.

    Raises:
        UsageError: A rule names none.
    """
    if not rules:
        return
    names = dict.fromkeys(row.node for row in placement.verdicts)
    if not names:
        names.update((node.span.name, None) for node in model.on_host)
        for piece in model.pieces.values():
            prepared = PREPARE.run(piece, remarks=Remarks())
            names.update(dict.fromkeys(label_calls(annotate(prepared.main, ()).calls).values()))
    check_rules(rules, names)


def merge_placements(
    model: DynamicModel, pieces: Mapping[str, Placement], kinds: Sequence[str]
) -> Placement:
    """Return the placement of a program: that of its pieces, and its nodes on the host.

    A region of one of several pieces is called as its unit in the artifact, and a node whose name
    is in two pieces is told apart by the piece.

    Args:
        model: The program.
        pieces: Placement of each piece.
        kinds: Accelerators of the target; each says no to what runs on the host.
    """
    rows = tuple(
        HostRow(node.span.name, node.op_type, model.reasons.get(node.span.name, ""))
        for node in model.on_host
    )
    verdicts = [
        Verdict(row.node, row.op, kind, "no", Code.UNSUPPORTED_OP.value, why)
        for row in rows
        for kind in dict.fromkeys(kinds)
        for why in [row.reason or "it is carried out on the host"]
    ]
    joined = join_placements(pieces, {row.node for row in rows}, is_named=len(pieces) > 1)
    return replace(
        joined,
        nodes=joined.nodes + len(rows),
        verdicts=(*verdicts, *joined.verdicts),
        host=rows,
    )
