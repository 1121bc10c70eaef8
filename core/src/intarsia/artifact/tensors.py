# SPDX-License-Identifier: Apache-2.0
"""The layout of ``params.safetensors``: every tensor at a multiple of 64 bytes, to be mapped.

The format (8 bytes of length, a JSON header, data) is written and read by hand: the ``safetensors``
library can neither align tensors, nor stream them without a copy of all, nor map a member inside a
zip. What is written here, the library reads: gaps are tensors of their own, named ``.pad<n>``,
because the format allows no holes. No reader looks them up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..dtype import DType, parse_dtype
from ..errors import ArtifactError, UnsupportedError
from .plan import ALIGNMENT, TensorSpec

if TYPE_CHECKING:
    import numpy as np

_METADATA = "__metadata__"

_NAMES = {
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
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in the file.

    Attributes:
        spec: Name, shape and element type.
        offset: First byte, counted from the start of the member.
    """

    spec: TensorSpec
    offset: int


def layout_tensors(
    arrays: Mapping[str, np.ndarray],
) -> tuple[bytes, tuple[tuple[str, int], ...], int]:
    """Decide where each tensor goes.

    Raises:
        UnsupportedError: A tensor has the one name that the format keeps for itself, or an element
            type that cannot be stored.

    Returns:
        The header with its length; for each tensor in the order of the file its name (empty for a
        gap) and size in bytes; and the size of the whole in bytes.
    """
    if _METADATA in arrays:
        raise UnsupportedError(f"a weight cannot be called '{_METADATA}'", hint="rename it")
    pad = ".pad"
    while any(name.startswith(pad) for name in arrays):
        pad = "." + pad
    header: dict[str, Any] = {}
    pieces: list[tuple[str, int]] = []
    position = 0
    for name in sorted(arrays):
        array = arrays[name]
        end = position + array.nbytes
        header[name] = {
            "dtype": _NAMES[parse_dtype(array.dtype.name)],
            "shape": list(array.shape),
            "data_offsets": [position, end],
        }
        pieces.append((name, array.nbytes))
        gap = -end % ALIGNMENT
        if gap:
            header[f"{pad}{len(pieces)}"] = {
                "dtype": "U8",
                "shape": [gap],
                "data_offsets": [end, end + gap],
            }
            pieces.append(("", gap))
        position = end + gap
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    head = len(text).to_bytes(8, "little") + text
    return head, tuple(pieces), len(head) + position


def array_bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of a C-contiguous array without a copy; works for bfloat16 as well."""
    return array.reshape(-1).view("uint8").data


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
            if name == _METADATA:
                continue
            begin, end = (8 + length + int(offset) for offset in entry["data_offsets"])
            shape = tuple(int(size) for size in entry["shape"])
            spec = TensorSpec(name, shape, _DTYPES[entry["dtype"]])
            if begin + spec.bytes != end or not 8 + length <= begin <= end <= len(member):
                raise ArtifactError(f"params.safetensors: tensor '{name}' lies outside of the file")
            found[name] = StoredTensor(spec, begin)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(f"params.safetensors has a damaged header: {error!r}") from None
    return found
