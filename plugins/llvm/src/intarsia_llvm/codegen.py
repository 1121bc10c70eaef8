# SPDX-License-Identifier: Apache-2.0
"""The backend's code generator: a tensor module to a shared library."""

from __future__ import annotations

from dataclasses import replace

from intarsia.artifact.unit import SHARED_LIBRARY, CompiledUnit
from intarsia.lower.kernels import TensorModule
from intarsia.target.target import Target
from intarsia.tir.passes.simplify import simplify
from intarsia.tir.passes.vectorize import vectorize

from .emit.module import emit_module
from .intrinsics.expand import RULES, expand_intrinsics
from .link import link_shared
from .optimise import compile_object
from .target import LlvmOptions, machine


def tir_codegen(module: TensorModule, target: Target) -> CompiledUnit:
    """Compile all kernels of ``module`` and its call plan into ``lib.so``.

    Raises:
        ToolchainError: LLVM or the linker fails.
        UnsupportedError: A kernel uses an operation that has no machine code.
    """
    options: LlvmOptions = target.options
    model = machine(options)
    code = compile_object(llvm_text(module, options), model, options.opt_level)
    return CompiledUnit(
        name=module.name,
        loader=SHARED_LIBRARY,
        files={"lib.so": link_shared(code, model.triple)},
        cpu_features=model.cpu_features,
        versions={"llvm": llvm_version()},
    )


def llvm_text(module: TensorModule, options: LlvmOptions) -> str:
    """Return the LLVM IR of ``module`` before LLVM's optimiser."""
    model = machine(options)
    rules = {**RULES, **module.rules}
    functions = tuple(
        expand_intrinsics(vectorize(simplify(function)), rules) for function in module.functions
    )
    return emit_module(
        replace(module, functions=functions),
        triple=model.triple,
        threads=options.num_threads,
        vector_bits=32 * model.lanes,
        tune=model.tune,
        half=model.half,
    )


def llvm_version() -> str:
    """Return the version of LLVM inside llvmlite, e.g. ``22.1.0``."""
    from llvmlite import binding  # an SDK: loaded when code is generated

    return ".".join(str(part) for part in binding.llvm_version_info)
