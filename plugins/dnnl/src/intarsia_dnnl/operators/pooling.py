# SPDX-License-Identifier: Apache-2.0
"""Pooling windows, local response normalization, and reductions."""

from __future__ import annotations

from typing import Any

from intarsia.plugin.accelerator import Code, Match, Support, extents, label_of, numbers, op

from ..draft import DnnlDraft
from .row import STORED, DnnlRow, shape_text
from .shape import moves


def _needed(match: Match) -> tuple[int, ...]:
    """Padding behind the data that the last window reaches into; negative if it ends before.

    Of open sizes the most that it may be.

    Raises:
        OpenSizeError: Windows that are added beyond the padding need numbers.
    """
    attrs: Any = match.attrs
    data, result = extents(match.root.args[0])[2:], extents(match.root)[2:]
    if not attrs.ceil_mode and len(numbers((*data, *result))) < 2 * len(data):
        return tuple(high for _, high in attrs.padding)
    return tuple(
        (m - 1) * attrs.strides[d] + attrs.kernel[d] - n - attrs.padding[d][0]
        for d, (n, m) in enumerate(zip(data, result, strict=True))
    )


def _supports_pool(match: Match) -> Support:
    attrs: Any = match.attrs
    rank = len(extents(match.root))
    if not 3 <= rank <= 5:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"{rank - 2}-dimensional pooling (1 to 3 are)")
    if any(size != 1 for size in attrs.dilation):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, f"no fast kernel for dilation {attrs.dilation}"
        )
    pads = zip(attrs.kernel, attrs.padding, _needed(match), strict=True)
    if any(min(pad) < 0 or max(*pad, needed) >= k for k, pad, needed in pads):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE,
            f"padding {attrs.padding} reaches as far as the kernel {attrs.kernel}",
        )
    counted = match.root.name == "nn.avg_pool" and attrs.count_include_pad
    behind = zip(attrs.padding, _needed(match), strict=True)
    if counted and any(needed > high for (_, high), needed in behind):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE,
            "count_include_pad with windows that ceil_mode adds beyond the padding",
        )
    return moves(match)


def _lower_pool(draft: DnnlDraft, match: Match) -> int:
    attrs: Any = match.attrs
    if match.root.name == "nn.max_pool":
        algorithm = "max"
    else:
        algorithm = "avg_include_padding" if attrs.count_include_pad else "avg_exclude_padding"
    highs = zip(attrs.padding, _needed(match), strict=True)
    numbers = {
        "kernel": attrs.kernel,
        "strides": attrs.strides,
        "dilation": attrs.dilation,
        "padding_low": tuple(low for low, _ in attrs.padding),
        "padding_high": tuple(max(high, needed) for (_, high), needed in highs),
        "algorithm": algorithm,
    }
    value = draft.value(match.root.args[0])
    label, dtype = label_of(match.root), draft.dtypes[value]
    return draft.add("pool", (value,), extents(match.root), numbers, label=label, dtype=dtype)


_REDUCTIONS = {"sum": "sum", "mean": "mean", "max": "max", "prod": "mul"}


def _is_global_pool(match: Match) -> bool:
    attrs: Any = match.attrs
    rank = len(extents(match.root.args[0]))
    spatial = tuple(range(2, rank))
    least = {"mean": 3, "max": 4}.get(match.root.name, 6)  # rows of three axes may be attention's
    return least <= rank <= 5 and attrs.axes == spatial


def _supports_reduction(match: Match) -> Support:
    attrs: Any = match.attrs
    axes: tuple[int, ...] = attrs.axes
    shape = extents(match.root.args[0])
    if not axes:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "nothing is reduced")
    if _is_global_pool(match):
        return Support.yes()
    if match.root.name == "max":
        # A row of attention that is masked throughout is recognized by its maximum.
        return Support.no(
            Code.UNSUPPORTED_OP, "the maximum of minus infinities would be a finite number"
        )
    if len(shape) > 5:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"rank {len(shape)} is more than 5")
    if all(shape[axis] == 1 for axis in axes):
        return Support.no(
            Code.UNSUPPORTED_SHAPE, f"axes {axes} of {shape_text(shape)} hold one element"
        )
    return Support.yes()


def _lower_reduction(draft: DnnlDraft, match: Match) -> int:
    attrs: Any = match.attrs
    value = draft.value(match.root.args[0])
    shape, label = draft.shape(value), label_of(match.root)
    kept = tuple(1 if axis in attrs.axes else size for axis, size in enumerate(shape))
    if _is_global_pool(match):
        spatial = shape[2:]
        zeros, ones = (0,) * len(spatial), (1,) * len(spatial)
        window = {"kernel": spatial, "strides": ones, "dilation": ones}
        window |= {"padding_low": zeros, "padding_high": zeros}
        algorithm = "max" if match.root.name == "max" else "avg_exclude_padding"
        pool = {**window, "algorithm": algorithm}
        value = draft.add("pool", (value,), kept, pool, label=label)
        return draft.view(value, extents(match.root))
    # Only the innermost axes are reduced fast.
    order = (*(axis for axis in range(len(shape)) if axis not in attrs.axes), *attrs.axes)
    if order != tuple(range(len(shape))):
        moved = tuple(shape[axis] for axis in order)
        value = draft.add("transpose", (value,), moved, {"axes": order}, label=label)
        kept = tuple(kept[axis] for axis in order)
    numbers = {"algorithm": _REDUCTIONS[match.root.name]}
    value = draft.add("reduction", (value,), kept, numbers, label=label)
    return draft.view(value, extents(match.root))


def _supports_lrn(match: Match) -> Support:
    attrs: Any = match.attrs
    rank = len(extents(match.root))
    if rank != 4:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"rank {rank} (4 is)")
    if attrs.size % 2 == 0:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"an even window of {attrs.size} channels")
    return Support.yes()


def _lower_lrn(draft: DnnlDraft, match: Match) -> int:
    attrs: Any = match.attrs
    value = draft.value(match.root.args[0])
    numbers = {"size": attrs.size, "alpha": attrs.alpha, "beta": attrs.beta, "bias": attrs.bias}
    return draft.add("lrn", (value,), extents(match.root), numbers, label=label_of(match.root))


_LEAST = "NaN is passed over, and minus infinity becomes the least finite number"
_WINDOWS = "1 to 3 spatial dimensions; no dilation; padding smaller than the kernel"

ROWS = (
    DnnlRow(
        "nn.max_pool",
        op("nn.max_pool"),
        _lower_pool,
        _supports_pool,
        special=_LEAST,
        dtypes=STORED,
        checks_dtypes=False,
        doc=_WINDOWS,
    ),
    DnnlRow("nn.avg_pool", op("nn.avg_pool"), _lower_pool, _supports_pool, doc=_WINDOWS),
    *(
        DnnlRow(
            name,
            op(name),
            _lower_reduction,
            _supports_reduction,
            special=_LEAST if name == "max" else "",
            doc="over two or three spatial axes" if name == "max" else "rank 5 at most",
        )
        for name in _REDUCTIONS
    ),
    DnnlRow(
        "nn.lrn",
        op("nn.lrn"),
        _lower_lrn,
        _supports_lrn,
        special="NaN and infinity reach channels outside of their windows",
        doc="rank 4, odd windows",
    ),
)
