# SPDX-License-Identifier: Apache-2.0
"""What compiled functions check of packed arguments, and say of those that do not fit.

The sentences are the same whatever backend compiled the model.
"""

from __future__ import annotations

from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.dtype import DType

FAULTS = (
    "is not a tensor",
    "is not on the CPU",
    "has the wrong element type; it must be {dtype}",
    "has the wrong shape; it must be {shape}",
    "is not contiguous in row-major order",
    "is not aligned to its element size",
)
"""What can be wrong with an argument, in the order of the numbers that checks give it."""


def faults_of(called: str, spec: TensorSpec) -> tuple[str, ...]:
    """Return the sentences of :data:`FAULTS` about an argument.

    Args:
        called: What the argument is called: ``input 'x'``.
        spec: What it must be.
    """
    sizes = ", ".join(str(size) for size in spec.shape)
    shape = f"({sizes},)" if len(spec.shape) == 1 else f"({sizes})"
    return tuple(f"{called} {fault.format(dtype=spec.dtype, shape=shape)}" for fault in FAULTS)


def dlpack_code(dtype: DType) -> int:
    """Return DLPack's code for what kind of element a type is."""
    match dtype:
        case DType.BOOL:
            return 6
        case DType.BFLOAT16:
            return 4
        case _:
            return 2 if dtype.is_float else 0 if dtype.is_signed else 1
