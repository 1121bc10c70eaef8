# SPDX-License-Identifier: Apache-2.0
"""How names, types, attributes and constants are spelled."""

from __future__ import annotations

import json
import re
from typing import cast

import numpy as np
from msgspec import NODEFAULT

from intarsia_runtime.dtype import DType

from ...diagnostics import Span
from ...tokens import name_text, quote
from ..op import OpAttrs, attr_defaults
from ..types import Dim, TensorType, TupleType, Type

BARE_SPAN = r'[^\s"()]+'

_BARE_SPAN = re.compile(BARE_SPAN)
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_SPAN = re.compile(rf"\s*({_QUOTED}|{BARE_SPAN})(?: \(({_QUOTED}|{BARE_SPAN})\))?\s*")
_NATIVE_FLOATS = ("float16", "float32", "float64")


def sequence_text(items: list[str]) -> str:
    """Return items in parentheses; one alone is followed by a comma."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def type_text(type_: Type) -> str:
    """Return a type; nesting is bounded by the type itself, which no model makes deep."""
    match type_:
        case TensorType(shape=shape, dtype=dtype):
            return f"Tensor[{sequence_text([_size_text(size) for size in shape])}, {dtype}]"
        case TupleType(fields=parts):
            return sequence_text([type_text(part) for part in parts])


def _size_text(size: int | Dim) -> str:
    if isinstance(size, int):
        return str(size)
    return name_text(size.name) if size.is_variable else f"`{size}`"


def span_text(span: Span) -> str:
    """Return the comment for a span; empty if there is none."""
    if not span.name:
        return ""
    name = span.name if _BARE_SPAN.fullmatch(span.name) else quote(span.name)
    if not span.op:
        return f"  // {name}"
    op = span.op if _BARE_SPAN.fullmatch(span.op) else quote(span.op)
    return f"  // {name} ({op})"


def parse_span(comment: str) -> Span:
    """Return the span that a comment behind a statement spells; an empty one for other comments."""
    match = _SPAN.fullmatch(comment)
    if match is None:
        return Span("")
    name, op = (_unquoted(part or "") for part in match.groups())
    return Span(name, op)


def _unquoted(text: str) -> str:
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(text))
    except json.JSONDecodeError:
        return text


def attrs_text(attrs: OpAttrs) -> list[str]:
    """Return ``name=value`` for each attribute that has not its default, in order of fields."""
    found: list[str] = []
    for name, default in attr_defaults(type(attrs)).items():
        text = value_text(_field_value(attrs, name))
        if default is NODEFAULT or value_text(default) != text:
            found.append(f"{name}={text}")
    return found


def _field_value(attrs: OpAttrs, name: str) -> object:
    return object.__getattribute__(attrs, name)


def value_text(value: object) -> str:
    """Return an attribute's value: bool, number, string, type, or a tuple of these."""
    match value:
        case DType():
            return value.value
        case bool() | np.bool_():
            return str(bool(value))
        case str():
            return quote(value)
        case int() | np.integer():
            return str(int(value))
        case tuple():
            items = cast("tuple[object, ...]", value)
            return sequence_text([value_text(item) for item in items])
        case Dim():
            return f"`{value}`"
        case TensorType():
            return type_text(value)
        case _:
            return repr(float(value))  # type: ignore[arg-type]


def array_text(array: np.ndarray) -> str:
    """Return the elements as nested lists; each reads back as exactly the same element."""
    elements = [_element_text(element) for element in array.reshape(-1)]
    for size in reversed(array.shape):
        starts = range(0, len(elements), size)
        elements = [f"[{', '.join(elements[at : at + size])}]" for at in starts]
    return elements[0]


def _element_text(element: np.generic) -> str:
    name = element.dtype.name
    if name == "bool":
        return str(bool(element))
    if "float" not in name:
        return str(int(element))
    # NumPy's own text is the shortest that reads back exactly; others go through float64.
    text = str(element) if name in _NATIVE_FLOATS else repr(float(element))
    exact = element.dtype.type(float(text)) == element or element != element
    return text if exact else repr(float(element))
