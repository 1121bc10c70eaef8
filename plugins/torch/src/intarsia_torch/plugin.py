# SPDX-License-Identifier: Apache-2.0
"""The hooks of the frontend for programs that ``torch.export.save`` wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from intarsia.plugin.frontend import Frontend, hookimpl
from intarsia_ir.graph.module import IRModule


@hookimpl
def register_frontend() -> Sequence[Frontend]:
    """The format ``torch``: files that end with ``.pt2``."""
    return [Frontend(name="torch", suffixes=(".pt2",), importer=_import)]


def _import(
    model: Path | bytes, shapes: Mapping[str, Sequence[int]] | None, _mapped: bool
) -> IRModule:
    from .importing import from_torch  # with it comes torch

    return from_torch(model, shapes=shapes)
