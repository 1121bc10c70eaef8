# SPDX-License-Identifier: Apache-2.0
"""Values of pure subexpressions that are known while a model is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from intarsia_ir.budget import budget
from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.control import control_of
from intarsia_ir.graph.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var, tensor_type
from intarsia_ir.graph.op import OpKind
from intarsia_ir.graph.types import TensorType, Type
from intarsia_ir.graph.walk import children
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_ir.ops.binary import Divide, Maximum, Minimum
from intarsia_ir.ops.compare import Equal, NotEqual
from intarsia_ir.ops.generate import Sizes
from intarsia_ir.ops.run_sizes import WithSizes
from intarsia_ir.ops.unary import Cast
from intarsia_runtime.errors import IntarsiaError, ResourceError
from intarsia_runtime.size import Dim, maximum, minimum

from .broadcasts import Broadcasts
from .draws import Draws
from .partial_sizes import BY_ELEMENT, by_element, moves
from .run_sizes import Hole, RunSizes
from .size_quotients import quotients

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intarsia_runtime.dtype import DType
    from intarsia_runtime.size import Size

VALUE_BUDGET = 16 << 20  # bytes of one folded value
TOTAL_BUDGET = 256 << 20  # bytes of all folded values of a model
MOST_SIZES = 64  # elements of a value that may be sizes
WORK_BUDGET = 1 << 28  # multiply-adds a folded contraction may cost


class ConstantFolder:
    """Evaluates expressions of constants on demand, each once, within a budget of bytes.

    Attributes:
        run_sizes: The size variables that calls define.
        broadcasts: The open sizes that are broadcast.
        draws: The streams of random numbers; ``None`` where none may be compiled.
        stacked: Tuples that are sequences of slices of their only field.
        ragged: Tuples that are sequences of elements of any sizes, with what is known of these.
        counters: Numbers of iterations, each with the size that it is below.
        empties: Tuples that are sequences without elements, with the element type of those to come.
        optionals: What a tuple that says whether an optional holds a value stands for.
        conditions: What must hold in a run, with the node that asks for it and what is wrong if it
            does not; ``None`` where nothing is there to check it.
    """

    def __init__(self, value_budget: int = VALUE_BUDGET, total_budget: int = TOTAL_BUDGET) -> None:
        self._value_budget = value_budget
        self._left = total_budget
        self._values: dict[Expr, np.ndarray | tuple[np.ndarray, ...] | None] = {}
        self._sizes: dict[Expr, np.ndarray | None] = {}
        self._partial: dict[Expr, np.ndarray] = {}
        self.run_sizes = RunSizes()
        self.broadcasts = Broadcasts()
        self.draws: Draws | None = Draws()
        self.stacked: set[Expr] = set()
        self.ragged: dict[Expr, Sequence[Size | None] | None] = {}
        self.counters: dict[Expr, Size] = {}
        self.empties: dict[Expr, DType] = {}
        self.optionals: dict[Expr, Expr] = {}
        self.conditions: list[tuple[Expr, Span, str]] | None = None

    def value(self, expr: Expr) -> np.ndarray | None:
        """Return the value of ``expr``, or ``None`` if it depends on an input or costs too much."""
        if isinstance(expr, Constant):
            return expr.data
        if isinstance(expr, Var):
            return None
        stack: list[tuple[Expr, bool]] = [(expr, False)]
        while stack:
            node, ready = stack.pop()
            if node in self._values:
                continue
            if ready:
                self._values[node] = self._evaluate(node)
                continue
            if isinstance(node, Constant):
                self._values[node] = node.data
                continue
            if not self._affordable(node.type):
                self._values[node] = None
                continue
            stack.append((node, True))
            stack.extend((child, False) for child in children(node) if child not in self._values)
        found = self._values[expr]
        return found if isinstance(found, np.ndarray) else None

    def number(self, expr: Expr) -> np.ndarray | None:
        """Return a value as :meth:`value` does, or one of sizes that are numbers.

        So is the first size of ``Shape(x)`` where another size of ``x`` is open.
        """
        value = self.value(expr)
        sizes = self.sizes(expr) if value is None else None
        if sizes is None or any(isinstance(size, Dim) for size in sizes.reshape(-1)):
            return value
        return sizes.astype(numpy_dtype(tensor_type(expr).dtype))

    def sizes(self, expr: Expr) -> np.ndarray | None:
        """Return an integer value whose elements are sizes, some of them open; ``None`` if unknown.

        Elements are ``int`` and :class:`~intarsia_runtime.size.Dim`, in an array of objects: the
        NumPy definitions of operators that move elements or do arithmetic work on these, too.
        """
        known = self._sizes.get(expr)
        if known is None and expr not in self._sizes:
            stack: list[tuple[Expr, bool]] = [(expr, False)]
            while stack:
                node, ready = stack.pop()
                if node in self._sizes:
                    continue
                if ready or not isinstance(node, Call) or not _is_small(node.type):
                    self._sizes[node] = self._evaluate_sizes(node)
                    continue
                stack.append((node, True))
                stack.extend((arg, False) for arg in node.args if arg not in self._sizes)
            known = self._sizes[expr]
        return known

    def partial_sizes(self, expr: Expr) -> np.ndarray | None:
        """Return an integer value of which some elements may be unknown; ``None`` for others.

        Elements are those of :meth:`sizes`, or a :class:`Hole` that says which element of which
        tensor it is: operators that only move elements move holes.
        """
        stack: list[tuple[Expr, bool]] = [(expr, False)]
        while stack:
            node, ready = stack.pop()
            if node in self._partial or not _is_small(node.type):
                continue
            is_moved = isinstance(node, Call) and moves(node) and self.sizes(node) is None
            if ready or not is_moved or not isinstance(node, Call):
                self._partial[node] = self._evaluate_partial(node)
                continue
            stack.append((node, True))
            stack.extend((arg, False) for arg in node.args if arg not in self._partial)
        return self._partial.get(expr)

    def _evaluate_partial(self, node: Expr) -> np.ndarray:
        known = self.sizes(node)
        if known is not None:
            return known
        type_ = tensor_type(node)
        if isinstance(node, Call) and moves(node):
            if node.op in (WithSizes, Cast):
                return self._partial[node.args[0]]
            operands = [self._partial.get(arg) for arg in node.args]
            arrays = [operand for operand in operands if operand is not None]
            if len(arrays) == len(operands) and node.op in BY_ELEMENT:
                return by_element(node, arrays)
            if len(arrays) == len(operands):
                try:
                    moved = np.asarray(node.op.reference(node.attrs, *arrays), object)
                except (IntarsiaError, ArithmeticError, ValueError, IndexError, TypeError):
                    moved = None
                if moved is not None and moved.shape == type_.static_shape:
                    return moved
        holes = np.empty(type_.elements, object)
        for index in range(type_.elements):
            holes[index] = Hole(node, index)
        return holes.reshape(type_.static_shape)

    def _evaluate_sizes(self, node: Expr) -> np.ndarray | None:
        value = self.value(node)
        if value is not None:
            return value.astype(object) if value.dtype.kind in "iub" else None
        if not isinstance(node, Call) or not _is_small(node.type):
            return None
        if isinstance(node.attrs, Sizes.Attrs):
            return np.array([*node.attrs.sizes, None], object)[:-1]
        if node.op is WithSizes:
            return self._sizes.get(node.args[0])
        operands = [self._sizes.get(arg) for arg in node.args]
        arrays = [operand for operand in operands if operand is not None]
        if len(arrays) < len(operands):
            return None
        if node.op is Divide:
            # What a branch requires need not hold where the branch is not taken.
            return quotients(arrays[0], arrays[1], guarded=not self.run_sizes.is_apart)
        return _size_arithmetic(node, arrays)

    def _affordable(self, type_: Type) -> bool:
        fields = (type_,) if isinstance(type_, TensorType) else type_.fields
        size = 0
        for field in fields:
            if not isinstance(field, TensorType) or not field.is_static:
                return False
            size += field.bytes
        return size <= min(self._value_budget, self._left)

    def _evaluate(self, node: Expr) -> np.ndarray | tuple[np.ndarray, ...] | None:
        match node:
            case Constant():
                return node.data
            case Call() if control_of(node) is None:
                operands: list[np.ndarray] = []
                for arg in node.args:
                    operand = self._values[arg]
                    if not isinstance(operand, np.ndarray):
                        return None
                    operands.append(operand)
                if not _cheap(node, operands):
                    return None
                return self._run(node, operands)
            case TupleGetItem():
                fields = self._values[node.tuple]
                return fields[node.index] if isinstance(fields, tuple) else None
            case Tuple():
                values = [self._values[field] for field in node.fields]
                arrays = tuple(value for value in values if isinstance(value, np.ndarray))
                return arrays if len(arrays) == len(values) else None
            case _:
                return None

    def _run(
        self, node: Call, operands: Sequence[np.ndarray]
    ) -> np.ndarray | tuple[np.ndarray, ...] | None:
        if not self._affordable(node.type):
            return None
        try:
            with np.errstate(all="ignore"), budget().folding("folding constants") as limits:
                limits.check(node.span)
                result = node.op.reference(node.attrs, *operands)
        except ResourceError:
            raise
        except (IntarsiaError, ArithmeticError, ValueError, IndexError):
            return None  # the error belongs to whoever runs the model
        if isinstance(result, tuple):
            results = cast("tuple[np.ndarray, ...]", result)
            self._left -= sum(array.nbytes for array in results)
            return results
        self._left -= result.nbytes
        return np.asarray(result)


def _is_small(type_: Type) -> bool:
    """Whether a value may be sizes: some integers."""
    if not isinstance(type_, TensorType) or not type_.is_static or type_.dtype.is_float:
        return False
    return type_.elements <= MOST_SIZES


def _size_arithmetic(node: Call, operands: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return the result of an operator on sizes; ``None`` if it needs numbers."""
    if node.op is Cast:
        kind = tensor_type(node).dtype
        same = kind is tensor_type(node.args[0]).dtype
        return operands[0] if same or kind.is_integer else None
    if node.op in (Equal, NotEqual) and not _is_decided(operands):
        return None
    if node.op in _CHOICES:
        shape = np.broadcast_shapes(*(array.shape for array in operands))
        flat = [np.broadcast_to(array, shape).reshape(-1) for array in operands]
        made = [_CHOICES[node.op](a, b) for a, b in zip(*flat, strict=True)]
        return np.array([*made, None], object)[:-1].reshape(shape)
    try:
        result = node.op.reference(node.attrs, *operands)
    except (IntarsiaError, ArithmeticError, ValueError, IndexError, TypeError, AttributeError):
        return None  # its definition is for arrays of numbers
    array = np.asarray(result, object)
    whole = all(isinstance(item, int | np.integer | np.bool_ | Dim) for item in array.reshape(-1))
    return array if whole and array.shape == tensor_type(node).static_shape else None


def _is_decided(operands: Sequence[np.ndarray]) -> bool:
    """Whether sizes can be compared: a symbol is never -1, and may be any other number."""
    flat = [np.broadcast_to(a, np.broadcast_shapes(*(o.shape for o in operands))) for a in operands]
    for a, b in zip(*(array.reshape(-1) for array in flat), strict=True):
        if (isinstance(a, Dim) or isinstance(b, Dim)) and -1 not in (a, b) and a != b:
            return False
    return True


_CHOICES = {Minimum: minimum, Maximum: maximum}


def _cheap(node: Call, operands: Sequence[np.ndarray]) -> bool:
    """Whether a contraction of constants is small enough to carry out while reading."""
    if node.op.kind is not OpKind.ANCHOR:
        return True
    outputs = node.type.elements if isinstance(node.type, TensorType) else 0
    return outputs * max(array.size for array in operands[1:]) <= WORK_BUDGET
