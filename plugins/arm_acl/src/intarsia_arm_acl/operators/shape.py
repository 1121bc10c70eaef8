# SPDX-License-Identifier: Apache-2.0
"""Reshape, transpose, slice, concatenate, pad, resize, and channels as squares of pixels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intarsia.plugin.accelerator import (
    Code,
    DType,
    Match,
    Support,
    label_of,
    op,
    sizes,
    tensor_type,
)

from ..draft import AclDraft, AclTensor, naturals, real
from .row import MOVED, PICKED, AclRow


def _lower_reshape(draft: AclDraft, match: Match) -> AclTensor:
    return draft.view(draft.value(match.root.args[0]), sizes(match.root), label_of(match.root))


def permutation(order: tuple[int, ...]) -> str:
    """Return a permutation, innermost first, as the library takes it: of three axes or more."""
    return f"PermutationVector({naturals((*order, *range(len(order), 3)))})"


def _like(draft: AclDraft, value: AclTensor, shape: tuple[int, ...]) -> AclTensor:
    """Return a new tensor of another shape whose elements mean the same."""
    result = draft.new_tensor(shape, value.dtype)
    draft.relate(result, value)
    return result


def _supports_transpose(match: Match) -> Support:
    if len(sizes(match.root)) > 4:
        return Support.no(Code.UNSUPPORTED_SHAPE, "rank above 4")
    return Support.yes()


def _lower_transpose(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    value = draft.value(match.root.args[0])
    last = len(attrs.axes) - 1
    if attrs.axes == tuple(range(last + 1)):
        return value
    # The library counts from the innermost axis, in the vector and in its entries.
    order = tuple(last - axis for axis in reversed(attrs.axes))
    result = _like(draft, value, sizes(match.root))
    vector = permutation(order)
    label = label_of(match.root)
    return draft.add("NEPermute", value, result, vector, result=result, label=label)


def _supports_slice(match: Match) -> Support:
    attrs: Any = match.attrs
    if any(stride != 1 for stride in attrs.strides):
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"strides {attrs.strides}, only 1 is taken")
    if len(sizes(match.root)) > 4:
        return Support.no(Code.UNSUPPORTED_SHAPE, "rank above 4")
    return Support.yes()


def _lower_slice(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    value = draft.value(match.root.args[0])
    shape = sizes(match.root)
    if shape == value.shape:
        return value
    # The library takes no more places than axes, and outer axes of size 1 are none to it.
    rank = max(1, len(value.shape) - _leading_ones(value.shape))
    starts = attrs.begin[::-1][:rank]
    ends = tuple(begin + size for begin, size in zip(attrs.begin, shape, strict=True))[::-1][:rank]
    result = _like(draft, value, shape)
    places = (f"Coordinates({', '.join(map(str, place))})" for place in (starts, ends))
    label = label_of(match.root)
    return draft.add("NESlice", value, result, *places, result=result, label=label)


def _leading_ones(shape: tuple[int, ...]) -> int:
    return next((n for n, size in enumerate(shape) if size != 1), len(shape))


def _supports_concatenate(match: Match) -> Support:
    if len(sizes(match.root)) > 4:
        return Support.no(Code.UNSUPPORTED_SHAPE, "rank above 4")
    return Support.yes()


def _lower_concatenate(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    parts = tuple(draft.value(arg) for arg in match.root.args)
    if len(parts) == 1:
        return parts[0]
    result = _like(draft, parts[0], sizes(match.root))
    for part in parts:
        draft.relate(part, result)
    axis = f"{len(result.shape) - 1 - attrs.axis}U"
    label = label_of(match.root)
    return draft.add("NEConcatenateLayer", parts, result, axis, result=result, label=label)


def _supports_pad(match: Match) -> Support:
    attrs: Any = match.attrs
    if attrs.mode != "constant":
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"mode {attrs.mode}, only constant is taken")
    if min(min(pair) for pair in attrs.widths) < 0:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"negative widths {attrs.widths}")
    if len(sizes(match.root)) > 4:
        return Support.no(Code.UNSUPPORTED_SHAPE, "rank above 4")
    dtype = tensor_type(match.root).dtype
    if dtype.is_integer and not _fits(attrs.value, dtype):
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"value {attrs.value} is not one of {dtype}")
    if not math.isfinite(attrs.value):
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"value {attrs.value} is not finite")
    return Support.yes()


def _fits(value: float, dtype: DType) -> bool:
    limits = np.iinfo(dtype.value)
    return value == np.rint(value) and limits.min <= value <= limits.max


def _pixel(value: float, dtype: DType) -> str:
    """Return a padding value; integers are given as they are, not as what they stand for."""
    if dtype is DType.FLOAT16:
        return f"PixelValue({value!r}, DataType::F16)"
    if dtype is DType.FLOAT32:
        return f"PixelValue({real(value)})"
    return f"PixelValue(static_cast<{dtype.value}_t>({int(value)}))"


def _lower_pad(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    value = draft.value(match.root.args[0])
    if sizes(match.root) == value.shape:
        return value
    result = _like(draft, value, sizes(match.root))
    pairs = ", ".join(f"{{ {low}U, {high}U }}" for low, high in reversed(attrs.widths))
    args = (f"PaddingList{{ {pairs} }}", _pixel(attrs.value, value.dtype))
    return draft.add("NEPadLayer", value, result, *args, result=result, label=label_of(match.root))


def _supports_resize(match: Match) -> Support:
    attrs: Any = match.attrs
    source, result = sizes(match.root.args[0]), sizes(match.root)
    if attrs.mode not in ("nearest", "linear"):
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"mode {attrs.mode}")
    if len(source) != 4 or source[:2] != result[:2]:
        return Support.no(
            Code.UNSUPPORTED_SHAPE,
            f"{list(source)} to {list(result)}: only two spatial axes are resized",
        )
    pairs = list(zip(source, result, strict=True))
    if attrs.scales and any(
        abs(scale * of - to) > 1e-4 for scale, (of, to) in zip(attrs.scales, pairs, strict=True)
    ):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, f"scales {attrs.scales} do not give whole sizes"
        )
    rule = (attrs.mode, attrs.coordinate_mode)
    if rule == ("linear", "half_pixel"):
        return Support.yes()
    # With whole factors the library's rounding and the operator's agree.
    whole = all(to % of == 0 for of, to in pairs)
    if whole and rule == ("nearest", "asymmetric") and attrs.nearest_mode == "floor":
        return Support.yes()
    return Support.no(
        Code.UNSUPPORTED_ATTRIBUTE,
        f"{', '.join((*rule, attrs.nearest_mode))} from {list(source)} to {list(result)}",
    )


_SCALE_RULES = {"linear": ("BILINEAR", "CENTER"), "nearest": ("NEAREST_NEIGHBOR", "TOP_LEFT")}


def _lower_resize(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    value = draft.value(match.root.args[0])
    result = _like(draft, value, sizes(match.root))
    rule = _SCALE_RULES[attrs.mode]
    info = (
        f"ScaleKernelInfo(InterpolationPolicy::{rule[0]}, BorderMode::REPLICATE, PixelValue(), "
        f"SamplingPolicy::{rule[1]}, SCALE_PADS)"
    )
    return draft.add("NEScale", value, result, info, result=result, label=label_of(match.root))


def _supports_block(match: Match) -> Support:
    attrs: Any = match.attrs
    if attrs.block < 2:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "the library takes blocks of 2 and more")
    return Support.yes()


def _supports_depth_to_space(match: Match) -> Support:
    attrs: Any = match.attrs
    if attrs.mode != "DCR":
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"mode {attrs.mode}, only DCR is taken")
    return _supports_block(match)


_BLOCKS = {"nn.depth_to_space": "NEDepthToSpaceLayer", "nn.space_to_depth": "NESpaceToDepthLayer"}


def _lower_blocks(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    value = draft.value(match.root.args[0])
    result = _like(draft, value, sizes(match.root))
    function, block = _BLOCKS[match.root.name], f"{attrs.block}"
    return draft.add(function, value, result, block, result=result, label=label_of(match.root))


ROWS = (
    AclRow("reshape", op("reshape"), _lower_reshape, dtypes=MOVED),
    AclRow(
        "transpose",
        op("transpose"),
        _lower_transpose,
        _supports_transpose,
        dtypes=MOVED,
        doc="rank 4 at most",
    ),
    AclRow(
        "strided_slice",
        op("strided_slice"),
        _lower_slice,
        _supports_slice,
        dtypes=MOVED,
        doc="strides of 1, rank 4 at most",
    ),
    AclRow(
        "concatenate",
        op("concatenate"),
        _lower_concatenate,
        _supports_concatenate,
        dtypes=MOVED,
        doc="rank 4 at most",
    ),
    AclRow(
        "nn.pad",
        op("nn.pad"),
        _lower_pad,
        _supports_pad,
        dtypes=MOVED,
        doc="constant, rank 4 at most",
    ),
    AclRow(
        "nn.resize",
        op("nn.resize"),
        _lower_resize,
        _supports_resize,
        dtypes=PICKED,
        doc="linear with half_pixel; nearest with asymmetric, floor and whole factors",
    ),
    AclRow(
        "nn.depth_to_space",
        op("nn.depth_to_space"),
        _lower_blocks,
        _supports_depth_to_space,
        dtypes=MOVED,
        doc="blocks of 2 and more, mode DCR",
    ),
    AclRow(
        "nn.space_to_depth",
        op("nn.space_to_depth"),
        _lower_blocks,
        _supports_block,
        dtypes=MOVED,
        doc="blocks of 2 and more",
    ),
)
