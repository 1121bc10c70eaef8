# SPDX-License-Identifier: Apache-2.0
"""A frontend and a command: ``notes 4`` and then one element-wise operator a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from intarsia.plugin import DType, Function, TensorType, Var, hookimpl

if TYPE_CHECKING:
    import click

    from intarsia.host.frontend import Frontend
    from intarsia_ir.graph.module import IRModule


def read(model: Path | bytes) -> tuple[int, list[str]]:
    """Return the length of the vector and the operators."""
    text = (model if isinstance(model, bytes) else model.read_bytes()).decode()
    head, *operators = text.split("\n")
    return int(head.removeprefix("notes ")), [line for line in operators if line]


def import_notes(
    model: Path | bytes, shapes: Mapping[str, Sequence[int]] | None, mapped: bool
) -> IRModule:
    """Return the chain as a module."""
    from intarsia_ir.graph.expr import call
    from intarsia_ir.graph.module import IRModule
    from intarsia_ir.ops import OPERATORS

    size, operators = read(model)
    x = Var("x", TensorType(tuple((shapes or {}).get("x", (size,))), DType.FLOAT32))
    body = x
    for name in operators:
        body = call(OPERATORS[name], body)
    return IRModule.from_function(Function((x,), body, ("y",)))


@hookimpl
def register_frontend() -> Sequence[Frontend]:
    """The one format."""
    from intarsia.host.frontend import Frontend

    return [
        Frontend(
            name="notes",
            suffixes=(".notes", ".notes.txt"),
            importer=import_notes,
            sniff=lambda head: head.startswith(b"notes "),
        )
    ]


@hookimpl
def register_commands() -> Sequence[click.Command]:
    """The one command."""
    import click

    @click.command("hum")
    @click.argument("file", type=click.Path(path_type=Path))
    def hum(file: Path) -> None:
        """Print the operators of a FILE of notes."""
        click.echo(" ".join(read(file)[1]))

    return [hum]
