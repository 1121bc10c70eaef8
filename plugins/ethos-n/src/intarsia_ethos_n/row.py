# SPDX-License-Identifier: Apache-2.0
"""A row of the plugin's table: an operator, and how its calls become operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from intarsia.plugin.accelerator import (
    Call,
    Code,
    DType,
    Limits,
    Row,
    Sentences,
    Support,
    operator_row,
)

from .describe import Sketch

NetworkRow: TypeAlias = "Row[Sketch, str | Support]"
"""Its lowering appends operations and returns the result's tensor, the first one if there are
several, or says what has no operation: placing and compiling describe a call in the same way."""

_SHAPE = "{type}: one, two or four dimensions with elements are taken"
LIMITS = Limits(
    dtypes=(DType.INT8, DType.UINT8),
    ranks=(1, 2, 4),
    tuples=True,
    sentences=Sentences(
        dtype="only int8 and uint8 are taken, not {type}", empty=_SHAPE, rank=_SHAPE
    ),
)


def row(
    name: str,
    describe: Callable[[Sketch, Call], str | Support],
    *,
    doc: str,
    data: tuple[int, ...] = (),
    constant: tuple[int, ...] = (),
) -> NetworkRow:
    """Return the row of an operator."""
    return operator_row(name, describe, data=data, constant=constant, doc=doc)


def no(detail: str, code: Code = Code.UNSUPPORTED_ATTRIBUTE) -> Support:
    """Refuse a call, in words."""
    return Support.no(code, detail)
