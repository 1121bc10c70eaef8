# SPDX-License-Identifier: Apache-2.0
"""A region's program while it is written.

Images are ``(N, C, H, W)`` in the model and ``(N, H, W, C)`` on the device. A value is kept in one
of the two orders and turned round when an operator needs the other; what comes in as an image is
turned round by the caller, at the border.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from msgspec import Struct

from intarsia.plugin.accelerator import Constant, DType, Expr, Var, array_of, tensor_type

from .tosa.program import Attr, TosaBorder, TosaNode, TosaProgram, TosaTensor
from .tosa.scale import multiplier_and_shift

TO_IMAGE = (0, 2, 3, 1)
"""Order of the model's axes on the device."""

FROM_IMAGE = (0, 3, 1, 2)
"""The inverse of :data:`TO_IMAGE`."""


class TosaValue(Struct, frozen=True):
    """A tensor of the program.

    Attributes:
        name: Its name.
        image: Its axes are in the device's order.
    """

    name: str
    image: bool


class TosaDraft:
    """Collects nodes; values of expressions are looked up by the expression."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tensors: dict[str, TosaTensor] = {}
        self._constants: dict[str, tuple[str, np.ndarray]] = {}
        self._numbers: dict[tuple[str, bytes] | None, str] = {}
        self._nodes: list[TosaNode] = []
        self._values: dict[Expr, TosaValue] = {}
        self._turned: dict[TosaValue, TosaValue] = {}

    def bind(self, expr: Expr, value: TosaValue) -> None:
        """Say which value an expression has."""
        self._values[expr] = value

    def add_input(self, param: Var) -> TosaBorder:
        """Make a tensor for a parameter; images are turned round by the caller."""
        shape = tensor_type(param).static_shape
        image = len(shape) == 4
        axes = TO_IMAGE if image else ()
        name = self._tensor(tuple(shape[axis] for axis in axes) if image else shape, "INT8")
        self.bind(param, TosaValue(name, image))
        return TosaBorder(name, axes, is_unsigned(param))

    def output(self, expr: Expr) -> TosaBorder:
        """Say how a result leaves."""
        value = self._values[expr]
        return TosaBorder(value.name, TO_IMAGE if value.image else (), is_unsigned(expr))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor of the program."""
        return self._tensors[name].shape

    def image(self, expr: Expr) -> str:
        """Return the tensor of an image in the device's order."""
        return self._in_order(expr, image=True)

    def plain(self, expr: Expr) -> str:
        """Return the tensor of an expression in the model's order of axes."""
        return self._in_order(expr, image=False)

    def is_image(self, expr: Expr) -> bool:
        """Whether an expression's value is in the device's order now; not so for constants."""
        return expr in self._values and self._values[expr].image

    def like(self, expr: Expr, *, image: bool) -> str:
        """Return the tensor of an expression in one order or the other."""
        return self._in_order(expr, image=image)

    def _in_order(self, expr: Expr, *, image: bool) -> str:
        match expr:
            case Constant() if expr not in self._values:
                data = stored_bytes(expr.data)
                if image:
                    data = np.ascontiguousarray(data.transpose(TO_IMAGE))
                return self.constant(data)
            case _:
                value = self._values[expr]
        if value.image is image:
            return value.name
        if value not in self._turned:
            perms = TO_IMAGE if image else FROM_IMAGE
            sizes = self.shape(value.name)
            shape = tuple(sizes[axis] for axis in perms)
            name = self.add("TRANSPOSE", (value.name,), shape, attrs={"perms": perms})
            self._turned[value] = TosaValue(name, image)
        return self._turned[value].name

    def constant(self, data: np.ndarray) -> str:
        """Make a constant tensor of int8 or int32; equal single elements are one tensor."""
        key = (data.dtype.name, data.tobytes()) if data.shape == (1,) else None
        if key in self._numbers:
            return self._numbers[key]
        name = self._tensor(data.shape, data.dtype.name.upper())
        self._constants[name] = (f"{self._name}.{len(self._constants)}", data)
        if key is not None:
            self._numbers[key] = name
        return name

    def number(self, value: int, dtype: str = "int8") -> str:
        """Make a constant of one element."""
        return self.constant(np.asarray([value], dtype))

    def add(
        self,
        op: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        *,
        dtype: str = "INT8",
        attrs: Mapping[str, Attr] = MappingProxyType({}),
        label: str = "",
    ) -> str:
        """Append a node and return the name of its result."""
        name = self._tensor(tuple(shape), dtype)
        self._nodes.append(TosaNode(op, tuple(inputs), name, dict(attrs), label))
        return name

    def rescale(
        self,
        value: str,
        scales: Sequence[float],
        zeros: tuple[int, int],
        *,
        to: str = "INT8",
        label: str = "",
    ) -> str:
        """Append a RESCALE; several scales run along the last axis.

        Args:
            value: The tensor.
            scales: Real factors; one, or one for each channel.
            zeros: Zero point of the tensor and of the result.
            to: Element type of the result.
            label: What messages call it.
        """
        pairs = [multiplier_and_shift(scale) for scale in scales]
        source = self._tensors[value]
        operands = (
            value,
            self.constant(np.asarray([pair[0] for pair in pairs], np.int32)),
            self.constant(np.asarray([pair[1] for pair in pairs], np.int8)),
            self.number(zeros[0], source.dtype.lower()),
            self.number(zeros[1], to.lower()),
        )
        attrs: dict[str, Attr] = {
            "scale32": True,
            "rounding_mode": "SINGLE_ROUND",
            "per_channel": len(scales) > 1,
            "input_unsigned": False,
            "output_unsigned": False,
            "to": to,
        }
        return self.add("RESCALE", operands, source.shape, dtype=to, attrs=attrs, label=label)

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """Return the same elements under another shape."""
        tensor = self._tensors[value]
        if tensor.shape == tuple(shape):
            return value
        attrs: dict[str, Attr] = {"shape": tuple(shape)}
        return self.add("RESHAPE", (value,), shape, dtype=tensor.dtype, attrs=attrs)

    def complete(
        self, inputs: Sequence[TosaBorder], outputs: Sequence[TosaBorder]
    ) -> tuple[TosaProgram, dict[str, np.ndarray]]:
        """Return the program and its constants; what nothing reads is left away."""
        needed = {border.name for border in outputs}
        kept: list[TosaNode] = []
        for node in reversed(self._nodes):
            if node.output in needed:
                kept.append(node)
                needed.update(node.inputs)
        names = needed | {border.name for border in inputs}
        constants = {name: item for name, item in self._constants.items() if name in needed}
        program = TosaProgram(
            tensors={name: item for name, item in self._tensors.items() if name in names},
            constants={name: key for name, (key, _) in constants.items()},
            nodes=tuple(kept[::-1]),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
        )
        return program, dict(constants.values())

    def _tensor(self, shape: tuple[int, ...], dtype: str) -> str:
        name = f"t{len(self._tensors)}"
        self._tensors[name] = TosaTensor(tuple(int(size) for size in shape), dtype)
        return name


def is_unsigned(expr: Expr) -> bool:
    """Whether the elements are uint8, which the device has less 128."""
    return tensor_type(expr).dtype is DType.UINT8


def stored_bytes(data: np.ndarray) -> np.ndarray:
    """Return int8 elements for int8 or uint8 ones; uint8 elements less 128."""
    return (data ^ np.uint8(128)).view(np.int8) if data.dtype == np.uint8 else data


def zero_of(expr: Expr) -> int:
    """Return a scalar zero point as the device has it."""
    data = array_of(expr)
    return int(stored_bytes(data).reshape(-1)[0])


def scale_of(expr: Expr) -> float:
    """Return a scalar scale."""
    return float(array_of(expr).reshape(-1)[0])
