# SPDX-License-Identifier: Apache-2.0
"""Convolutions that need fewer multiplications than they define, by Winograd's method."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .graph.expr import Call


@dataclass(frozen=True, slots=True)
class ReducedConvolution:
    """Convolutions without strides or groups that a backend computes with fewer multiplications.

    Attributes:
        kernel: Sizes of the kernel.
        channels: Fewest input and output channels.
        results: Fewest elements of a channel of the result.
    """

    kernel: tuple[int, ...]
    channels: int
    results: int

    def suits(self, node: Call) -> bool:
        """Whether a call is such a convolution; one of open sizes is taken to have enough results.

        Args:
            node: A call of any operator.
        """
        from .graph.expr import tensor_type  # a kind states this, and must load no operator
        from .ops.nn import Conv

        attrs = node.attrs
        rank = len(self.kernel) + 2
        if not isinstance(attrs, Conv.Attrs) or node.op is not Conv:
            return False
        if tensor_type(node).rank != rank:
            return False
        outputs, inner, *kernel = tensor_type(node.args[1]).static_shape
        _, _, *results = tensor_type(node).shape
        known = [size for size in results if isinstance(size, int)]
        return (
            tuple(kernel) == self.kernel
            and {attrs.groups, *attrs.strides, *attrs.dilation} == {1}
            and min(inner, outputs) >= self.channels
            and (len(known) < len(results) or prod(known) >= self.results)
        )


WINOGRAD = ReducedConvolution((3, 3), channels=32, results=25)
"""3x3 windows that gain: the transformed weights grow to 16/9, and are read once."""
