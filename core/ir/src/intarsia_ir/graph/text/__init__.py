# SPDX-License-Identifier: Apache-2.0
"""Graph IR as text: a printer and a parser that are inverses.

::

    set Executor "aot -unpacked-api=true";

    def @main(%x: Tensor[(1, 8), float32]) -> Tensor[(1, 8), float32] as ("y",) {
      %0 = matmul(%x, const "fc.weight": Tensor[(8, 8), float32]);  // fc (Gemm)
      %1 = clip(%0, min=0.0, max=6.0);
      %2 = split(%1, sections=(4, 4), axis=1);
      %3 = %2[0];
      %4 = @region_0(%1, %3): Tensor[(1, 8), float32];
      %5 = less(%4, const(0.5, float32));
      %6 = if (%5) {
        %7 = negative(%4);
        %7
      } else {
        %4
      };
      %8 = let %v = %6 {
        %9 = add(%v, %v);
        %9
      };
      %8
    }

A comment behind a statement is the span of its expression, ``node (operator)``. Weights are named,
not written; names, sizes and spans with odd characters stand in quotes. Module-level settings come
first, each as its own text; whoever parses says how they are read.
"""

from __future__ import annotations

from .parser import parse_function, parse_module
from .printer import collect_params, print_function, print_module

__all__ = [
    "collect_params",
    "parse_function",
    "parse_module",
    "print_function",
    "print_module",
]
