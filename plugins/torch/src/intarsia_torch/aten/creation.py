# SPDX-License-Identifier: Apache-2.0
"""Operators that make tensors of sizes and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare, generate
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim, Size

from .context import AtenContext, Converter, Operand

_VALUES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), 0),
        **dict.fromkeys(("ones", "ones_like", "new_ones"), 1),
        **dict.fromkeys(("empty", "empty_like", "new_empty", "empty_strided"), 0),
    }
)


def _full(node: AtenContext) -> Expr:
    value: Operand = _VALUES.get(node.name)
    if value is None:
        value = node.args["fill_value"]
    if isinstance(value, int | float):
        return node.full(node.sizes, value, node.dtype)
    number = node.reshape(node.as_tensor(value, node.dtype), [1] * len(node.sizes))
    return node.broadcast(number, node.sizes)


def _scalar(node: AtenContext) -> Expr:
    return node.value("s", node.dtype)


def _range(node: AtenContext) -> Expr:
    start, step = node.args.get("start", 0), node.args.get("step", 1)
    (count,) = node.sizes
    if not node.dtype.is_integer:
        return _scaled_range(node, start, step)
    if isinstance(step, Dim):
        return _scaled_range(node, start, step)
    if not isinstance(step, int) or not isinstance(start, int | Dim):
        node.unsupported(f"a range of integers from {start} by {step}")
    begin: Size = start
    stop = begin + count * step
    first, last = extents([begin, stop])
    attrs = generate.Arange.Attrs(start=first, stop=last, step=step, dtype=node.dtype)
    return node.call(generate.Arange, attrs=attrs)


def _scaled_range(node: AtenContext, start: Operand, step: Operand) -> Expr:
    (count,) = node.sizes
    attrs = generate.Arange.Attrs(start=0, stop=count, step=1, dtype=DType.INT64)
    numbers = node.cast(node.call(generate.Arange, attrs=attrs), node.dtype)
    if step != 1:
        numbers = node.call(binary.Multiply, numbers, node.as_tensor(step, node.dtype))
    if start == 0:
        return numbers
    return node.call(binary.Add, numbers, node.as_tensor(start, node.dtype))


def _spaced(node: AtenContext) -> Expr:
    count = node.integer("steps")
    values = np.linspace(node.number("start"), node.number("end"), count)
    return node.cast(node.array(values), node.dtype)


def _identity(node: AtenContext) -> Expr:
    rows, columns = node.sizes

    def places(count: int, sizes: tuple[int, int]) -> Expr:
        attrs = generate.Arange.Attrs(start=0, stop=count, step=1, dtype=DType.INT64)
        return node.reshape(node.call(generate.Arange, attrs=attrs), sizes)

    same = node.call(compare.Equal, places(rows, (rows, 1)), places(columns, (1, columns)))
    return node.cast(same, node.dtype)


CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **dict.fromkeys(_VALUES, _full),
        **dict.fromkeys(("full", "full_like", "new_full"), _full),
        "arange": _range,
        "eye": _identity,
        "linspace": _spaced,
        "scalar_tensor": _scalar,
    }
)
