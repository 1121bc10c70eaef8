# SPDX-License-Identifier: Apache-2.0
"""The source with all kernels of a module and the function that runs the model."""

from __future__ import annotations

from msgspec.structs import replace

from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import TensorModule
from intarsia_ir.tir.passes.merge_lanes import merge_lanes
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.passes.split_registers import split_registers
from intarsia_ir.tir.passes.unroll import unroll
from intarsia_loops.codegen.c_functions import Functions
from intarsia_loops.codegen.c_interface import Interface
from intarsia_loops.codegen.c_source import expand_intrinsics, print_kernel
from intarsia_loops.codegen.statements import RegionCall

from .intrinsics import RULES
from .procedures import called, print_procedures
from .spelling import C99


def _flat(function: PrimFunc) -> PrimFunc:
    """Write short loops out, with sums in arrays that a compiler keeps in registers."""
    return merge_lanes(simplify(split_registers(unroll(simplify(function)))))


def print_sources(
    module: TensorModule, face: Interface, header: str, region: RegionCall | None = None
) -> str:
    """Return the text; it includes the named header and ``<math.h>``, and nothing else.

    Args:
        module: What the backend compiles.
        face: The model's face in C.
        header: Name of its header.
        region: Writes the call of a region whose function the program has.

    Raises:
        UnsupportedError: A kernel uses an operation that C has not.
    """
    procedures = called(module.functions)
    functions = Functions(replace(C99, functions=C99.functions | procedures))
    rules = {**RULES, **module.rules}
    kernels = [
        print_kernel(expand_intrinsics(_flat(function), rules), functions)
        for function in module.functions
    ]
    parts = (*print_procedures(procedures), *functions.texts.values(), *kernels, face.run(region))
    head = f'#include "{header}"\n\n#include <math.h>\n'
    return "\n".join([head, *(part for part in parts if part)])
