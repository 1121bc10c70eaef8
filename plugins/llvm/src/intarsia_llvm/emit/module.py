# SPDX-License-Identifier: Apache-2.0
"""LLVM modules from a tensor module: for a process that loads them, or for a program.

LLVM's time grows with its input, so kernels state nothing twice: rows without gaps are one row
(``positions.py``), a block reads an element once (``writer.py``), and parts of a loop have one size
where they can (``equal_part_size``), since a smaller last one is a loop of its own. Sums in
registers start from a pointer of unknown origin (``Writer.opaque``): strength reduction would
analyze all loops around it, for half of the time of code generation, and come to the same code. On
x86 it does not know how loops count, but for those that sum.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct, field

from intarsia_ir.tir.forward import forwarded, procedures
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.intrinsic import Intrinsic, IntrinsicRule
from intarsia_ir.tir.module import TensorModule
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.passes.vectorize import vectorize
from intarsia_loops.codegen.c_interface import Interface
from intarsia_runtime.artifact.plan import PLAN_STAMP, calls_open_regions, plan_stamp

from ..intrinsics.expand import RULES, expand_intrinsics
from ..machine import CodegenMachine
from ..optimize import SCHEDULED
from ..target import is_x86
from .byte_tables import with_byte_tables
from .checks import CHECK_TEXT, ModuleConstants
from .entry import emit_main, emit_wrapper
from .kernels import emit_kernel
from .open_sizes import emit_plan_sizes
from .program import emit_run, emit_weights
from .scheduled import is_scheduled
from .steps import RUN_OPEN_STEPS_TEXT, RUN_STEPS_TEXT
from .threads import threads_text
from .writer import Declarations

Rules: TypeAlias = Mapping[Intrinsic, IntrinsicRule]
"""What computes a machine function, by the function."""

PART_TEXT = 64 << 10
"""Characters of kernels that LLVM compiles on their own: some 0.05 s of its time."""


def emit_parts(
    module: TensorModule, model: CodegenMachine, threads: int, least: int
) -> Iterator[str]:
    """Yield LLVM IR of all kernels and exported functions, in modules that LLVM compiles alone.

    Which kernel is in which module depends on the kernels only. A linker joins the modules; what
    they need of each other is hidden from everybody else. If there are several, the second has the
    exported functions, which take longest, and the others have kernels alone.

    Args:
        module: Kernels and the call plan.
        model: The machine.
        threads: Threads of parallel loops; 0 leaves it to who runs the code.
        least: Characters of kernels that make a module, when more kernels follow.
    """
    own = [function for function in module.functions if forwarded(function) is None]
    own = [*procedures(own), *own]
    for number, part in enumerate(_kernel_parts(own, {**RULES, **module.rules}, model, least)):
        if len(part.texts) == len(own):
            yield _exported(module, model, threads, part)
            return
        yield _text(module.name, model, (_PARALLEL, *part.texts), part)
        if number == 0:
            kernels = _Part(_declarations(model), [_declared(f) for f in own])
            yield _exported(module, model, threads, kernels)


class _Part(Struct):
    """Kernels of one LLVM module.

    Attributes:
        declarations: What they use of others.
        texts: Their functions.
        size: Characters of the texts.
        is_scheduled: Whether all of them are.
        names: Their names.
    """

    declarations: Declarations
    texts: list[str] = field(default_factory=list[str])
    size: int = 0
    is_scheduled: bool = True
    names: set[str] = field(default_factory=set[str])

    def add(self, function: PrimFunc, linkage: str, *, scheduled: bool) -> None:
        """Write a kernel of machine functions; ``scheduled`` is :func:`.is_scheduled`."""
        self.is_scheduled = self.is_scheduled and scheduled
        self.texts.append(emit_kernel(function, self.declarations, linkage, scheduled=scheduled))
        self.size += len(self.texts[-1])
        self.names.add(function.name)

    @property
    def declared(self) -> list[str]:
        """Declarations of what they use of others."""
        procedures = self.declarations.procedures
        elsewhere = [text for name, text in procedures.items() if name not in self.names]
        return sorted([*self.declarations.lines.values(), *elsewhere])

    def merge(self, other: _Part) -> None:
        """Take over the kernels of another part."""
        self.texts += other.texts
        self.size += other.size
        self.is_scheduled = self.is_scheduled and other.is_scheduled
        self.names |= other.names
        self.declarations.lines.update(other.declarations.lines)
        self.declarations.procedures.update(other.declarations.procedures)


def _kernel_parts(
    functions: Iterable[PrimFunc], rules: Rules, model: CodegenMachine, least: int
) -> Iterator[_Part]:
    """Write all kernels, a part at a time.

    Kernels that LLVM has to vectorize have parts of their own, since its passes for them take twice
    as long over all others; unless all kernels together are too little for two parts.
    """
    is_single = True
    parts = {is_fast: _Part(_declarations(model)) for is_fast in (True, False)}
    for function in functions:
        ready = _ready(function, rules, model)
        is_fast = is_scheduled(ready)
        if parts[is_fast].size >= least:
            yield parts[is_fast]
            is_single = False
            parts[is_fast] = _Part(_declarations(model))
        parts[is_fast].add(ready, "hidden", scheduled=is_fast)
    first, last = parts.values()
    if (is_single and first.size + last.size < least) or not first.texts:
        first.merge(last)
    elif last.texts:
        yield last
    yield first


def _ready(function: PrimFunc, rules: Rules, model: CodegenMachine) -> PrimFunc:
    """Return a kernel of vectors and machine functions."""
    if forwarded(function) is not None:
        return function
    function = simplify(function)
    if model.byte_tables:
        function = with_byte_tables(function)
    return expand_intrinsics(vectorize(function), rules)


def _exported(module: TensorModule, model: CodegenMachine, threads: int, kernels: _Part) -> str:
    """Return a module of the exported functions, and of kernels or their declarations."""
    statics, declarations = ModuleConstants(), kernels.declarations
    shared = {forwarded(function) for function in module.functions}
    own = [function for function in module.functions if function.name not in shared]
    texts = [_unoptimized(emit_wrapper(function, statics, declarations)) for function in own]
    main = emit_main(module, statics, declarations)
    is_short = len(main) < _LONG and module.plan.open is None
    texts.append(main if is_short else _unoptimized(main))
    for function in module.functions:
        if forwarded(function) is not None:
            texts.append(emit_kernel(function, declarations, "internal", scheduled=True))
    texts += [] if module.plan.open is None else [emit_plan_sizes(module.plan, declarations)]
    stamp = f"@{PLAN_STAMP} = constant i64 {plan_stamp(module.plan)}"
    steps = (RUN_STEPS_TEXT, *((RUN_OPEN_STEPS_TEXT,) if calls_open_regions(module.plan) else ()))
    frame = (threads_text(threads, model.triple), CHECK_TEXT, *steps, stamp)
    return _text(module.name, model, (*frame, *statics.lines, *kernels.texts, *texts), kernels)


def _unoptimized(text: str) -> str:
    """Have LLVM compile a function without optimizing it, as it only calls kernels.

    That takes half of the time. For one block of 100,000 instructions its passes take superlinear
    time, to save some loads. With open sizes they have two or three times as many instructions:
    it takes 60 ms instead of 71 for those of a decoder.
    """
    return text.replace(_ATTRIBUTES, f" noinline optnone{_ATTRIBUTES}", 1)


def emit_module(module: TensorModule, model: CodegenMachine, threads: int) -> str:
    """Return LLVM IR of all kernels and exported functions in one module."""
    (text,) = emit_parts(module, model, threads, sys.maxsize)
    return text


def emit_program(module: TensorModule, face: Interface, model: CodegenMachine) -> str:
    """Return LLVM IR text of all kernels and of the function that a program calls.

    Args:
        module: Kernels, the call plan, and the weights.
        face: Names what the program sees.
        model: The machine.
    """
    rules = {**RULES, **module.rules}
    part = _Part(_declarations(model, serial=True))
    for function in module.functions:
        ready = _ready(function, rules, model)
        part.add(ready, "internal", scheduled=is_scheduled(ready))
    run, weights = emit_run(face, part.declarations), emit_weights(face, module.context.constants)
    return _text(face.prefix, model, (*part.texts, run, weights), part)


_LONG = 1 << 18  # characters of a function that calls kernels: a thousand calls
_ATTRIBUTES = " #0 {"
_PARALLEL = "declare hidden void @intarsia.parallel(ptr, ptr, i64, i1)"


def _declared(function: PrimFunc) -> str:
    """Declare a kernel that another module has."""
    types = [*("ptr" for _ in function.params), *("i64" for _ in function.sizes)]
    return f"declare hidden void @{function.name}({', '.join(types)})"


def _text(name: str, model: CodegenMachine, parts: Iterable[str], kernels: _Part) -> str:
    tuned = f' "tune-cpu"="{model.tune}"' if model.tune else ""
    bits = 32 * model.lanes
    return "\n".join(
        [
            f'source_filename = "{name}"',
            f'target triple = "{model.triple}"',
            *parts,
            *kernels.declared,
            *((SCHEDULED,) if kernels.is_scheduled else ()),
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" '
            f'"min-legal-vector-width"="{bits}"{tuned} }}',
            "",
        ]
    )


def _declarations(model: CodegenMachine, *, serial: bool = False) -> Declarations:
    x86 = is_x86(model.triple)
    fma = not model.bare and (not x86 or "+fma" in model.features.split(","))
    return Declarations(
        model.half,
        model.bare,
        model.scale,
        rounds=x86,
        packs=model.packed_lanes,
        byte_tables=model.byte_tables,
        narrows=model.signed_pairs,
        fma=fma,
        bfloat=model.bfloat,
        serial=serial or model.bare,
        hides_counters=x86,
    )
