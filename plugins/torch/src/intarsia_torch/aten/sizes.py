# SPDX-License-Identifier: Apache-2.0
"""Sizes of PyTorch's tracing, which are SymPy expressions over symbols, as sizes of the IR."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from intarsia_ir.graph.types import TensorType
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.size import (
    Dim,
    Size,
    floor_divide,
    maximum,
    minimum,
    remainder,
    value_of,
    variable,
)

from ..kinds import is_tensor

if TYPE_CHECKING:
    from ..types import FakeMode, FxNode, ShapeEnv, SymExpression, SymInt, TorchTensor


def _sum(a: Size, b: Size) -> Size:
    return a + b


def _product(a: Size, b: Size) -> Size:
    return a * b


_OPERATIONS: Mapping[str, Callable[[Size, Size], Size]] = MappingProxyType(
    {
        "Add": _sum,
        "CleanDiv": floor_divide,
        "FloorDiv": floor_divide,
        "Max": maximum,
        "Min": minimum,
        "Mod": remainder,
        "Mul": _product,
        "PythonMod": remainder,
    }
)
"""Operations by the name of their class in SymPy or ``torch.utils._sympy.functions``."""

_BACKED = re.compile(r"s\d+")
"""Names that PyTorch gives to symbols of sizes of arguments."""

_MOST_POWERS = 8


class Symbols:
    """Symbols of a tracing: example values, and for one set of sizes their numbers.

    Args:
        examples: Example values, which the guards of the tracing agree with.
        fixed: Values that the sizes of an import have; if ``None``, sizes stay open.
    """

    def __init__(
        self, examples: Mapping[str, int], fixed: Mapping[str, Size] | None = None
    ) -> None:
        self._examples = examples
        self._fixed: Mapping[str, Size] = {} if fixed is None else fixed

    def size(self, value: int | SymInt) -> Size:
        """Return a size that PyTorch gives as an ``int`` or a ``SymInt``.

        Raises:
            UnsupportedError: It depends on what a tensor holds, or its arithmetic has no
                counterpart.
        """
        if isinstance(value, int):
            return int(value)
        return self.size_of(value.node.expr)

    def size_of(self, expression: SymExpression) -> Size:
        """Return a size that is an expression over symbols.

        Raises:
            UnsupportedError: As of :meth:`size`.
        """
        found = _size(expression)
        return found.substitute(self._fixed) if isinstance(found, Dim) else found

    def type(self, value: TorchTensor) -> TensorType:
        """Return the type of a tensor of a tracing.

        Raises:
            UnsupportedError: As of :meth:`size`; or the IR has no such element type.
        """
        return TensorType(tuple(map(self.size, value.shape)), dtype_named(value.dtype))

    def example(self, size: Size) -> int | None:
        """Return the example value of a size; ``None`` if a symbol has none."""
        names = size.variables() if isinstance(size, Dim) else frozenset[str]()
        return value_of(size, self._examples) if names <= self._examples.keys() else None

    def is_negative(self, size: Size) -> bool:
        """Whether a size is negative.

        Raises:
            UnsupportedError: Nobody knows.
        """
        value = self.example(size)
        if value is None:
            raise UnsupportedError(f"the sign of {size} is not known")
        return value < 0


def environment_of(nodes: Sequence[FxNode]) -> ShapeEnv | None:
    """Return the environment of the symbols of a graph; ``None`` if all sizes are numbers."""
    for node in nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and is_tensor(value):
            mode: FakeMode = attrgetter("fake_mode")(value)
            return mode.shape_env
    return None


@contextmanager
def ranges_of_symbols(environment: ShapeEnv | None) -> Generator[None]:
    """Leave out ranges of expressions, which a loaded program has and no decomposition takes."""
    if environment is None:
        yield
        return
    ranges = environment.var_to_range
    others = {key: ranges.pop(key) for key in tuple(ranges) if not key.is_Symbol}
    try:
        yield
    finally:
        ranges.update(others)


def examples_of(environment: ShapeEnv | None) -> dict[str, int]:
    """Return the example value of each symbol of a tracing."""
    values: Mapping[object, int] = {} if environment is None else environment.backed_var_to_val
    return {str(symbol): int(value) for symbol, value in values.items()}


def depends_on_contents(expression: SymExpression) -> bool:
    """Whether an expression has symbols that are items of tensors, or sizes made of these."""
    return not all(_BACKED.fullmatch(str(symbol)) for symbol in expression.free_symbols)


def dtype_named(dtype: object) -> DType:
    """Return an element type of torch.

    Raises:
        UnsupportedError: The IR has none such.
    """
    try:
        return DType(str(dtype).removeprefix("torch."))
    except ValueError:
        raise UnsupportedError(f"there are elements of type {dtype}") from None


def _size(expression: SymExpression) -> Size:
    name = type(expression).__name__
    if expression.is_Integer:
        return int(cast("int", expression))
    if expression.is_Symbol:
        text = str(expression)
        if not _BACKED.fullmatch(text):  # ``u0`` and ``zuf0`` are items of tensors
            raise UnsupportedError(f"the number {text} depends on the contents of a tensor")
        return variable(text)
    operands = expression.args
    if name == "Pow" and operands[1].is_Integer:
        power = int(cast("int", operands[1]))
        if 0 < power <= _MOST_POWERS:
            return reduce(_product, [_size(operands[0])] * power)
    operation = _OPERATIONS.get(name)
    if operation is None:
        raise UnsupportedError(f"the size {expression} is computed by {name}")
    return reduce(operation, [_size(operand) for operand in operands])
