# SPDX-License-Identifier: Apache-2.0
"""``params.safetensors``: every tensor at a multiple of 64 bytes, to be mapped.

The ``safetensors`` library writes the file. It packs tensors without gaps, by element type and then
by name, so a gap is a tensor of its own behind the one it follows, of the same type and named after
it. The header (a length and JSON) is read by hand: the library cannot map a member inside a zip.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..dtype import DType, parse_dtype
from ..errors import ArtifactError, UnsupportedError
from .plan import ALIGNMENT, TensorSpec

if TYPE_CHECKING:
    import numpy as np

_METADATA = "__metadata__"
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


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray]) -> int:
    """Write C-contiguous arrays, in one pass and without a copy.

    Raises:
        UnsupportedError: A tensor has a name that the format or the gaps keep for themselves, or an
            element type that cannot be stored.
        OSError: The file cannot be written.

    Returns:
        Number of bytes in front of the data.
    """
    from numpy import zeros
    from safetensors import SafetensorError, serialize_file
    from safetensors import TensorSpec as Row

    def row(dtype: DType, shape: tuple[int, ...], pointer: int, size: int) -> Row:
        return Row(dtype=dtype.value, shape=shape, data_ptr=pointer, data_len=size)

    rows: dict[str, Row] = {}
    gaps = zeros(ALIGNMENT, "uint8")
    for name, array in arrays.items():
        if name == _METADATA or _GAP in name:
            raise UnsupportedError(f"a weight cannot be called {name!r}", hint="rename it")
        dtype = parse_dtype(array.dtype.name)
        pointer = array.ctypes.data if array.nbytes else gaps.ctypes.data
        rows[name] = row(dtype, array.shape, pointer, array.nbytes)
        gap = -array.nbytes % ALIGNMENT
        if gap:
            size = (gap // dtype.bytes,)
            rows[name + _GAP] = row(dtype, size, gaps.ctypes.data, gap)
    try:
        serialize_file(rows, path, metadata=None)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        code = int(number[1]) if number is not None else errno.EIO
        raise OSError(code, os.strerror(code)) from error
    with open(path, "rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


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
            if name == _METADATA or name.endswith(_GAP):
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
