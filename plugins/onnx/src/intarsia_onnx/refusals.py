# SPDX-License-Identifier: Apache-2.0
"""The error that lists everything in a model that is not supported."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from intarsia_runtime.errors import UnsupportedError

from .graph import Graph

NAMES_SHOWN = 10

NCHWC = "com.microsoft.nchwc"
NCHWC_HINT = (
    "its layouts are those of one machine; save the model with an optimization level below 'all'"
)

NO_NUMBERS_HINT = (
    "compute numbers from it before the model, and export the model from the first operator on "
    "that takes these"
)


def with_readers(message: str, graph: Graph, name: str) -> str:
    """Say which nodes read an input that compiled code does not take."""
    readers = [node for node in graph.nodes if name in node.inputs]
    if not readers:
        return message
    names = ", ".join(f"'{node.op_type}' (node '{node.span.name}')" for node in readers[:3])
    more = f" and {len(readers) - 3} more" if len(readers) > 3 else ""
    return f"{message}; it is read by {names}{more}"


def report(
    problems: Sequence[UnsupportedError],
    unknown: Mapping[tuple[str, str], Sequence[str]],
    opset: int,
    converters: Iterable[str],
) -> UnsupportedError:
    """Return one error for all that is not supported.

    Args:
        problems: Nodes that cannot be imported.
        unknown: Names of the nodes of each operator that nobody knows, by domain and operator.
        opset: The version of the standard operators.
        converters: Names of the operators that are known.
    """
    lines = [unknown_operator(*key, nodes, opset, converters) for key, nodes in unknown.items()]
    if not lines and len(problems) == 1:
        return problems[0]
    lines += [f"{problem.where}: {problem.message}" for problem in problems]
    hints = dict.fromkeys(problem.hint for problem in problems if problem.hint)
    if any(domain == NCHWC for domain, _ in unknown):
        hints[NCHWC_HINT] = None
    if len(lines) == 1:
        return UnsupportedError(lines[0], hint="\n".join(hints))
    listing = "\n  ".join(lines)
    message = f"{len(lines)} things in this model are not supported:\n  {listing}"
    return UnsupportedError(message, hint="; ".join(hints))


def unknown_operator(
    domain: str, op_type: str, nodes: Sequence[str], opset: int, converters: Iterable[str]
) -> str:
    """Say which operator is unknown, where it is, and which known one has a similar name."""
    names = ", ".join(f"'{name}'" for name in nodes[:NAMES_SHOWN])
    more = f" and {len(nodes) - NAMES_SHOWN} more" if len(nodes) > NAMES_SHOWN else ""
    place = f"domain '{domain}'" if domain else f"opset {opset}"
    text = f"operator '{op_type}' ({place}) is not supported; node {names}{more}"
    near = difflib.get_close_matches(op_type, converters, 1)
    return f"{text}; nearest supported operator: '{near[0]}'" if near else text
