# SPDX-License-Identifier: Apache-2.0
"""What commands print: JSON with a schema number, tables, progress on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

import click

SCHEMA = 1
"""Version of the form of every JSON output; it changes when a key changes its meaning or goes."""


_UNPRINTABLE = re.compile("[\x7f-\x9f\ud800-\udfff]")
"""What JSON leaves as it is, and a terminal obeys or no encoding has."""


def visible(text: str) -> str:
    """Return text that does nothing to a terminal: control characters as their escapes.

    Names in files may hold any; so may what plugins and tools say.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text as commands do, all of them: names of files and plugins lie in most of it."""
    click.echo(visible(text), err=err, nl=nl)


def emit_json(value: Mapping[str, object]) -> None:
    """Print one JSON object on stdout, with ``schema`` as its first key."""
    text = json.dumps({"schema": SCHEMA, **value}, indent=2, ensure_ascii=False)
    click.echo(_UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def table(rows: Sequence[Sequence[object]], columns: Sequence[str]) -> None:
    """Print rows below column names: drawn on a terminal, plain aligned text elsewhere."""
    cells = [[visible(str(cell)).replace("\n", "\\n") for cell in row] for row in rows]
    if sys.stdout.isatty():
        _draw(cells, columns)
        return
    widths = [max(len(line[at]) for line in [list(columns), *cells]) for at in range(len(columns))]
    for line in [[name.upper() for name in columns], *cells]:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo(text.rstrip())


def _draw(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    from rich.console import Console  # 40 ms, for terminals only
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        drawn.add_column(name.upper(), overflow="fold")
    for line in cells:
        drawn.add_row(*(Text(cell) for cell in line))
    Console().print(drawn)


@contextmanager
def progress(label: str, total: int) -> Generator[Callable[[int], None]]:
    """Show progress on stderr while the block runs, if stderr is a terminal.

    Args:
        label: What is being done.
        total: Number of steps.

    Yields:
        A function to call with the number of steps just done.
    """
    if not sys.stderr.isatty():
        yield _nothing
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        def advance(steps: int) -> None:
            bar.update(task, advance=steps)

        yield advance


def _nothing(steps: int) -> None:
    """Progress that nobody sees."""
