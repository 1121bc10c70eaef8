# SPDX-License-Identifier: Apache-2.0
"""Optionals: the value that one holds, or ``ABSENT``; of an input only the run knows which."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr, Tuple, make_tuple, tensor_type
from intarsia_ir.tir.tensor import extents

from ..builder import Builder, dtype_of, sizes_of
from ..context import Converter, NodeContext
from .index_range import required_of_all
from .ragged import ragged_items, ragged_sequence
from .sequences import ABSENT, flat_values, regrouped, stacked_items, stacked_sequence


def optional(node: NodeContext) -> Expr:
    """Convert Optional: the value itself, or nothing."""
    value = node.optional(0)
    return ABSENT if value is None else value


def optional_input(node: Builder, value: Expr, holds: Expr) -> Expr:
    """Make an optional of what it holds, which is anything if it holds nothing.

    Args:
        node: The node, or input, that it is of.
        value: A tensor or a sequence.
        holds: Whether it holds a value: one bool.
    """
    made = make_tuple((holds,), span=node.span)
    node.folder.optionals[made] = value
    return made


def split_optionals(
    node: NodeContext, a: Expr, b: Expr
) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]] | None:
    """Return what two optionals hold, and whether: a pair of values and one of bools.

    What holds nothing gets zeros for a value, or a sequence of none. ``None`` if both are plain
    values, or both hold nothing.

    Raises:
        UnsupportedError: The value is a tensor of open sizes, of which there is none to stand in.
    """
    pair = (a, b)
    held = [None if x is ABSENT else node.folder.optionals.get(x, x) for x in pair]
    kept = next((value for value in held if value is not None), None)
    if kept is None or (held[0] is a and held[1] is b):
        return None
    first, second = (_nothing_like(node, kept) if value is None else value for value in held)
    flags = [
        node.reshape(x.fields[0], ())
        if isinstance(x, Tuple) and x in node.folder.optionals
        else node.array(np.array(x is not ABSENT))
        for x in pair
    ]
    return (first, second), (flags[0], flags[1])


def _nothing_like(node: NodeContext, value: Expr) -> Expr:
    """Return zeros of the form of a value, or a sequence of no elements if its length is open."""
    stacked, ragged = stacked_items(node, value), ragged_items(node, value)
    if stacked is not None:
        return stacked_sequence(node, _no_rows(node, stacked))
    if ragged is not None:
        pair = _no_rows(node, ragged.items), _no_rows(node, ragged.shapes)
        return ragged_sequence(node, *pair, ragged.sizes)
    parts = [tensor_type(part) for part in flat_values((value,))]
    if not all(part.is_static for part in parts):
        raise node.unsupported("an optional of a tensor of open sizes, chosen at run time")
    zeros = [node.full(part.static_shape, 0, part.dtype) for part in parts]
    return make_tuple(zeros, span=node.span) if isinstance(value, Tuple) else zeros[0]


def _no_rows(node: NodeContext, rows: Expr) -> Expr:
    return node.full(extents((0, *sizes_of(rows)[1:])), 0, dtype_of(rows))


def optional_has_element(node: NodeContext) -> Expr:
    """Convert OptionalHasElement; a plain value always holds one."""
    value = node.optional(0)
    if isinstance(value, Tuple) and value in node.folder.optionals:
        return value.fields[0]
    return node.array(np.array(value is not None and value is not ABSENT))


def optional_get_element(node: NodeContext) -> Expr:
    """Convert OptionalGetElement; where the run knows whether there is one, it may fail.

    Raises:
        ModelError: The optional holds nothing.
    """
    value = node.input(0)
    if value is ABSENT:
        raise node.model_error("the optional holds nothing")
    if not isinstance(value, Tuple) or value not in node.folder.optionals:
        return value
    held = node.folder.optionals[value]
    parts = flat_values((held,))
    found = required_of_all(node, value.fields[0], parts, "the optional holds nothing")
    return regrouped(node, (held,), found)[0]


CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        "Optional": optional,
        "OptionalGetElement": optional_get_element,
        "OptionalHasElement": optional_has_element,
    }
)
