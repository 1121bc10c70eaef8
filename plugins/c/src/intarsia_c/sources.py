# SPDX-License-Identifier: Apache-2.0
"""The source with all kernels of a module and the function that runs the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from intarsia_ir.tir.buffer import MemoryScope
from intarsia_ir.tir.expr import Ramp
from intarsia_ir.tir.forward import forwarded, procedures
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import TensorModule
from intarsia_ir.tir.passes.merge_lanes import merge_lanes
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.passes.split_registers import split_registers
from intarsia_ir.tir.passes.unroll import unroll
from intarsia_ir.tir.stmt import Store
from intarsia_ir.tir.walk import statements
from intarsia_loops.codegen.c_functions import Functions
from intarsia_loops.codegen.c_interface import Interface
from intarsia_loops.codegen.c_source import expand_intrinsics, print_kernel
from intarsia_loops.codegen.register_vectors import loop_over_lanes
from intarsia_loops.codegen.statements import RegionCall
from intarsia_runtime.artifact.plan import CallPlan

from .intrinsics import RULES
from .open_sizes import CFrame, print_plan_sizes
from .procedures import called, declaration, print_procedures
from .spelling import C99, KERNEL
from .stages import CHECKED_SIZES, print_stage_sizes
from .toolchain import ZMM_BYTES


def _flat(function: PrimFunc, *, vector_types: bool) -> PrimFunc:
    """Write short loops out, with sums in arrays that a compiler keeps in registers.

    Where these may be vector types, loops are written out first: then the vectors of one large
    array are known by their numbers (7x7, stride 2, of 3 to 32 channels: 7.6 to 0.43 ms by AVX2,
    Zen 4).
    """
    if vector_types:
        function = unroll(simplify(function))
    return merge_lanes(simplify(split_registers(unroll(simplify(loop_over_lanes(function))))))


def _takes_vector_types(function: PrimFunc, size: int) -> bool:
    """Whether vectors of a kernel are vector types of so many bytes.

    Of the 32 registers of AVX-512, GCC 12 gives vector types 16 alone: a product takes 1.25 times
    as long as with loops over lanes. Of vectors that are parts of an array it makes far worse from
    loops: 5x5 of one channel takes 0.07 with vector types (Zen 4).
    """
    if size < ZMM_BYTES:
        return size > 0
    return any(
        isinstance(stmt, Store)
        and stmt.buffer.scope is MemoryScope.REGISTER
        and isinstance(stmt.indices[-1], Ramp)
        and stmt.indices[-1].lanes < stmt.buffer.elements
        for stmt in statements(function.body)
    )


def new_functions(module: TensorModule, vector_bytes: int = 0) -> Functions:
    """Return what collects the small functions that a module's source calls.

    Args:
        module: What the backend compiles.
        vector_bytes: Of the registers that vector types of GNU C may fill; 0 keeps the text to C99.
    """
    known = called(_all_kernels(module))
    return Functions(replace(C99, functions=C99.functions | known, vector_bytes=vector_bytes))


def _all_kernels(module: TensorModule) -> tuple[PrimFunc, ...]:
    """Return the kernels of a module behind the procedures that they share.

    Those that only call another one are last.
    """
    kernels = sorted(module.functions, key=lambda kernel: forwarded(kernel) is not None)
    return (*procedures(kernels), *kernels)


class KernelText(NamedTuple):
    """A kernel, and its function in C."""

    kernel: PrimFunc
    text: str

    @property
    def declaration(self) -> str:
        """The head of the function alone."""
        return declaration(self.text)


def print_kernels(module: TensorModule, functions: Functions) -> Iterator[KernelText]:
    """Print each kernel of a module; those that others call come first.

    Raises:
        UnsupportedError: A kernel uses an operation that C has not.
    """
    rules = {**RULES, **module.rules}
    for kernel in _all_kernels(module):
        vector_types = _takes_vector_types(kernel, functions.spelling.vector_bytes)
        flat = expand_intrinsics(_flat(kernel, vector_types=vector_types), rules)
        yield KernelText(kernel, print_kernel(flat, functions, vector_types=vector_types))


def print_sources(
    module: TensorModule,
    face: Interface,
    header: str,
    region: RegionCall | None = None,
) -> str:
    """Return the text; it includes the named header, ``<math.h>``, and headers of intrinsics.

    Args:
        module: What the backend compiles.
        face: The model's face in C.
        header: Name of its header.
        region: Writes the call of a region whose function the program has.

    Raises:
        UnsupportedError: A kernel uses an operation that C has not.
    """
    functions = new_functions(module)
    kernels = list(print_kernels(module, functions))
    run = print_run(module.plan, face, functions, region)
    procedures = print_procedures(called(kernel for kernel, _ in kernels))
    text = (*procedures, *functions.texts.values(), *(text for _, text in kernels), *run)
    return source_text(header, KERNEL, text)


def print_run(
    plan: CallPlan, face: Interface, functions: Functions, region: RegionCall | None = None
) -> tuple[str, ...]:
    """Return the functions behind the kernels: what computes sizes, and what runs the model."""
    sizes = _plan_sizes(plan, functions, is_static=face.is_bounded)
    frame = None if plan.open is None or not face.is_bounded else CFrame(functions, plan.open)
    return (*sizes, face.run(region, frame))


def source_text(header: str, macros: str, parts: Iterable[str]) -> str:
    """Return a source: ``parts`` behind what they include, and how their kernels begin."""
    head = f'#include "{header}"\n\n#include <math.h>\n\n{macros}'
    return "\n".join([head, *(part for part in parts if part)])


def _plan_sizes(plan: CallPlan, functions: Functions, *, is_static: bool) -> list[str]:
    """Return the functions that compute the sizes of a plan: of inputs, then of each stage."""
    if plan.open is None:
        return []
    numbers = range(1, len(plan.open.stages) + 1)
    stages = [print_stage_sizes(plan, plan.open, stage, functions) for stage in numbers]
    first = print_plan_sizes(plan, functions, is_static=is_static)
    return [first, *([CHECKED_SIZES] if stages else []), *stages]
