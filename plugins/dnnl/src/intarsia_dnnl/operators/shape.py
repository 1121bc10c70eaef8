# SPDX-License-Identifier: Apache-2.0
"""Views of the same memory, concatenation and resampling."""

from __future__ import annotations

from typing import Any

from intarsia.plugin.accelerator import (
    Code,
    Match,
    Support,
    extents,
    label_of,
    op,
    tensor_type,
)

from ..draft import DnnlDraft
from .row import STORED, DnnlRow, shape_text


def moves(match: Match) -> Support:
    """Take what moves elements of the types that the library has, all of one type."""
    types = {tensor_type(expr).dtype for expr in (*match.root.args, match.root)}
    if len(types) > 1 or types.isdisjoint(STORED):
        names = ", ".join(sorted(dtype.value for dtype in types))
        return Support.no(Code.UNSUPPORTED_DTYPE, f"float32 and 8-bit integers only, not {names}")
    return Support.yes()


def _lower_reshape(draft: DnnlDraft, match: Match) -> int:
    return draft.view(draft.value(match.root.args[0]), extents(match.root))


def _lower_transpose(draft: DnnlDraft, match: Match) -> int:
    attrs: Any = match.attrs
    value = draft.value(match.root.args[0])
    if attrs.axes == tuple(range(len(attrs.axes))):
        return value
    numbers = {"axes": attrs.axes}
    label, dtype = label_of(match.root), draft.dtypes[value]
    return draft.add("transpose", (value,), extents(match.root), numbers, label=label, dtype=dtype)


def _supports_slice(match: Match) -> Support:
    attrs: Any = match.attrs
    if any(stride != 1 for stride in attrs.strides):
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"strides {attrs.strides}, only 1 is taken")
    return moves(match)


def _lower_slice(draft: DnnlDraft, match: Match) -> int:
    attrs: Any = match.attrs
    value = draft.value(match.root.args[0])
    if extents(match.root) == draft.shape(value):
        return value
    numbers = {"begin": attrs.begin}
    label, dtype = label_of(match.root), draft.dtypes[value]
    return draft.add("slice", (value,), extents(match.root), numbers, label=label, dtype=dtype)


def _lower_concatenate(draft: DnnlDraft, match: Match) -> int:
    attrs: Any = match.attrs
    args = tuple(draft.value(arg) for arg in match.root.args)
    if len(args) == 1:
        return args[0]
    numbers = {"axis": attrs.axis}
    label, dtype = label_of(match.root), draft.dtypes[args[0]]
    return draft.add("concat", args, extents(match.root), numbers, label=label, dtype=dtype)


def _lower_depth_to_space(draft: DnnlDraft, match: Match) -> int:
    """Append a transpose of rank 6 between two views: the channels' blocks go beside the places."""
    attrs: Any = match.attrs
    value, block = draft.value(match.root.args[0]), attrs.block
    n, channels, height, width = extents(match.root.args[0])
    depth = channels // block**2
    split, axes = (n, block, block, depth, height, width), (0, 3, 4, 1, 5, 2)
    if attrs.mode == "CRD":
        split, axes = (n, depth, block, block, height, width), (0, 1, 4, 2, 5, 3)
    parts, dtype = draft.view(value, split), draft.dtypes[value]
    moved = tuple(split[axis] for axis in axes)
    label = label_of(match.root)
    result = draft.add("transpose", (parts,), moved, {"axes": axes}, label=label, dtype=dtype)
    return draft.view(result, extents(match.root))


def _supports_resize(match: Match) -> Support:
    attrs: Any = match.attrs
    source, result = extents(match.root.args[0]), extents(match.root)
    if attrs.mode not in ("nearest", "linear"):
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"mode {attrs.mode}")
    if not 3 <= len(source) <= 5 or source[:2] != result[:2]:
        return Support.no(
            Code.UNSUPPORTED_SHAPE,
            f"{shape_text(source)} to {shape_text(result)}: only spatial axes are resized",
        )
    pairs = list(zip(source, result, strict=True))
    if attrs.scales and any(
        abs(scale * of - to) > 1e-4 for scale, (of, to) in zip(attrs.scales, pairs, strict=True)
    ):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, f"scales {attrs.scales} do not give whole sizes"
        )
    if attrs.mode == "linear":
        if attrs.coordinate_mode == "half_pixel":
            return Support.yes()
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"linear with {attrs.coordinate_mode}")
    # The library rounds half-pixel coordinates; for whole factors that is what flooring does.
    whole = all(to % of == 0 for of, to in pairs)
    rule = (attrs.coordinate_mode, attrs.nearest_mode)
    if whole and rule in (
        ("asymmetric", "floor"),
        ("half_pixel", "round_prefer_floor"),
        ("half_pixel", "round_prefer_ceil"),
    ):
        return Support.yes()
    return Support.no(
        Code.UNSUPPORTED_ATTRIBUTE,
        f"nearest with {', '.join(rule)} from {shape_text(source)} to {shape_text(result)}",
    )


def _lower_resize(draft: DnnlDraft, match: Match) -> int:
    attrs: Any = match.attrs
    value = draft.value(match.root.args[0])
    numbers = {"algorithm": attrs.mode}
    return draft.add(
        "resampling", (value,), extents(match.root), numbers, label=label_of(match.root)
    )


ROWS = (
    DnnlRow("reshape", op("reshape"), _lower_reshape, moves, dtypes=STORED, checks_dtypes=False),
    DnnlRow(
        "transpose", op("transpose"), _lower_transpose, moves, dtypes=STORED, checks_dtypes=False
    ),
    DnnlRow(
        "strided_slice",
        op("strided_slice"),
        _lower_slice,
        _supports_slice,
        dtypes=STORED,
        checks_dtypes=False,
        doc="strides of 1",
    ),
    DnnlRow(
        "concatenate",
        op("concatenate"),
        _lower_concatenate,
        moves,
        dtypes=STORED,
        checks_dtypes=False,
    ),
    DnnlRow(
        "nn.depth_to_space",
        op("nn.depth_to_space"),
        _lower_depth_to_space,
        moves,
        dtypes=STORED,
        checks_dtypes=False,
    ),
    DnnlRow(
        "nn.resize",
        op("nn.resize"),
        _lower_resize,
        _supports_resize,
        doc="spatial axes; linear with half_pixel; nearest by whole factors",
    ),
)
