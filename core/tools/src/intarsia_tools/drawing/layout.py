# SPDX-License-Identifier: Apache-2.0
"""Layered layout: values flow downwards, every node in the layer below what it reads.

Four steps, each linear in nodes and edges but for sorting a layer: layers by the longest path;
points where an edge passes through layers, one chain for each source; order in a layer by the mean
place of the neighbours; and the least-squares x that keeps that order and the distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

NODE_WIDTH = 176.0
NODE_HEIGHT = 42.0
LAYER_HEIGHT = 92.0
_GAP = 22.0
_POINT_WIDTH = 14.0
_SWEEPS = 4
_STRAIGHTEN = 8


class GraphLayout(Struct, frozen=True):
    """Where everything is, in pixels.

    Attributes:
        centres: Centre of each node.
        paths: For each edge the points it passes, source and target included.
        width: Of the whole picture.
        height: Of the whole picture.
    """

    centres: tuple[tuple[float, float], ...]
    paths: tuple[tuple[tuple[float, float], ...], ...]
    width: float
    height: float


def lay_out(count: int, edges: Sequence[tuple[int, int]]) -> GraphLayout:
    """Place nodes and edges.

    Args:
        count: Number of nodes; every edge goes from a lower to a higher index.
        edges: Source and target of each edge.
    """
    layer = _layers(count, edges)
    chains, links = _chains(layer, edges)
    for source, chain in chains.items():
        layer += [layer[source] + 1 + step for step in range(len(chain))]
    above: list[list[int]] = [[] for _ in layer]
    below: list[list[int]] = [[] for _ in layer]
    for source, target in links:
        above[target].append(source)
        below[source].append(target)
    rows = _ordered(layer, above, below)
    widths = [NODE_WIDTH if vertex < count else _POINT_WIDTH for vertex in range(len(layer))]
    x = _straightened(rows, above, below, widths)
    left = min((x[v] - widths[v] / 2 for v in range(len(layer))), default=0.0) - _GAP
    right = max((x[v] + widths[v] / 2 for v in range(len(layer))), default=0.0) + _GAP
    place = [(x[v] - left, (layer[v] + 0.5) * LAYER_HEIGHT) for v in range(len(layer))]
    paths = tuple(
        tuple(place[v] for v in (source, *_between(chains, layer, source, target), target))
        for source, target in edges
    )
    return GraphLayout(tuple(place[:count]), paths, right - left, len(rows) * LAYER_HEIGHT)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest path to each node; a node that reads nothing goes above its first reader."""
    layer = [0] * count
    reads = [False] * count
    for source, target in sorted(edges, key=_target):
        layer[target] = max(layer[target], layer[source] + 1)
        reads[target] = True
    first = [len(layer)] * count
    for source, target in edges:
        first[source] = min(first[source], layer[target])
    return [
        depth if reads[node] or first[node] == len(layer) else first[node] - 1
        for node, depth in enumerate(layer)
    ]


def _target(edge: tuple[int, int]) -> tuple[int, int]:
    return edge[1], edge[0]


def _chains(
    layer: Sequence[int], edges: Sequence[tuple[int, int]]
) -> tuple[dict[int, range], list[tuple[int, int]]]:
    """Points in the layers that edges pass through, numbered after the nodes; and short links."""
    longest: dict[int, int] = {}
    for source, target in edges:
        span = layer[target] - layer[source] - 1
        if span > 0:
            longest[source] = max(longest.get(source, 0), span)
    chains: dict[int, range] = {}
    following = len(layer)
    links: list[tuple[int, int]] = []
    for source, length in longest.items():
        chains[source] = range(following, following + length)
        following += length
        links += list(zip((source, *chains[source]), chains[source], strict=False))
    for source, target in dict.fromkeys(edges):
        between = _between(chains, layer, source, target)
        links.append((between[-1] if between else source, target))
    return chains, links


def _between(
    chains: dict[int, range], layer: Sequence[int], source: int, target: int
) -> Sequence[int]:
    chain = chains.get(source)
    return chain[: layer[target] - layer[source] - 1] if chain is not None else ()


def _ordered(
    layer: Sequence[int], above: Sequence[list[int]], below: Sequence[list[int]]
) -> list[list[int]]:
    """The vertices of each layer from left to right."""
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for vertex, depth in enumerate(layer):
        rows[depth].append(vertex)
    place = [0.0] * len(layer)
    for row in rows:
        for at, vertex in enumerate(row):
            place[vertex] = at / len(row)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for row in rows if down else reversed(rows):
            keys = {
                v: sum(place[n] for n in neighbours[v]) / len(neighbours[v])
                if neighbours[v]
                else place[v]
                for v in row
            }
            row.sort(key=keys.__getitem__)
            for at, vertex in enumerate(row):
                place[vertex] = at / len(row)
    return rows


def _straightened(
    rows: Sequence[Sequence[int]],
    above: Sequence[list[int]],
    below: Sequence[list[int]],
    widths: Sequence[float],
) -> list[float]:
    x = [0.0] * len(widths)
    for sweep in range(_STRAIGHTEN):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for row in rows if down else reversed(rows):
            wanted = [
                sum(x[n] for n in neighbours[v]) / len(neighbours[v]) if neighbours[v] else x[v]
                for v in row
            ]
            for vertex, value in zip(row, _spread(row, wanted, widths), strict=True):
                x[vertex] = value
    return x


def _spread(row: Sequence[int], wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """The places nearest to the wanted ones, in the row's order and without overlap.

    Taking the distances off turns it into the nearest sequence that never falls, which pooling
    neighbours that violate that gives in one pass.
    """
    offsets = [0.0]
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + (widths[left] + widths[right]) / 2 + _GAP)
    pools: list[tuple[float, int]] = []
    for value, offset in zip(wanted, offsets, strict=False):
        total, size = value - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / size:
            other, many = pools.pop()
            total, size = total + other, size + many
        pools.append((total, size))
    flat = [total / size for total, size in pools for _ in range(size)]
    return [value + offset for value, offset in zip(flat, offsets, strict=False)]
