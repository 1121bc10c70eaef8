# SPDX-License-Identifier: Apache-2.0
"""Control flow: operators whose attributes name functions of the module.

The operands of a call are all that its functions read, values of the function around included, so
a function of the module is complete in itself. What differs from other operators: they compute
nothing themselves, so they are in no table of rules, and who evaluates or lowers a function needs
the module. The result is always a tuple.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import cast

import numpy as np
from msgspec.structs import replace

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError
from intarsia_runtime.size import value_of

from ..graph.control import Control, Invoke, same_types
from ..graph.guards import Guard
from ..graph.op import OpAttrs, operator
from ..graph.types import Dim, Size, TensorType, TupleType, Type
from .arrays import Array, numpy_dtype
from .type_rules import operands


def is_one(type_: Type, dtype: DType) -> bool:
    """Whether a type is that of one element of ``dtype``."""
    return isinstance(type_, TensorType) and type_.dtype is dtype and type_.shape in ((), (1,))


@operator("control.if")
class If(Control):
    """The results of one of two functions, chosen by a bool when the model runs.

    Operands are the condition, and the parameters that both functions have. The first results are
    the values of the size variables that the call defines, one int64 each.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``then``, ``orelse``: the functions; ``results``: the types of what both give.

        ``sizes``: the variables in results that the chosen function decides.
        ``then_guards``, ``else_guards``: sizes that must be equal where the function is chosen, two
        of them and why, one guard after the other.
        """

        then: str
        orelse: str
        results: tuple[TensorType, ...]
        sizes: tuple[int, ...] = ()
        then_guards: tuple[int | str, ...] = ()
        else_guards: tuple[int | str, ...] = ()

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TupleType:
        """The stated results."""
        condition, *_ = operands(cls.name, types, 1, len(types))
        if not is_one(condition, DType.BOOL):
            raise TypeRuleError(f"{cls.name}: the condition is a {condition}, not one bool")
        _check_defined(cls.name, attrs.sizes, attrs.results)
        return TupleType(attrs.results)

    @staticmethod
    def functions(attrs: OpAttrs) -> tuple[str, ...]:
        """Both branches."""
        own = cast("If.Attrs", attrs)
        return (own.then, own.orelse)

    @staticmethod
    def renamed(attrs: OpAttrs, names: Sequence[str]) -> OpAttrs:
        """Other branches."""
        then, orelse = names
        return replace(attrs, then=then, orelse=orelse)

    @staticmethod
    def params(attrs: OpAttrs, types: Sequence[TensorType], function: str) -> list[TensorType]:
        """Every captured value."""
        return list(types[1:])

    @staticmethod
    def results(attrs: OpAttrs) -> list[TensorType]:
        """The results of the call."""
        return list(cast("If.Attrs", attrs).results)

    @staticmethod
    def defined(attrs: OpAttrs) -> tuple[str, ...]:
        """Those that the chosen function decides."""
        return _names(cast("If.Attrs", attrs).sizes)

    @staticmethod
    def captured(attrs: OpAttrs) -> int:
        """All but the condition."""
        return 1

    @staticmethod
    def evaluate(
        attrs: OpAttrs, arrays: Sequence[Array], invoke: Invoke, sizes: Mapping[str, int]
    ) -> tuple[Array, ...]:
        """Carry out the chosen function alone."""
        own = cast("If.Attrs", attrs)
        return invoke(own.then if arrays[0].reshape(()) else own.orelse, arrays[1:])


@operator("control.loop")
class Loop(Control):
    """A function carried out iteration after iteration, as long as everything that is given allows
    it.

    Operands are the limit of iterations (one int64, if ``has_trip``), the first condition (one
    bool, if ``has_condition``), the values that each iteration hands to the next, tensors of which
    each iteration gets one slice along the first axis, and captured values. Parameters of the
    function are the number of the iteration (an int64 scalar, if ``takes_iteration``), the carried
    values, the slices, and the captured values. It gives the condition of the next iteration (if
    ``has_condition``), the carried values, and values of which those of all iterations become one
    tensor, along a new first axis. The results are the last carried values, and these tensors.

    Carried values may have another size in each iteration. The first of them are then the values of
    size variables, one int64 each.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``body``: the function; ``results``: types; ``carried``, ``sliced``: how many values.

        ``most``: no more iterations than this, which is also the first size of what is sliced or
        collected; -1 if there is no such limit. ``sizes``: the size variables in results that the
        first carried values are; ``iteration_sizes``: those that they are in the body. The last
        ``rooms`` of them are the room of values that iterations append to. ``guards``: sizes that
        must be equal if there is an iteration, as in :class:`If`.
        """

        body: str
        results: tuple[TensorType, ...]
        carried: int = 0
        sliced: int = 0
        most: int = -1
        has_trip: bool = False
        has_condition: bool = False
        takes_iteration: bool = False
        sizes: tuple[int, ...] = ()
        iteration_sizes: tuple[int, ...] = ()
        rooms: int = 0
        guards: tuple[int | str, ...] = ()

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TupleType:
        """The stated results, which must fit what is carried, and the number of iterations."""
        tensors = operands(cls.name, types, cls.captured(attrs), len(types))
        heads = [DType.INT64] * attrs.has_trip + [DType.BOOL] * attrs.has_condition
        for type_, dtype in zip(tensors, heads, strict=False):
            if not is_one(type_, dtype):
                raise TypeRuleError(f"{cls.name}: needs one {dtype}, got {type_}")
        carried = tensors[len(heads) : len(heads) + attrs.carried]
        _check_defined(cls.name, attrs.sizes, attrs.results)
        if len(attrs.sizes) != len(attrs.iteration_sizes):
            raise TypeRuleError(f"{cls.name}: {len(attrs.iteration_sizes)} sizes in the body")
        names = cls.defined(attrs)
        if not same_types(carried, attrs.results[: attrs.carried], names):
            wanted = ", ".join(map(str, carried))
            raise TypeRuleError(f"{cls.name}: hands on ({wanted}), but results are others")
        sliced = tensors[len(heads) + attrs.carried :][: attrs.sliced]
        stacked = (*sliced, *attrs.results[attrs.carried :])
        if stacked and attrs.most == -1:
            raise TypeRuleError(f"{cls.name}: slices, and has no number of iterations")
        for type_ in stacked:
            if not type_.rank or type_.shape[0] != attrs.most:
                raise TypeRuleError(f"{cls.name}: {type_} has not {attrs.most} slices")
        return TupleType(attrs.results)

    @staticmethod
    def functions(attrs: OpAttrs) -> tuple[str, ...]:
        """The body."""
        return (cast("Loop.Attrs", attrs).body,)

    @staticmethod
    def renamed(attrs: OpAttrs, names: Sequence[str]) -> OpAttrs:
        """Another body."""
        return replace(attrs, body=names[0])

    @staticmethod
    def params(attrs: OpAttrs, types: Sequence[TensorType], function: str) -> list[TensorType]:
        """The number of the iteration, carried values, slices, captured values."""
        own = cast("Loop.Attrs", attrs)
        first = own.has_trip + own.has_condition
        last = first + own.carried + own.sliced
        iteration = [TensorType((), DType.INT64)] * own.takes_iteration
        slices = [row_type(type_) for type_ in types[first + own.carried : last]]
        return [*iteration, *types[first : first + own.carried], *slices, *types[last:]]

    @staticmethod
    def results(attrs: OpAttrs) -> list[TensorType]:
        """The condition, carried values, and one slice of what is collected."""
        own = cast("Loop.Attrs", attrs)
        condition = [TensorType((), DType.BOOL)] * own.has_condition
        rows = [row_type(type_) for type_ in own.results[own.carried :]]
        return [*condition, *own.results[: own.carried], *rows]

    @staticmethod
    def defined(attrs: OpAttrs) -> tuple[str, ...]:
        """Those of carried values behind the last iteration."""
        return _names(cast("Loop.Attrs", attrs).sizes)

    @staticmethod
    def inner(attrs: OpAttrs) -> tuple[str, ...]:
        """Those of carried values in an iteration."""
        return _names(cast("Loop.Attrs", attrs).iteration_sizes)

    @staticmethod
    def captured(attrs: OpAttrs) -> int:
        """All behind what is carried and sliced."""
        own = cast("Loop.Attrs", attrs)
        return own.has_trip + own.has_condition + own.carried + own.sliced

    @staticmethod
    def evaluate(
        attrs: OpAttrs, arrays: Sequence[Array], invoke: Invoke, sizes: Mapping[str, int]
    ) -> tuple[Array, ...]:
        """Carry out the body iteration after iteration."""
        own = cast("Loop.Attrs", attrs)
        rest = list(arrays)
        limits = [] if own.most == -1 else [value_of(own.most, sizes)]
        limits += [int(rest.pop(0).reshape(()))] if own.has_trip else []
        limit = min(limits, default=None)
        going = bool(rest.pop(0).reshape(())) if own.has_condition else True
        state, rest = rest[: own.carried], rest[own.carried :]
        sliced, captured = rest[: own.sliced], rest[own.sliced :]
        rows: list[Sequence[Array]] = []
        while going and (limit is None or len(rows) < limit):
            number = [np.array(len(rows))] * own.takes_iteration
            given = [*number, *state, *(array[len(rows)] for array in sliced), *captured]
            results = list(invoke(own.body, given))
            going = bool(results.pop(0).reshape(())) if own.has_condition else True
            state = results[: own.carried]
            rows.append(results[own.carried :])
        stacked = zip(*rows, strict=True) if rows else [() for _ in own.results[own.carried :]]
        kinds = own.results[own.carried :]
        return (*state, *(_stacked(parts, k) for parts, k in zip(stacked, kinds, strict=True)))


def _names(sizes: Sequence[object]) -> tuple[str, ...]:
    return tuple(size.name for size in sizes if isinstance(size, Dim))


def _check_defined(name: str, sizes: Sequence[object], results: Sequence[TensorType]) -> None:
    """Check that a call defines variables, and that its first results are their values."""
    for number, size in enumerate(sizes):
        if not isinstance(size, Dim) or not size.is_variable:
            raise TypeRuleError(f"{name}: {size} is no size variable")
        if number >= len(results) or results[number] != SIZE:
            raise TypeRuleError(f"{name}: no result is the value of {size}")


def _stacked(parts: Sequence[Array], type_: TensorType) -> Array:
    if parts:
        return np.stack(parts)
    sizes = [size if isinstance(size, int) else 0 for size in type_.shape[1:]]
    return np.empty((0, *sizes), numpy_dtype(type_.dtype))


SIZE = TensorType((1,), DType.INT64)
"""Type of the value of a size variable."""


def row_type(type_: TensorType) -> TensorType:
    """Return the type of one slice along the first axis."""
    return type_.with_shape(type_.shape[1:])


def stacked_type(type_: TensorType, iterations: Size) -> TensorType:
    """Return the type of as many slices as there are iterations."""
    return type_.with_shape((iterations, *type_.shape))


def flat_guards(guards: Sequence[Guard]) -> tuple[int | str, ...]:
    """Return guards as an attribute of control flow."""
    flat = [part for guard in guards for part in (guard.left, guard.right, guard.why)]
    return cast("tuple[int | str, ...]", tuple(flat))


def guards_of(flat: Sequence[object]) -> tuple[Guard, ...]:
    """Inverse of :func:`flat_guards`."""
    rows = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    return tuple(
        Guard(cast("Size", left), cast("Size", right), str(why)) for left, right, why in rows
    )


CONTROL: Mapping[str, type[Control]] = MappingProxyType({If.name: If, Loop.name: Loop})
"""The operators of control flow by their names."""
