# SPDX-License-Identifier: Apache-2.0
"""Sequences that iterations of a loop hand on, each as two tensors of changing length."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from intarsia_ir.graph.expr import Expr, Tuple, make_tuple
from intarsia_runtime.dtype import DType

from ..context import NodeContext
from ..ragged import ROW
from .ragged import ElementSizes, common_sizes, ragged_sequence
from .sequences import ABSENT, as_ragged, is_sequence


class CarriedValue(Struct, eq=False):
    """A value that iterations hand on.

    Attributes:
        start: Its first value.
        sizes: Of a sequence, what is known of its elements.
        is_new: Whether nothing is known, since the first value has no elements and no iteration has
            been imported.
        may_be_new: Whether an iteration may be imported for a sequence without elements.
    """

    start: Expr
    sizes: ElementSizes = None
    is_new: bool = False
    may_be_new: bool = True

    @property
    def is_sequence(self) -> bool:
        """Whether it is a sequence, which is two tensors."""
        return is_sequence(self.start)


def carried_values(
    node: NodeContext, starts: Sequence[Expr]
) -> tuple[list[CarriedValue], list[Expr]]:
    """Return what iterations hand on, and the tensors that it is before the first one.

    Raises:
        UnsupportedError: An optional is handed on.
    """
    values: list[CarriedValue] = []
    tensors: list[Expr] = []
    for start in starts:
        if not is_sequence(start):
            values.append(CarriedValue(start))
            tensors.append(start)
            continue
        if start is ABSENT or start in node.folder.optionals:
            raise node.unsupported("a loop that hands on an optional")
        whole = as_ragged(node, start)
        if whole is None:
            values.append(CarriedValue(start, None, is_new=True))
            tensors += _nothing(node, node.folder.empties.get(start, DType.FLOAT32))
        else:
            values.append(CarriedValue(start, whole.sizes))
            tensors += (whole.items, whole.shapes)
    return values, tensors


def given_values(
    node: NodeContext, values: Sequence[CarriedValue], tensors: Sequence[Expr]
) -> list[Expr]:
    """Make the values that an iteration gets of their tensors."""
    rest = iter(tensors)
    found: list[Expr] = []
    for value in values:
        if not value.is_sequence:
            found.append(next(rest))
            continue
        pair = next(rest), next(rest)
        if value.is_new and value.may_be_new:
            found.append(make_tuple((), span=node.span))
        else:
            found.append(ragged_sequence(node, *pair, value.sizes))
    return found


def handed_tensors(
    node: NodeContext, values: Sequence[CarriedValue], results: Sequence[Expr]
) -> tuple[list[Expr], bool]:
    """Return the tensors of what an iteration hands on, and whether less is known of a sequence.

    Raises:
        ModelError: A sequence becomes a tensor, or the other way round.
    """
    found: list[Expr] = []
    is_other = False
    for value, result in zip(values, results, strict=True):
        if value.is_sequence is not isinstance(result, Tuple) or result is ABSENT:
            raise node.model_error("an iteration hands on another kind of value than it gets")
        if not value.is_sequence:
            found.append(result)
            continue
        whole = as_ragged(node, result)
        if whole is None:
            found += _nothing(node, node.folder.empties.get(value.start, DType.FLOAT32))
            continue
        found += (whole.items, whole.shapes)
        sizes = whole.sizes if value.is_new else common_sizes(value.sizes, whole.sizes)
        is_other = is_other or value.is_new or sizes != value.sizes
        value.sizes, value.is_new = sizes, False
    return found, is_other


def _nothing(node: NodeContext, dtype: DType) -> tuple[Expr, Expr]:
    """Return the tensors of a sequence without elements."""
    return node.full((0,), 0, dtype), node.full((0, ROW), 0, DType.INT64)
