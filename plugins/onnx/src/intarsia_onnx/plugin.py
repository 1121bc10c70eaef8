# SPDX-License-Identifier: Apache-2.0
"""The hooks of the frontend for ONNX models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from intarsia.plugin.frontend import Frontend, hookimpl
from intarsia_ir.graph.module import IRModule

from .reader import model_digests
from .sniff import could_be_onnx


@hookimpl
def register_frontend() -> Sequence[Frontend]:
    """The format ``onnx``; a file with another name is one if it reads as its protobuf."""
    return [
        Frontend(
            name="onnx",
            suffixes=(".onnx",),
            importer=_import,
            sniff=could_be_onnx,
            digests=model_digests,
        )
    ]


def _import(
    model: Path | bytes, shapes: Mapping[str, Sequence[int]] | None, mapped: bool
) -> IRModule:
    from .api import from_onnx  # with it come all converters

    return from_onnx(model, shapes=shapes, mapped=mapped)
