# SPDX-License-Identifier: Apache-2.0
"""What rules about quantized tensors ask: which tensor, scale and zero point a value stands for."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from intarsia_runtime.dtype import DType

from ..graph.expr import Call, Constant, Expr, constant, tensor_type
from ..graph.types import TensorType
from .arrays import Array


class Stored(Struct, frozen=True):
    """A quantized tensor.

    Attributes:
        value: The integers.
        scale: Float32; a scalar, or broadcasts with ``value``.
        zero: In the element type of ``value``; a scalar, or broadcasts with ``value``.
    """

    value: Expr
    scale: Constant
    zero: Constant

    @property
    def dtype(self) -> DType:
        """Element type of the integers."""
        return self.zero.type.dtype

    @property
    def is_byte(self) -> bool:
        """Whether the integers have 8 bits."""
        return self.dtype.bits == 8

    @property
    def scalars(self) -> tuple[Constant, Constant] | None:
        """Scale and zero point without dimensions; ``None`` if one has several elements."""
        if self.scale.data.size != 1 or self.zero.data.size != 1:
            return None
        return flat(self.scale, ()), flat(self.zero, ())

    @property
    def triple(self) -> tuple[Expr, Constant, Constant] | None:
        """Tensor, scale and zero point as operands; ``None`` unless both are scalars."""
        found = self.scalars
        return None if found is None else (self.value, *found)

    def vectors(self, axis: int) -> tuple[Constant, Constant] | None:
        """Return scale and zero point as scalars or vectors that vary along ``axis`` only."""
        found: list[Constant] = []
        for parameter in (self.scale, self.zero):
            vector = along(parameter, tensor_type(self.value), axis)
            if vector is None:
                return None
            found.append(vector)
        return found[0], found[1]


def flat(parameter: Constant, shape: tuple[int, ...]) -> Constant:
    """Return a constant under another shape; itself if it has it."""
    if parameter.data.shape == shape:
        return parameter
    return constant(parameter.data.reshape(shape), name=parameter.name, span=parameter.span)


def along(parameter: Constant, type_: TensorType, axis: int) -> Constant | None:
    """Return a parameter of a tensor as a scalar, or as a vector along ``axis``."""
    data = parameter.data
    if data.size == 1:
        return flat(parameter, ())
    shape = (1,) * (type_.rank - data.ndim) + data.shape
    if shape[axis] != data.size:
        return None
    return flat(parameter, (data.size,))


def stored(expr: Expr) -> Stored | None:
    """Return what ``expr`` dequantizes to float32 with constant parameters, else ``None``."""
    match expr:
        case Call("qnn.dequantize", (value, Constant() as scale, Constant() as zero)):
            return Stored(value, scale, zero) if _usable(scale) else None
        case _:
            return None


def result_parameters(expr: Call) -> tuple[Constant, Constant] | None:
    """Return scale and zero point of a quantization of a whole float32 tensor, else ``None``."""
    match expr:
        case Call("qnn.quantize", (value, Constant() as scale, Constant() as zero)):
            single = scale.data.size == 1 and zero.data.size == 1
            if not single or not _usable(scale) or tensor_type(value).dtype is not DType.FLOAT32:
                return None
            return flat(scale, ()), flat(zero, ())
        case _:
            return None


def _usable(scale: Constant) -> bool:
    """Whether scales are float32, positive, and far from the ends of its range."""
    data = scale.data
    if scale.type.dtype is not DType.FLOAT32:
        return False
    return bool(((data > 1e-30) & (data < 1e30)).all())


def equal(a: Constant, b: Constant) -> bool:
    """Whether two constants have the same type, shape and bytes."""
    return a is b or (a.type == b.type and a.data.tobytes() == b.data.tobytes())


def largest(value: Expr, dtype: DType, zero: Array) -> int:
    """Return the largest magnitude of ``value - zero``: of its elements if they are known."""
    if isinstance(value, Constant) and value.data.size:
        low, high = int(value.data.min()), int(value.data.max())
    else:
        limits = np.iinfo(dtype.value)
        low, high = int(limits.min), int(limits.max)
    return max(abs(int(zero.max()) - low), abs(high - int(zero.min())))
