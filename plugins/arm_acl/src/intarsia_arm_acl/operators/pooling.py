# SPDX-License-Identifier: Apache-2.0
"""Pooling windows, also l2, and reductions along axes."""

from __future__ import annotations

from typing import Any

from intarsia.plugin.accelerator import (
    ANY,
    Call,
    Code,
    Match,
    OpPattern,
    Support,
    label_of,
    op,
    scalar,
    sizes,
)

from ..draft import AclDraft, AclTensor
from .row import FLOATS, PICKED, AclRow

_POOLS = ("nn.max_pool", "nn.avg_pool", "qnn.avg_pool")


def _pool_call(match: Match) -> Call:
    """Return the pooling of a match that may surround it with square and root."""
    return next(call for call in match.calls if call.name in _POOLS)


def supports_pool(match: Match) -> Support:
    """Refuse windows that the library has not, or computes wrongly."""
    pool = _pool_call(match)
    attrs: Any = pool.attrs
    data = sizes(pool.args[0])
    if len(data) != 4:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"{len(data) - 2} spatial dimensions (2 are)")
    if any(size != 1 for size in attrs.dilation):
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"dilation {attrs.dilation}")
    counted = pool.name != "nn.max_pool" and attrs.count_include_pad
    if counted and attrs.ceil_mode:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "count_include_pad with ceil_mode")
    pads = reached(pool)
    if any(max(pair) >= k for k, pair in zip(attrs.kernel, pads, strict=True)):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE,
            f"padding {pads} reaches as far as the kernel {attrs.kernel}",
        )
    return Support.yes()


def reached(pool: Call) -> tuple[tuple[int, int], ...]:
    """Return the padding up to the end of the last window.

    The library's own rounding up computes windows beyond the padding wrongly.
    """
    attrs: Any = pool.attrs
    found: list[tuple[int, int]] = []
    for axis, (low, high) in enumerate(attrs.padding):
        end = (sizes(pool)[2 + axis] - 1) * attrs.strides[axis] + attrs.kernel[axis]
        found.append((low, max(high, end - low - sizes(pool.args[0])[2 + axis])))
    return tuple(found)


def pool_info(pool: Call, kind: str, *, exclude_padding: bool) -> str:
    """Return the window of a pooling as the library's ``PoolingLayerInfo``."""
    attrs: Any = pool.attrs
    (top, bottom), (left, right) = reached(pool)
    down, across = attrs.strides
    window = (
        f"PadStrideInfo({across}U, {down}U, {left}U, {right}U, {top}U, {bottom}U, "
        "DimensionRoundingType::FLOOR)"
    )
    height, width = attrs.kernel
    exclude = "true" if exclude_padding else "false"
    return (
        f"PoolingLayerInfo(PoolingType::{kind}, Size2D({width}U, {height}U), DataLayout::NCHW, "
        f"{window}, {exclude})"
    )


def _lower_pool(draft: AclDraft, match: Match) -> AclTensor:
    pool = _pool_call(match)
    attrs: Any = pool.attrs
    exclude = pool.name == "nn.max_pool" or not attrs.count_include_pad
    kind = "MAX" if pool.name == "nn.max_pool" else "AVG" if pool is match.root else "L2"
    if kind == "L2":
        inner = next(call for call in match.calls if call.name in ("power", "multiply"))
        data = draft.value(inner.args[0])
    else:
        data = draft.value(pool.args[0])
    result = draft.new_tensor(sizes(pool), data.dtype)
    draft.relate(result, data)
    info = pool_info(pool, kind, exclude_padding=exclude)
    return draft.add(
        "NEPoolingLayer", data, result, info, result=result, label=label_of(match.root)
    )


def _is_square(call: Call) -> bool:
    left, right = call.args
    return left is right if call.name == "multiply" else scalar(right) == 2


_REDUCTIONS = {"sum": "SUM", "mean": "MEAN_SUM", "prod": "PROD"}


def _supports_reduction(match: Match) -> Support:
    attrs: Any = match.attrs
    shape = sizes(match.root.args[0])
    if not attrs.axes:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "nothing is reduced")
    if len(shape) > 4:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"rank {len(shape)} is more than 4")
    return Support.yes()


def _lower_reduction(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    label = label_of(match.root)
    value = draft.value(match.root.args[0])
    operation = f"ReductionOperation::{_REDUCTIONS[match.root.name]}"
    # Innermost first: what the library reduces fastest makes the rest smaller.
    for axis in sorted(attrs.axes, reverse=True):
        shape = tuple(1 if d == axis else size for d, size in enumerate(value.shape))
        result = draft.new_tensor(shape, value.dtype)
        place = f"{len(shape) - 1 - axis}U"
        args = (value, result, place, operation, "true")
        value = draft.add("NEReductionOperation", *args, result=result, label=label)
    return draft.view(value, sizes(match.root), label)


def _supports_extremum(match: Match) -> Support:
    attrs: Any = match.attrs
    rank = len(sizes(match.root.args[0]))
    if match.root.name == "max" and rank == 4 and attrs.axes == (2, 3):
        return Support.yes()
    # A row of attention that is masked throughout is recognized by its maximum.
    return Support.no(
        Code.UNSUPPORTED_OP,
        f"the library's {match.root.name} of infinities is a finite number",
    )


def _lower_global_max(draft: AclDraft, match: Match) -> AclTensor:
    value, label = draft.value(match.root.args[0]), label_of(match.root)
    result = draft.new_tensor((*value.shape[:2], 1, 1), value.dtype)
    draft.relate(result, value)
    info = "PoolingLayerInfo(PoolingType::MAX, DataLayout::NCHW)"
    draft.add("NEPoolingLayer", value, result, info, result=result, label=label)
    return draft.view(result, sizes(match.root), label)


_EXTREMUM = "max over height and width"

_WINDOW_LIMITS = "2 spatial dimensions, no dilation, padding smaller than the kernel"


def _l2_row(name: str, square: OpPattern) -> AclRow:
    return AclRow(
        f"l2 pool ({name})",
        op("sqrt", op("nn.avg_pool", square)),
        _lower_pool,
        supports_pool,
        doc=_WINDOW_LIMITS,
    )


ROWS = (
    _l2_row("power", op("power", ANY, ANY, where=_is_square)),
    _l2_row("multiply", op("multiply", ANY, ANY, where=_is_square)),
    AclRow(
        "nn.max_pool",
        op("nn.max_pool"),
        _lower_pool,
        supports_pool,
        dtypes=PICKED,
        doc=_WINDOW_LIMITS,
    ),
    AclRow("nn.avg_pool", op("nn.avg_pool"), _lower_pool, supports_pool, doc=_WINDOW_LIMITS),
    *(
        AclRow(name, op(name), _lower_global_max, _supports_extremum, dtypes=dtypes, doc=_EXTREMUM)
        for name, dtypes in (("max", PICKED), ("min", FLOATS))
    ),
    *(
        AclRow(name, op(name), _lower_reduction, _supports_reduction, doc="rank 4 at most")
        for name in _REDUCTIONS
    ),
)
