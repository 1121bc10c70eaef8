# SPDX-License-Identifier: Apache-2.0
"""What a backend for CPUs does to a function before it makes loops of it."""

from __future__ import annotations

from ...ir.expr import Function
from .halves import widen_halves
from .layout import use_channels_last
from .narrow import store_narrow
from .pointwise import flatten_pointwise
from .powers import expand_powers
from .searches import split_searches
from .tile import Shape
from .transposed import expand_transposed
from .volumes import flatten_volumes


def fit_function(function: Function, shape: Shape, *, winograd: bool = False) -> Function:
    """Return an equivalent function of operators that have fast loops, channels last.

    Args:
        function: What the backend compiles; shapes are static.
        shape: Register tile of the machine.
        winograd: Whether 3x3 convolutions that gain by Winograd's method are computed so.
    """
    in_float32 = widen_halves(split_searches(expand_powers(function)))
    pictures = flatten_volumes(expand_transposed(in_float32))
    flat = flatten_pointwise(pictures)
    if shape.pairs is not None:
        flat = store_narrow(flat, shape.pairs.unit)
    return use_channels_last(flat, shape, winograd=winograd)
