# SPDX-License-Identifier: Apache-2.0
"""Loop IR as text: a printer and a parser of kernels that are inverses.

::

    def softmax_0(p0: float32[8, 100], out0: float32[8, 100] out, part: float32[8] scratch):
      for i0 in parallel(8):
        top: float32[] stack
        top[] = -inf
        for k in serial(100):
          top[] = max(top[], p0[i0, k])
        let shift = top[] * 0.5
        for i1 in serial(6):
          for lane in vectorized(16):
            out0[i0, (i1 * 16) + lane] = exp(p0[i0, (i1 * 16) + lane] - shift)
        if i0 < 4:
          out0[i0, ramp(96, 1, 4)] = broadcast(0.0, 4)
        else:
          part[i0] = select(top[] > 0.0, top[], float32(i0))
          loops::step(&out0[i0, 0], 3:int32)

    def copy_0(p0: int8[256], out0: int8[256] out):
      for block in block.x(2):
        t: int8[128] shared
        for thread in thread.x(128):
          t[thread] = p0[(block * 128) + thread]
          barrier
          out0[(block * 128) + thread] = t[127 - thread]

    procedure add_row(x: float32[`elements`], sums: float32[8] out, count: size):
      for n in serial(count):
        sums[n] = sums[n] + x[n]

    def add_rows(p0: float32[4, 6], out0: float32[8] out):
      for i0 in serial(4):
        kernel::add_row(&p0[i0, 0], &out0[0], 6)

Blocks are told by how far they stand in. Parameters are inputs, then ``out``, then ``scratch``. A
loop is serial, parallel, unrolled or vectorized, or runs over ``block.x`` or ``thread.x`` (y, z) of
a device. A buffer in a ``stack``, ``register`` or ``shared`` scope, and what a ``let`` names, are
there for the rest of the block; with ``:`` behind, for a block of their own.

A whole number is int64 and a number with a point float32; others carry their type (``3:int32``),
vectors also their width (``0.5:float16x8``). A ``ramp`` as the last index reads or writes a vector.
``kind::function:type(...)`` calls a function of one code generator, and ``kind::procedure(&x[0])``
is a statement of one. A ``procedure`` stands before the kernels that call it; its buffers begin at
the places that ``kernel::name(&x[0], 6)`` names. An expression that is long and used again, or very
long, stands on a line ``$0 = ...`` before its statement: that is a name for text and computes
nothing.

Names are made unique by a number behind them; those with odd characters stand in quotes. A sequence
in a sequence is read back as one. What follows ``#`` is a comment.
"""

from __future__ import annotations

from .parse import parse_func, parse_funcs
from .print import print_expr, print_func, print_funcs, print_tensor

__all__ = [
    "parse_func",
    "parse_funcs",
    "print_expr",
    "print_func",
    "print_funcs",
    "print_tensor",
]
