# SPDX-License-Identifier: Apache-2.0
"""Decode ``TensorProto`` messages; every size is checked before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import ml_dtypes
import numpy as np

from intarsia_ir.budget import MAX_TENSOR_BYTES
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ModelError, ResourceError, UnsupportedError

from .external import ExternalFiles
from .wire import LARGE

_DTYPES = {
    1: DType.FLOAT32,
    2: DType.UINT8,
    3: DType.INT8,
    4: DType.UINT16,
    5: DType.INT16,
    6: DType.INT32,
    7: DType.INT64,
    9: DType.BOOL,
    10: DType.FLOAT16,
    11: DType.FLOAT64,
    12: DType.UINT32,
    13: DType.UINT64,
    16: DType.BFLOAT16,
}
_UNSUPPORTED = {
    0: "undefined",
    8: "string",
    14: "complex64",
    15: "complex128",
    17: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4e2m1",
    24: "float8e8m0",
    25: "uint2",
    26: "int2",
}
_STRING = 8
_COMPLEX = {14: "complex64", 15: "complex128"}
_NARROW = {
    17: ml_dtypes.float8_e4m3fn,
    18: ml_dtypes.float8_e4m3fnuz,
    19: ml_dtypes.float8_e5m2,
    20: ml_dtypes.float8_e5m2fnuz,
    21: ml_dtypes.uint4,
    22: ml_dtypes.int4,
    23: ml_dtypes.float4_e2m1fn,
    24: ml_dtypes.float8_e8m0fnu,
    25: ml_dtypes.uint2,
    26: ml_dtypes.int2,
}
_BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}  # of a stored element; 8 for the others
MAX_RANK = 32  # of arrays here
MAX_EXTENT = 1 << 58  # elements of an array whose sizes of 0 were 1
_HALF = (DType.FLOAT16, DType.BFLOAT16)


class _Entry(Protocol):
    """A key and a value (``StringStringEntryProto``)."""

    @property
    def key(self) -> str: ...

    @property
    def value(self) -> str: ...


class _TensorMessage(Protocol):
    """The fields of ``TensorProto`` that are read."""

    @property
    def name(self) -> str: ...

    @property
    def dims(self) -> Sequence[int]: ...

    @property
    def data_type(self) -> int: ...

    @property
    def data_location(self) -> int: ...

    @property
    def raw_data(self) -> bytes: ...

    @property
    def float_data(self) -> Sequence[float]: ...

    @property
    def int32_data(self) -> Sequence[int]: ...

    @property
    def int64_data(self) -> Sequence[int]: ...

    @property
    def double_data(self) -> Sequence[float]: ...

    @property
    def uint64_data(self) -> Sequence[int]: ...

    @property
    def string_data(self) -> Sequence[bytes]: ...

    @property
    def external_data(self) -> Iterable[_Entry]: ...

    def HasField(self, name: Literal["segment"], /) -> bool: ...


def element_type(code: int, where: str) -> DType:
    """Return the element type of an ONNX ``TensorProto.DataType`` number.

    Raises:
        UnsupportedError: A type there are no tensors of here (strings, complex, narrow floats).
        ModelError: Not an element type at all.
    """
    found = _DTYPES.get(code)
    if found is not None:
        return found
    if code in _UNSUPPORTED:
        raise UnsupportedError(f"element type '{_UNSUPPORTED[code]}' is not supported", where=where)
    raise ModelError(f"element type number {code} does not exist", where=where)


def stored_name(code: int) -> str:
    """Return NumPy's name of an element type that compiled functions take as bytes, else ``""``."""
    return np.dtype(_NARROW[code]).name if code in _NARROW else ""


def is_element_type(code: int) -> bool:
    """Whether compiled functions take tensors of an ONNX ``TensorProto.DataType`` number."""
    return code in _DTYPES


def array_type(code: int, where: str) -> np.dtype:
    """Return the element type that NumPy or ml_dtypes has for an ONNX number; object for strings.

    Raises:
        UnsupportedError: There is none.
        ModelError: Not an element type at all.
    """
    if code == _STRING:
        return np.dtype(object)
    if code in _NARROW or code in _COMPLEX:
        return np.dtype((_NARROW | _COMPLEX)[code])
    return numpy_dtype(element_type(code, where))


def named_dtype(name: str) -> np.dtype:
    """Return the element type that NumPy or ml_dtypes calls ``name``."""
    return np.dtype(name)  # ml_dtypes, imported here, gives NumPy its names


def element_code(dtype: np.dtype) -> int:
    """Return the ONNX number of an element type of :func:`array_type`."""
    if dtype == np.dtype(object):
        return _STRING
    known = {np.dtype(name): code for code, name in (_NARROW | _COMPLEX).items()}
    known |= {numpy_dtype(found): code for code, found in _DTYPES.items()}
    return known[dtype]


