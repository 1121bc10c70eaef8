# SPDX-License-Identifier: Apache-2.0
"""From an operator call to an operation of the device; the same for placing and for compiling.

Scales come from the call where it has them, else from whoever makes or reads the tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from msgspec import Struct, field

from intarsia.plugin.accelerator import (
    Call,
    Constant,
    DType,
    Expr,
    TupleGetItem,
    array_of,
    sizes,
    tensor_type,
)

from .network import NetworkOperation, NetworkQuantization, NetworkTensor, Number, Shape

TO_IMAGE = (0, 2, 3, 1)
"""Order of the model's axes on the device."""

DTYPES: Mapping[DType, str] = MappingProxyType(
    {DType.INT8: "s8", DType.UINT8: "u8", DType.INT32: "s32"}
)


class Sketch(Struct):
    """Operations and tensors while they are collected.

    Attributes:
        tensors: Every tensor by name.
        arrays: Content of the constants.
        operations: In the order they run.
        names: Tensor of each expression.
        known: What the elements of an expression stand for, where anybody says so.
        parts: The tensors of an expression that is a tuple.
    """

    tensors: dict[str, NetworkTensor] = field(default_factory=dict[str, NetworkTensor])
    arrays: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    operations: list[NetworkOperation] = field(default_factory=list[NetworkOperation])
    names: dict[Expr, str] = field(default_factory=dict[Expr, str])
    known: Mapping[Expr, NetworkQuantization] = field(
        default_factory=dict[Expr, NetworkQuantization]
    )
    parts: dict[Expr, tuple[str, ...]] = field(default_factory=dict[Expr, tuple[str, ...]])

    def tensor(self, shape: Shape, dtype: str, quantization: NetworkQuantization) -> str:
        """Make a tensor."""
        name = f"t{len(self.tensors)}"
        self.tensors[name] = NetworkTensor(shape, dtype, quantization)
        return name

    def constant(self, array: np.ndarray, quantization: NetworkQuantization) -> str:
        """Make a constant of four dimensions."""
        dtype = DTYPES[DType(array.dtype.name)]
        sizes = [int(size) for size in array.shape]
        name = self.tensor((sizes[0], sizes[1], sizes[2], sizes[3]), dtype, quantization)
        self.arrays[name] = np.ascontiguousarray(array)
        return name

    def operand(self, expr: Expr, wanted: NetworkQuantization | None = None) -> str:
        """Return the tensor of an expression, its elements read as the caller asks."""
        if expr not in self.names:
            self.names[expr] = self._new_operand(expr, wanted)
        name = self.names[expr]
        tensor = self.tensors[name]
        if wanted is None or tensor.quantization == wanted:
            return name
        return self.add("reinterpret", (name,), tensor.shape, tensor.dtype, wanted)

    def _new_operand(self, expr: Expr, wanted: NetworkQuantization | None) -> str:
        given = wanted or self.known.get(whole_of(expr), NetworkQuantization())
        match expr:
            case TupleGetItem(tuple=value, index=index) if value in self.parts:
                return self.parts[value][index]
            case Constant(data=data):
                return self.constant(on_device(data), given)
            case _:
                return self.tensor(device_shape(sizes(expr)), dtype_of(expr), given)

    def add(
        self,
        kind: str,
        inputs: Sequence[str],
        shape: Shape,
        dtype: str,
        quantization: NetworkQuantization,
        **attrs: Number,
    ) -> str:
        """Append an operation and return the name of its result."""
        name = self.tensor(shape, dtype, quantization)
        self.operations.append(NetworkOperation(kind, tuple(inputs), name, attrs))
        return name


def whole_of(expr: Expr) -> Expr:
    """Return the tuple that an expression is a part of, or the expression."""
    return expr.tuple if isinstance(expr, TupleGetItem) else expr


def dtype_of(expr: Expr) -> str:
    """Return the device's name of an element type; empty if it has none."""
    return DTYPES.get(tensor_type(expr).dtype, "")


def device_shape(shape: Sequence[int]) -> Shape:
    """Return the shape on the device: images turned round, elements of a row as channels."""
    match tuple(shape):
        case (n, c, h, w):
            return n, h, w, c
        case (n, c):
            return 1, n, 1, c
        case (c,):
            return 1, 1, 1, c
        case _:
            return 0, 0, 0, 0


def on_device(array: np.ndarray) -> np.ndarray:
    """Return a tensor of the model in the device's order."""
    moved = array.transpose(TO_IMAGE) if array.ndim == 4 else array
    return moved.reshape(device_shape(array.shape))


def from_device(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return a tensor of the device in the model's order and shape."""
    moved = array.transpose((0, 3, 1, 2)) if len(shape) == 4 else array
    return moved.reshape(tuple(shape))


def quantization_of(scale: Expr, zero: Expr, axis: int = -1) -> NetworkQuantization:
    """Return what constants say; scales run along ``axis`` unless all are equal."""
    scales = array_of(scale).astype(np.float32).reshape(-1).tolist()
    if len(set(scales)) == 1:
        scales = scales[:1]
    zeros = array_of(zero).reshape(-1)
    return NetworkQuantization(int(zeros[0]), tuple(scales), axis if len(scales) > 1 else -1)


def quantizations(call: Call) -> tuple[dict[int, NetworkQuantization], NetworkQuantization | None]:
    """Return what a call says of its operands, and of its result."""
    match call.name:
        case "qnn.conv" | "qnn.conv_transpose" | "qnn.matmul":
            pairs, result = {0: (1, 2)}, (6, 7)
        case "qnn.add" | "qnn.multiply":
            pairs, result = {0: (1, 2), 3: (4, 5)}, (6, 7)
        case "qnn.mean" | "qnn.avg_pool" | "qnn.requantize":
            pairs, result = {0: (1, 2)}, (3, 4)
        case _:
            return {}, None
    arguments = {
        index: quantization_of(call.args[scale], call.args[zero])
        for index, (scale, zero) in pairs.items()
    }
    return arguments, quantization_of(call.args[result[0]], call.args[result[1]])


def same_quantization(call: Call) -> tuple[int, ...]:
    """Return the operands whose elements stand for the same as those of the result."""
    match call.name:
        case (
            "clip"
            | "nn.max_pool"
            | "reshape"
            | "transpose"
            | "split"
            | "nn.depth_to_space"
            | "nn.resize"
        ):
            return (0,)
        case "concatenate":
            return tuple(range(len(call.args)))
        case _:
            return ()


def propagate(order: Sequence[Call]) -> dict[Expr, NetworkQuantization]:
    """Return what the elements of each expression stand for.

    Makers are believed before readers; operators that move elements pass it on, both ways.
    """
    known: dict[Expr, NetworkQuantization] = {}
    for call in order:
        _, result = quantizations(call)
        if result is not None:
            known[call] = result
    for call in order:
        for index, found in quantizations(call)[0].items():
            known.setdefault(whole_of(call.args[index]), found)
    for calls, forwards in ((order, True), (order[::-1], False), (order, True)):
        for call in calls:
            for index in same_quantization(call):
                given = whole_of(call.args[index])
                source, to = (given, call) if forwards else (call, given)
                if source in known:
                    known.setdefault(to, known[source])
    return known
