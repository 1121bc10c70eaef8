# SPDX-License-Identifier: Apache-2.0
"""A placement for Model Explorer: a collection of one graph, as its built-in JSON adapter reads."""

from __future__ import annotations

import json

from intarsia_ir.partition.report import bytes_text
from intarsia_ir.regions.support import Code

from .palette import colour_of
from .placed_graph import PlacedGraph, PlacedNode


def model_explorer_text(graph: PlacedGraph, title: str) -> str:
    """Return the graph as JSON: a layer for each region, verdicts as attributes of the nodes."""
    kinds = [*dict.fromkeys(row.accelerator for row in graph.placement.regions)]
    incoming: list[list[dict[str, str]]] = [[] for _ in graph.nodes]
    results: list[list[dict[str, object]]] = [[] for _ in graph.nodes]
    for edge in graph.edges:
        reader = incoming[edge.target]
        reader.append(
            {
                "sourceNodeId": str(edge.source),
                "sourceNodeOutputId": "0",
                "targetNodeInputId": str(len(reader)),
            }
        )
        facts = {"tensor_shape": f"{edge.dtype}[{edge.shape}]", "size": bytes_text(edge.bytes)}
        results[edge.source] = [{"id": "0", "attrs": _pairs(facts)}]
    nodes = [
        {
            **_node(index, node, kinds),
            "incomingEdges": incoming[index],
            "outputsMetadata": results[index],
        }
        for index, node in enumerate(graph.nodes)
    ]
    made = {"label": title, "graphs": [{"id": "placement", "nodes": nodes}]}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _node(index: int, node: PlacedNode, kinds: list[str]) -> dict[str, object]:
    facts = {"name": node.name, "type": node.type}
    if node.kind:
        facts["placed"] = node.kind
    if node.attributes:
        facts["attributes"] = node.attributes
    for verdict in node.verdicts:
        yes = verdict.code == Code.OK.value
        facts[f"verdict of {verdict.accelerator}"] = (
            "yes" if yes else f"{verdict.code}: {verdict.detail}"
        )
    style = {"backgroundColor": colour_of(node.kind, kinds)} if node.region else {}
    return {
        "id": str(index),
        "label": node.op,
        "namespace": f"{node.region} ({node.kind})" if node.region else "",
        "attrs": _pairs(facts),
        "style": style,
    }


def _pairs(facts: dict[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in facts.items()]
