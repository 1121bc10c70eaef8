# SPDX-License-Identifier: Apache-2.0
"""``params.safetensors``, in pieces that are computed when they are written.

:mod:`intarsia_runtime.artifact.tensors` says how tensors lie in it, and reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from intarsia_runtime.artifact.plan import ALIGNMENT
from intarsia_runtime.artifact.tensors import (
    DTYPE_NAMES,
    GAP,
    HEADER_ALIGNMENT,
    METADATA,
    ORDER,
    array_bytes,
)
from intarsia_runtime.dtype import parse_dtype
from intarsia_runtime.errors import UnsupportedError

from .deferred import DeferredArray, Piece, contents_of

if TYPE_CHECKING:
    import numpy as np


def tensor_pieces(arrays: Mapping[str, np.ndarray]) -> list[Piece]:
    """Return the file that holds C-contiguous arrays, in pieces: the header, then views of them.

    Arrays that are deferred are pieces of the file as they are.

    Raises:
        UnsupportedError: A tensor has a name that the format or the gaps keep for themselves, or an
            element type that cannot be stored.
    """
    rows: list[_TensorRow] = []
    for name, array in contents_of(arrays).items():
        if name == METADATA or GAP in name:
            raise UnsupportedError(f"a weight cannot be called {name!r}", hint="rename it")
        dtype = parse_dtype(array.dtype.name)
        data = array if isinstance(array, DeferredArray) else array_bytes(array)
        rows.append(_TensorRow(DTYPE_NAMES[dtype], name, array.shape, data))
        gap = -array.nbytes % ALIGNMENT
        if gap:
            shape = (gap // dtype.bytes,)
            rows.append(_TensorRow(DTYPE_NAMES[dtype], name + GAP, shape, memoryview(bytes(gap))))
    rows.sort(key=_place)
    header: dict[str, object] = {}
    end = 0
    for row in rows:
        offsets = (end, end + row.data.nbytes)
        header[row.name] = {"dtype": row.dtype, "shape": row.shape, "data_offsets": offsets}
        end += row.data.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % HEADER_ALIGNMENT)
    head = memoryview(len(text).to_bytes(8, "little") + text)
    return [head, *(row.data for row in rows if row.data.nbytes)]


class _TensorRow(NamedTuple):
    """A tensor of the file: its element type as the header spells it, its name, shape and bytes."""

    dtype: str
    name: str
    shape: tuple[int, ...]
    data: Piece


def _place(row: _TensorRow) -> tuple[int, str]:
    return ORDER.index(row.dtype), row.name
