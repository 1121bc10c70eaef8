# SPDX-License-Identifier: Apache-2.0
"""A region while it becomes library calls: tensors, constants, and functions in order."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from intarsia.plugin import accelerator
from intarsia.plugin.accelerator import (
    DType,
    Match,
    UnsupportedError,
    tensor_type,
)


class AclTensor(Struct, frozen=True, eq=False):
    """A tensor of the unit.

    Attributes:
        number: Position in ``Draft.tensors``; its variable is ``t<number>``.
        shape: Sizes, outermost first (the library counts from the innermost).
        dtype: Element type.
        per_channel: The integers of weights with a scale for each output channel.
    """

    number: int
    shape: tuple[int, ...]
    dtype: DType
    per_channel: bool = False


class AclQuantization(Struct, frozen=True):
    """What the integers of a tensor stand for: ``(q - zero) * scale``.

    Attributes:
        scales: One, or one for each output channel.
        zero: The zero point; 0 with several scales.
    """

    scales: tuple[float, ...]
    zero: int = 0


Arg: TypeAlias = "AclTensor | tuple[AclTensor, ...] | str | None"
"""A tensor, a vector of them, C++ text that may name ``{activation}``, or no tensor."""


class AclStep(Struct, frozen=True):
    """One function of the library: ``configure`` and ``validate`` take the same arguments.

    Attributes:
        function: The library's class, e.g. ``NEConvolutionLayer``.
        args: Arguments in order.
        result: The tensor it writes.
        label: What messages call it.
        activation: C++ text of the activation at its end; ``None`` if the function takes none.
    """

    function: str
    args: tuple[Arg, ...]
    result: AclTensor
    label: str
    activation: str | None = None

    @property
    def reads(self) -> tuple[AclTensor, ...]:
        """The tensors it reads."""
        found: list[AclTensor] = []
        for arg in self.args:
            if isinstance(arg, tuple):
                found.extend(arg)
            elif isinstance(arg, AclTensor) and arg is not self.result:
                found.append(arg)
        return tuple(found)


class AclDraft(accelerator.Draft[AclTensor]):
    """Collects steps; tensors of expressions are looked up by the expression.

    Attributes:
        tensors: All tensors by number.
        steps: In the order they run.
        quantizations: What integers stand for, by the tensor that :meth:`family` returns.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.tensors: list[AclTensor] = []
        self.steps: list[AclStep] = []
        self.quantizations: dict[AclTensor, AclQuantization] = {}
        self._relatives: dict[AclTensor, AclTensor] = {}

    def new_tensor(
        self, shape: tuple[int, ...], dtype: DType, *, per_channel: bool = False
    ) -> AclTensor:
        """Number a tensor."""
        tensor = AclTensor(len(self.tensors), shape, dtype, per_channel)
        self.tensors.append(tensor)
        return tensor

    def new_result(self, match: Match) -> AclTensor:
        """Number the tensor of a match's result."""
        spec = tensor_type(match.root)
        return self.new_tensor(spec.static_shape, spec.dtype)

    def constant(self, data: np.ndarray, *, per_channel: bool = False) -> AclTensor:
        """Take in data known at compile time."""
        tensor = self.new_tensor(data.shape, DType(data.dtype.name), per_channel=per_channel)
        return self.keep(tensor, np.ascontiguousarray(data))

    def add(
        self,
        function: str,
        *args: Arg,
        result: AclTensor,
        label: str,
        activation: str | None = None,
    ) -> AclTensor:
        """Append a function and return its result."""
        self.steps.append(AclStep(function, args, result, label, activation))
        return result

    def family(self, tensor: AclTensor) -> AclTensor:
        """Return the tensor that stands for all whose integers mean the same."""
        while tensor in self._relatives:
            tensor = self._relatives[tensor]
        return tensor

    def quantize(self, tensor: AclTensor, quantization: AclQuantization) -> None:
        """Say what the integers of a tensor and its relatives stand for.

        Raises:
            UnsupportedError: Two operators differ in this; the library keeps it with the tensor.
        """
        known = self.quantizations.setdefault(self.family(tensor), quantization)
        if known != quantization:
            raise UnsupportedError(
                f"region '{self.name}' reads the same integers as {known} and as {quantization}"
            )

    def relate(self, one: AclTensor, other: AclTensor) -> None:
        """Say that the integers of two tensors mean the same; errors as :meth:`quantize`."""
        first, second = self.family(one), self.family(other)
        if first is second:
            return
        known = self.quantizations.pop(first, None)
        self._relatives[first] = second
        if known is not None:
            self.quantize(second, known)

    def view(self, tensor: AclTensor, shape: tuple[int, ...], label: str) -> AclTensor:
        """Return the same elements under another shape; constants are not copied."""
        if tensor.shape == shape:
            return tensor
        if tensor in self.constants:
            data = self.constants[tensor][1].reshape(shape)
            constant = self.constant(data, per_channel=tensor.per_channel)
            self.relate(constant, tensor)
            return constant
        return self.copy(tensor, shape, label)

    def copy(self, tensor: AclTensor, shape: tuple[int, ...], label: str) -> AclTensor:
        """Return a copy under another shape."""
        result = self.new_tensor(shape, tensor.dtype)
        self.relate(result, tensor)
        return self.add("NEReshapeLayer", tensor, result, result=result, label=label)

    def activate(self, tensor: AclTensor, activation: str, label: str) -> AclTensor:
        """Append an activation, given as the arguments of ``ActivationLayerInfo``."""
        result = self.new_tensor(tensor.shape, tensor.dtype)
        return self.add(
            "NEActivationLayer",
            tensor,
            result,
            f"ActivationLayerInfo({activation})",
            result=result,
            label=label,
        )

    def fuse(self, outputs: tuple[AclTensor, ...]) -> None:
        """Let functions apply the activation that follows them: ``f; act --> f(act)``."""
        uses: dict[AclTensor, int] = {}
        for tensor in (*outputs, *(t for step in self.steps for t in step.reads)):
            uses[tensor] = uses.get(tensor, 0) + 1
        writers: dict[AclTensor, int] = {}
        kept: list[AclStep | None] = []
        for step in self.steps:
            at = writers.get(step.reads[0]) if step.function == "NEActivationLayer" else None
            before = None if at is None else kept[at]
            text = step.args[2] if before is not None else None
            if (
                at is not None
                and before is not None
                and before.activation == ""
                and uses[before.result] == 1
                and isinstance(text, str)
                and any(name in text for name in _FUSED)
            ):
                args = tuple(step.result if arg is before.result else arg for arg in before.args)
                kept[at] = None
                step = replace(before, args=args, result=step.result, activation=text)
            writers[step.result] = len(kept)
            kept.append(step)
        self.steps = [step for step in kept if step is not None]


_FUSED = ("::RELU", "BOUNDED_RELU")
"""Activations that the library's kernels apply at their end; others would run separately."""


def real(value: float) -> str:
    """Return a number as a C++ expression of type float.

    Numbers beyond the range of float become infinite.
    """
    with np.errstate(over="ignore"):
        number = np.float32(value)
    if np.isinf(number):
        return f"{'-' if number < 0 else ''}std::numeric_limits<float>::infinity()"
    text = repr(float(number))
    return f"{text}f"


def naturals(values: tuple[int, ...]) -> str:
    """Return numbers that are not negative as C++ arguments, innermost first as given."""
    return ", ".join(f"{value}U" for value in values)
