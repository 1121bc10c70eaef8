# SPDX-License-Identifier: Apache-2.0
"""A whole LLVM module from a tensor module."""

from __future__ import annotations

from intarsia.lower.kernels import TensorModule

from .checks import CHECK_TEXT, Statics
from .entry import emit_main, emit_wrapper
from .kernels import emit_kernel
from .steps import RUN_STEPS_TEXT
from .threads import threads_text
from .writer import Declarations


def emit_module(
    module: TensorModule,
    *,
    triple: str,
    threads: int,
    vector_bits: int,
    tune: str = "",
    half: bool = True,
) -> str:
    """Return LLVM IR text of all kernels and exported functions.

    Args:
        module: Kernels without VECTORIZED loops, and the call plan.
        triple: LLVM's name of the machine.
        threads: Threads of parallel loops; 0 leaves it to OpenMP.
        vector_bits: Width of the vector registers to use.
        tune: Processor to schedule instructions for.
        half: Whether the machine converts float16 itself.
    """
    statics, declarations = Statics(), Declarations(half)
    parts = [emit_kernel(function, declarations) for function in module.functions]
    parts += [emit_wrapper(function, statics, declarations) for function in module.functions]
    parts.append(emit_main(module, statics, declarations))
    tuned = f' "tune-cpu"="{tune}"' if tune else ""
    attributes = (
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{vector_bits}" '
        f'"min-legal-vector-width"="{vector_bits}"{tuned} }}'
    )
    return "\n".join(
        [
            f'source_filename = "{module.name}"',
            f'target triple = "{triple}"',
            threads_text(threads),
            CHECK_TEXT,
            RUN_STEPS_TEXT,
            *statics.lines,
            *parts,
            *sorted(declarations.lines.values()),
            attributes,
            "",
        ]
    )