def onnx_code(dtype: DType) -> int:
    """Return the ONNX number of an element type."""
    return next(code for code, known in _DTYPES.items() if known is dtype)


def decode_tensor(
    tensor: _TensorMessage, files: ExternalFiles, where: str, raw: memoryview | None = None
) -> np.ndarray:
    """Return the array of one tensor message; external data stay memory-mapped.

    Args:
        tensor: The message.
        files: Where external data are.
        where: The tensor, for messages.
        raw: Its ``raw_data``, if they were cut out of the message. They are not copied, nor are
            external data, if they are large; such an array may begin at any address.

    Raises:
        ModelError: The message contradicts itself (sizes, two sources of data, bad range).
        UnsupportedError: Its element type has no array here.
    """
    if tensor.HasField("segment"):
        raise UnsupportedError("the tensor is one segment of another", where=where)
    if tensor.data_type in _NARROW:
        return _decode_narrow(tensor, files, where, raw)
    dtype = element_type(tensor.data_type, where)
    dims = _checked_dims(tensor, where)
    count = math.prod(dims)
    array_type = numpy_dtype(dtype)
    fields = _sources(tensor, where, raw)
    if tensor.data_location == 1:
        entries = _entries(tensor, where)
        data = files.read(entries, count * dtype.bytes, where)
    else:
        data = tensor.raw_data if raw is None else raw
    if tensor.data_location == 1 or data:
        if len(data) != count * dtype.bytes:
            raise ModelError(
                f"{len(data)} bytes of data; {dims} of {dtype} needs {count * dtype.bytes}",
                where=where,
            )
        if dtype is DType.BOOL:  # any byte but 0 is true, and NumPy's is 1
            return (np.frombuffer(data, np.uint8) != 0).reshape(dims)
        return _aligned(np.frombuffer(data, array_type)).reshape(dims)
    return _from_fields(tensor, dtype, dims, count, fields, where)


def is_text(tensor: _TensorMessage) -> bool:
    """Whether the elements of a tensor message are strings."""
    return tensor.data_type == _STRING


def decode_any_tensor(
    tensor: _TensorMessage, files: ExternalFiles, where: str, raw: memoryview | None = None
) -> np.ndarray:
    """Return the array of a tensor message of any element type; strings are objects.

    The arguments are those of :func:`decode_tensor`.

    Raises:
        ModelError: The message contradicts itself.
        UnsupportedError: Its element type has no array here.
    """
    if not is_text(tensor):
        return decode_tensor(tensor, files, where, raw)
    dims = _checked_dims(tensor, where)
    texts = [text.decode("utf-8", "replace") for text in tensor.string_data]
    if len(texts) != math.prod(dims):
        raise ModelError(f"{len(texts)} values for shape {dims}", where=where)
    return np.array(texts, object).reshape(dims)


def _entries(tensor: _TensorMessage, where: str) -> dict[str, str]:
    """Return where the data of a tensor are; protobuf hands out what is not UTF-8 as bytes."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if not {type(text) for entry in entries.items() for text in entry} <= {str}:
        raise ModelError("the location of external data is not UTF-8 text", where=where)
    return entries


def _checked_dims(tensor: _TensorMessage, where: str) -> tuple[int, ...]:
    dims = tuple(tensor.dims)
    if any(size < 0 for size in dims):
        raise ModelError(f"negative dimension in shape {dims}", where=where)
    if len(dims) > MAX_RANK:
        raise UnsupportedError(f"{len(dims)} dimensions; at most {MAX_RANK}", where=where)
    _check_extent(dims, where)
    return dims


def _check_extent(dims: tuple[int, ...], where: str) -> None:
    """Refuse sizes that no array has, though it is empty: NumPy's strides are 63-bit numbers."""
    if 0 in dims and math.prod(max(size, 1) for size in dims) > MAX_EXTENT:
        raise ResourceError(f"no array has the shape {dims}", where=where)


def _sources(tensor: _TensorMessage, where: str, raw: memoryview | None) -> list[str]:
    """Return the names of the typed data fields that hold something; refuse data in two places."""
    fields = _typed_fields(tensor)
    inline = ["raw_data", *fields] if raw is not None or tensor.raw_data else fields
    if tensor.data_location == 1 and inline:
        raise ModelError("both external and inline data are set", where=where)
    if len(inline) > 1:
        raise ModelError(f"both {inline[0]} and {inline[1]} are set", where=where)
    return fields


