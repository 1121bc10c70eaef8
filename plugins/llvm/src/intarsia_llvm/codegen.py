# SPDX-License-Identifier: Apache-2.0
"""The backend's code generator: a tensor module to machine code that a process loads."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

from intarsia.plugin.backend import Target
from intarsia_ir.tir.module import TensorModule
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.errors import UnsupportedError

from .compile_pool import compile_objects
from .emit.module import PART_TEXT, emit_module, emit_parts
from .link import check_loadable, has_linker, link, linker_text
from .optimize import llvm_version
from .program import package
from .target import LlvmOptions, host_triple, machine

_NEEDED = MappingProxyType(
    {"bf16": "AMX, AVX512-BF16 or BFMMLA", "fp16": "AArch64 with float16 arithmetic"}
)
_KERNELS_OF_PART = 3  # of 20 to 60 KB, nearly always


def _warn_of_mode(options: LlvmOptions) -> None:
    """Say where a mode of arithmetic that the user allows changes nothing."""
    if options.fpmath_mode != "strict" and not machine(options).follows_mode:
        warnings.warn(
            f"'-fpmath-mode={options.fpmath_mode}' changes nothing for '{options.mcpu}':"
            f" it needs {_NEEDED[options.fpmath_mode]}",
            stacklevel=2,
        )


def tir_codegen(module: TensorModule, target: Target[LlvmOptions]) -> CompiledUnit:
    """Compile all kernels of ``module`` and its call plan.

    The unit is a shared library; without a linker for this machine, an object file; for runtime
    ``c``, an object file and a header.

    Raises:
        ToolchainError: LLVM or the linker fails.
        UnsupportedError: A kernel uses an operation that has no machine code; or the runtime and
            the machine do not go together.
    """
    options = target.options
    _warn_of_mode(options)
    if module.context.freestanding:
        # A tag of hardware says how many threads there are, and not that the program uses them.
        who = dict(target.origins).get("num-threads", "")
        return package(
            module, replace(options, num_threads=0) if who.startswith("tag ") else options
        )
    model = machine(options)
    if model.bare:
        raise UnsupportedError(
            f"no process loads code for {model.triple}, which has no operating system",
            hint="write an object for a program of yours: --runtime c",
        )
    check_loadable(model.triple)
    threads = options.num_threads
    if has_linker(model.triple):
        texts: Iterable[str] = emit_parts(module, model, threads, PART_TEXT)
        expected = len(module.functions) // _KERNELS_OF_PART
    else:
        texts, expected = (emit_module(module, model, threads),), 1
    objects = compile_objects(texts, model, options.opt_level, expected=expected)
    linked = link(objects, model)
    return CompiledUnit(
        name=module.name,
        loader=linked.loader,
        format=linked.format,
        files=linked.files,
        cpu_features=model.cpu_features,
        versions={"llvm": llvm_version()},
    )


def llvm_text(module: TensorModule, options: LlvmOptions) -> str:
    """Return the LLVM IR of ``module`` before LLVM's optimizer, in one piece."""
    return emit_module(module, machine(options), options.num_threads)


def environment_version() -> str:
    """Return what besides its own code a build depends on: LLVM, and what links."""
    return f"{llvm_version()}, {linker_text(host_triple())}"
