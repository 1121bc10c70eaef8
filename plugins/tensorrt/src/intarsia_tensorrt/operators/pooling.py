# SPDX-License-Identifier: Apache-2.0
"""Pooling windows, local response normalization, reductions, and places of extremes."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from msgspec import Struct

from intarsia.plugin.accelerator import Call, DType, Support, operator_row, sizes

from ..draft import NetworkDraft, Tensor, mask, member
from .convolution import two, with_height
from .row import BYTES, FLOATS, NUMBERS, NetworkRow, attribute, shape

_BOOLS = (DType.BOOL,)


def _needed(call: Call) -> tuple[int, ...]:
    """Padding behind the data that the last window reaches into; negative if it ends before."""
    attrs: Any = call.attrs
    data, result = sizes(call.args[0])[2:], sizes(call)[2:]
    return tuple(
        (m - 1) * attrs.strides[d] + attrs.kernel[d] - n - attrs.padding[d][0]
        for d, (n, m) in enumerate(zip(data, result, strict=True))
    )


def _counts_padding(call: Call) -> bool:
    attrs: Any = call.attrs
    return call.name.endswith("avg_pool") and attrs.count_include_pad


def supports_pool(call: Call) -> Support:
    """Refuse what no pooling layer computes."""
    attrs: Any = call.attrs
    rank = len(sizes(call))
    if not 3 <= rank <= 5:
        return shape(f"{rank - 2} spatial dimensions (1 to 3 are taken)")
    if any(size != 1 for size in attrs.dilation):
        return attribute(f"dilation {attrs.dilation}")
    pads = list(zip(attrs.kernel, attrs.padding, _needed(call), strict=True))
    if any(min(pad) < 0 or max(*pad, needed) >= k for k, pad, needed in pads):
        return attribute(f"padding {attrs.padding} reaches as far as the kernel {attrs.kernel}")
    if _counts_padding(call) and any(needed > high for _, (_, high), needed in pads):
        return attribute("count_include_pad with windows that ceil_mode adds beyond the padding")
    return Support.yes()


def pool(draft: NetworkDraft, call: Call, data: Tensor) -> Tensor:
    """Return the pooled tensor: max for ``nn.max_pool``, mean for others."""
    attrs: Any = call.attrs
    low = tuple(before for before, _ in attrs.padding)
    # Windows that ceil_mode adds are those that more padding behind gives.
    pads = zip(attrs.padding, _needed(call), strict=True)
    high = tuple(max(after, needed) for (_, after), needed in pads)
    if _counts_padding(call):
        data, low, high = _zero_padded(draft, data, low, high), (0,) * len(low), (0,) * len(high)
    data = draft.reshape(data, with_height(draft.shape_of(data)))
    name = "MAX" if call.name == "nn.max_pool" else "AVERAGE"
    kind = member(draft.trt.PoolingType, name)
    layer = draft.network.add_pooling_nd(data, kind, two(attrs.kernel, 1))
    if layer is None:
        raise draft.refused()
    layer.stride_nd = two(attrs.strides, 1)
    layer.pre_padding, layer.post_padding = two(low, 0), two(high, 0)
    if name == "AVERAGE":
        layer.average_count_excludes_padding = True
    return draft.reshape(draft.output_of(layer), sizes(call))


def _zero_padded(
    draft: NetworkDraft, data: Tensor, low: tuple[int, ...], high: tuple[int, ...]
) -> Tensor:
    """Return the data with zeros around; padding of a pooling layer may not differ at the ends."""
    if not any((*low, *high)):
        return data
    whole = draft.shape_of(data)
    grown = (n + before + after for n, before, after in zip(whole[2:], low, high, strict=True))
    start = (0, 0, *(-before for before in low))
    ones = (1,) * len(whole)
    return draft.slice(data, start, (*whole[:2], *grown), ones, "FILL", 0.0)


def _lower_pool(draft: NetworkDraft, call: Call) -> Tensor:
    """Of 8-bit integers, the largest is that of the same numbers as floats."""
    data = draft.value(call.args[0])
    if draft.dtype_of(data) is not DType.INT8:
        return pool(draft, call, data)
    return draft.stored(pool(draft, call, draft.cast(data, DType.FLOAT32)))


def _supports_lrn(call: Call) -> Support:
    attrs: Any = call.attrs
    rank = len(sizes(call))
    if rank != 4:
        return shape(f"rank {rank} (4 is taken)")
    if attrs.size % 2 == 0 or attrs.size > 15:
        return attribute(f"a window of {attrs.size} channels (odd ones up to 15 are taken)")
    if attrs.bias < 1e-5 or attrs.beta < 0.01:
        return attribute(f"bias {attrs.bias} and beta {attrs.beta} (1e-5 and 0.01 are the least)")
    return Support.yes()


def _lower_lrn(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    x = draft.exact(call.args[0])
    layer = draft.network.add_lrn(x, attrs.size, attrs.alpha, attrs.beta, attrs.bias)
    return draft.output_of(layer)


def _reduces(call: Call) -> Support:
    attrs: Any = call.attrs
    return Support.yes() if attrs.axes else attribute("no axes: nothing is reduced")


class ReduceLayer(Struct, frozen=True):
    """One ``ReduceOperation``; sums are exact with ``-fp16`` too."""

    operation: str
    exact: bool = True

    def lower(self, draft: NetworkDraft, call: Call) -> Tensor:
        """Apply it."""
        attrs: Any = call.attrs
        x = draft.exact(call.args[0]) if self.exact else draft.value(call.args[0])
        return draft.reduce(x, self.operation, attrs.axes, keep=attrs.keepdims)


_REDUCTIONS = MappingProxyType(
    {
        "sum": ReduceLayer("SUM"),
        "prod": ReduceLayer("PROD"),
        "max": ReduceLayer("MAX", exact=False),
        "min": ReduceLayer("MIN", exact=False),
    }
)


class Truth(Struct, frozen=True):
    """A reduction of bools, as one of 0 and 1."""

    operation: str

    def lower(self, draft: NetworkDraft, call: Call) -> Tensor:
        """Cast, reduce, cast."""
        attrs: Any = call.attrs
        x = draft.cast(draft.exact(call.args[0]), DType.INT32)
        found = draft.reduce(x, self.operation, attrs.axes, keep=attrs.keepdims)
        return draft.cast(found, DType.BOOL)


def _supports_place(call: Call) -> Support:
    attrs: Any = call.attrs
    if attrs.last:
        return attribute("the last of equal elements")
    return Support.yes()


class ArgExtreme(Struct, frozen=True):
    """The index of an extreme: the first of one sorted element."""

    operation: str

    def lower(self, draft: NetworkDraft, call: Call) -> Tensor:
        """Apply ``TopK`` with one result."""
        attrs: Any = call.attrs
        x, axis = draft.exact(call.args[0]), attrs.axis
        if len(draft.shape_of(x)) == 1:  # the library asks for two dimensions
            x, axis = draft.expand(x, 2), 1
        kind = member(draft.trt.TopKOperation, self.operation)
        found = draft.output_of(draft.network.add_topk(x, kind, 1, mask((axis,))), 1)
        return draft.cast(draft.reshape(found, sizes(call)), DType.INT64)


ROWS = (
    *(
        operator_row(
            name,
            _lower_pool,
            supports_pool,
            dtypes=dtypes,
            doc="1 to 3 spatial dimensions, no dilation, padding smaller than the kernel",
        )
        for name, dtypes in (("nn.max_pool", (*FLOATS, *BYTES)), ("nn.avg_pool", FLOATS))
    ),
    operator_row("nn.lrn", _lower_lrn, _supports_lrn, doc="rank 4, odd windows up to 15"),
    *(
        operator_row(name, reduction.lower, _reduces, dtypes=NUMBERS, doc="at least one axis")
        for name, reduction in _REDUCTIONS.items()
    ),
    operator_row("mean", ReduceLayer("AVG").lower, _reduces, doc="at least one axis"),
    operator_row("all", Truth("MIN").lower, _reduces, dtypes=_BOOLS, doc="at least one axis"),
    operator_row("any", Truth("MAX").lower, _reduces, dtypes=_BOOLS, doc="at least one axis"),
    operator_row(
        "argmax", ArgExtreme("MAX").lower, _supports_place, others=(DType.INT64,), doc="the first"
    ),
    operator_row(
        "argmin", ArgExtreme("MIN").lower, _supports_place, others=(DType.INT64,), doc="the first"
    ),
    NetworkRow.refused("cumsum", "only newer releases of the library have running sums"),
)
