# SPDX-License-Identifier: Apache-2.0
"""A placement for Graphviz."""

from __future__ import annotations

import json

from intarsia_ir.partition.report import bytes_text

from .palette import colour_of
from .placed_graph import PlacedGraph, PlacedNode


def dot_text(graph: PlacedGraph) -> str:
    """Return the graph in Graphviz's language: one cluster for each region, borders with sizes."""
    lines = ["digraph placement {", "  rankdir=TB; node [shape=box, style=filled, fontsize=10];"]
    lines.append(f"  label={_quoted(str(graph.placement))};")
    kinds = [*dict.fromkeys(row.accelerator for row in graph.placement.regions)]
    inside: dict[str, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        inside.setdefault(node.region, []).append(index)
    for region, members in inside.items():
        rows = [_node(index, graph.nodes[index], kinds) for index in members]
        if not region:
            lines += [f"  {row}" for row in rows]
            continue
        title = f"{region} ({graph.nodes[members[0]].kind})"
        lines.append(f"  subgraph {_quoted('cluster_' + region)} {{")
        lines.append(f"    label={_quoted(title)};")
        lines += [f"    {row}" for row in rows]
        lines.append("  }")
    for edge in graph.edges:
        note = f"{edge.dtype} {edge.shape}, {bytes_text(edge.bytes)}"
        style = f" [penwidth=2, label={_quoted(note)}]" if edge.border else ""
        lines.append(f"  n{edge.source} -> n{edge.target}{style};")
    return "\n".join([*lines, "}", ""])


def _node(index: int, node: PlacedNode, kinds: list[str]) -> str:
    label = f"{node.op}\n{node.name}"
    colour = colour_of(node.kind, kinds) if node.region else "#e8e8e8"
    return f"n{index} [label={_quoted(label)}, fillcolor={_quoted(colour)}];"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
