# SPDX-License-Identifier: Apache-2.0
"""Legalization for CPUs: from operators of the model to operators with schedules."""

from __future__ import annotations

from intarsia_ir.graph.expr import Function

from .argmax_reductions import split_argmax
from .bf16_storage import store_in_bf16
from .ceil_pools import round_down_pools
from .columns_to_image import add_columns
from .conv3d import lower_conv3d
from .conv_transpose import expand_conv_transpose
from .half_precision import widen_half_precision
from .integer_products import integer_products_in_float32
from .layout import use_channels_last
from .paired_layers import pair_layers
from .pointwise_conv import pointwise_conv_to_matmul
from .powers import expand_powers
from .tiling import CpuTiling


def legalize_for_cpu(function: Function, tiling: CpuTiling, *, winograd: bool = False) -> Function:
    """Return an equivalent function of operators that have fast loops, channels last.

    Args:
        function: What the backend compiles; shapes are static.
        tiling: Register tile of the machine.
        winograd: Whether 3x3 convolutions that gain by Winograd's method are computed so.
    """
    exact = integer_products_in_float32(function, tiling)
    rounded_down = round_down_pools(exact)
    in_float32 = widen_half_precision(split_argmax(expand_powers(rounded_down)), tiling)
    two_dimensional = lower_conv3d(expand_conv_transpose(add_columns(in_float32)))
    flat = pointwise_conv_to_matmul(two_dimensional, tiling.bf16x2)
    if tiling.bf16x2 is not None:
        flat = store_in_bf16(flat, tiling.bf16x2)
    return pair_layers(use_channels_last(flat, tiling, winograd=winograd and exact is function))