def _decode_narrow(
    tensor: _TensorMessage, files: ExternalFiles, where: str, raw: memoryview | None
) -> np.ndarray:
    """Unpack numbers of a byte or less, one an element."""
    code, dims = tensor.data_type, _checked_dims(tensor, where)
    count = math.prod(dims)
    bits = _BITS.get(code, 8)
    needed = -(-count * bits // 8)
    fields = _sources(tensor, where, raw)
    if fields not in ([], ["int32_data"]):
        raise ModelError(f"data in {fields[0]}; expected int32_data", where=where)
    if tensor.data_location == 1:
        entries = _entries(tensor, where)
        packed = np.frombuffer(files.read(entries, needed, where), np.uint8)
    elif raw is not None or tensor.raw_data:
        packed = np.frombuffer(tensor.raw_data if raw is None else raw, np.uint8)
    else:
        packed = _bit_patterns(tensor.int32_data, np.dtype(np.uint8), where)
    if packed.size != needed:
        raise ModelError(f"{packed.size} bytes of data; {dims} needs {needed}", where=where)
    return unpacked(packed, bits, count).view(_NARROW[code]).reshape(dims)


def unpacked(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Return ``count`` numbers of ``bits`` bits, one a byte; the first is in the lowest bits."""
    if bits == 8:
        return packed.copy()
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[:, None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(-1)[:count].copy()


def check_sizes(dims: tuple[int, ...], dtype: DType, where: str) -> None:
    """Check the numbers in the shape of a tensor that will be allocated.

    Raises:
        ModelError: A negative dimension.
        UnsupportedError: More dimensions than an array may have.
        ResourceError: More than :data:`~intarsia_ir.budget.MAX_TENSOR_BYTES`.
    """
    if any(size < 0 for size in dims):
        raise ModelError(f"negative dimension in shape {dims}", where=where)
    if len(dims) > MAX_RANK:
        raise UnsupportedError(f"{len(dims)} dimensions; at most {MAX_RANK}", where=where)
    needed = math.prod(dims) * dtype.bytes
    if needed > MAX_TENSOR_BYTES:
        raise ResourceError(
            f"shape {dims} of {dtype} needs {needed} bytes; the limit is {MAX_TENSOR_BYTES}",
            where=where,
        )
    _check_extent(dims, where)


def _typed_fields(tensor: _TensorMessage) -> list[str]:
    """Return the names of the typed data fields that hold something."""
    fields = (
        ("float_data", tensor.float_data),
        ("int32_data", tensor.int32_data),
        ("int64_data", tensor.int64_data),
        ("double_data", tensor.double_data),
        ("uint64_data", tensor.uint64_data),
        ("string_data", tensor.string_data),
    )
    return [name for name, data in fields if len(data)]


def _from_fields(
    tensor: _TensorMessage,
    dtype: DType,
    dims: tuple[int, ...],
    count: int,
    fields: list[str],
    where: str,
) -> np.ndarray:
    data: Sequence[int] | Sequence[float]
    match dtype:
        case DType.FLOAT32:
            name, data = "float_data", tensor.float_data
        case DType.FLOAT64:
            name, data = "double_data", tensor.double_data
        case DType.INT64:
            name, data = "int64_data", tensor.int64_data
        case DType.UINT32 | DType.UINT64:
            name, data = "uint64_data", tensor.uint64_data
        case _:
            name, data = "int32_data", tensor.int32_data
    if fields not in ([], [name]):
        raise ModelError(f"data of {dtype} in {', '.join(fields)}; expected {name}", where=where)
    if len(data) != count:
        raise ModelError(f"{len(data)} values for shape {dims} ({count} elements)", where=where)
    if dtype in _HALF:
        return (
            _bit_patterns(data, np.dtype(np.uint16), where).view(numpy_dtype(dtype)).reshape(dims)
        )
    if dtype.is_float:
        return np.array(data, numpy_dtype(dtype)).reshape(dims)
    wide = np.array(data, np.uint64 if name == "uint64_data" else np.int64)
    if dtype is DType.BOOL:
        return (wide != 0).reshape(dims)
    narrow = wide.astype(numpy_dtype(dtype))
    _refuse_lost(wide, narrow == wide, str(dtype), where)
    return narrow.reshape(dims)


def _bit_patterns(data: Sequence[int] | Sequence[float], dtype: np.dtype, where: str) -> np.ndarray:
    """Return numbers that stand for bits; with a sign they are as good as without."""
    wide = np.array(data, np.int64)
    most = int(np.iinfo(dtype).max)
    _refuse_lost(
        wide, (wide >= -(most // 2) - 1) & (wide <= most), f"{8 * dtype.itemsize} bits", where
    )
    return wide.astype(dtype)


def _refuse_lost(wide: np.ndarray, kept: np.ndarray, what: str, where: str) -> None:
    if not kept.all():
        lost = wide[~kept][0]
        raise ModelError(f"the value {lost} does not fit in {what}", where=where)


def _aligned(array: np.ndarray) -> np.ndarray:
    """Return a small array at a multiple of its element size, a large one where it is."""
    return array if array.flags.aligned or array.nbytes >= LARGE else array.copy()
