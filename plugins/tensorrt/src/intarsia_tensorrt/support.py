# SPDX-License-Identifier: Apache-2.0
"""The one table behind the plugin's answers and its networks."""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from intarsia.dtype import DType
from intarsia.ir.expr import Call
from intarsia.ir.pattern import Match, op
from intarsia.ir.types import TensorType
from intarsia.partition.support import Code, Support, SupportRow, SupportTable

from .operators import (
    activation,
    convolution,
    elementwise,
    indexing,
    linear,
    normalization,
    pooling,
    quantized,
    shape,
)
from .operators.row import Row
from .target import ARCHITECTURES, TURING


def all_rows() -> tuple[Row, ...]:
    """Return every row; an operator has one."""
    return (
        *convolution.ROWS,
        *linear.ROWS,
        *pooling.ROWS,
        *elementwise.ROWS,
        *activation.ROWS,
        *normalization.ROWS,
        *shape.ROWS,
        *indexing.ROWS,
        *quantized.ROWS,
    )


class Device(Struct, frozen=True):
    """What engines are built for.

    Attributes:
        capability: Compute capability; empty for the GPU that is here.
        half: Whether float32 is computed as float16.
    """

    capability: str = ""
    half: bool = False

    def check(self, call: Call) -> Support:
        """Refuse what TensorRT-RTX builds for no GPU, or not for this one."""
        if self.capability and self.capability not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            return Support.no(
                Code.UNSUPPORTED_OP,
                f"TensorRT-RTX builds for {known} and not for {self.capability}; TensorRT does, on"
                " the GPU itself",
            )
        return _check_turing(call, half=self.half) if self.capability == TURING else Support.yes()


def _check_turing(call: Call, *, half: bool) -> Support:
    """Refuse what the library's code generator has not for Turing, by what its builder says."""
    types = [type_ for arg in call.args for type_ in (arg.type,) if isinstance(type_, TensorType)]
    if any(type_.dtype is DType.BFLOAT16 for type_ in types):
        return Support.no(Code.UNSUPPORTED_DTYPE, f"{TURING} has no bfloat16")
    if call.name == "qnn.matmul":
        return Support.no(Code.UNSUPPORTED_OP, f"no products of 8 bits for {TURING}")
    spatial = call.name in ("nn.conv", "nn.conv_transpose") and types[0].rank == 5
    if (call.name == "matmul" or spatial) and types[0].dtype is DType.FLOAT32 and not half:
        what = "products" if call.name == "matmul" else "3-D convolutions"
        return Support.no(
            Code.UNSUPPORTED_DTYPE, f"no {what} in float32 for {TURING}; -fp16 computes in float16"
        )
    return Support.yes()


class Judge(Struct, frozen=True):
    """Says yes or no to the calls of one operator.

    Attributes:
        row: The operator.
        int8: Whether quantised operators are taken.
        device: What engines are built for.
    """

    row: Row
    int8: bool = True
    device: Device = Device()

    def __call__(self, match: Match) -> Support:
        """Ask the row, then the device."""
        if not self.int8 and self.row.op.startswith("qnn."):
            return Support.no("excluded-by-user", "-int8=false: quantised operators are not taken")
        verdict = self.row.check(match.root)
        return self.device.check(match.root) if verdict else verdict


def support_table(*, int8: bool = True, device: Device | None = None) -> SupportTable:
    """Return what the plugin takes, for the ``annotate`` hook.

    Args:
        int8: Whether quantised operators are taken.
        device: What engines are built for; a GPU that takes all rows if ``None``.
    """
    judge = partial(Judge, int8=int8, device=device or Device())
    return SupportTable(tuple(SupportRow(row.op, op(row.op), judge(row)) for row in all_rows()))


def support_markdown() -> str:
    """Return the table as the README shows it; a test compares."""
    lines = ["| operator | element types | asks for |", "|---|---|---|"]
    for row in all_rows():
        limits = "; ".join(filter(None, (row.limits, _constants(row.constant))))
        refused = row.limits.startswith("never")
        dtypes = "" if refused else ", ".join(dtype.value for dtype in row.dtypes)
        lines.append(f"| `{row.op}` | {dtypes} | {limits} |")
    return "\n".join(lines) + "\n"


def _constants(indices: tuple[int, ...]) -> str:
    if not indices:
        return ""
    word = "argument" if len(indices) == 1 else "arguments"
    return f"{word} {', '.join(str(index) for index in sorted(indices))} constant"
