# SPDX-License-Identifier: Apache-2.0
"""``params.safetensors``: every tensor at a multiple of 64 bytes, to be mapped.

The format has no gaps between tensors, which lie by element type and then by name, so a gap is a
tensor of its own behind the one it follows, of the same type and named after it. The header (a
length and JSON) is read and written by hand, to the byte as the ``safetensors`` library does: that
maps no member inside a zip, and writes none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec import Struct

from ..dtype import DType, parse_dtype
from ..errors import ArtifactError, UnsupportedError
from .deferred import DeferredArray, Piece, contents_of
from .plan import ALIGNMENT, TensorSpec

if TYPE_CHECKING:
    import numpy as np

_METADATA = "__metadata__"
_HEADER_ALIGNMENT = 8
_GAP = "\0"
"""Behind a tensor's name: the gap that follows it. No other name sorts in between."""

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
_ORDER = (
    "U64", "I64", "F64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16", "I8", "U8", "BOOL",
)  # fmt: skip
"""Element types as they follow one another in a file."""

_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


class StoredTensor(Struct, frozen=True):
    """A tensor in the file.

    Attributes:
        spec: Name, shape and element type.
        offset: First byte, counted from the start of the member.
    """

    spec: TensorSpec
    offset: int


def tensor_pieces(arrays: Mapping[str, np.ndarray]) -> list[Piece]:
    """Return the file that holds C-contiguous arrays, in pieces: the header, then views of them.

    Arrays that are deferred are pieces of the file as they are.

    Raises:
        UnsupportedError: A tensor has a name that the format or the gaps keep for themselves, or an
            element type that cannot be stored.
    """
    rows: list[_TensorRow] = []
    for name, array in contents_of(arrays).items():
        if name == _METADATA or _GAP in name:
            raise UnsupportedError(f"a weight cannot be called {name!r}", hint="rename it")
        dtype = parse_dtype(array.dtype.name)
        data = array if isinstance(array, DeferredArray) else array_bytes(array)
        rows.append(_TensorRow(_NAMES[dtype], name, array.shape, data))
        gap = -array.nbytes % ALIGNMENT
        if gap:
            shape = (gap // dtype.bytes,)
            rows.append(_TensorRow(_NAMES[dtype], name + _GAP, shape, memoryview(bytes(gap))))
    rows.sort(key=_place)
    header: dict[str, object] = {}
    end = 0
    for row in rows:
        offsets = (end, end + row.data.nbytes)
        header[row.name] = {"dtype": row.dtype, "shape": row.shape, "data_offsets": offsets}
        end += row.data.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _HEADER_ALIGNMENT)
    head = memoryview(len(text).to_bytes(8, "little") + text)
    return [head, *(row.data for row in rows if row.data.nbytes)]


class _TensorRow(NamedTuple):
    """A tensor of the file: its element type as the header spells it, its name, shape and bytes."""

    dtype: str
    name: str
    shape: tuple[int, ...]
    data: Piece


def _place(row: _TensorRow) -> tuple[int, str]:
    return _ORDER.index(row.dtype), row.name


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
            if name == _METADATA or name.endswith(_GAP):
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
