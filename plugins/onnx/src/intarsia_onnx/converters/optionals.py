# SPDX-License-Identifier: Apache-2.0
"""Optionals: the value that one holds, or ``ABSENT``; of an input only the run knows which."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr, Tuple, make_tuple

from ..builder import Builder
from ..context import Converter, NodeContext
from .index_range import required_of_all
from .sequences import ABSENT, flat_values, regrouped


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
