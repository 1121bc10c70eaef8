# SPDX-License-Identifier: Apache-2.0
"""Operators on 8-bit integers with constant scales and zero points."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from intarsia.plugin.accelerator import (
    Call,
    Code,
    Constant,
    DType,
    Expr,
    Match,
    Optional,
    Pattern,
    Support,
    array_of,
    extents,
    label_of,
    op,
    tensor_type,
)

from ..draft import DnnlDraft
from ..program import PostOp
from .row import STORED, DnnlRow, shape_text

Array = np.ndarray[Any, np.dtype[Any]]

_BYTES = (DType.INT8, DType.UINT8)


def _limited(pattern: Pattern) -> Pattern:
    return op("clip", pattern)


def _inner(match: Match) -> Call:
    """Return the quantized call: the only one but for limits around it."""
    return match.calls[0]


def _is_byte(expr: Expr) -> bool:
    return tensor_type(expr).dtype in _BYTES


def _refused(call: Call, first: int) -> Support | None:
    """Refuse operands from ``first`` on that are not constant, and data that is not 8-bit."""
    for index, arg in enumerate(call.args[first:], start=first):
        if not isinstance(arg, Constant):
            return Support.no(
                Code.UNSUPPORTED_ATTRIBUTE,
                f"argument {index} of {call.name} must be known at compile time",
            )
    if not _is_byte(call.args[0]) or not _is_byte(call):
        return Support.no(Code.UNSUPPORTED_DTYPE, f"{call.name} of and to 8-bit integers only")
    return None


def _symmetric(weight: Array, zero: Array, axis: int) -> Array | None:
    """Return ``weight - zero`` in int8 if it fits."""
    along = [1] * weight.ndim
    along[axis] = -1
    moved = weight.astype(np.int32) - zero.astype(np.int32).reshape(along if zero.ndim else ())
    fits = moved.size == 0 or (moved.min() >= -128 and moved.max() <= 127)
    return moved.astype(np.int8) if fits else None


def _supports_linear(match: Match, axis: int) -> Support:
    call = _inner(match)
    refused = _refused(call, 1)
    if refused is not None:
        return refused
    if _symmetric(array_of(call.args[3]), array_of(call.args[5]), axis) is None:
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, "weights less their zero point do not fit in int8"
        )
    return Support.yes()


def _supports_conv(match: Match) -> Support:
    rank = len(extents(match.root))
    if not 3 <= rank <= 5:
        return Support.no(
            Code.UNSUPPORTED_SHAPE, f"{rank - 2}-dimensional convolution (1 to 3 are)"
        )
    return _supports_linear(match, 0)


def _supports_matmul(match: Match) -> Support:
    call = _inner(match)
    attrs: Any = call.attrs
    if attrs.transpose_a or len(extents(call.args[3])) != 2:
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, "only products of rows and one constant matrix are taken"
        )
    return _supports_linear(match, 0 if attrs.transpose_b else 1)


def _factor(call: Call) -> Array:
    """Return what takes the accumulator to the units of the result, for each channel."""
    x_scale, w_scale, y_scale = (array_of(call.args[index]) for index in (1, 4, 6))
    return np.asarray((x_scale * w_scale) / y_scale, np.float32).reshape(-1)


def _linear(
    draft: DnnlDraft, match: Match, kind: str, data: int, weight: Array, numbers: Any
) -> int:
    """Append a convolution or product with its scales, bias, zero points and limits."""
    call = _inner(match)
    factor = _factor(call)
    args = [data, draft.constant(weight), draft.constant(factor)]
    _, _, x_zero, _, _, _, _, y_zero, *more = call.args
    if more:
        bias = array_of(more[0]).astype(np.float64) * factor.astype(np.float64)
        args.append(draft.constant(bias.astype(np.float32)))
    zero = int(array_of(y_zero))
    attrs = {**numbers, "src_zero": int(array_of(x_zero)), "dst_zero": zero}
    shape = extents(call)
    if kind == "qmatmul":
        shape = (prod(shape[:-1]), shape[-1])
    dtype = tensor_type(call).dtype
    result = draft.add(kind, tuple(args), shape, attrs, label=label_of(call), dtype=dtype.value)
    if match.root is not call:
        limits, bounds = np.iinfo(dtype.value), _bounds(match.root)
        low, high = max(bounds[0], limits.min) - zero, min(bounds[1], limits.max) - zero
        draft.then(PostOp("eltwise", "clip_v2", float(low), float(high)))
    return draft.view(result, extents(match.root))


def _bounds(call: Call) -> tuple[float, float]:
    attrs: Any = call.attrs
    return attrs.min, attrs.max


def _lower_conv(draft: DnnlDraft, match: Match) -> int:
    call = _inner(match)
    attrs: Any = call.attrs
    weight = _symmetric(array_of(call.args[3]), array_of(call.args[5]), 0)
    numbers = {
        "strides": attrs.strides,
        "dilation": attrs.dilation,
        "padding_low": tuple(low for low, _ in attrs.padding),
        "padding_high": tuple(high for _, high in attrs.padding),
        "groups": attrs.groups,
    }
    return _linear(draft, match, "qconv", draft.value(call.args[0]), _known(weight), numbers)


def _supports_deconv(match: Match) -> Support:
    call = match.root
    attrs: Any = call.attrs
    rank = len(extents(call))
    if not 3 <= rank <= 5:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"{rank - 2} spatial dimensions (1 to 3 are)")
    if attrs.groups != 1:
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, f"groups={attrs.groups}: the library's kernel is slow"
        )
    extra = attrs.output_padding or (0,) * (rank - 2)
    pads = zip(attrs.padding, extra, strict=True)
    if any(low < 0 or high < more for (low, high), more in pads):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, "padding, less output padding, that adds to the result"
        )
    return _supports_linear(match, 1)


def _lower_deconv(draft: DnnlDraft, match: Match) -> int:
    call = match.root
    attrs: Any = call.attrs
    weight = _known(_symmetric(array_of(call.args[3]), array_of(call.args[5]), 1))
    extra = attrs.output_padding or (0,) * len(attrs.strides)
    numbers = {
        "strides": attrs.strides,
        "dilation": attrs.dilation,
        "padding_low": tuple(low for low, _ in attrs.padding),
        "padding_high": tuple(
            high - more for (_, high), more in zip(attrs.padding, extra, strict=True)
        ),
        "groups": 1,
    }
    return _linear(draft, match, "qdeconv", draft.value(call.args[0]), weight, numbers)


def _lower_matmul(draft: DnnlDraft, match: Match) -> int:
    call = _inner(match)
    attrs: Any = call.attrs
    axis = 0 if attrs.transpose_b else 1
    weight = _known(_symmetric(array_of(call.args[3]), array_of(call.args[5]), axis))
    matrix = np.ascontiguousarray(weight.T) if attrs.transpose_b else weight
    shape = extents(call.args[0])
    rows = draft.view(draft.value(call.args[0]), (prod(shape[:-1]), shape[-1]))
    return _linear(draft, match, "qmatmul", rows, matrix, {})


def _known(weight: Array | None) -> Array:
    if weight is None:
        raise AssertionError("the predicate has looked at the weights")
    return weight


def _supports_add(match: Match) -> Support:
    call = _inner(match)
    parameters = [call.args[index] for index in (1, 2, 4, 5, 6, 7)]
    if not all(isinstance(arg, Constant) for arg in parameters):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, "scales and zero points must be known at compile time"
        )
    if not all(_is_byte(expr) for expr in (call.args[0], call.args[3], call)):
        return Support.no(Code.UNSUPPORTED_DTYPE, f"{call.name} of and to 8-bit integers only")
    if extents(call.args[0]) != extents(call) or extents(call.args[3]) != extents(call):
        return Support.no(Code.UNSUPPORTED_SHAPE, "operands that broadcast are not taken")
    return Support.yes()


def _lower_add(draft: DnnlDraft, match: Match) -> int:
    """``a * (as / ys) + b * (bs / ys) + (yz - az * as / ys - bz * bs / ys)``, or less ``b``."""
    call = _inner(match)
    numbers = [float(array_of(call.args[index])) for index in (1, 2, 4, 5, 6, 7)]
    a_scale, a_zero, b_scale, b_zero, y_scale, y_zero = numbers
    sign = -1.0 if call.name == "qnn.subtract" else 1.0
    left, right = a_scale / y_scale, sign * b_scale / y_scale
    scales = [draft.constant(np.asarray([value], np.float32)) for value in (left, right)]
    args = (draft.value(call.args[0]), draft.value(call.args[3]), *scales)
    dtype = tensor_type(call).dtype.value
    result = draft.add("qadd", args, extents(call), label=label_of(call), dtype=dtype)
    shift = y_zero - a_zero * left - b_zero * right
    draft.then(PostOp("eltwise", "linear", 1.0, shift))
    if match.root is not call:
        limits, bounds = np.iinfo(dtype), _bounds(match.root)
        low, high = max(bounds[0], limits.min), min(bounds[1], limits.max)
        draft.then(PostOp("eltwise", "clip_v2", float(low), float(high)))
    return result


def _supports_mean(match: Match) -> Support:
    call = match.root
    refused = _refused(call, 1)
    if refused is not None:
        return refused
    attrs: Any = call.attrs
    rank = len(extents(call.args[0]))
    if tensor_type(call).dtype is not tensor_type(call.args[0]).dtype:
        return Support.no(Code.UNSUPPORTED_DTYPE, "the mean and the data must have one type")
    if not 3 <= rank <= 5 or attrs.axes != tuple(range(2, rank)):
        return Support.no(Code.UNSUPPORTED_SHAPE, "only the mean over all spatial axes is taken")
    return Support.yes()


def _lower_mean(draft: DnnlDraft, match: Match) -> int:
    call = match.root
    shape = extents(call.args[0])
    ones, none = (1,) * (len(shape) - 2), (0,) * (len(shape) - 2)
    numbers = {"kernel": shape[2:], "strides": ones, "padding_low": none, "padding_high": none}
    return draft.view(_mean(draft, call, (*shape[:2], *ones), numbers), extents(call))


def _mean(draft: DnnlDraft, call: Call, shape: tuple[int, ...], numbers: Any) -> int:
    """Append a mean over windows that takes its result to other units."""
    scale, zero, y_scale, y_zero = (float(array_of(arg)) for arg in call.args[1:])
    value, dtype = draft.value(call.args[0]), tensor_type(call).dtype.value
    result = draft.add("qmean", (value,), shape, numbers, label=label_of(call), dtype=dtype)
    factor = scale / y_scale
    draft.then(PostOp("eltwise", "linear", factor, y_zero - zero * factor))
    return result


def _supports_layer_norm(match: Match) -> Support:
    call = match.root
    refused = _refused(call, 1)
    if refused is not None:
        return refused
    attrs: Any = call.attrs
    inner = prod(extents(call)[attrs.axis :])
    for arg in call.args[5:]:
        if prod(extents(arg)) != inner:
            return Support.no(
                Code.UNSUPPORTED_SHAPE,
                f"scale or bias of shape {shape_text(extents(arg))} is broadcast",
            )
    return Support.yes()


def _lower_layer_norm(draft: DnnlDraft, match: Match) -> int:
    """Neither the scale of the data nor its zero point matters, but to ``epsilon``."""
    call = match.root
    attrs: Any = call.attrs
    shape = extents(call)
    outer, inner = prod(shape[: attrs.axis]), prod(shape[attrs.axis :])
    scale, _, y_scale, y_zero = (float(array_of(arg)) for arg in call.args[1:5])
    gamma, *beta = (array_of(arg).reshape(inner).astype(np.float64) for arg in call.args[5:])
    shift = (beta[0] if beta else np.zeros(inner)) / y_scale + y_zero
    weights = [draft.constant(part.astype(np.float32)) for part in (gamma / y_scale, shift)]
    args = (draft.view(draft.value(call.args[0]), (outer, inner)), *weights)
    numbers = {"epsilon": attrs.epsilon / scale**2}
    dtype, label = tensor_type(call).dtype.value, label_of(call)
    result = draft.add("layer_norm", args, (outer, inner), numbers, label=label, dtype=dtype)
    return draft.view(result, shape)


def _supports_avg_pool(match: Match) -> Support:
    call = match.root
    refused = _refused(call, 1)
    if refused is not None:
        return refused
    attrs: Any = call.attrs
    rank = len(extents(call.args[0]))
    if tensor_type(call).dtype is not tensor_type(call.args[0]).dtype:
        return Support.no(Code.UNSUPPORTED_DTYPE, "the mean and the data must have one type")
    if not 3 <= rank <= 5:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"rank {rank} (3 to 5 are)")
    if attrs.ceil_mode or any(step != 1 for step in attrs.dilation):
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "dilation or ceil_mode")
    if any(max(pair) >= size for pair, size in zip(attrs.padding, attrs.kernel, strict=True)):
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "padding as large as the window")
    if attrs.count_include_pad and any(max(pair) for pair in attrs.padding):
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "padding that is counted")
    return Support.yes()


def _lower_avg_pool(draft: DnnlDraft, match: Match) -> int:
    attrs: Any = match.root.attrs
    numbers = {
        "kernel": attrs.kernel,
        "strides": attrs.strides,
        "padding_low": tuple(low for low, _ in attrs.padding),
        "padding_high": tuple(high for _, high in attrs.padding),
    }
    return _mean(draft, match.root, extents(match.root), numbers)


def _supports_requantize(match: Match) -> Support:
    refused = _refused(match.root, 1)
    if refused is not None:
        return refused
    if any(array_of(arg).size > 1 for arg in match.root.args[1:]):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, "only constant scalar scales and zero points are taken"
        )
    return Support.yes()


def _lower_requantize(draft: DnnlDraft, match: Match) -> int:
    call = match.root
    scale, zero, y_scale, y_zero = (array_of(arg).reshape(-1) for arg in call.args[1:])
    factor = draft.constant(np.asarray(scale / y_scale, np.float32))
    attrs = {"src_zero": int(zero[0]), "dst_zero": int(y_zero[0])}
    args, dtype = (draft.value(call.args[0]), factor), tensor_type(call).dtype.value
    return draft.add("convert", args, extents(call), attrs, label=label_of(call), dtype=dtype)


def _supports_convert(match: Match) -> Support:
    call = match.root
    if not all(isinstance(arg, Constant) and arg.data.size == 1 for arg in call.args[1:]):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, "only constant scalar scales and zero points are taken"
        )
    types = {tensor_type(call).dtype, tensor_type(call.args[0]).dtype}
    if DType.FLOAT32 not in types or types.isdisjoint(_BYTES):
        return Support.no(Code.UNSUPPORTED_DTYPE, "only between float32 and 8-bit integers")
    return Support.yes()


def _lower_convert(draft: DnnlDraft, match: Match) -> int:
    call = match.root
    scale, zero = array_of(call.args[1]).reshape(1), int(array_of(call.args[2]).reshape(()))
    back = call.name == "qnn.quantize"
    factor = draft.constant(np.asarray(1 / scale if back else scale, np.float32))
    attrs = {"src_zero": 0 if back else zero, "dst_zero": zero if back else 0}
    value = draft.value(call.args[0])
    dtype = tensor_type(call).dtype.value
    return draft.add(
        "convert", (value, factor), extents(call), attrs, label=label_of(call), dtype=dtype
    )


PRODUCTS = frozenset({"qnn.conv", "qnn.conv_transpose", "qnn.matmul"})
"""Rows whose kernels are exact on some processors only."""

_PARAMETERS = "constant scalar scales and zero points"
_WEIGHTS = "constant weights that fit in int8 less their zero point, one scale or one a channel"

ROWS = (
    DnnlRow(
        "qnn.conv",
        Optional(op("qnn.conv"), _limited),
        _lower_conv,
        _supports_conv,
        dtypes=STORED,
        checks_dtypes=False,
        doc=f"1 to 3 spatial dimensions; {_WEIGHTS}; limits behind it",
    ),
    DnnlRow(
        "qnn.matmul",
        Optional(op("qnn.matmul"), _limited),
        _lower_matmul,
        _supports_matmul,
        dtypes=STORED,
        checks_dtypes=False,
        doc=f"rows times a matrix; {_WEIGHTS}; limits behind it",
    ),
    *(
        DnnlRow(
            name,
            Optional(op(name), _limited),
            _lower_add,
            _supports_add,
            dtypes=STORED,
            checks_dtypes=False,
            doc=f"operands of one shape; {_PARAMETERS}; limits behind it",
        )
        for name in ("qnn.add", "qnn.subtract")
    ),
    DnnlRow(
        "qnn.conv_transpose",
        op("qnn.conv_transpose"),
        _lower_deconv,
        _supports_deconv,
        dtypes=STORED,
        checks_dtypes=False,
        doc=f"1 to 3 spatial dimensions, one group; {_WEIGHTS}",
    ),
    DnnlRow(
        "qnn.layer_norm",
        op("qnn.layer_norm"),
        _lower_layer_norm,
        _supports_layer_norm,
        dtypes=STORED,
        checks_dtypes=False,
        doc=f"{_PARAMETERS}; constant scale and bias of all normalized elements",
    ),
    DnnlRow(
        "qnn.mean",
        op("qnn.mean"),
        _lower_mean,
        _supports_mean,
        dtypes=STORED,
        checks_dtypes=False,
        doc=f"over all spatial axes, to the type of the data; {_PARAMETERS}",
    ),
    DnnlRow(
        "qnn.avg_pool",
        op("qnn.avg_pool"),
        _lower_avg_pool,
        _supports_avg_pool,
        dtypes=STORED,
        checks_dtypes=False,
        doc="1 to 3 spatial dimensions, to the type of the data; no dilation, ceil_mode or"
        f" counted padding; {_PARAMETERS}",
    ),
    DnnlRow(
        "qnn.requantize",
        op("qnn.requantize"),
        _lower_requantize,
        _supports_requantize,
        dtypes=STORED,
        checks_dtypes=False,
        doc=f"from 8 bits to 8 bits; {_PARAMETERS}",
    ),
    *(
        DnnlRow(
            name,
            op(name),
            _lower_convert,
            _supports_convert,
            dtypes=STORED,
            checks_dtypes=False,
            doc=f"float32 and 8 bits; {_PARAMETERS}",
        )
        for name in ("qnn.quantize", "qnn.dequantize")
    ),
    DnnlRow.refused(
        "qnn.softmax", "the library's softmax of bytes is many steps off, and no faster"
    ),
    DnnlRow.refused("qnn.multiply", "the library has no product of two tensors with zero points"),
    DnnlRow.refused("qnn.lookup", "the library has no tables"),
    *(
        DnnlRow.refused(name, "no 32-bit sums are taken: an integer of a region is a byte")
        for name in ("qnn.conv_integer", "qnn.matmul_integer")
    ),
)
