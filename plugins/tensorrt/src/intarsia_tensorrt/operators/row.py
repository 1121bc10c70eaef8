# SPDX-License-Identifier: Apache-2.0
"""What all rows of the plugin's table ask of their tensors, and words that rows share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from intarsia.plugin.accelerator import (
    Call,
    Code,
    Constant,
    DType,
    Limits,
    Match,
    Row,
    Sentences,
    Support,
    TupleType,
    Type,
)

from ..draft import NetworkDraft, Tensor

Lower: TypeAlias = "Callable[[NetworkDraft, Call], Tensor | tuple[Tensor, ...]]"
Supports: TypeAlias = "Callable[[Call], Support]"
NetworkRow: TypeAlias = Row[NetworkDraft, Tensor | tuple[Tensor, ...]]

FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
WEIGHED = (DType.FLOAT32, DType.FLOAT16)
"""Types of layers that hold weights: NumPy has no bfloat16."""

WHOLE = (DType.INT32, DType.INT64)
NUMBERS = (*FLOATS, *WHOLE)
MOVED = (*NUMBERS, DType.BOOL)
BYTES = (DType.INT8, DType.UINT8)


def _stores_no_bytes(match: Match) -> Support:
    """Refuse constants of 8 bits, which stand for real numbers, where none are expected."""
    if match.root.name.startswith("qnn."):
        return Support.yes()
    if any(isinstance(arg, Constant) and arg.data.dtype.name in ("int8", "uint8")
           for arg in match.root.args):  # fmt: skip
        return Support.no(Code.UNSUPPORTED_DTYPE, "8-bit constants belong to qnn operators")
    return Support.yes()


LIMITS = Limits(
    dtypes=FLOATS,
    ranks=range(9),
    tuples=True,
    rule=_stores_no_bytes,
    sentences=Sentences(rank="rank {rank} is more than 8"),
)
"""The library's tensors have at most 8 dimensions."""


def fields_of(call: Call) -> tuple[Type, ...]:
    """Return the types of a call's results."""
    return call.type.fields if isinstance(call.type, TupleType) else (call.type,)


def attribute(detail: str) -> Support:
    """A no because of an attribute, or of what it does with these shapes."""
    return Support.no(Code.UNSUPPORTED_ATTRIBUTE, detail)


def shape(detail: str) -> Support:
    """A no because of a shape."""
    return Support.no(Code.UNSUPPORTED_SHAPE, detail)
