# SPDX-License-Identifier: Apache-2.0
"""A whole LLVM module from a tensor module: for a process that loads it, or for a program."""

from __future__ import annotations

from dataclasses import replace

from intarsia.codegen.c_interface import Interface
from intarsia.lower.kernels import TensorModule
from intarsia.tir.passes.simplify import simplify
from intarsia.tir.passes.vectorize import vectorize

from ..intrinsics.expand import RULES, expand_intrinsics
from .checks import CHECK_TEXT, Statics
from .entry import emit_main, emit_wrapper
from .kernels import emit_kernel
from .program import emit_run, emit_weights
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
    scale: bool = False,
) -> str:
    """Return LLVM IR text of all kernels and exported functions.

    Args:
        module: Kernels and the call plan.
        triple: LLVM's name of the machine.
        threads: Threads of parallel loops; 0 leaves it to who runs the code.
        vector_bits: Width of the vector registers to use.
        tune: Processor to schedule instructions for.
        half: Whether the machine converts float16 itself.
        scale: Whether an instruction multiplies by a power of two.
    """
    module = _in_vectors(module)
    statics, declarations = Statics(), Declarations(half, scale=scale)
    parts = [emit_kernel(function, declarations) for function in module.functions]
    parts += [emit_wrapper(function, statics, declarations) for function in module.functions]
    parts.append(emit_main(module, statics, declarations))
    return "\n".join(
        [
            f'source_filename = "{module.name}"',
            f'target triple = "{triple}"',
            threads_text(threads, triple),
            CHECK_TEXT,
            RUN_STEPS_TEXT,
            *statics.lines,
            *parts,
            *sorted(declarations.lines.values()),
            _attributes(vector_bits, tune),
            "",
        ]
    )


def emit_program(
    module: TensorModule,
    face: Interface,
    *,
    triple: str,
    vector_bits: int,
    tune: str = "",
    half: bool = True,
    bare: bool = False,
    scale: bool = False,
) -> str:
    """Return LLVM IR text of all kernels and of the function that a program calls.

    Args:
        module: Kernels, the call plan, and the weights.
        face: Names what the program sees.
        triple: LLVM's name of the machine.
        vector_bits: Width of the vector registers to use.
        tune: Processor to schedule instructions for.
        half: Whether the machine converts float16 itself.
        bare: Whether the machine has no operating system.
        scale: Whether an instruction multiplies by a power of two.
    """
    module = _in_vectors(module)
    declarations = Declarations(half, bare, scale)
    parts = [emit_kernel(function, declarations) for function in module.functions]
    parts += [emit_run(face, declarations), emit_weights(face, module.delivery.constants)]
    return "\n".join(
        [
            f'source_filename = "{face.prefix}"',
            f'target triple = "{triple}"',
            *parts,
            *sorted(declarations.lines.values()),
            _attributes(vector_bits, tune),
            "",
        ]
    )


def _in_vectors(module: TensorModule) -> TensorModule:
    """Replace VECTORIZED loops by vectors, and machine functions by what computes them."""
    rules = {**RULES, **module.rules}
    functions = tuple(
        expand_intrinsics(vectorize(simplify(function)), rules) for function in module.functions
    )
    return replace(module, functions=functions)


def _attributes(vector_bits: int, tune: str) -> str:
    tuned = f' "tune-cpu"="{tune}"' if tune else ""
    return (
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{vector_bits}" '
        f'"min-legal-vector-width"="{vector_bits}"{tuned} }}'
    )
