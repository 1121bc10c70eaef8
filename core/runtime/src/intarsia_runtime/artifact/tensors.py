# SPDX-License-Identifier: Apache-2.0
"""``params.safetensors``: every tensor at a multiple of 64 bytes, to be mapped.

The format has no gaps between tensors, which lie by element type and then by name, so a gap is a
tensor of its own behind the one it follows, of the same type and named after it. The header (a
length and JSON) is read and written by hand, to the byte as the ``safetensors`` library does: that
maps no member inside a zip, and writes none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from ..dtype import DType
from ..errors import ArtifactError
from .plan import TensorSpec

if TYPE_CHECKING:
    import numpy as np

METADATA = "__metadata__"
HEADER_ALIGNMENT = 8
GAP = "\0"
"""Behind a tensor's name: the gap that follows it. No other name sorts in between."""

DTYPE_NAMES = {
    DType.BOOL: "BOOL",
    DType.INT8: "I8",
    DType.INT16: "I16",
    DType.INT32: "I32",
    DType.INT64: "I64",
    DType.UINT8: "U8",
    DType.UINT16: "U16",
    DType.UINT32: "U32",
    DType.UINT64: "U64",
    DType.FLOAT16: "F16",
    DType.BFLOAT16: "BF16",
    DType.FLOAT32: "F32",
    DType.FLOAT64: "F64",
}
ORDER = (
    "U64", "I64", "F64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16", "I8", "U8", "BOOL",
)  # fmt: skip
"""Element types as they follow one another in a file."""

_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


class StoredTensor(Struct, frozen=True):
    """A tensor in the file.

    Attributes:
        spec: Name, shape and element type.
        offset: First byte, counted from the start of the member.
    """

    spec: TensorSpec
    offset: int


def array_bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of a C-contiguous array without a copy; works for bfloat16 as well."""
    return array.reshape(-1).view("uint8").data


def _integer(value: object) -> int:
    """Return a number of the header; what is written otherwise than as an integer is none."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no size")
    return value


def read_layout(member: memoryview) -> dict[str, StoredTensor]:
    """Read the header of ``params.safetensors``.

    Raises:
        ArtifactError: The header is damaged, or a tensor lies outside of the member.
    """
    try:
        length = int.from_bytes(member[:8], "little")
        header = cast("dict[str, dict[str, Any]]", json.loads(bytes(member[8 : 8 + length])))
        found: dict[str, StoredTensor] = {}
        for name, entry in header.items():
            if name == METADATA or name.endswith(GAP):
                continue
            begin, end = (8 + length + _integer(offset) for offset in entry["data_offsets"])
            shape = tuple(_integer(size) for size in entry["shape"])
            spec = TensorSpec(name, shape, _DTYPES[entry["dtype"]])
            if begin + spec.bytes != end or not 8 + length <= begin <= end <= len(member):
                raise ArtifactError(f"params.safetensors: tensor '{name}' lies outside of the file")
            found[name] = StoredTensor(spec, begin)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(f"params.safetensors has a damaged header: {error!r}") from None
    return found
