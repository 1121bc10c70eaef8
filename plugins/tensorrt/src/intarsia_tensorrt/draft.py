# SPDX-License-Identifier: Apache-2.0
"""A region while it becomes a network: values of its expressions, and layers in short.

Networks are strongly typed, the only kind that TensorRT 11 has: every cast is a layer of its own.
With ``-fp16`` the work type of float32 is float16; what is sensitive asks for the exact value.
uint8 is a type of borders only, so its elements are int8 between them, less 128.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from intarsia.plugin.accelerator import (
    Call,
    Constant,
    DType,
    Expr,
    TargetError,
    ToolchainError,
    TupleGetItem,
    numpy_dtype,
    tensor_type,
)

from .sdk import Library, Messages
from .signature import TYPE_NAMES

_SHAPE_INPUT, _FILL_INPUT = 2, 4
"""Which inputs of a slice layer hold the shape, and what lies outside."""

Layer: TypeAlias = Any
"""A layer of the vendor's."""

Tensor: TypeAlias = Any
"""A tensor of a network."""


def label_of(call: Call) -> str:
    """Return the name of the model's node, or the operator's if it has none."""
    return call.span.name or call.name


class Quantized(Struct, frozen=True):
    """Where 8-bit integers of a network come from.

    Attributes:
        real: The numbers that were rounded, in float32.
        scale: Constant that they were divided by.
        zero: Constant zero point, of the integers' type in the model.
    """

    real: Tensor
    scale: Expr
    zero: Expr


