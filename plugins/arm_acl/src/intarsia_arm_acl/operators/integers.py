# SPDX-License-Identifier: Apache-2.0
"""Operators on integers that compute no products: rescaling, means, limits, tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.plugin.accelerator import (
    Code,
    DType,
    Match,
    PluginError,
    Support,
    constant,
    label_of,
    op,
    scalar,
    sizes,
    tensor_type,
)

from ..draft import AclDraft, AclTensor
from .normalization import accepts_softmax
from .quantized import QUANTIZED, quantized_result, quantized_value, supports_parameters
from .row import BYTES, AclRow, is_of_bytes


def _bytes_only(match: Match) -> Support:
    """Ask for operand and result of 8-bit integers."""
    for expr in (match.root.args[0], match.root):
        if tensor_type(expr).dtype not in BYTES:
            return Support.no(Code.UNSUPPORTED_DTYPE, f"{expr.type} has no 8-bit elements")
    return Support.yes()


def _supports_requantize(match: Match) -> Support:
    verdict = _bytes_only(match)
    return supports_parameters(match, 1, 2, 3, 4) if verdict else verdict


def _lower_requantize(draft: AclDraft, match: Match) -> AclTensor:
    value = quantized_value(draft, match, 0)
    result = quantized_result(draft, match, 3)
    label = label_of(match.root)
    return draft.add("NEQuantizationLayer", value, result, result=result, label=label)


def _supports_mean(match: Match) -> Support:
    verdict = _supports_requantize(match)
    if not verdict:
        return verdict
    attrs: Any = match.attrs
    if not attrs.axes:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "nothing is reduced")
    rank = len(sizes(match.root.args[0]))
    if rank > 4:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"rank {rank} is more than 4")
    if tensor_type(match.root).dtype is not tensor_type(match.root.args[0]).dtype:
        return Support.no(Code.UNSUPPORTED_DTYPE, "data and result have different types")
    return Support.yes()


def _lower_mean(draft: AclDraft, match: Match) -> AclTensor:
    """Dequantize, take the mean along one axis after the other, quantize."""
    attrs: Any = match.attrs
    label = label_of(match.root)
    value = quantized_value(draft, match, 0)
    real = draft.new_tensor(value.shape, DType.FLOAT32)
    value = draft.add("NEDequantizationLayer", value, real, result=real, label=label)
    for axis in sorted(attrs.axes, reverse=True):
        shape = tuple(1 if d == axis else size for d, size in enumerate(value.shape))
        mean = draft.new_tensor(shape, value.dtype)
        args = (value, mean, f"{len(shape) - 1 - axis}U", "ReductionOperation::MEAN_SUM", "true")
        value = draft.add("NEReductionOperation", *args, result=mean, label=label)
    result = quantized_result(draft, match, 3, shape=value.shape)
    draft.add("NEQuantizationLayer", value, result, result=result, label=label)
    return draft.view(result, sizes(match.root), label)


def _supports_softmax(match: Match) -> Support:
    verdict = _supports_requantize(match)
    if not verdict:
        return verdict
    dtype = tensor_type(match.root).dtype
    if dtype is not tensor_type(match.root.args[0]).dtype:
        return Support.no(Code.UNSUPPORTED_DTYPE, "data and result have different types")
    if len(sizes(match.root)) > 4:
        return Support.no(Code.UNSUPPORTED_SHAPE, "rank above 4")
    found = scalar(match.root.args[3]), scalar(match.root.args[4])
    wanted = (1 / 256, float(np.iinfo(dtype.value).min))
    if found != wanted:
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE,
            f"scale and zero point of the result are {found}, the library's are {wanted}",
        )
    return Support.yes()


def _lower_softmax(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    value = quantized_value(draft, match, 0)
    result = quantized_result(draft, match, 3)
    axis = str(len(value.shape) - 1 - attrs.axis)
    label = label_of(match.root)
    return draft.add("NESoftmaxLayer", value, result, "1.0f", axis, result=result, label=label)


def _supports_clip(match: Match) -> Support:
    attrs: Any = match.attrs
    limits = np.iinfo(tensor_type(match.root).dtype.value)
    low, high = max(attrs.min, limits.min), min(attrs.max, limits.max)
    if not low <= high or low != np.rint(low) or high != np.rint(high):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, f"limits {attrs.min} and {attrs.max} of integers"
        )
    return Support.yes()


def _lower_clip(draft: AclDraft, match: Match) -> AclTensor:
    """The larger of data and a constant, then the smaller: of integers, whatever they stand for."""
    attrs: Any = match.attrs
    value = draft.value(match.root.args[0])
    limits = np.iinfo(value.dtype.value)
    label = label_of(match.root)
    for function, limit, end in (
        ("NEElementwiseMax", attrs.min, limits.min),
        ("NEElementwiseMin", attrs.max, limits.max),
    ):
        if (limit > end) if end == limits.min else (limit < end):
            bound = draft.value(constant(np.full((1,), limit, value.dtype.value)))
            result = draft.new_tensor(value.shape, value.dtype)
            draft.relate(bound, value)
            draft.relate(result, value)
            value = draft.add(function, value, bound, result, result=result, label=label)
    return value


_NO_TABLES = "the library's functions of bytes are a few activations by name, none takes a table"


def _supports_lookup(_match: Match) -> Support:
    return Support.no(Code.UNSUPPORTED_OP, _NO_TABLES)


def _lower_lookup(_draft: AclDraft, match: Match) -> AclTensor:
    """Nothing is taken, so nothing is lowered."""
    raise PluginError(f"{label_of(match.root)}: {_NO_TABLES}")


ROWS = (
    AclRow(
        "qnn.requantize",
        op("qnn.requantize"),
        _lower_requantize,
        _supports_requantize,
        dtypes=QUANTIZED,
        doc="from 8 bits to 8 bits, scalar parameters",
    ),
    AclRow(
        "qnn.mean",
        op("qnn.mean"),
        _lower_mean,
        _supports_mean,
        dtypes=QUANTIZED,
        doc="rank 4 at most, data and result of one 8-bit type, scalar parameters",
    ),
    AclRow(
        "qnn.softmax",
        op("qnn.softmax"),
        _lower_softmax,
        _supports_softmax,
        dtypes=QUANTIZED,
        validates=accepts_softmax,
        doc="as nn.softmax; the result in steps of 1/256 from the smallest number on",
    ),
    AclRow(
        "clip of integers",
        op("clip", where=is_of_bytes),
        _lower_clip,
        _supports_clip,
        dtypes=BYTES,
        doc="whole limits",
    ),
    AclRow(
        "qnn.lookup",
        op("qnn.lookup"),
        _lower_lookup,
        _supports_lookup,
        dtypes=BYTES,
        doc=f"never: {_NO_TABLES}",
    ),
)
