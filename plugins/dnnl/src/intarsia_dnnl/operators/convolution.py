# SPDX-License-Identifier: Apache-2.0
"""Convolution and transposed convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intarsia.plugin.accelerator import Code, Match, Support, extents, label_of, op

from ..draft import DnnlDraft
from .row import DnnlRow


def _supports_conv(match: Match) -> Support:
    rank = len(extents(match.root))
    if not 3 <= rank <= 5:
        return Support.no(
            Code.UNSUPPORTED_SHAPE, f"{rank - 2}-dimensional convolution (1 to 3 are)"
        )
    return Support.yes()


def _lower_conv(draft: DnnlDraft, match: Match) -> int:
    attrs: Any = match.attrs
    return draft.add(
        "conv",
        tuple(draft.value(arg) for arg in match.root.args),
        extents(match.root),
        {
            "strides": attrs.strides,
            "dilation": attrs.dilation,
            "padding_low": tuple(low for low, _ in attrs.padding),
            "padding_high": tuple(high for _, high in attrs.padding),
            "groups": attrs.groups,
        },
        label=label_of(match.root),
    )


def _high_padding(match: Match) -> tuple[int, ...]:
    """What the library must cut off the far end: padding less output padding."""
    attrs: Any = match.attrs
    data, kernel = extents(match.root.args[0])[2:], extents(match.root.args[1])[2:]
    grown = zip(data, kernel, attrs.strides, attrs.dilation, strict=True)
    full = [(n - 1) * stride + (k - 1) * dilation + 1 for n, k, stride, dilation in grown]
    result = extents(match.root)[2:]
    return tuple(f - low - n for f, (low, _), n in zip(full, attrs.padding, result, strict=True))


def _supports_transposed(match: Match) -> Support:
    verdict = _supports_conv(match)
    if not verdict:
        return verdict
    if min(_high_padding(match)) < 0:
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, "output_padding beyond what the padding cuts off"
        )
    return Support.yes()


def _lower_transposed(draft: DnnlDraft, match: Match) -> int:
    """Lower a transposed convolution; the bias of one that spreads pixels is added behind it.

    On AVX-512 the library (3.2, ``brgconv_strided``) takes the input channels of such a one in
    parts, and adds a bias and applies post-ops after each part: 256 channels of 16 x 16 pixels with
    a 4 x 4 kernel came out wrong. Without them it is right.
    """
    attrs: Any = match.attrs
    shape, label = extents(match.root), label_of(match.root)
    args = tuple(draft.value(arg) for arg in match.root.args)
    bias = args[2:] if is_strided(attrs.strides) else ()
    result = draft.add(
        "deconv",
        args[: len(args) - len(bias)],
        shape,
        {
            "strides": attrs.strides,
            "dilation": attrs.dilation,
            "padding_low": tuple(low for low, _ in attrs.padding),
            "padding_high": _high_padding(match),
            "groups": attrs.groups,
        },
        label=label,
    )
    for vector in bias:
        column = draft.view(vector, (1, shape[1], *(1 for _ in shape[2:])))
        result = draft.add("binary", (result, column), shape, {"algorithm": "add"}, label=label)
    return result


def is_strided(strides: Sequence[int]) -> bool:
    """Whether a transposed convolution spreads pixels."""
    return max(strides) > 1


ROWS = (
    DnnlRow(
        "nn.conv",
        op("nn.conv"),
        _lower_conv,
        _supports_conv,
        constant=(1, 2),
        doc="1 to 3 spatial dimensions",
    ),
    DnnlRow(
        "nn.conv_transpose",
        op("nn.conv_transpose"),
        _lower_transposed,
        _supports_transposed,
        constant=(1, 2),
        doc="1 to 3 spatial dimensions; output padding up to what padding cuts off",
    ),
)
