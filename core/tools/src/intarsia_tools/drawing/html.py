# SPDX-License-Identifier: Apache-2.0
"""A placement as one web page that needs nothing else: picture, verdicts and keys inside."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

from intarsia_ir.partition.report import RegionRow, Verdict, bytes_text, seconds_text

from .layout import NODE_HEIGHT, NODE_WIDTH, GraphLayout, lay_out
from .palette import colour_of
from .placed_graph import INPUT, OUTPUT, PlacedEdge, PlacedGraph, PlacedNode

_NAME_LENGTH = 28
_REASONS = 5
Point = tuple[float, float]


def html_text(graph: PlacedGraph, title: str, target: str) -> str:
    """Return the page.

    Args:
        graph: What is drawn.
        title: Shown on top, e.g. the model's name and the kinds of the target.
        target: The whole target.
    """
    edges = [(edge.source, edge.target) for edge in graph.edges]
    layout = lay_out(len(graph.nodes), edges)
    kinds = [*dict.fromkeys(row.accelerator for row in graph.placement.regions)]
    parts = {
        "title": escape(title),
        "summary": escape(str(graph.placement)),
        "legend": _legend(kinds, graph.fallback),
        "width": f"{layout.width:.0f}",
        "height": f"{layout.height:.0f}",
        "edges": "".join(map(_edge, graph.edges, layout.paths)),
        "nodes": "".join(
            _node(node, place, kinds)
            for node, place in zip(graph.nodes, layout.centres, strict=True)
        ),
        "labels": "".join(map(_label, graph.edges, layout.paths)),
        "data": _data(graph, layout, target),
    }

    def part(marker: re.Match[str]) -> str:
        return parts[marker[1]]

    page = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    return re.sub(r"@(\w+)@", part, page)


def _legend(kinds: Sequence[str], fallback: str) -> str:
    rows = [(kind, colour_of(kind, kinds)) for kind in kinds]
    rows.append((f"{fallback} (the fallback)", "#ecebe6"))
    return "".join(
        f'<li><i style="background:{colour}"></i>{escape(name)}</li>' for name, colour in rows
    )


def _node(node: PlacedNode, place: Point, kinds: Sequence[str]) -> str:
    x, y = place
    fill = colour_of(node.kind, kinds) if node.region else "#ecebe6"
    outside = node.op in (INPUT, OUTPUT)
    below = node.type if outside else node.name
    above = node.name if outside else node.op
    right, top = x + NODE_WIDTH / 2, y - NODE_HEIGHT / 2
    region = f'<text class="r" x="{right - 4:.1f}" y="{top + 10:.1f}">{escape(node.region)}</text>'
    return (
        f'<g class="n{" io" if outside else ""}"><title>{escape(node.name)}: {escape(node.op)}, '
        f'{escape(node.type)}</title><rect x="{x - NODE_WIDTH / 2:.1f}" y="{top:.1f}" '
        f'width="{NODE_WIDTH:.0f}" height="{NODE_HEIGHT:.0f}" fill="{fill}"/>'
        f'<text x="{x:.1f}" y="{y + 1:.1f}">{escape(_short(above, 24))}</text>'
        f'<text class="s" x="{x:.1f}" y="{y + 14:.1f}">{escape(_short(below))}</text>'
        f"{region if node.region else ''}</g>"
    )


def _short(text: str, length: int = _NAME_LENGTH) -> str:
    """The end of a long name: that is where names of nodes differ."""
    return text if len(text) <= length else f"…{text[1 - length :]}"


def _edge(edge: PlacedEdge, path: Sequence[Point]) -> str:
    points = [*path]
    points[0] = points[0][0], points[0][1] + NODE_HEIGHT / 2
    points[-1] = points[-1][0], points[-1][1] - NODE_HEIGHT / 2
    text = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x, y), (to_x, to_y) in pairwise(points):
        middle = (y + to_y) / 2
        text += f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"
    return (
        f'<path class="e{" b" if edge.border else ""}" marker-end="url(#a)" d="{text}">'
        f"<title>{escape(_value(edge))}</title></path>"
    )


def _label(edge: PlacedEdge, path: Sequence[Point]) -> str:
    """What crosses a border, beside the arrow's end where borders of one value do not pile up."""
    if not edge.border:
        return ""
    (x, y), (end_x, end_y) = path[-2], path[-1]
    place = x + (end_x - x) * 0.5, y + (end_y - y) * 0.5 + 4
    return f'<text class="t" x="{place[0]:.1f}" y="{place[1]:.1f}">{escape(_value(edge))}</text>'


def _value(edge: PlacedEdge) -> str:
    size = f", {bytes_text(edge.bytes)}" if edge.bytes else ""
    return f"{edge.dtype} {edge.shape}{size}"


def _data(graph: PlacedGraph, layout: GraphLayout, target: str) -> str:
    """What the page's program needs, safe inside a script element."""
    places = {node.name: index for index, node in enumerate(graph.nodes) if node.kind}
    value = {
        "summary": str(graph.placement),
        "cost": "" if graph.placement.cost is None else str(graph.placement.cost),
        "target": target,
        "nodes": [
            {
                "name": node.name,
                "op": node.op,
                "type": node.type,
                "kind": node.kind,
                "region": node.region,
                "attributes": node.attributes,
                "weights": node.weights,
                "others": node.others,
                "verdicts": [
                    (row.accelerator, row.verdict, row.code, row.detail, _match_cost(row))
                    for row in node.verdicts
                ],
                "x": round(x, 1),
                "y": round(y, 1),
            }
            for node, (x, y) in zip(graph.nodes, layout.centres, strict=True)
        ],
        "edges": [(e.source, e.target, _value(e), int(e.border)) for e in graph.edges],
        "regions": [
            (
                row.name,
                places[row.nodes[0]],
                len(row.nodes),
                bytes_text(row.bytes_in),
                bytes_text(row.bytes_out),
                *_region_cost(row),
            )
            for row in graph.placement.regions
        ],
        "refusals": _refusals(graph, places),
    }
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _match_cost(row: Verdict) -> str:
    """What a match that an accelerator takes costs there and on the fallback, in words."""
    if row.cost is None:
        return ""
    here, fallback = seconds_text(row.cost.here), seconds_text(row.cost.fallback)
    return f"its match takes {here} here, {fallback} on the fallback"


def _region_cost(row: RegionRow) -> tuple[str, ...]:
    if row.cost is None:
        return ()
    return seconds_text(row.cost.work + row.cost.border), seconds_text(row.cost.fallback)


def _refusals(graph: PlacedGraph, places: dict[str, int]) -> list[tuple[str, int, int]]:
    """The most frequent reasons against nodes that the fallback computes, with the first node."""
    found: dict[str, list[str]] = {}
    for node in graph.nodes:
        if not node.region:
            for row in node.verdicts:
                text = f"{row.accelerator}: {row.code}, {row.detail}"
                found.setdefault(text, []).append(node.name)
    ranked = sorted(found.items(), key=_count, reverse=True)[:_REASONS]
    return [(text, places[names[0]], len(names)) for text, names in ranked]


def _count(item: tuple[str, list[str]]) -> int:
    return len(item[1])
