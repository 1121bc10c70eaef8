# SPDX-License-Identifier: Apache-2.0
"""Reductions, arguments of extremes, running sums and sorting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr, get_item
from intarsia_ir.graph.op import Op
from intarsia_ir.ops import binary, reduce, selection, unary
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import product

from .context import AtenContext, Converter, dtype_of, rank_of, sizes_of
from .elementwise import truth

_PLAIN: Mapping[str, type[Op]] = MappingProxyType(
    {
        "all": reduce.All,
        "amax": reduce.Max,
        "amin": reduce.Min,
        "any": reduce.Any,
        "mean": reduce.Mean,
        "prod": reduce.Prod,
        "sum": reduce.Sum,
    }
)


def reduced(node: AtenContext, op: type[Op], x: Expr, axes: tuple[int, ...], *, keep: bool) -> Expr:
    """Reduce over axes; a number is itself."""
    if not axes:
        return x
    return node.call(op, x, attrs=reduce.Sum.Attrs(axes=axes, keepdims=keep))


def _reduction(node: AtenContext) -> Expr:
    x = node.tensor("self")
    op = _PLAIN[node.name]
    axes = node.axes("dim", rank_of(x))
    if node.name in ("all", "any"):
        found = reduced(node, op, truth(node, x), axes, keep=node.flag("keepdim"))
        return node.cast(found, node.dtype)
    if dtype_of(x) is DType.BOOL and node.name in ("amax", "amin"):
        op = {"amax": reduce.Any, "amin": reduce.All}[node.name]
    x = node.cast(x, node.dtype)
    return reduced(node, op, x, axes, keep=node.flag("keepdim"))


def _extreme(node: AtenContext) -> Expr | tuple[Expr, ...]:
    """``max`` and ``min``: of all, of one dimension with its places, or of two tensors."""
    x, is_max = node.tensor("self"), node.name == "max"
    if node.overload == "other":
        op = binary.Maximum if is_max else binary.Minimum
        return node.call(op, node.value("self", node.dtype), node.value("other", node.dtype))
    if dtype_of(x) is DType.BOOL:
        node.unsupported("truth values")
    op = reduce.Max if is_max else reduce.Min
    if "dim" not in node.args:
        return reduced(node, op, x, tuple(range(rank_of(x))), keep=False)
    axis, keep = node.axis("dim", rank_of(x)), node.flag("keepdim")
    places = node.onnx("ArgMax" if is_max else "ArgMin", x, axis=axis, keepdims=int(keep))
    return reduced(node, op, x, (axis,), keep=keep), node.cast(places, DType.INT64)


def _place(node: AtenContext) -> Expr:
    x, keep = node.tensor("self"), node.flag("keepdim")
    axis = 0
    if node.args.get("dim") is None:
        x = node.reshape(x, (product(sizes_of(x)),))
        keep = False
    else:
        axis = node.axis("dim", rank_of(x))
    op = "ArgMax" if node.name == "argmax" else "ArgMin"
    return node.cast(node.onnx(op, x, axis=axis, keepdims=int(keep)), node.dtype)


def _variance(node: AtenContext) -> Expr | tuple[Expr, ...]:
    """``var``, ``std`` and those that give the mean too."""
    x = node.tensor("self")
    axes, keep = node.axes("dim", rank_of(x)), node.flag("keepdim")
    middle = reduced(node, reduce.Mean, x, axes, keep=True)
    change = node.call(binary.Subtract, x, middle)
    square = node.call(binary.Multiply, change, change)
    total = reduced(node, reduce.Sum, square, axes, keep=keep)
    count = product([sizes_of(x)[axis] for axis in axes])
    given = node.args.get("correction", node.args.get("unbiased", 1))
    correction = 1 if given is None else given
    if not isinstance(correction, int | float) or correction != int(correction):
        node.unsupported(f"correction={correction}")
    made = node.call(binary.Divide, total, node.as_tensor(count - int(correction), node.dtype))
    if node.name.startswith("std"):
        made = node.call(unary.Sqrt, made)
    if not node.name.endswith("_mean"):
        return made
    return made, reduced(node, reduce.Mean, x, axes, keep=keep)


def _log_sum(node: AtenContext) -> Expr:
    x = node.cast(node.tensor("self"), node.dtype)
    axes = node.array(np.array(node.axes("dim", rank_of(x)), np.int64))
    return node.onnx("ReduceLogSumExp", x, axes, keepdims=int(node.flag("keepdim")))


def _norm(node: AtenContext) -> Expr:
    """``norm`` and ``linalg_vector_norm`` of order 1, 2 or infinity."""
    x = node.cast(node.tensor("self"), node.dtype)
    order = node.number("ord" if "ord" in node.args else "p", 2)
    axes, keep = node.axes("dim", rank_of(x)), node.flag("keepdim")
    if order == 2:
        total = reduced(node, reduce.Sum, node.call(binary.Multiply, x, x), axes, keep=keep)
        return node.call(unary.Sqrt, total)
    size = node.call(unary.Abs, x)
    if order == 1:
        return reduced(node, reduce.Sum, size, axes, keep=keep)
    if order != math.inf:
        node.unsupported(f"order {order}")
    return reduced(node, reduce.Max, size, axes, keep=keep)


def _running_sum(node: AtenContext) -> Expr:
    x = node.cast(node.tensor("self"), node.dtype)
    if rank_of(x) == 0:
        return x
    axis = np.array(node.axis("dim", rank_of(x)), np.int64)
    return node.onnx("CumSum" if node.name == "cumsum" else "CumProd", x, node.array(axis))


def _largest(node: AtenContext) -> tuple[Expr, ...]:
    x, is_top = node.tensor("self"), node.name == "topk"
    axis = node.axis("dim", rank_of(x))
    count = node.size("k") if is_top else sizes_of(x)[axis]
    largest = node.flag("largest" if is_top else "descending")
    attrs = selection.TopK.Attrs(count=extents([count])[0], axis=axis, largest=largest)
    found = node.call(selection.TopK, x, attrs=attrs)
    results = tuple(get_item(found, n, span=node.span) for n in range(2))
    return results[1:] if node.name == "argsort" else results


def _order(node: AtenContext) -> Expr:
    return _largest(node)[0]


def _count(node: AtenContext) -> Expr:
    x = node.tensor("self")
    ones = node.cast(truth(node, x), DType.INT64)
    return reduced(node, reduce.Sum, ones, node.axes("dim", rank_of(x)), keep=False)


_VARIANCES = ("std", "std_mean", "var", "var_mean")

CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **dict.fromkeys(_PLAIN, _reduction),
        **dict.fromkeys(_VARIANCES, _variance),
        **dict.fromkeys(("max", "min"), _extreme),
        **dict.fromkeys(("argmax", "argmin"), _place),
        **dict.fromkeys(("norm", "linalg_vector_norm"), _norm),
        **dict.fromkeys(("cumsum", "cumprod"), _running_sum),
        **dict.fromkeys(("sort", "topk"), _largest),
        "argsort": _order,
        "count_nonzero": _count,
        "logsumexp": _log_sum,
    }
)
