# SPDX-License-Identifier: Apache-2.0
"""The tvm-ffi calling convention in ctypes.

Every function is ``int function(void *handle, const Any *args, int32_t count, Any *result)``.

A compiled function may fail without setting an error (it is linked with nothing), and the
``tvm_ffi`` package ends the process on such a failure; it also refuses read-only arrays and
bfloat16. So the runtime makes these calls itself. Anyone may still load the same code with
``tvm_ffi.load_module``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np

from .artifact.plan import TensorSpec
from .dtype import DType
from .size import numbers

NumpyType: TypeAlias = "np.dtype"
"""A NumPy element type."""

_INT = 1  # kTVMFFIInt
_DLTENSOR = 7  # kTVMFFIDLTensorPtr
_TENSOR = 70  # kTVMFFITensor
_TENSOR_HEADER = 24  # bytes of the object header in front of the DLTensor of a kTVMFFITensor
_CPU = 1  # kDLCPU

_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}


class DLTensor(ctypes.Structure):
    """``DLTensor`` of DLPack: address, device, element type, shape and strides (in elements)."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class AnyValue(ctypes.Structure):
    """``TVMFFIAny``: a type number and 8 bytes, here always an integer or an address."""

    _fields_ = (
        ("type_index", ctypes.c_int32),
        ("padding", ctypes.c_uint32),
        ("value", ctypes.c_int64),
    )


SafeCall = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p
)
"""``TVMFFISafeCallType``; 0 means success."""


SizesCall = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
"""``intarsia_plan_sizes``; 0 means success."""

GrowCall = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64)
"""``grow(state, number, bytes)`` of a plan whose steps compute sizes; null means failure."""

PollCall = ctypes.CFUNCTYPE(ctypes.c_int)
"""``poll()`` of a plan that loops; 0 asks it to end."""

_first_byte = cast("Callable[[np.ndarray], ctypes.c_char]", ctypes.c_char.from_buffer)


def numpy_dtype(dtype: DType) -> NumpyType:
    """Return the NumPy element type; bfloat16 comes from ml_dtypes."""
    if dtype is DType.BFLOAT16:
        import ml_dtypes  # only models with bfloat16 tensors need the package

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype.value)


def array_dtype(spec: TensorSpec) -> NumpyType:
    """Return the NumPy element type of the caller's arrays for an input or output."""
    if not spec.stored:
        return numpy_dtype(spec.dtype)
    import ml_dtypes  # only models with such tensors need the package

    return np.dtype(getattr(ml_dtypes, spec.stored))


def data_address(array: np.ndarray) -> int:
    """Return where the first element of a contiguous array is.

    ``array.ctypes`` makes three objects and takes 0.9 us, a fifth of what a tiny model takes in
    all; a buffer takes 0.2 us. What has no writable buffer (read-only arrays, empty ones, bfloat16)
    goes the long way.
    """
    try:
        return ctypes.addressof(_first_byte(array))
    except (TypeError, ValueError):
        return array.ctypes.data


def point_at(tensors: Sequence[DLTensor], arrays: Sequence[np.ndarray]) -> None:
    """Let tensors have the data of arrays; one Python call for all, as each takes 0.1 us."""
    try:
        for tensor, array in zip(tensors, arrays):  # noqa: B905 # 0.1 us less than ``strict``
            tensor.data = ctypes.addressof(_first_byte(array))
    except (TypeError, ValueError):
        for tensor, array in zip(tensors, arrays, strict=True):
            tensor.data = data_address(array)


