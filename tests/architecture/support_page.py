# SPDX-License-Identifier: Apache-2.0
"""The measured support matrix: ``docs/reference/support.md``, made by asking the plugins."""

from __future__ import annotations

import re

from intarsia.host.host import Host
from intarsia_ir.regions.support import support_markdown
from intarsia_testkit.matrix import Cell, support_cells
from intarsia_testkit.subject import open_subject

from .source_tree import ROOT

PAGE = ROOT / "docs" / "reference" / "support.md"
HEAD = """# Measured support matrix

What each accelerator of this project says to every operator, element type and rank of which the
conformance kit has a case, found by asking its `annotate` hook. A number is a rank of the first
operand at which all cases are taken; with a star, only some are (attributes, shapes and the other
operands decide). Backends have no such table: they compile every operator. A test compares this
page with the plugins, cell by cell; `python -m tests.architecture.reference_pages` writes it.
"""
NOTHING = "Nothing is taken of:"


def plugins() -> list[str]:
    """Installed accelerators of this repository."""
    folders = {path.name for path in (ROOT / "plugins").iterdir()}
    rows = [kind for kind in Host(env={}).kinds() if kind.role == "accelerator"]
    return sorted({row.plugin for row in rows if row.plugin in folders})


def render() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(section(name, cells(name)) for name in plugins())])


TARGETS = {"dnnl": "dnnl -int8=on, llvm"}
"""Of a plugin whose default depends on the processor: what the page says it is asked with."""


ROWS_HEAD = """# What accelerators take

The rows of each accelerator of this project, as its `annotate` hook gives them: pattern, element
types of the data, and what the row asks for beyond the limits that all rows share. The verdicts,
the code generator and this page derive from the same table. [The measured matrix](support.md) says
the same from outside.
"""


def render_rows() -> str:
    """The page with the rows of every accelerator."""
    parts = [ROWS_HEAD]
    for plugin in plugins():
        subject = open_subject(plugin)
        rows = subject.table(subject.host()).rows
        parts.append(f"## `{plugin}`\n\n{support_markdown(rows)}")
    return "\n".join(parts)


def cells(plugin: str) -> dict[Cell, str]:
    """What a plugin says now, the same on every processor."""
    return support_cells(open_subject(plugin, TARGETS.get(plugin, "")))


def section(plugin: str, found: dict[Cell, str]) -> str:
    """The part of the page about one plugin."""
    taken = {cell: said for cell, said in found.items() if said in ("yes", "some")}
    operators = list(dict.fromkeys(cell[0] for cell in found))
    lines = [f"## `{plugin}`", "", "| operator | element type | ranks |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {dtype} | {_ranks(taken, name, dtype)} |"
        for name, dtype in dict.fromkeys(cell[:2] for cell in taken)
    ]
    rest = [name for name in operators if name not in {cell[0] for cell in taken}]
    lines += ["", f"{NOTHING} {', '.join(f'`{name}`' for name in rest)}.", ""]
    return "\n".join(lines)


def _ranks(taken: dict[Cell, str], name: str, dtype: str) -> str:
    rows = sorted((cell[2], said) for cell, said in taken.items() if cell[:2] == (name, dtype))
    return ", ".join(f"{rank}{'*' if said == 'some' else ''}" for rank, said in rows)


def shown_cells(text: str, plugin: str) -> dict[Cell, str]:
    """What the page says of a plugin: the cells that it takes, ``yes`` or ``some``."""
    _, _, part = text.partition(f"## `{plugin}`")
    part = part.partition("\n## ")[0]
    found: dict[Cell, str] = {}
    for name, dtype, ranks in re.findall(r"^\| `([^`]+)` \| (\w+) \| ([^|]+) \|$", part, re.M):
        for rank in ranks.split(", "):
            found[name, dtype, int(rank.rstrip("*"))] = "some" if rank.endswith("*") else "yes"
    return found


def changed_cells(shown: dict[Cell, str], found: dict[Cell, str]) -> list[str]:
    """One line for every cell that says something else than the page."""
    lines: list[str] = []
    for cell in sorted(shown.keys() | found.keys()):
        was, now = shown.get(cell, "no"), found.get(cell, "no case")
        if was != now and (was != "no" or now in ("yes", "some")):
            lines.append(f"{cell[0]}, {cell[1]}, rank {cell[2]}: was {was}, is {now}")
    return lines
