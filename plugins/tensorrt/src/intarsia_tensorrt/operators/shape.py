# SPDX-License-Identifier: Apache-2.0
"""Operators that only move elements, and those that resample them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from intarsia.plugin.accelerator import Call, DType, Support, operator_row, sizes

from ..draft import NetworkDraft, Tensor, member
from .row import BYTES, MOVED, NUMBERS, NetworkRow, attribute, shape

_VIEWED = (*MOVED, *BYTES)


def _lower_reshape(draft: NetworkDraft, call: Call) -> Tensor:
    return draft.reshape(draft.value(call.args[0]), sizes(call))


def _lower_transpose(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    return draft.transpose(draft.value(call.args[0]), attrs.axes)


def _lower_concatenate(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    layer = draft.network.add_concatenation([draft.value(arg) for arg in call.args])
    if layer is None:
        raise draft.refused()
    layer.axis = attrs.axis
    return draft.output_of(layer)


def _lower_split(draft: NetworkDraft, call: Call) -> tuple[Tensor, ...]:
    """One slice for each part."""
    attrs: Any = call.attrs
    x = draft.value(call.args[0])
    parts: list[Tensor] = []
    start, shape = [0] * len(draft.shape_of(x)), list(draft.shape_of(x))
    for size in attrs.sections:
        shape[attrs.axis] = size
        parts.append(draft.slice(x, start, shape, (1,) * len(shape)))
        start[attrs.axis] += size
    return tuple(parts)


def _lower_slice(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    return draft.slice(draft.value(call.args[0]), attrs.begin, sizes(call), attrs.strides)


def _lower_broadcast(draft: NetworkDraft, call: Call) -> Tensor:
    """Slice with a stride of 0 along what is repeated."""
    whole = sizes(call)
    x = draft.expand(draft.value(call.args[0]), len(whole))
    repeated = zip(draft.shape_of(x), whole, strict=True)
    strides = tuple(int(old == new) for old, new in repeated)
    return draft.slice(x, (0,) * len(whole), whole, strides)


def _lower_flip(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    whole = sizes(call)
    start = tuple(n - 1 if axis in attrs.axes else 0 for axis, n in enumerate(whole))
    strides = tuple(-1 if axis in attrs.axes else 1 for axis in range(len(whole)))
    return draft.slice(draft.value(call.args[0]), start, whole, strides)


def _lower_copy(draft: NetworkDraft, call: Call) -> Tensor:
    return draft.output_of(draft.network.add_identity(draft.value(call.args[0])))


_MODES = MappingProxyType(
    {"constant": "FILL", "edge": "CLAMP", "reflect": "REFLECT", "wrap": "WRAP"}
)


def _supports_ranked(call: Call) -> Support:
    return Support.yes() if sizes(call.args[0]) else shape("a scalar has no dimension to work on")


def _supports_pad(call: Call) -> Support:
    attrs: Any = call.attrs
    if attrs.mode != "constant" and any(min(pair) < 0 < max(pair) for pair in attrs.widths):
        return attribute(f"mode {attrs.mode} that cuts one end and grows the other")
    if attrs.mode == "wrap" and any(
        max(pair) > n for pair, n in zip(attrs.widths, sizes(call.args[0]), strict=True)
    ):
        return attribute("mode wrap by more than the tensor holds")
    return _supports_ranked(call)


def _lower_pad(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    x = draft.value(call.args[0])
    start = tuple(-low for low, _ in attrs.widths)
    ones = (1,) * len(start)
    fill = attrs.value if attrs.mode == "constant" else None
    return draft.slice(x, start, sizes(call), ones, _MODES[attrs.mode], fill)


_COORDINATES = MappingProxyType(
    {
        "half_pixel": "HALF_PIXEL",
        "pytorch_half_pixel": "HALF_PIXEL",
        "align_corners": "ALIGN_CORNERS",
        "asymmetric": "ASYMMETRIC",
    }
)
_ROUNDING = MappingProxyType(
    {
        "round_prefer_floor": "HALF_DOWN",
        "round_prefer_ceil": "HALF_UP",
        "floor": "FLOOR",
        "ceil": "CEIL",
    }
)


def _supports_resize(call: Call) -> Support:
    attrs: Any = call.attrs
    source, result = sizes(call.args[0]), sizes(call)
    if attrs.coordinate_mode not in _COORDINATES:
        return attribute(f"coordinates {attrs.coordinate_mode}")
    axes = [axis for axis, (a, b) in enumerate(zip(source, result, strict=True)) if a != b]
    inner = 2 if attrs.mode == "cubic" else 3
    if len(source) < 3 or any(axis < max(2, len(source) - inner) for axis in axes):
        return shape(f"{list(source)} to {list(result)}: only spatial axes are resized")
    pairs = zip(attrs.scales, source, result, strict=True) if attrs.scales else ()
    if any(abs(scale * old - new) > 1e-4 for scale, old, new in pairs):
        return attribute(f"scales {attrs.scales} that do not give whole sizes")
    if attrs.mode == "cubic" and attrs.exclude_outside:
        return attribute("cubic that gives no weight to what lies outside")
    ones = [axis for axis in axes if result[axis] == 1 or source[axis] == 1]
    if ones and attrs.coordinate_mode != "half_pixel":
        return attribute(f"{attrs.coordinate_mode} from or to one element")
    return Support.yes()


def _lower_resize(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    x = draft.value(call.args[0])
    whole = None if draft.batch is None else draft.shape_tensor(x, sizes(call))
    layer = draft.network.add_resize(x)
    if whole is None:
        layer.shape = sizes(call)
    else:
        layer.set_input(1, whole)
    layer.resize_mode = member(draft.trt.InterpolationMode, attrs.mode.upper())
    transformation = _COORDINATES[attrs.coordinate_mode]
    layer.coordinate_transformation = member(
        draft.trt.ResizeCoordinateTransformation, transformation
    )
    if attrs.mode == "nearest":
        layer.nearest_rounding = member(draft.trt.ResizeRoundMode, _ROUNDING[attrs.nearest_mode])
    if attrs.mode == "cubic":
        layer.cubic_coeff = attrs.cubic_a
    return draft.output_of(layer)


def _lower_depth_to_space(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    n, c, h, w = sizes(call.args[0])
    b, kept = attrs.block, c // attrs.block**2
    x = draft.value(call.args[0])
    if attrs.mode == "DCR":
        moved = draft.transpose(draft.reshape(x, (n, b, b, kept, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        moved = draft.transpose(draft.reshape(x, (n, kept, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return draft.reshape(moved, sizes(call))


def _lower_space_to_depth(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    n, c, h, w = sizes(call.args[0])
    b = attrs.block
    x = draft.reshape(draft.value(call.args[0]), (n, c, h // b, b, w // b, b))
    return draft.reshape(draft.transpose(x, (0, 3, 5, 1, 2, 4)), sizes(call))


ROWS = (
    operator_row("reshape", _lower_reshape, dtypes=_VIEWED),
    operator_row(
        "transpose", _lower_transpose, _supports_ranked, dtypes=_VIEWED, doc="not of a scalar"
    ),
    operator_row("concatenate", _lower_concatenate, dtypes=_VIEWED),
    operator_row(
        "strided_slice", _lower_slice, _supports_ranked, dtypes=MOVED, doc="not of a scalar"
    ),
    operator_row("broadcast_to", _lower_broadcast, dtypes=MOVED),
    operator_row("flip", _lower_flip, _supports_ranked, dtypes=MOVED, doc="not of a scalar"),
    operator_row("copy", _lower_copy, dtypes=_VIEWED),
    operator_row("nn.pad", _lower_pad, _supports_pad, dtypes=NUMBERS, doc="not of a scalar"),
    operator_row(
        "nn.resize",
        _lower_resize,
        _supports_resize,
        doc="spatial axes, three (cubic: two) at most; not half_pixel_symmetric",
    ),
    operator_row("nn.depth_to_space", _lower_depth_to_space, dtypes=(*NUMBERS, DType.BOOL)),
    operator_row("nn.space_to_depth", _lower_space_to_depth, dtypes=(*NUMBERS, DType.BOOL)),
    operator_row("split", _lower_split, dtypes=MOVED),
    NetworkRow.refused("full", "it has no operand: constants are folded before"),
    NetworkRow.refused("arange", "it has no operand: constants are folded before"),
)
