# SPDX-License-Identifier: Apache-2.0
"""Operators that make tensors from attributes, shapes and known values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Call, Expr
from intarsia_ir.ops import generate, unary
from intarsia_ir.ops.type_rules import shape_text
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.artifact.plan import NARROW
from intarsia_runtime.size import Dim, Size, numbers, product

from ..builder import dtype_of, sizes_of
from ..context import Narrow, NodeContext
from ..tensors import check_sizes, element_type

STORED = 1 << 16  # elements of a Range that are stored; longer ones are refused


def constant(node: NodeContext) -> Expr | Narrow:
    """Convert Constant in all its numeric forms."""
    if node.has("value"):
        value = node.tensor("value")
        if value.dtype.name in NARROW:
            return Narrow(node.array(value.view(np.uint8)), value.dtype)
        return node.array(value)
    if node.has("value_float"):
        return node.array(np.array(node.number("value_float"), np.float32))
    if node.has("value_floats"):
        return node.array(np.array(node.numbers("value_floats"), np.float32))
    if node.has("value_int"):
        return node.array(np.array(node.integer("value_int"), np.int64))
    if node.has("value_ints"):
        return node.array(np.array(node.integers("value_ints"), np.int64))
    if node.node.attrs:
        raise node.unsupported(f"a constant given as '{next(iter(node.node.attrs))}'")
    raise node.model_error("a constant without a value")


def constant_of_shape(node: NodeContext) -> Expr:
    """Convert ConstantOfShape."""
    sizes = extents(node.required_sizes(0, "the shape"))
    value = node.tensor("value") if node.has("value") else np.zeros(1, np.float32)
    if value.size != 1 or any(size < 0 for size in numbers(sizes)):
        raise node.model_error(f"value of shape {value.shape}, shape {sizes}")
    dtype = dtype_of(node.array(value))
    check_sizes(numbers(sizes), dtype, str(node.span))
    if value.dtype.kind in "iu" and abs(int(value.reshape(-1)[0])) > 1 << 53:
        return node.broadcast(node.array(value.reshape(())), sizes)
    return node.full(sizes, value.reshape(-1).astype(np.float64).item(), dtype)


def shape_of(node: NodeContext) -> Expr:
    """Convert Shape of a static tensor, or the static part of a symbolic one."""
    sizes = node.type_of(0).shape
    part = sizes[slice(node.integer("start", 0), node.integer("end", len(sizes)))]
    numbers = [size for size in part if isinstance(size, int)]
    if len(numbers) < len(part):
        return node.call(generate.Sizes, attrs=generate.Sizes.Attrs(sizes=extents(part)))
    return node.array(np.array(numbers, np.int64))


def size_of(node: NodeContext) -> Expr:
    """Convert Size."""
    elements = product(node.type_of(0).shape)
    if isinstance(elements, int):
        return node.array(np.array(elements, np.int64))
    attrs = generate.Sizes.Attrs(sizes=extents([elements]))
    return node.reshape(node.call(generate.Sizes, attrs=attrs), ())


def known_range(node: NodeContext, values: Sequence[np.ndarray | None]) -> Expr | None:
    """Convert Range of known limits, or of sizes; ``None`` if the model computes a limit.

    Args:
        node: The node.
        values: Of start, limit and step, as far as they are known.
    """
    opened = _open_range(node)
    if opened is not None:
        return opened
    known = [value for value in values if value is not None]
    if len(known) < 3:
        return None
    start, limit, delta = known
    if not start.size == limit.size == delta.size == 1:
        raise node.model_error("the limits must be one number each")
    start, limit, delta = start.reshape(()), limit.reshape(()), delta.reshape(())
    if delta == 0:
        raise node.model_error("the step is 0")
    span = (limit.astype(np.float64) - start.astype(np.float64)) / delta.astype(np.float64)
    if not np.isfinite(span):
        raise node.model_error(f"a range from {start} to {limit} in steps of {delta}")
    count = max(math.ceil(span), 0)
    if count > STORED * 256:
        raise node.unsupported(f"a range of {count} elements")
    elements = start + np.arange(count).astype(start.dtype) * delta
    return node.array(np.asarray(elements, start.dtype))


def _open_range(node: NodeContext) -> Expr | None:
    """Convert Range of whole numbers of which one is a size that only the run knows."""
    limits = [_whole_number(node, index) for index in range(3)]
    values = [limit for limit in limits if limit is not None]
    if len(values) < 3 or not any(isinstance(value, Dim) for value in values):
        return None
    start, stop, step = values
    dtype = dtype_of(node.input(0))
    if isinstance(step, Dim) or step < 1 or (isinstance(start, Dim) and dtype.is_float):
        return None
    first, last = extents((start, stop))
    attrs = generate.Arange.Attrs(start=first, stop=last, step=step, dtype=dtype)
    return node.call(generate.Arange, attrs=attrs)


def _whole_number(node: NodeContext, index: int) -> Size | None:
    """Return an operand of one whole number, a size perhaps, also as a float; else ``None``."""
    expr = node.input(index)
    if isinstance(expr, Call) and expr.op is unary.Cast:
        expr = expr.args[0]
    found = node.folder.sizes(expr)
    if found is None:
        found = node.folder.value(expr)
    if found is None or found.size != 1:
        return None
    value = found.reshape(-1)[0]
    if isinstance(value, Dim):
        return value
    return int(value) if np.isfinite(float(value)) and value == int(value) else None


def eye_like(node: NodeContext) -> Expr:
    """Convert EyeLike: the diagonal of ones of a size that the run may know."""
    sizes = sizes_of(node.input(0))
    if len(sizes) != 2:
        raise node.unsupported(f"EyeLike of shape {shape_text(sizes)}")
    dtype = dtype_of(node.input(0))
    if node.has("dtype"):
        dtype = element_type(node.integer("dtype"), str(node.span))
    made = node.full(extents(sizes), 1, dtype)
    for upper in (True, False):
        attrs = generate.Triangular.Attrs(upper=upper, diagonal=node.integer("k", 0))
        made = node.call(generate.Triangular, made, attrs=attrs)
    return node.folded(made)


CONVERTERS = MappingProxyType(
    {
        "Constant": constant,
        "ConstantOfShape": constant_of_shape,
        "EyeLike": eye_like,
        "Shape": shape_of,
        "Size": size_of,
    }
)