class ArgumentBlock:
    """The argument array of one function, filled once but for the addresses of the data.

    Args:
        specs: The tensors, in order.
        leading: An integer in front of them, if the function takes one.
        trailing: Integers behind them: sizes of a kernel.
    """

    def __init__(
        self, specs: Sequence[TensorSpec], leading: int | None = None, trailing: Sequence[int] = ()
    ) -> None:
        made = [_tensor(len(spec.shape), spec.dtype) for spec in specs]
        self.tensors = tuple([tensor for tensor, _ in made])
        self._sizes = [sizes for _, sizes in made]  # a look at a pointer makes a new object
        self.resize([spec.shape for spec in specs])
        values = [(_INT, leading)] if leading is not None else []
        values += [(_DLTENSOR, ctypes.addressof(tensor)) for tensor in self.tensors]
        values += [(_INT, value) for value in trailing]
        self.count = len(values)
        self._array = (AnyValue * max(1, self.count))()
        for slot, (type_index, value) in zip(self._array, values, strict=False):
            slot.type_index, slot.value = type_index, value
        self._result = AnyValue()
        self.address = ctypes.addressof(self._array)
        self.result_address = ctypes.addressof(self._result)

    def resize(self, shapes: Iterable[tuple[int, ...]]) -> None:
        """Let the first tensors have other shapes, of as many dimensions."""
        for sizes, shape in zip(self._sizes, shapes):  # noqa: B905 # the others keep theirs
            sizes[: len(shape)] = shape


def _tensor(rank: int, dtype: DType) -> tuple[DLTensor, ctypes.Array[ctypes.c_int64]]:
    """Return a compact tensor, which needs no strides, and its sizes, which are 0."""
    letters = dtype.value.rstrip("0123456789")
    tensor = DLTensor()
    tensor.device_type, tensor.ndim = _CPU, rank
    tensor.code, tensor.bits, tensor.lanes = _CODES[letters], dtype.bits, 1
    tensor.shape = sizes = (ctypes.c_int64 * max(1, rank))()
    return tensor, sizes


def call_with_leading(function: int, leading: int, count: int) -> Callable[..., int]:
    """Return a native function that calls another one with an integer in front of its arguments.

    One call at a time: the arguments lie in one block. It costs some microseconds.

    Args:
        function: Address of the function.
        leading: The integer.
        count: Number of arguments behind it.
    """
    inner = SafeCall(function)
    block = (AnyValue * (count + 1))()
    block[0] = AnyValue(_INT, 0, leading)
    size = ctypes.sizeof(AnyValue)

    def call(handle: int | None, args: int, given: int, result: int) -> int:
        if given != count:
            return -1
        ctypes.memmove(ctypes.addressof(block) + size, args, count * size)
        return inner(handle, ctypes.addressof(block), count + 1, result)

    return SafeCall(call)


def hosted_call(
    function: Callable[..., None],
    specs: Sequence[TensorSpec],
    failed: Callable[[BaseException], None],
) -> Any:
    """Wrap a Python function of NumPy arrays as a native function.

    Args:
        function: Called with views of the arguments; no data is copied.
        specs: Shapes and element types of the arguments. Sizes that only the run knows are read
            from the tensors; size variables behind these are left out.
        failed: Gets whatever the function raises; the native call then returns -1.
    """
    rows = tuple((_numbers(spec.shape), numpy_dtype(spec.dtype)) for spec in specs)

    def call(handle: int, args: int, count: int, result: int) -> int:
        try:
            values = (AnyValue * count).from_address(args)
            if count != len(rows):
                values = [value for value in values if value.type_index != _INT]
            views = [
                _view(value, shape, dtype)
                for value, (shape, dtype) in zip(values, rows, strict=True)
            ]
            function(*views)
        except BaseException as error:  # crosses native frames: kept, and raised again behind them
            failed(error)
            return -1
        return 0

    return SafeCall(call)


def _numbers(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return a shape; ``None`` if a size in it is only known at run time."""
    known = numbers(shape)
    return known if len(known) == len(shape) else None


def _view(value: AnyValue, shape: tuple[int, ...] | None, dtype: NumpyType) -> np.ndarray:
    header = _TENSOR_HEADER if value.type_index == _TENSOR else 0
    tensor = DLTensor.from_address(value.value + header)
    if shape is None:
        shape = tuple(tensor.shape[: tensor.ndim])
    size = prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * size).from_address(tensor.data + tensor.byte_offset)
    return np.frombuffer(memoryview(memory), np.uint8).view(dtype).reshape(shape)
