# SPDX-License-Identifier: Apache-2.0
"""Writes drawings of a placement to files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from intarsia_ir.regions.support import Code
from intarsia_ir.writing.new_file import atomic_write

from .placed_graph import PlacedGraph


def draw(
    graph: PlacedGraph, model: Path, target: str, files: Mapping[str, Path | None]
) -> Iterator[Path]:
    """Write each drawing that has a file; yields the files when they are written.

    Args:
        graph: What is drawn.
        model: The model's file.
        target: The target, for the title.
        files: A file for ``html``, ``dot``, ``model_explorer`` and ``netron``.

    Raises:
        ResourceError: A file cannot be written.
        UsageError: There is no such folder.
    """
    for what, path in files.items():
        if path is None:
            continue
        match what:
            case "html":
                from .html import html_text

                kinds = ", ".join(
                    dict.fromkeys(row.accelerator for row in graph.placement.verdicts)
                )
                short = f"{kinds}, {graph.fallback}" if kinds else graph.fallback
                data = html_text(graph, f"{model.name} for {short}", target).encode()
            case "dot":
                from .dot import dot_text

                data = dot_text(graph).encode()
            case "model_explorer":
                from .model_explorer import model_explorer_text

                data = model_explorer_text(graph, model.name).encode()
            case _:
                from intarsia_onnx.reader import with_node_properties

                data = with_node_properties(model, node_properties(graph))
        with atomic_write(path) as file:
            file.write(data)
        yield path


def node_properties(graph: PlacedGraph) -> dict[str, dict[str, str]]:
    """What to write into each node of the model; nodes that preparing removed are not in it.

    A node of the model that became several is described by all of them.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for node in graph.nodes:
        if not node.kind:
            continue
        rows = found.setdefault(node.origin, {"intarsia.placed": [], "intarsia.region": []})
        rows["intarsia.placed"].append(node.kind)
        rows["intarsia.region"].append(node.region)
        for verdict in node.verdicts:
            yes = verdict.code == Code.OK.value
            text = "yes" if yes else f"{verdict.code}: {verdict.detail}"
            rows.setdefault(f"intarsia.verdict.{verdict.accelerator}", []).append(text)
    return {
        name: {key: "; ".join(dict.fromkeys(filter(None, texts))) for key, texts in rows.items()}
        for name, rows in found.items()
    }
