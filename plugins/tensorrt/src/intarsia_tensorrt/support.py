# SPDX-License-Identifier: Apache-2.0
"""The one table behind the plugin's answers and its networks."""

from __future__ import annotations

from msgspec import Struct

from intarsia.plugin.accelerator import (
    AcceleratorTable,
    Call,
    Code,
    DType,
    Match,
    Support,
    SupportTable,
    TensorType,
)

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
from .operators.row import LIMITS, NetworkRow
from .target import ARCHITECTURES, TURING

TABLE = AcceleratorTable[NetworkRow](
    (
        *convolution.ROWS,
        *linear.ROWS,
        *pooling.ROWS,
        *elementwise.ROWS,
        *activation.ROWS,
        *normalization.ROWS,
        *shape.ROWS,
        *indexing.ROWS,
        *quantized.ROWS,
    ),
    LIMITS,
)


class EngineDevice(Struct, frozen=True):
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


def support_table(*, int8: bool = True, device: EngineDevice | None = None) -> SupportTable:
    """Return what the plugin takes, for the ``annotate`` hook.

    Args:
        int8: Whether quantized operators are taken.
        device: What engines are built for; a GPU that takes all rows if ``None``.
    """
    built_for = device or EngineDevice()

    def allowed(row: NetworkRow, _match: Match) -> Support:
        if not int8 and row.name.startswith("qnn."):
            return Support.no("excluded-by-user", "-int8=false: quantized operators are not taken")
        return Support.yes()

    def can_do(_row: NetworkRow, match: Match) -> Support:
        return built_for.check(match.root)

    return TABLE.support(first=allowed, last=can_do)