class NetworkDraft:
    """The network of a region under construction.

    Args:
        library: Gives builder and network.
        name: Name of the region.
        half: Whether float32 is computed as float16 where that does little harm.
        batch: Size of the first dimension of all tensors, if the engine shall take others too.

    Attributes:
        trt: The vendor's module.
        network: The vendor's network.
        builder: What makes an engine of it.
        quantized: Name of a tensor of 8-bit integers to what was rounded to them.
    """

    def __init__(
        self, library: Library, name: str, *, half: bool = False, batch: int | None = None
    ) -> None:
        self.library, self.trt = library, library.module
        self.messages = Messages(self.trt)
        self.builder: Any = self.trt.Builder(self.messages.logger)
        flag = self.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
        self.network: Any = self.builder.create_network(1 << int(flag))
        self.network.name = name
        self.half, self.batch = half, batch
        self.label = name
        self.quantized: dict[str, Quantized] = {}
        self._values: dict[tuple[Expr, int], Tensor] = {}
        self._cast: dict[tuple[Expr, DType], Tensor] = {}
        self._arrays: list[np.ndarray] = []
        self._types = {
            DType(dtype): member(self.trt.DataType, name) for dtype, name in TYPE_NAMES.items()
        }

    def refused(self) -> ToolchainError:
        """Return the error for what the library said last."""
        return ToolchainError(
            f"{self.library.label} refuses '{self.label}': {self.messages.text()}",
            where=self.network.name,
            hint=f"keep the node from it: --place '{self.label}!=tensorrt'",
        )

    # Values of expressions

    def add_input(self, name: str, param: Expr) -> None:
        """Enter a parameter of the region."""
        type_ = tensor_type(param)
        shape = type_.static_shape if self.batch is None else (-1, *type_.static_shape[1:])
        tensor = self.network.add_input(name, self._types[type_.dtype], shape)
        if tensor is None:
            raise self.refused()
        self._values[param, 0] = tensor

    def set(self, call: Call, tensors: tuple[Tensor, ...]) -> None:
        """Record the tensors that a call gives."""
        self._values.update(((call, index), tensor) for index, tensor in enumerate(tensors))

    def value(self, expr: Expr) -> Tensor:
        """Return the tensor of an expression in the work type of its element type."""
        return self._as(expr, self.work_type(tensor_type(expr).dtype))

    def exact(self, expr: Expr) -> Tensor:
        """Return the tensor of an expression in its own element type."""
        return self._as(expr, tensor_type(expr).dtype)

    def work_type(self, dtype: DType) -> DType:
        """Return the element type in which one is computed."""
        if dtype is DType.UINT8:
            return DType.INT8
        return DType.FLOAT16 if self.half and dtype is DType.FLOAT32 else dtype

    def _as(self, expr: Expr, dtype: DType) -> Tensor:
        if isinstance(expr, Constant):
            if (expr, dtype) not in self._cast:
                moved = dtype is DType.INT8 and expr.data.dtype == np.uint8
                data = (expr.data ^ np.uint8(128)).view(np.int8) if moved else expr.data
                self._cast[expr, dtype] = self.constant(data, dtype)
            return self._cast[expr, dtype]
        whole = (expr.tuple, expr.index) if isinstance(expr, TupleGetItem) else (expr, 0)
        tensor = self._values[whole]
        if self.dtype_of(tensor) is dtype:
            return tensor
        if (expr, dtype) not in self._cast:
            self._cast[expr, dtype] = self._converted(tensor, dtype)
        return self._cast[expr, dtype]

    def _converted(self, tensor: Tensor, dtype: DType) -> Tensor:
        """Cast; between the two 8-bit types by 128."""
        match self.dtype_of(tensor), dtype:
            case DType.UINT8, DType.INT8:
                levels = self.cast(tensor, DType.FLOAT32)
                return self.stored(self.binary(levels, self.number(-128, levels), "SUM"))
            case DType.INT8, DType.UINT8:
                levels = self.cast(tensor, DType.FLOAT32)
                return self.cast(self.binary(levels, self.number(128, levels), "SUM"), dtype)
            case _:
                return self.cast(tensor, dtype)

    def stored(self, levels: Tensor) -> Tensor:
        """Return float32 elements as int8: rounded, ties to even, and saturated."""
        one = self.constant(np.ones((), np.float32), DType.FLOAT32)
        return self.output_of(self.network.add_quantize(levels, one, self._types[DType.INT8]))

    def type_of(self, dtype: DType) -> Any:
        """Return an element type as the library calls it."""
        return self._types[dtype]

    def dtype_of(self, tensor: Tensor) -> DType:
        """Return the element type of a tensor."""
        return next(dtype for dtype, own in self._types.items() if own == tensor.dtype)

    def shape_of(self, tensor: Tensor) -> tuple[int, ...]:
        """Return the shape of a tensor.

        Raises:
            ToolchainError: The library refuses the layer behind it, in its own words.
        """
        try:
            return tuple(tensor.shape)
        except (RuntimeError, ValueError):
            raise self.refused() from None

    # Constants

    def weights(self, array: np.ndarray, dtype: DType | None = None) -> Any:
        """Return an array as weights, of the work type unless another is given."""
        kind = self.work_type(DType(array.dtype.name)) if dtype is None else dtype
        with np.errstate(over="ignore"):
            data = np.array(array, numpy_dtype(kind), order="C")
        self._arrays.append(data)  # the library keeps the address only
        return self.trt.Weights(self._types[kind], data.ctypes.data, data.size)

    def no_weights(self, dtype: DType) -> Any:
        """Return weights of no elements, for an operand that is left out."""
        return self.trt.Weights(self._types[self.work_type(dtype)])

    def constant(self, array: np.ndarray, dtype: DType | None = None) -> Tensor:
        """Return an array as a tensor, of the work type unless another is given.

        bfloat16 is a cast of float32, which is exact: the library's own type has no NumPy name.
        """
        kind = self.work_type(DType(array.dtype.name)) if dtype is None else dtype
        if kind is DType.BFLOAT16:
            return self.cast(self.constant(array, DType.FLOAT32), kind)
        return self.output_of(self.network.add_constant(array.shape, self.weights(array, kind)))

    def number(self, value: float, like: Tensor) -> Tensor:
        """Return one number as a tensor of the rank and type of another."""
        kind = self.dtype_of(like)
        ones = (1,) * len(self.shape_of(like))
        return self.constant(np.full(ones, value, numpy_dtype(kind)), kind)

    # Layers

    def output_of(self, layer: Layer, index: int = 0) -> Tensor:
        """Name a layer, and return its result.

        Raises:
            ToolchainError: The library refuses it, in its own words.
        """
        if layer is None:
            raise self.refused()
        tensor = layer.get_output(index)
        self.shape_of(tensor)
        layer.name = f"{self.label} ({self.network.num_layers})"
        return tensor

    def unary(self, x: Tensor, operation: str) -> Tensor:
        """Apply a ``UnaryOperation``."""
        return self.output_of(self.network.add_unary(x, member(self.trt.UnaryOperation, operation)))

    def binary(self, a: Tensor, b: Tensor, operation: str) -> Tensor:
        """Apply an ``ElementWiseOperation``; the operand of lower rank gets leading ones."""
        a, b = self.level(a, b)
        kind = member(self.trt.ElementWiseOperation, operation)
        return self.output_of(self.network.add_elementwise(a, b, kind))

    def activation(self, x: Tensor, kind: str, alpha: float = 0.0, beta: float = 0.0) -> Tensor:
        """Apply an ``ActivationType``."""
        layer = self.network.add_activation(x, member(self.trt.ActivationType, kind))
        if layer is not None:
            layer.alpha, layer.beta = alpha, beta
        return self.output_of(layer)

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int], *, keep: bool) -> Tensor:
        """Apply a ``ReduceOperation`` over axes."""
        kind = member(self.trt.ReduceOperation, operation)
        return self.output_of(self.network.add_reduce(x, kind, mask(axes), keep))

    def select(self, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Choose elements; operands of lower rank get leading ones."""
        return self.output_of(self.network.add_select(*self.level(condition, a, b)))

    def level(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return tensors of one rank, those of lower rank with leading ones."""
        rank = max(len(self.shape_of(tensor)) for tensor in tensors)
        return tuple(self.expand(tensor, rank) for tensor in tensors)

    def expand(self, x: Tensor, rank: int) -> Tensor:
        """Return a tensor with leading ones."""
        shape = self.shape_of(x)
        return self.reshape(x, (*(1,) * (rank - len(shape)), *shape))

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Return the same elements in another shape; no layer if it is the same."""
        own = self.shape_of(x)
        if own[:1] == (-1,) and tuple(shape[:1]) == (self.batch,):
            if prod(own[1:]) != prod(shape[1:]):
                raise self.mixed_batch()
            shape = (-1, *shape[1:])
        if own == tuple(shape):
            return x
        layer = self.network.add_shuffle(x)
        layer.reshape_dims = tuple(shape)
        return self.output_of(layer)

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Return a tensor with its dimensions in another order."""
        layer = self.network.add_shuffle(x)
        layer.first_transpose = tuple(axes)
        return self.output_of(layer)

    def shape_tensor(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Return a shape as a tensor, with the first size of ``x`` at its front."""
        whole = self.output_of(self.network.add_shape(x))
        first = self.output_of(self.network.add_slice(whole, (0,), (1,), (1,)))
        rest = self.constant(np.array(shape[1:], np.int64))
        return self.output_of(self.network.add_concatenation([first, rest]))

    def mixed_batch(self) -> TargetError:
        """Return the error for a layer that does not keep the batch apart."""
        return TargetError(
            f"-dynamic-batch: '{self.label}' does not keep the first dimension as the batch",
            where=self.network.name,
            hint=f"leave the option away, or keep the node away: --place '{self.label}!=tensorrt'",
        )

    def cast(self, x: Tensor, dtype: DType) -> Tensor:
        """Return a tensor in another element type."""
        return self.output_of(self.network.add_cast(x, self._types[dtype]))

    def slice(
        self,
        x: Tensor,
        start: Sequence[int],
        shape: Sequence[int],
        stride: Sequence[int],
        mode: str = "STRICT_BOUNDS",
        fill: float | None = None,
    ) -> Tensor:
        """Return a part of a tensor; what lies outside is read by a ``SampleMode``."""
        kind = self.dtype_of(x)
        value = None if fill is None else np.array(fill).astype(numpy_dtype(kind))
        around = None if value is None else self.constant(value, kind)
        whole = None
        if self.shape_of(x)[:1] == (-1,):
            if start[0] != 0 or stride[0] != 1 or shape[0] not in (-1, self.batch):
                raise self.mixed_batch()
            whole = self.shape_tensor(x, shape)
        layer = self.network.add_slice(x, tuple(start), tuple(shape), tuple(stride))
        if layer is None:
            raise self.refused()
        if whole is not None:
            layer.set_input(_SHAPE_INPUT, whole)
        layer.mode = member(self.trt.SampleMode, mode)
        if around is not None:
            layer.set_input(_FILL_INPUT, around)
        return self.output_of(layer)


def mask(axes: Sequence[int]) -> int:
    """Return axes as the bits of a number."""
    return sum(1 << axis for axis in axes)


def member(enumeration: Any, name: str) -> Any:
    """Return a member of one of the library's enumerations, which cannot be indexed.

    Raises:
        ToolchainError: This version of the library does not have it.
    """
    if name not in enumeration.__members__:
        raise ToolchainError(
            f"the library that is installed has no {enumeration.__name__}.{name}",
            hint="install a newer version, or keep the node from the plugin with --place",
        )
    return enumeration.__members__[name]
